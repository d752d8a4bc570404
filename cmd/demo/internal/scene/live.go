package scene

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/watertight-go/watertight/transport"
)

// tell renews the live line once a second of the scene.
func (r *rig) tell(ctx context.Context) {
	tick := time.NewTicker(r.setting.second)
	defer tick.Stop()
	subject := slowOne
	if r.endless {
		subject = "dependencies"
	}
	r.view.print(r.view.look.dim(liveHeader + subject))
	last := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := time.Now()
		r.view.renew(r.line(now.Sub(r.record.start), r.load.recently(), now.Sub(last)))
		last = now
	}
}

const liveHeader = "    time  workers held    /mission  /ping  "

// columns is what the last column of a live line must fit in.
const columns = 79

// line is the state of the run, below liveHeader.
func (r *rig) line(at time.Duration, ended []arrival, over time.Duration) string {
	l := r.view.look
	held, of := int(r.service.held.Load()), r.setting.workers
	bar := l.bar(held, of, 10)
	if held >= of {
		bar = l.red(bar)
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
	state := r.state(label)
	if room := columns - len(liveHeader); l.terminal && len(state) > room {
		state = state[:room-3] + "..."
	}
	return fmt.Sprintf("%6.1f s  %s %3d  %8s  %5s  %s", at.Seconds(), bar, held, rate(missions), rate(pings), state)
}

// state is what is not as it should be. A scripted run is about one dependency, which
// the header names.
func (r *rig) state(label string) string {
	var all []string
	for _, name := range names {
		var words []string
		switch f := r.deps[name].fault.Load(); f.kind {
		case healthy:
		case delay:
			words = append(words, "slow")
		default:
			words = append(words, string(f.kind))
		}
		if r.stack != nil {
			for _, h := range r.stack.Host("http://" + r.deps[name].address()).Snapshot() {
				if h.State != transport.Closed {
					words = append(words, h.State.String())
				}
			}
		}
		if name == slowOne && label != "" {
			words = append(words, label)
		}
		if len(words) == 0 {
			continue
		}
		s := strings.Join(words, ", ")
		if r.endless || name != slowOne {
			s = name + " " + s
		}
		all = append(all, s)
	}
	if len(all) == 0 {
		return "ok"
	}
	return strings.Join(all, "; ")
}
