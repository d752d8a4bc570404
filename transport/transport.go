package transport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-cleanhttp"
	"golang.org/x/sync/semaphore"

	"github.com/watertight-go/watertight/cache"
	"github.com/watertight-go/watertight/policy"
)

// Config configures a Transport. The zero value gives every host policy.Default.
type Config struct {
	// Default is the policy of hosts that Hosts does not name. Zero:
	// policy.Default().
	Default policy.Policy

	// Hosts maps exact names ("api.example"), names with a port
	// ("api.example:8443") or suffixes ("*.example") to policies; the most
	// specific wins. An entry replaces Default, it is not merged with it: start
	// from policy.Default() or policy.Service().
	Hosts map[string]policy.Policy

	// Base does the exchange. An *http.Transport is cloned for each host, so that
	// a dead host's pool can be retired alone; its settings are kept, but for its
	// bounds on idle connections (see MaxIdleConns and Bulkhead.MaxConcurrent) and
	// its TLSHandshakeTimeout, where the policy has one. Any
	// other RoundTripper is used as it is, with the limits that a context can
	// enforce. Nil: go-cleanhttp's pooled transport, which honours the proxy
	// environment and speaks HTTP/2.
	Base http.RoundTripper

	// Store keeps responses for the fallback. Nil: 64 MiB of memory, 1 MiB an
	// entry.
	Store cache.Store

	// Observer is told what happens. Nil: nobody is.
	Observer Observer

	// Logger gets the breakers' transitions, and what else an owner must know.
	// Nil: slog.Default() at the time; silence it with
	// slog.New(slog.DiscardHandler).
	Logger *slog.Logger

	// MaxConcurrent bounds the calls of all hosts together. Zero: no bound.
	MaxConcurrent int

	// MaxHosts bounds how many hosts have a state of their own. Idle ones make
	// room for new ones; a host whose breaker is not closed, or that has calls in
	// flight, never does. Zero: 10,000.
	MaxHosts int

	// MaxIdleConns bounds the idle connections of all hosts together. Zero: 256.
	MaxIdleConns int
}

const (
	defaultMaxHosts     = 10_000
	defaultMaxIdleConns = 256
)

// Transport is an http.RoundTripper that keeps one slow or dead dependency from
// taking its callers down. It is made by New and safe for concurrent use. See the
// package documentation for its layers.
type Transport struct {
	base     http.RoundTripper
	pooled   *http.Transport // base, where that is one
	cache    *cache.Cache
	observer Observer
	logger   *slog.Logger
	permits  *semaphore.Weighted // of the whole process; nil: no bound
	limit    int64               // of permits
	hosts    hostMap
	policies policies
	epoch    time.Time // of the clock
	closed   atomic.Bool
	panics   sync.Map // of functions that were configured: those that were logged
	idle     idleConns
}

// New returns a Transport, or every problem of the configuration at once.
func New(c Config) (*Transport, error) {
	t := &Transport{
		observer: c.Observer,
		logger:   c.Logger,
		epoch:    time.Now(),
		base:     c.Base,
	}
	t.hosts.seed = maphash.MakeSeed()
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
	if p, ok := t.base.(*http.Transport); ok {
		if p == nil {
			errs = append(errs, errors.New("Base: a nil *http.Transport: must be nil itself, or a transport"))
		}
		t.pooled = p
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

// compile validates a configuration and makes its policies ready to be looked up.
func compile(c Config) (policies, []error) {
	var ps policies
	var errs []error
	number := func(path string, n, def int) {
		if n < 0 {
			errs = append(errs, &policy.FieldError{Path: path, Value: n, Want: fmt.Sprintf("0 (%s) or a positive number", zeroMeans(def))})
		}
	}
	number("MaxConcurrent", c.MaxConcurrent, 0)
	number("MaxHosts", c.MaxHosts, defaultMaxHosts)
	number("MaxIdleConns", c.MaxIdleConns, defaultMaxIdleConns)

	check := func(path string, p *policy.Policy) {
		if err := p.Validate(); err != nil {
			errs = append(errs, prefixed(path, err)...)
		}
		if c.MaxConcurrent > 0 && p.Bulkhead.MaxConcurrent > c.MaxConcurrent {
			errs = append(errs, &policy.FieldError{Path: path + "Bulkhead.MaxConcurrent", Value: p.Bulkhead.MaxConcurrent,
				Want: fmt.Sprintf("at most Config.MaxConcurrent (%d)", c.MaxConcurrent)})
		}
		if b := p.Breaker; c.MaxConcurrent > 0 && p.Bulkhead.MaxConcurrent == 0 && b.MinCalls > c.MaxConcurrent && (b.FailureRate > 0 || b.SlowRate > 0 && b.SlowCall > 0) {
			errs = append(errs, &policy.FieldError{Path: path + "Breaker.MinCalls", Value: b.MinCalls,
				Want: fmt.Sprintf("at most Config.MaxConcurrent (%d), or a host that hangs could never be proved slow", c.MaxConcurrent)})
		}
	}
	ps.fallback = c.Default
	if isZero(c.Default) {
		ps.fallback = policy.Default()
		if b := &ps.fallback.Bulkhead; c.MaxConcurrent > 0 && b.MaxConcurrent > c.MaxConcurrent {
			b.MaxConcurrent = c.MaxConcurrent
			ps.fallback.Breaker.MinCalls = min(ps.fallback.Breaker.MinCalls, c.MaxConcurrent)
		}
	}
	check("Default.", &ps.fallback)
	seen := map[policy.HostPattern]string{}
	for _, name := range slices.Sorted(maps.Keys(c.Hosts)) {
		p := c.Hosts[name]
		pattern, err := policy.ParseHostPattern(name)
		if err == nil {
			pattern.Name, err = normalHost(pattern.Name)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("Hosts: %w", err))
			name = "?" // it may hold a password
		}
		check(fmt.Sprintf("Hosts[%q].", name), &p)
		if err != nil {
			continue
		}
		if other, ok := seen[pattern]; ok {
			errs = append(errs, fmt.Errorf("Hosts[%q]: the same host as Hosts[%q]: must be one entry", name, other))
		}
		seen[pattern] = name
		ps.patterns = append(ps.patterns, hostPolicy{pattern, &p})
	}
	slices.SortStableFunc(ps.patterns, func(a, b hostPolicy) int {
		switch {
		case a.pattern.MoreSpecific(b.pattern):
			return -1
		case b.pattern.MoreSpecific(a.pattern):
			return 1
		}
		return 0
	})
	return ps, errs
}

func zeroMeans(def int) string {
	if def == 0 {
		return "no bound"
	}
	return fmt.Sprint(def)
}

// prefixed puts the path of a policy before the paths of its problems.
func prefixed(path string, err error) []error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{fmt.Errorf("%s%w", path, err)}
	}
	var errs []error
	for _, e := range joined.Unwrap() {
		var f *policy.FieldError
		if errors.As(e, &f) {
			e = &policy.FieldError{Path: path + f.Path, Value: f.Value, Want: f.Want}
		}
		errs = append(errs, e)
	}
	return errs
}

// RoundTrip does one exchange through all layers. It follows the contract of
// http.RoundTripper: the request is not changed, its body is always closed, and
// a response is never turned into an error.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if t.closed.Load() || t.base == nil {
		closeBody(req)
		return nil, &Error{Kind: ErrClosed, Host: hostOf(req)} // or it was not made by New
	}
	if req.URL == nil || req.URL.Host == "" || req.URL.Scheme != "http" && req.URL.Scheme != "https" {
		return t.base.RoundTrip(req) // its error, or its registered protocol
	}
	if err := gone(req.Context(), req); err != nil {
		closeBody(req)
		return nil, err
	}
	h, err := t.host(req.URL)
	if err != nil {
		closeBody(req)
		return nil, err
	}
	defer h.release()
	return h.do(req)
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
	t.CloseIdleConnections()
	return nil
}

// now reads the Transport's monotonic clock.
func (t *Transport) now() time.Duration { return time.Since(t.epoch) }

// wall is the time of day at a reading of the clock.
func (t *Transport) wall(at time.Duration) time.Time { return t.epoch.Add(at) }

// random is uniform in [0, 1).
func random() float64 { return rand.Float64() }

var _ io.Closer = (*Transport)(nil)
