// Exporting is the demo with exporters: its stack's run can be scraped by Prometheus,
// or sent to a collector. It is a module of its own, for what exporters require is
// nothing that a user of the stack should have to download.
//
//	make demo ARGS="-prometheus 127.0.0.1:9464"
//	make demo ARGS="-serve 127.0.0.1:8088 -otlp http://127.0.0.1:4318"
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/watertight-go/watertight/cmd/demo/internal/scene"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(scene.Main(ctx, os.Args[1:], os.Stdout, os.Stderr, export))
}
