// E2e plays the demo's outage before a real Prometheus, a real Alertmanager and a
// real browser, and checks what an owner would see of it:
//
//	make e2e
//
// Everything runs on loopback, in a directory that is removed, and is stopped at the
// end, whatever the end is. What is missing is installed where that is allowed.
//
// It exits with 0 if every claim held, or if the parts are missing and may not be
// installed, which it says; with 1 otherwise.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// Bounds, of the run and of what may come before it.
const (
	longest        = 150 * time.Second
	longestInstall = 5 * time.Minute
)

func main() { os.Exit(command()) }

// command returns the exit code.
func command() int {
	root := flag.String("root", "../../..", "the repository")
	keep := flag.String("keep", "", "write logs, data and a picture of the status page into this directory, and leave them there")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop() // not before: a second signal would leave behind what was started
	switch err := run(ctx, *root, *keep); {
	case errors.Is(err, errMissing):
		fmt.Println("e2e: not run:", err)
	case err != nil:
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	return 0
}

// run installs, plays and checks.
func run(ctx context.Context, root, keep string) error {
	installing, cancel := context.WithTimeout(ctx, longestInstall)
	defer cancel()
	if err := install(installing); err != nil {
		return err
	}
	dir, err := keep, os.MkdirAll(keep, 0o755)
	if keep == "" {
		dir, err = os.MkdirTemp("", "watertight-e2e-")
		defer func() { _ = os.RemoveAll(dir) }()
	}
	if err != nil {
		return err
	}
	ctx, cancel = context.WithTimeout(ctx, longest)
	defer cancel()
	start := time.Now()
	c := &claims{}
	f := newFleet(ctx, dir)
	err = newScene(root, f, c).play()
	f.stop()
	switch failed := c.failed(); {
	case ctx.Err() != nil:
		return fmt.Errorf("stopped after %s: %w", short(time.Since(start)), context.Cause(ctx))
	case err != nil:
		return err
	case failed > 0:
		return fmt.Errorf("%d of %d claims did not hold", failed, len(c.all))
	}
	fmt.Printf("\nAll %d claims held, in %s.\n", len(c.all), short(time.Since(start)))
	return nil
}
