package transport

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/watertight-go/watertight/cache"
)

// mostRefreshes is how many requests refresh stored answers in the background at once.
const mostRefreshes = 16

// refreshTime is how long one may take where no limit of its host's says so.
const refreshTime = 30 * time.Second

// refreshes are requests in the background that bring stored answers up to date, one
// for each answer.
type refreshes struct {
	mu      sync.Mutex // guards what follows
	running map[refreshKey]bool
	ctx     context.Context // ends with Close
	stop    context.CancelFunc
	done    sync.WaitGroup
	closed  bool
}

type refreshKey struct {
	key       cache.Key
	partition cache.Partition
}

type refreshingKey struct{}

// refreshing reports whether a request is one that refreshes a stored answer.
func refreshing(req *http.Request) bool { return req.Context().Value(refreshingKey{}) != nil }

// take takes the place of the refresh of k, whose context ends with Close, and which
// calls release; nil if one runs already or there are too many.
func (r *refreshes) take(k refreshKey) context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || r.running[k] || len(r.running) >= mostRefreshes {
		return nil
	}
	if r.running == nil {
		r.running = map[refreshKey]bool{}
		r.ctx, r.stop = context.WithCancel(context.Background())
	}
	r.running[k] = true
	r.done.Add(1)
	return r.ctx
}

func (r *refreshes) release(k refreshKey) {
	r.mu.Lock()
	delete(r.running, k)
	r.mu.Unlock()
	r.done.Done()
}

// runs reports whether one runs.
func (r *refreshes) runs(k refreshKey) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.running[k]
}

// adopt makes a refresh of a request that nobody waits for any more; where one runs for
// the same, it is not needed. It reports false if there are too many.
func (r *refreshes) adopt(k refreshKey, of *race, cancel context.CancelFunc) bool {
	of.release = func() {}
	stopped := r.take(k)
	switch {
	case stopped != nil:
		stop := context.AfterFunc(stopped, cancel)
		of.release = func() {
			stop()
			r.release(k)
		}
	case r.runs(k):
		cancel()
	default:
		return false
	}
	return true
}

// begin refreshes what a caller is given from the store, and reports whether that is
// under way: not if there are too many.
func (r *refreshes) begin(h *host, asked *http.Request, k refreshKey) bool {
	stopped := r.take(k)
	if stopped == nil {
		return r.runs(k)
	}
	h.counts.refreshes.Add(1)
	go func() {
		defer r.release(k)
		ctx, cancel := context.WithTimeout(context.WithValue(context.WithoutCancel(asked.Context()), refreshingKey{}, true), refreshTime)
		defer cancel()
		defer context.AfterFunc(stopped, cancel)()
		h.t.survive("a refresh", func() { h.t.refresh(ctx, asked) })
	}()
	return true
}

// refresh asks for an answer to store.
func (t *Transport) refresh(ctx context.Context, asked *http.Request) {
	req := asked.Clone(ctx)
	req.Method, req.Cancel, req.Response = http.MethodGet, nil, nil
	for _, name := range [...]string{"Cache-Control", "Pragma", "Range", "If-Range", "If-None-Match", "If-Modified-Since"} {
		delete(req.Header, name)
	}
	resp, err := t.RoundTrip(req)
	if err != nil {
		return
	}
	t.readOff(resp)
}

// readOff reads what is to be stored to its end.
func (t *Transport) readOff(resp *http.Response) {
	_, _ = io.CopyN(io.Discard, resp.Body, t.cache.MaxEntryBytes()+1)
	_ = resp.Body.Close()
}

// close ends those that are under way, and waits for them.
func (r *refreshes) close() {
	r.mu.Lock()
	r.closed = true
	if r.stop != nil {
		r.stop()
	}
	r.mu.Unlock()
	r.done.Wait()
}
