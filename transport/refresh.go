package transport

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/watertight-go/watertight/cache"
)

// mostRefreshes is how many requests refresh stored answers of one host in the background
// at once.
const mostRefreshes = 16

// refreshTime is how long one may take, whatever the limits of its host.
const refreshTime = 30 * time.Second

// refreshes are requests in the background that bring stored answers up to date, one
// for each answer.
type refreshes struct {
	mu      sync.Mutex // guards what follows
	running map[cache.Flight]bool
	of      map[*host]int   // how many run
	ctx     context.Context // ends with Close
	stop    context.CancelFunc
	done    sync.WaitGroup
	closed  bool
}

type refreshingKey struct{}

// behind is the context of what goes on when a call is over: its caller's values, but for
// his hooks, which do not run any more; and a mark.
type behind struct {
	context.Context
	key, mark any
}

func (b behind) Value(key any) any {
	switch key {
	case traceKey:
		return nil
	case b.key:
		return b.mark
	}
	return b.Context.Value(key)
}

// refreshing reports whether a request is one that refreshes a stored answer.
func refreshing(req *http.Request) bool { return req.Context().Value(refreshingKey{}) != nil }

// take takes the place of the refresh of k, whose context ends with Close, and which
// calls release; nil if one runs already or there are too many.
func (r *refreshes) take(h *host, k cache.Flight) context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || r.running[k] || r.of[h] >= mostRefreshes {
		return nil
	}
	if r.running == nil {
		r.running, r.of = map[cache.Flight]bool{}, map[*host]int{}
		r.ctx, r.stop = context.WithCancel(context.Background())
	}
	r.running[k] = true
	r.of[h]++
	r.done.Add(1)
	return r.ctx
}

func (r *refreshes) release(h *host, k cache.Flight) {
	r.mu.Lock()
	delete(r.running, k)
	if r.of[h]--; r.of[h] == 0 {
		delete(r.of, h)
	}
	r.mu.Unlock()
	r.done.Done()
}

// runs reports whether one runs.
func (r *refreshes) runs(k cache.Flight) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.running[k]
}

// adopt makes a refresh of a request that nobody waits for any more; beside another for
// the same it counts as that one. It reports false if there are too many.
func (r *refreshes) adopt(h *host, k cache.Flight, of *race, cancel context.CancelFunc) bool {
	release := func() { r.release(h, k) }
	stopped := r.take(h, k)
	if stopped == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.closed || !r.running[k] {
			return false
		}
		r.done.Add(1)
		stopped, release = r.ctx, r.done.Done
	}
	stop, late := context.AfterFunc(stopped, cancel), time.AfterFunc(refreshTime, cancel)
	of.release = func() {
		stop()
		late.Stop()
		release()
	}
	return true
}

// begin refreshes what a caller is given from the store, and reports whether that is
// under way: not if there are too many.
func (r *refreshes) begin(h *host, asked *http.Request, k cache.Flight) bool {
	stopped := r.take(h, k)
	if stopped == nil {
		return r.runs(k)
	}
	h.counts.others().refreshes.Add(1)
	ctx, cancel := context.WithTimeout(behind{context.WithoutCancel(asked.Context()), refreshingKey{}, true}, refreshTime)
	req := asked.Clone(ctx) // now: it is the caller's again when his call returns
	req.Method, req.Cancel, req.Response = http.MethodGet, nil, nil
	for _, name := range [...]string{"Cache-Control", "Pragma", "Range", "If-Range", "If-None-Match", "If-Modified-Since"} {
		delete(req.Header, name)
	}
	go func() {
		defer r.release(h, k)
		defer cancel()
		defer context.AfterFunc(stopped, cancel)()
		h.t.survive("a refresh", func() {
			if resp, err := h.t.RoundTrip(req); err == nil {
				h.t.readOff(resp)
			}
		})
	}()
	return true
}

// readOff reads what is to be stored to its end.
func (t *Transport) readOff(resp *http.Response) {
	_, _ = io.CopyN(io.Discard, resp.Body, t.cache.MaxEntryBytes()+1)
	_ = resp.Body.Close()
}

// closeTime is how long Close waits for what it has ended: a base may not heed its
// context, and a refresh may be what calls Close.
const closeTime = time.Second

// close ends those that are under way, and waits for them.
func (r *refreshes) close() {
	r.mu.Lock()
	r.closed = true
	stop := r.stop
	r.mu.Unlock()
	if stop == nil { // there was never one
		return
	}
	stop()
	over := make(chan struct{})
	go func() {
		r.done.Wait()
		close(over)
	}()
	await(over, closeTime)
}
