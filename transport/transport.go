package transport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-cleanhttp"
	"golang.org/x/sync/semaphore"

	"github.com/watertight-go/watertight/cache"
)

// Transport is an http.RoundTripper that keeps one slow or dead dependency from
// taking its callers down. It is made by New and safe for concurrent use. See the
// package documentation for its layers.
type Transport struct {
	base      http.RoundTripper
	pooled    *http.Transport // base, or what is inside of it
	around    []Middleware    // of pooled, the outermost first
	cache     *cache.Cache
	memory    bool // the store is a *cache.Memory, which does not block
	observer  Observer
	logs      logs
	permits   *semaphore.Weighted // of the whole process; nil: no bound
	limit     int64               // of permits
	hosts     hostMap
	policies  policies
	epoch     time.Time // of the clock
	closed    atomic.Bool
	breakers  sync.Map // breakerPolicy, by policy
	caches    sync.Map // cacheOf, by policy
	panics    sync.Map // of functions that were configured: those that were logged
	idle      idleConns
	history   history
	guards    guards
	real      bool // it was not made in a bubble; see keeps
	followers followers

	refreshes  refreshes
	done       chan struct{} // closed by Close
	detach     func()
	detachOnce sync.Once
}

// New returns a Transport, or every problem of the configuration at once.
func New(c Config) (*Transport, error) {
	t := &Transport{
		observer: c.Observer,
		logs:     logs{to: c.Logger},
		epoch:    time.Now(),
		base:     c.Base,
		done:     make(chan struct{}),
	}
	t.hosts.seed = maphash.MakeSeed()
	t.real = t.epoch != t.epoch.Round(0) // in a bubble there is no monotonic clock
	var errs []error
	t.policies, errs = compile(c)
	if c.MaxConcurrent > 0 {
		t.permits, t.limit = semaphore.NewWeighted(int64(c.MaxConcurrent)), int64(c.MaxConcurrent)
	}
	t.hosts.max = cmp.Or(c.MaxHosts, defaultMaxHosts)
	t.idle.max = int64(cmp.Or(c.MaxIdleConns, defaultMaxIdleConns))
	if t.base == nil {
		t.base = cleanhttp.DefaultPooledTransport()
	}
	p, around, err := unwrap(t.base)
	if err != nil {
		errs = append(errs, err)
	}
	if p, ok := p.(*http.Transport); ok {
		if p == nil {
			errs = append(errs, errors.New("Base: a nil *http.Transport: must be nil itself, or a transport"))
		}
		t.pooled, t.around = p, around
	}
	store := c.Store
	if store == nil {
		m, err := cache.NewMemory(cache.Config{})
		if err != nil {
			errs = append(errs, err)
		}
		store = m
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("watertight: %w", errors.Join(errs...))
	}
	t.cache = cache.New(store)
	_, t.memory = store.(*cache.Memory)
	if a, ok := t.observer.(Attacher); ok {
		t.attach(a)
	}
	return t, nil
}

// Must is New for configurations that are known to be right: it panics if err is
// not nil.
func Must(t *Transport, err error) *Transport {
	if err != nil {
		panic(err)
	}
	return t
}

// RoundTrip does one exchange through all layers. It follows the contract of
// http.RoundTripper: the request is not changed, its body is always closed, and
// a response is never turned into an error.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	h, now, err := t.enter(req)
	switch {
	case err != nil:
		closeBody(req)
		return nil, err
	case h == nil:
		return t.base.RoundTrip(req) // its error, or its registered protocol
	}
	defer h.release()
	return h.do(req, now)
}

// enter is the state of a request's host, acquired, and the time; or why there is none;
// or neither, for what is the base's alone.
//
//go:noinline
func (t *Transport) enter(req *http.Request) (h *host, now time.Duration, err error) {
	if t.closed.Load() || t.base == nil {
		return nil, 0, &Error{Kind: ErrClosed, Host: hostOf(req)} // or it was not made by New
	}
	if req.URL == nil || req.URL.Host == "" || req.URL.Scheme != "http" && req.URL.Scheme != "https" {
		return nil, 0, nil
	}
	if err := gone(req.Context(), req); err != nil {
		return nil, 0, err
	}
	now = t.now()
	h, err = t.host(req.URL, now)
	return h, now, err
}

// gone is the error of a call that its caller has ended, as net/http words it,
// or nil.
func gone(ctx context.Context, req *http.Request) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if cancelled(req) {
		return errRequestCanceled
	}
	return nil
}

// errRequestCanceled is the error for the legacy Request.Cancel.
var errRequestCanceled = errors.New("net/http: request canceled")

// cancelled reports whether the legacy Request.Cancel was closed.
func cancelled(req *http.Request) bool {
	if req.Cancel == nil {
		return false
	}
	select {
	case <-req.Cancel:
		return true
	default:
		return false
	}
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
}

// hostOf is the host of a request as errors name it; empty where there is none.
func hostOf(req *http.Request) string {
	if req.URL == nil || req.URL.Host == "" {
		return ""
	}
	k, err := keyOf(req.URL)
	if err != nil {
		return ""
	}
	return k.String()
}

// Client returns an http.Client that uses the Transport. It has no Timeout of its
// own: Timeout.Total bounds each call, and a Client.Timeout below
// Breaker.SlowCall would make hangs look like callers who left.
func (t *Transport) Client() *http.Client { return &http.Client{Transport: t} }

// CloseIdleConnections closes the idle connections of all hosts. It is what
// http.Client.CloseIdleConnections calls.
func (t *Transport) CloseIdleConnections() {
	for h := range t.hosts.all() {
		h.closeIdle()
	}
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// Close refuses further calls with ErrClosed and closes idle connections. Calls
// in flight run to their end. It always returns nil.
func (t *Transport) Close() error {
	t.closed.Store(true)
	t.refreshes.close()
	t.CloseIdleConnections()
	t.detachOnce.Do(func() {
		if t.done != nil {
			close(t.done)
		}
		if t.detach != nil {
			t.detach()
		}
	})
	return nil
}

// Done is closed by Close, for what follows a Transport until it ends.
func (t *Transport) Done() <-chan struct{} { return t.done }

// now reads the Transport's monotonic clock.
func (t *Transport) now() time.Duration { return time.Since(t.epoch) }

// wall is the time of day at a reading of the clock.
func (t *Transport) wall(at time.Duration) time.Time { return t.epoch.Add(at) }

// random is uniform in [0, 1).
func random() float64 { return rand.Float64() }

var _ io.Closer = (*Transport)(nil)
