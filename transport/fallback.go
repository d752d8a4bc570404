package transport

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/watertight-go/watertight/cache"
	"github.com/watertight-go/watertight/policy"
)

// fallback sees the final verdict only: it keeps what may be served later, and
// serves it when nothing better can be had. It does not block: at most, a failed
// response is read to its end for a moment, so that its connection can be used again.
type fallback struct {
	next   http.RoundTripper
	h      *host
	policy *policy.Fallback
	stores bool
	fresh  bool
	cache  *cache.Cache
	window cache.Window

	flights flights

	servedAt, servedAsOf atomic.Int64 // of the last stored answer, on the clock
}

func newFallback(next http.RoundTripper, h *host) http.RoundTripper {
	p := &h.policy.Fallback
	fresh := h.policy.Cache.Fresh
	if !p.Enabled() && !fresh {
		return next
	}
	f := &h.layers.fallback
	f.next, f.h, f.policy = next, h, p
	f.stores, f.fresh = (p.Stores() || fresh) && !h.policy.Cache.Off, fresh
	asked := h.spelling
	if !h.ascii { // it is sent in another form
		asked = ""
	}
	f.cache = h.t.cacheOf(h.policy).ForHost(h.key.scheme, asked)
	f.window = cache.Window{MaxStale: p.MaxStale, StaleLimit: p.StaleLimit}
	h.fallback = f
	return f
}

// cacheOf is the cache with the rules of a policy, one for all hosts of that.
func (t *Transport) cacheOf(p *policy.Policy) *cache.Cache {
	if c, ok := t.caches.Load(p); ok {
		return c.(*cache.Cache)
	}
	of := &p.Cache
	rules := cache.Rules{Fresh: of.Fresh, Shared: of.Shared, KeyHeaders: of.KeyHeaders, LabelAll: of.LabelAll, RefreshInterval: of.RefreshInterval}
	if of.Partition != nil {
		rules.Partition = t.partition(of.Partition)
	}
	c, _ := t.caches.LoadOrStore(p, t.cache.For(rules))
	return c.(*cache.Cache)
}

func (f *fallback) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, leads, answered, err := f.before(req)
	switch {
	case answered:
		return resp, err
	case leads != nil:
		return f.lead(req, leads)
	case err == nil:
		resp, err = f.next.RoundTrip(req)
	}
	var none *flight
	return f.ended(req, resp, err, &none)
}

// before answers a request, or says whether others wait for its answer. With an error
// that is no answer it has failed before it was sent, and ended may replace that.
//
//go:noinline
func (f *fallback) before(req *http.Request) (resp *http.Response, leads *flight, answered bool, err error) {
	c := attemptOf(req).call
	if !c.reuse.begun {
		f.begin(&c.reuse, c.req, nil, c.start)
	}
	if c.reuse.stored == nil {
		if spare := f.spare(c); spare != nil {
			closeBody(req)
			return spare, nil, true, nil
		}
		if f.hurries(c) {
			resp, err = f.hurry(c)
			return resp, nil, true, err
		}
	}
	leads, err = f.collapse(c)
	if c.reuse.stored != nil {
		closeBody(req)
		c.reused(f.reused(&c.reuse))
		return c.reuse.stored, nil, true, nil
	}
	if c.reuse.header != nil {
		req.Header = c.reuse.header
	}
	return nil, leads, false, err
}

// lead is RoundTrip for a request for whose answer others wait.
func (f *fallback) lead(req *http.Request, leads *flight) (*http.Response, error) {
	defer func() {
		if leads != nil { // it has not ended, nor does it end with the body
			leads.end(failed, f.h.t.now())
		}
	}()
	resp, err := f.next.RoundTrip(req)
	return f.ended(req, resp, err, &leads)
}

// ended gives an answer to the cache, or serves something in its place.
//
//go:noinline
func (f *fallback) ended(req *http.Request, resp *http.Response, err error, leads **flight) (*http.Response, error) {
	c := attemptOf(req).call
	if err == nil && !f.policy.Status(resp.StatusCode) {
		if f.stores && !f.cache.Ignores(&c.reuse.exchange, resp, f.window) {
			resp = f.good(c, resp, leads)
		}
		return resp, nil
	}
	return f.bad(c, resp, err, leads)
}

// good gives an answer that is no failure to the cache; that may make of it what it has
// confirmed.
func (f *fallback) good(c *call, resp *http.Response, leads **flight) *http.Response {
	validated, ok := f.cache.Validated(&c.reuse.exchange, f.h.named(c.req), resp, f.window)
	if !ok {
		f.keep(c, resp, leads)
		return resp
	}
	dismiss(resp)
	validated.Request = c.req
	f.h.counts.others().validated.Add(1)
	c.reused("validated")
	how := cache.Useless
	if c.reuse.exchange.Stored() {
		how = cache.Kept
	}
	(*leads).end(how, f.h.t.now())
	return validated
}

// bad serves something in place of a failure, if there is anything.
func (f *fallback) bad(c *call, resp *http.Response, err error, leads **flight) (*http.Response, error) {
	if c.gone() != nil || c.faulty || certificateError(err) || refreshing(c.req) {
		return resp, err
	}
	instead, kind, staleness := f.instead(c.req, &c.reuse.exchange, c.opts.NoStale, int(c.sent), resp, err, f.h.t.now())
	if instead == nil {
		if err == nil && f.stores && f.fresh {
			f.keep(c, resp, leads)
		}
		return resp, err
	}
	f.h.counts.fallback(kind, f.policy.Shadow)
	event := Event{Kind: EventFallback, Layer: LayerFallback, Fallback: kind, Reason: reasonOf(resp, err),
		Staleness: staleness, Status: statusOf(resp), Err: err, Shadow: f.policy.Shadow}
	if f.policy.Shadow {
		_ = instead.Body.Close()
		c.observe(event)
		return resp, err
	}
	c.replaced = true
	if resp != nil {
		dismiss(resp)
		c.last.untrace(true)
	}
	c.observe(event)
	return instead, nil
}

// serve is a stored answer in place of one that is not waited for, if there is one, and
// may is true then.
func (f *fallback) serve(c *call, why *Error, reason string, sent bool, may func() bool) *http.Response {
	now := f.h.t.now()
	cause := cache.Failure{Err: why, Detail: reason, Forwarded: sent, At: f.h.t.wall(now)}
	stored, ok := f.cache.Serve(&c.reuse.exchange, f.h.named(c.req), cause, f.window)
	if !ok {
		return nil
	}
	if !may() {
		_ = stored.Body.Close()
		return nil
	}
	stored.Request = c.req
	staleness := f.served(stored, now)
	f.h.counts.fallback("stale", false)
	c.replaced = true
	c.observe(Event{Kind: EventFallback, Layer: LayerFallback, Fallback: "stale", Reason: reason, Staleness: staleness, Err: why})
	return stored
}

// served notes when a stored answer was served and of when it was, and returns how stale
// it is.
func (f *fallback) served(stored *http.Response, now time.Duration) time.Duration {
	info, _ := cache.FromResponse(stored)
	if !f.policy.Shadow {
		f.servedAsOf.Store(int64(now - info.Age))
		f.servedAt.Store(int64(now))
	}
	return max(-info.TTL, 0)
}

// refused is what becomes of a call that is sure to be refused: what RoundTrip
// would do, without what a call needs to go out.
func (f *fallback) refused(req *http.Request, refusal *Error, now time.Duration) (*http.Response, error) {
	stored := f.stores && (f.cache.Holds(f.h.named(req)) || req.Header["Cache-Control"] != nil) // which may be only-if-cached
	if stored || f.policy.Degraded != nil || f.policy.FailFast503 {
		return f.replaced(req, refusal, stored, now)
	}
	f.h.tellRefusal(req.Context(), refusal, false, now)
	return nil, refusal
}

// replaced serves something in place of a refusal, if there is anything.
func (f *fallback) replaced(req *http.Request, refusal *Error, stored bool, now time.Duration) (*http.Response, error) {
	var u reuse
	if stored {
		f.begin(&u, req, nil, now)
	}
	if u.stored != nil {
		f.reused(&u)
		return u.stored, nil
	}
	f.h.tellRefusal(req.Context(), refusal, false, now)
	if refreshing(req) {
		return nil, refusal
	}
	instead, kind, _ := f.instead(req, &u.exchange, callOf(req.Context()).NoStale, 0, nil, refusal, now)
	if instead == nil {
		return nil, refusal
	}
	f.h.counts.fallback(kind, f.policy.Shadow)
	if f.policy.Shadow {
		_ = instead.Body.Close()
		return nil, refusal
	}
	return instead, nil
}

// instead is the best answer that is left: stale, degraded or fail-fast.
func (f *fallback) instead(req *http.Request, x *cache.Exchange, noStale bool, sent int, resp *http.Response, err error, now time.Duration) (_ *http.Response, kind string, staleness time.Duration) {
	cause := err
	if cause == nil {
		cause = &Error{Host: f.h.name, Layer: LayerFallback, Attempts: sent, Err: fmt.Errorf("status %d", resp.StatusCode)}
	}
	if f.stores && !noStale {
		why := cache.Failure{Err: cause, Status: statusOf(resp), Detail: reasonOf(resp, err), Forwarded: sent > 0, At: f.h.t.wall(now)}
		if stored, ok := f.cache.Serve(x, req, why, f.window); ok {
			return stored, "stale", f.served(stored, now)
		}
	}
	if d := f.degraded(req, cause); d != nil {
		return d, "degraded", 0
	}
	if f.policy.FailFast503 && err != nil {
		return failFast(req, err), "fail_fast", 0
	}
	return nil, "", 0
}

// degraded asks the policy for a partial answer, and completes it.
func (f *fallback) degraded(req *http.Request, cause error) (resp *http.Response) {
	if f.policy.Degraded == nil {
		return nil
	}
	defer func() {
		if f.h.t.survived("Fallback.Degraded", recover()) {
			resp = nil
		}
	}()
	return complete(f.policy.Degraded(req, cause), req)
}

// complete is a response made by hand, which may be one for all calls, with what
// it lacks as the answer to req.
func complete(made *http.Response, req *http.Request) *http.Response {
	if made == nil {
		return nil
	}
	r := *made
	if r.StatusCode == 0 {
		r.StatusCode = http.StatusOK
	}
	if r.Status == "" {
		r.Status = fmt.Sprintf("%d %s", r.StatusCode, http.StatusText(r.StatusCode))
	}
	if r.ProtoMajor == 0 {
		r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/1.1", 1, 1
	}
	if r.Header = r.Header.Clone(); r.Header == nil {
		r.Header = http.Header{}
	}
	if r.Body == nil {
		r.Body, r.ContentLength = http.NoBody, 0
	} else if r.ContentLength == 0 && r.Body != http.NoBody {
		r.ContentLength = -1
	}
	if req.Method == http.MethodHead && r.Body != http.NoBody {
		_ = r.Body.Close()
		r.Body = http.NoBody
	}
	r.Request = req
	return &r
}

// failFast is a 503 in place of an error.
func failFast(req *http.Request, err error) *http.Response {
	retry := time.Second
	var e *Error
	if errors.As(err, &e) && e.RetryIn > retry {
		retry = e.RetryIn
	}
	text := reasonOf(nil, err) + "\n"
	r := &http.Response{
		StatusCode: http.StatusServiceUnavailable,
		Header: http.Header{
			"Content-Type": {"text/plain; charset=utf-8"},
			"Retry-After":  {strconv.FormatInt(int64((retry+time.Second-1)/time.Second), 10)},
		},
		Body:          io.NopCloser(bytes.NewReader([]byte(text))),
		ContentLength: int64(len(text)),
	}
	return complete(r, req)
}

// dismiss closes a failed response; a short one is read to its end first, so that
// its connection can be used again.
func dismiss(resp *http.Response) {
	if b, ok := resp.Body.(*body); ok {
		b.a.mu.Lock()
		b.a.discarded = true
		b.a.mu.Unlock()
		stop := time.AfterFunc(closeDrainTime, b.a.interrupt)
		_, _ = io.CopyN(io.Discard, resp.Body, closeDrainBytes)
		stop.Stop()
	}
	_ = resp.Body.Close()
}
