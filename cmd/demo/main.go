package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	v := &view{out: os.Stdout, look: look{unicode: true}}
	s := newSetting(1)
	if len(os.Args) > 1 {
		s = newSetting(10)
	}
	a, err := runBare(ctx, s, v)
	if err != nil {
		fmt.Println(err)
	}
	fmt.Println(a.empty.Sub(a.injected), a.peak, len(a.arrivals))
	b, err := runStack(ctx, s, v)
	if err != nil {
		fmt.Println(err)
	}
	fmt.Println(b.peak, b.probes, len(b.arrivals), b.inFlight, b.good)
	fmt.Println(b.samples)
}
