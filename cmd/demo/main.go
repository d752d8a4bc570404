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
	os.Exit(scene.Main(ctx, os.Args[1:], os.Stdout, os.Stderr, nil))
}
