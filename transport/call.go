package transport

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/watertight-go/watertight/policy"
)

// Call changes, for one call, what its host's policy says; zero fields mean the
// host's policy. Endpoints with different needs may share a host.
type Call struct {
	Timeout    policy.Timeout // limits of this call; zero fields are the host's
	SlowCall   time.Duration  // instead of Breaker.SlowCall
	Streaming  bool           // as Policy.Streaming
	Idempotent bool           // the request may be sent twice, whatever its method
	NoStale    bool           // a stored answer is of no use to this call, fresh or stale
}

type callKey struct{}

// WithCall returns a context whose requests are handled as c says.
func WithCall(ctx context.Context, c Call) context.Context {
	return context.WithValue(ctx, callKey{}, &c)
}

// noCall is what a context without a Call means.
var noCall Call

// call is one RoundTrip of the caller's, with all its attempts.
type call struct {
	h          *host
	req        *http.Request   // the caller's
	ctx        context.Context // the caller's, or what the observer made of it
	opts       *Call
	timeout    *policy.Timeout // of this call
	slowCall   time.Duration   // of this call
	start      time.Duration
	earlier    time.Duration // what earlier redirect hops have used of Total
	free       time.Duration // the caller's pauses in attempts that have ended
	bytes      int64         // moved by attempts that have ended
	last       *attempt      // of those that went out
	sent       int32         // how many did
	replaced   bool          // by a fallback
	idempotent bool          // the request may be sent twice
	died       bool          // without an answer: see abandoned
	faulty     bool          // the request itself was at fault
	returned   bool          // from the layers
	ended      bool
	race       *race // the caller may not wait for it
	reuse      reuse
	first      attempt // saves an allocation
}

// callOf is the Call of a context.
func callOf(ctx context.Context) *Call {
	if c, ok := ctx.Value(callKey{}).(*Call); ok {
		return c
	}
	return &noCall
}

// What lies on the stack of a call that waits for its peer is kept small, and what few
// calls need is done in functions of their own: do and the layers' RoundTrip below it
// stay on the stacks of all that hang.

// do starts a call and runs it through the layers. One that is sure to be refused
// needs none of them but the fallback, and gets there at once; an observer and a
// redirect chain want the whole way.
func (h *host) do(req *http.Request, now time.Duration) (*http.Response, error) {
	c, resp, err := h.begin(req, now)
	if c == nil {
		return resp, err
	}
	defer c.abandoned()
	resp, err = h.chain.RoundTrip(c.first.request(req))
	c.answered(resp, err)
	return resp, err
}

// begin makes the call of a request, or answers it early.
//
//go:noinline
func (h *host) begin(req *http.Request, now time.Duration) (*call, *http.Response, error) {
	r := raceOf(req, &h.policy.Fallback)
	behind := r != nil || h.policy.Cache.Fresh && refreshing(req) // it is no call of a caller's
	if h.t.observer == nil && req.Response == nil && !behind {
		if refusal := h.refusal(now); refusal != nil {
			resp, err := h.refused(req, refusal, now)
			return nil, resp, err
		}
	}
	var c *call
	if f := h.fallback; f != nil && f.fresh && h.t.observer == nil && req.Response == nil && !behind {
		var stored *http.Response
		if c, stored = f.early(req, now); stored != nil {
			return nil, stored, nil
		}
	} else {
		c = &call{h: h, req: req, ctx: req.Context(), start: now, race: r, ended: behind}
	}
	c.opts, c.timeout, c.slowCall = callOf(c.ctx), &h.policy.Timeout, h.policy.Breaker.SlowCall
	if c.opts != &noCall {
		c.apply()
	}
	if !behind {
		h.counts.calls.Add(1)
		if h.t.observer != nil {
			c.announce()
		}
	}
	c.first.init(c)
	return c, nil, nil
}

// early is the answer to a call that needs no contact, without what a call has that goes
// out; or else that call.
func (f *fallback) early(req *http.Request, now time.Duration) (*call, *http.Response) {
	var u reuse
	if f.begin(&u, req, nil, now); u.stored == nil {
		return &call{h: f.h, req: req, ctx: req.Context(), start: now, reuse: u}, nil
	}
	f.h.counts.calls.Add(1)
	f.reused(&u)
	closeBody(req)
	return nil, u.stored
}

// apply has the call be as its Call says.
func (c *call) apply() {
	own := bounded(c.opts.Timeout.Or(*c.timeout))
	c.timeout = &own
	if c.opts.SlowCall > 0 {
		c.slowCall = min(c.opts.SlowCall, forever)
	}
}

// announce tells the observer that the call begins.
func (c *call) announce() {
	h := c.h
	c.ctx = h.t.started(c.ctx, Start{Scheme: h.key.scheme, Host: h.name, State: h.breaker.state(), Request: c.req}, c.req)
}

// refusal is the error of a call that an open breaker is sure to refuse, or else a full
// bulkhead, now; nil if there is none.
func (h *host) refusal(now time.Duration) *Error {
	b := &h.breaker
	if !b.policy.Shadow {
		if refusal := b.refusal(0, now); refusal != nil {
			return refusal
		}
	}
	collapses := h.fallback != nil && h.fallback.fresh // it may have the answer to another yet, without a permit
	if s, _ := b.load(); (s == Closed || s == ForcedClosed) && !collapses && h.bulkhead.full() {
		return h.bulkhead.refused()
	}
	return nil
}

// refused is a call that never sets out.
func (h *host) refused(req *http.Request, refusal *Error, now time.Duration) (*http.Response, error) {
	h.counts.calls.Add(1)
	closeBody(req)
	if h.fallback == nil {
		h.tellRefusal(req.Context(), refusal, false, now)
		return nil, refusal
	}
	return h.fallback.refused(req, refusal, now)
}

// abandoned ends a call that will not be answered, since the base, a Store or a
// listener has panicked or called runtime.Goexit. Its last answer may be open.
func (c *call) abandoned() {
	if c.returned {
		return
	}
	if a := c.last; a != nil {
		a.stop()
		a.closeBase()
		a.end(endPanic, nil)
	}
	c.died = true
	c.end(0, nil, c.h.t.now())
}

// answered reports a call that has ended; one whose body is still open ends with
// that body.
func (c *call) answered(resp *http.Response, err error) {
	c.returned = true
	if r := c.race; r != nil {
		r.replaced, r.sent = c.replaced, c.sent
	}
	if c.h.t.observer == nil {
		return
	}
	if resp != nil {
		open := resp.Body
		if h, ok := open.(*hop); ok {
			open = h.ReadCloser
		}
		if b, ok := open.(*body); ok && b.hand(c) {
			return
		}
	}
	c.end(statusOf(resp), err, c.h.t.now())
}

// end reports the end of a call to the observer, once.
func (c *call) end(status int, err error, now time.Duration) {
	t := c.h.t
	if t.observer == nil || c.ended {
		return
	}
	c.ended = true
	var outcome string
	switch {
	case c.replaced:
		outcome = "fallback"
	case c.died:
		outcome = "error"
	case err == nil && status < 500:
		outcome = "success"
	case err == nil:
		outcome = "error"
	case gone(c.ctx, c.req) != nil:
		outcome = "cancelled"
	case refused(err):
		outcome = "rejected"
	default:
		outcome = "error"
	}
	t.observe(c.ctx, Event{Kind: EventCallEnd, Scheme: c.h.key.scheme, Host: c.h.name, Outcome: outcome, Attempt: int(c.sent),
		Duration: now - c.start, Status: status, Err: err})
}

func statusOf(resp *http.Response) int {
	if resp == nil {
		return 0
	}
	return resp.StatusCode
}

func protoOf(resp *http.Response) string {
	if resp == nil {
		return ""
	}
	return resp.Proto
}

// refused reports whether an error is a refusal of ours: nothing was sent.
func refused(err error) bool {
	e, ok := err.(*Error)
	return ok && e.refusal()
}

// gone is the error of a call that its caller has ended, or nil.
func (c *call) gone() error { return gone(c.ctx, c.req) }

// error completes an Error with what the call knows.
func (c *call) error(e *Error) *Error {
	e.Host, e.Attempts = c.h.name, int(c.sent)
	return e
}

// observe tells the observer of an event of this call.
func (c *call) observe(e Event) {
	if c.h.t.observer != nil {
		e.Scheme, e.Host = c.h.key.scheme, c.h.name
		c.h.t.observe(c.ctx, e)
	}
}

// leftOfTotal is how much of Timeout.Total is left between attempts; a large
// number without one.
func (c *call) leftOfTotal(now time.Duration) time.Duration {
	if c.timeout.Total <= 0 || c.timeout.Shadow || exempt(c.req) {
		return forever
	}
	return c.timeout.Total + c.timeout.Extension(c.bytes) - c.spent(now)
}

// spent is how much of Timeout.Total is used up, earlier redirect hops included.
func (c *call) spent(now time.Duration) time.Duration {
	return c.earlier + now - c.start - c.free
}

// forever is longer than any process lives, with room to add to.
const forever = time.Duration(1) << 61

// bounded is t with limits that can be added to.
func bounded(t policy.Timeout) policy.Timeout {
	for _, d := range [...]*time.Duration{&t.Connect, &t.TLSHandshake, &t.Read, &t.Attempt, &t.Total, &t.StreamIdle} {
		*d = min(*d, forever)
	}
	return t
}

// streaming reports whether the response is a stream whatever its content type.
func (c *call) streaming() bool { return c.opts.Streaming || c.h.policy.Streaming }

// exempt reports whether a request is a stream from its start: gRPC and Connect
// streams, to which only Connect and TLSHandshake apply.
func exempt(req *http.Request) bool {
	ct := req.Header["Content-Type"]
	return len(ct) > 0 && (hasPrefixFold(ct[0], "application/grpc") || hasPrefixFold(ct[0], "application/connect+"))
}

// streams reports whether a response is a stream by its content type.
func streams(v []string) bool {
	if len(v) == 0 {
		return false
	}
	switch v[0] {
	case "application/json", "application/json; charset=utf-8", "text/html; charset=utf-8", "text/plain; charset=utf-8":
		return false // most of what there is
	}
	ct, params, _ := strings.Cut(v[0], ";")
	ct = strings.TrimSpace(ct)
	for _, prefix := range streamTypes {
		if hasPrefixFold(ct, prefix) && (len(ct) == len(prefix) || prefix[len(prefix)-1] == '/') {
			return true
		}
	}
	if params == "" {
		return false
	}
	for p := range strings.SplitSeq(params, ";") {
		if strings.EqualFold(strings.TrimSpace(p), "stream=watch") {
			return true
		}
	}
	return false
}

// streamTypes are the content types of streams; those that end in a slash stand
// for all below them.
var streamTypes = [...]string{
	"text/event-stream", "application/x-ndjson", "application/jsonl", "application/json-seq",
	"application/stream+json", "multipart/x-mixed-replace", "audio/", "video/",
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}
