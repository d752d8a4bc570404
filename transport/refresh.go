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

// refreshes are requests in the background that bring stored answers up to date, one for each answer.
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

// begin refreshes what a caller was given stale, unless that is under way or there are too many.
func (r *refreshes) begin(h *host, asked *http.Request, e *cache.Entry) {
	t := h.t
	k := refreshKey{e.Key(), e.Partition()}
	r.mu.Lock()
	if r.closed || r.running[k] || len(r.running) >= mostRefreshes {
		r.mu.Unlock()
		return
	}
	if r.running == nil {
		r.running = map[refreshKey]bool{}
		r.ctx, r.stop = context.WithCancel(context.Background())
	}
	r.running[k] = true
	h.counts.refreshes.Add(1)
	r.done.Add(1)
	stopped := r.ctx
	r.mu.Unlock()
	go func() {
		defer r.done.Done()
		defer func() {
			r.mu.Lock()
			delete(r.running, k)
			r.mu.Unlock()
		}()
		ctx, cancel := context.WithTimeout(context.WithValue(context.WithoutCancel(asked.Context()), refreshingKey{}, true), refreshTime)
		defer cancel()
		defer context.AfterFunc(stopped, cancel)()
		t.survive("a refresh", func() { t.refresh(ctx, asked) })
	}()
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
