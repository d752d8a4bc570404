package scene

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// names are the five dependencies of /mission.
var names = []string{"areas", "crew", "telemetry", "geofences", "alerts"}

// slowOne is the dependency that the runs slow down.
const slowOne = "telemetry"

// A fault is what a dependency does instead of answering after its latency. The
// zero value is health.
type fault struct {
	kind   faultKind
	delay  time.Duration // of a delay; between the bytes of a drip
	status int           // of errors
	share  float64       // of the requests that are hit, from 0 to 1
}

type faultKind string

const (
	healthy faultKind = ""
	delay   faultKind = "delay"
	hang    faultKind = "hang"
	failing faultKind = "errors"
	resets  faultKind = "resets"
	drip    faultKind = "drip"
)

// String is the fault as a phrase.
func (f fault) String() string {
	s := ""
	switch f.kind {
	case healthy:
		return "healthy"
	case delay:
		s = fmt.Sprintf("answers in %v", f.delay)
	case hang:
		s = "hangs"
	case failing:
		s = fmt.Sprintf("answers %d", f.status)
	case resets:
		s = "resets connections"
	case drip:
		s = fmt.Sprintf("drips a byte every %v", f.delay)
	}
	if f.kind != healthy && f.share < 1 {
		s += fmt.Sprintf(" (%.0f %% of requests)", f.share*100)
	}
	return s
}

// dependency is an HTTP server whose faults are put in and taken out by hand.
type dependency struct {
	name    string
	latency time.Duration
	fault   atomic.Pointer[fault]
	server  *server
	stop    chan struct{} // closed when it must hold nothing any more

	forget bool // keeps no hits

	mu   sync.Mutex  // guards hits
	hits []time.Time // when each request came
}

func newDependency(name string, latency time.Duration) (*dependency, error) {
	d := &dependency{name: name, latency: latency, stop: make(chan struct{})}
	d.fault.Store(&fault{})
	s, err := listen(d)
	if err != nil {
		return nil, err
	}
	d.server = s
	return d, nil
}

// close lets go of every request that is held, and stops the server.
func (d *dependency) close() {
	close(d.stop)
	d.server.close()
}

// address is what those who call it know it by; see rig.dial.
func (d *dependency) address() string { return d.name + ":80" }

func (d *dependency) set(f fault) { d.fault.Store(&f) }

// seen is when the requests came.
func (d *dependency) seen() []time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.hits[:len(d.hits):len(d.hits)]
}

// between counts moments after one and up to another.
func between(all []time.Time, after, until time.Time) (n int) {
	for _, t := range all {
		if t.After(after) && !t.After(until) {
			n++
		}
	}
	return n
}

func (d *dependency) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	now := time.Now()
	if !d.forget {
		d.mu.Lock()
		d.hits = append(d.hits, now)
		d.mu.Unlock()
	}

	f := *d.fault.Load()
	if f.kind != healthy && f.share < 1 && rand.Float64() >= f.share {
		f = fault{}
	}
	body := fmt.Sprintf("{%q:%q,%q:%q}\n", "dependency", d.name, "at", now.Format(time.RFC3339Nano))
	switch f.kind {
	case hang:
		d.wait(r.Context(), nil)
	case resets:
		d.reset(w)
		return
	case delay:
		d.sleep(r.Context(), f.delay)
	default:
		d.sleep(r.Context(), d.latency)
	}
	w.Header().Set("Content-Type", "application/json")
	switch f.kind {
	case failing:
		http.Error(w, http.StatusText(f.status), f.status)
	case drip:
		for i := range len(body) {
			_, _ = w.Write([]byte{body[i]})
			_ = http.NewResponseController(w).Flush()
			d.sleep(r.Context(), f.delay)
		}
	default:
		_, _ = w.Write([]byte(body))
	}
}

func (d *dependency) sleep(ctx context.Context, delay time.Duration) {
	t := time.NewTimer(delay)
	defer t.Stop()
	d.wait(ctx, t.C)
}

// wait returns when done does. A request whose caller has gone, or whose server
// stops, is cut: to return would be to answer it.
func (d *dependency) wait(ctx context.Context, done <-chan time.Time) {
	select {
	case <-done:
		return
	case <-ctx.Done():
	case <-d.stop:
	}
	panic(http.ErrAbortHandler)
}

// reset closes the connection with an RST.
func (d *dependency) reset(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}
