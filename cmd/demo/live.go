package main

import (
	"context"
	"fmt"
	"time"

	"github.com/watertight-go/watertight/transport"
)

// tell renews the live line once a second of the scene.
func (r *rig) tell(ctx context.Context) {
	second := max(time.Duration(float64(time.Second)/r.setting.scale), 50*time.Millisecond)
	tick := time.NewTicker(second)
	defer tick.Stop()
	told := 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		ended := r.load.since(told)
		told += len(ended)
		r.view.renew(r.line(time.Since(r.record.start), ended, second))
	}
}

// line is the state of the run in less than 80 columns.
func (r *rig) line(at time.Duration, ended []arrival, over time.Duration) string {
	l := r.view.look
	held, of := int(r.service.held.Load()), r.setting.workers
	workers := fmt.Sprintf("%s %3d", l.bar(held, of, 10), held)
	if held >= of {
		workers = l.red(workers)
	}
	var missions, pings int
	label := ""
	for _, a := range ended {
		switch {
		case !a.ok:
		case a.path == "/ping":
			pings++
		default:
			missions++
			label = a.telemetry.Label
		}
	}
	rate := func(n int) string { return fmt.Sprintf("%.0f/s", float64(n)/over.Seconds()) }
	return fmt.Sprintf("%6s  workers %s  /mission %-6s /ping %-6s telemetry %s",
		seconds(at), workers, rate(missions), rate(pings), r.state(label))
}

// state is how telemetry is seen by the assembler.
func (r *rig) state(label string) string {
	s := "ok"
	switch d := r.deps[slowOne].fault.Load(); {
	case d.kind != healthy:
		s = string(d.kind)
		if d.kind == delay {
			s = "slow"
		}
	}
	if r.stack != nil {
		for _, h := range r.stack.Host(r.deps[slowOne].server.host).Snapshot() {
			if h.State != transport.Closed {
				s = h.State.String()
			}
		}
	}
	if label != "" {
		s += ", " + label
	}
	return s
}

func seconds(d time.Duration) string {
	if d < 10*time.Second {
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return fmt.Sprintf("%.0f s", d.Seconds())
}
