package transport

import (
	"context"
	"io"
	"net/http"
	"time"

	"github.com/watertight-go/watertight/cache"
)

// total is the outermost layer: it bounds the whole call. The limit itself is
// kept by the watch of whichever attempt is under way; between attempts the
// retry layer asks what is left. This layer carries it over redirect hops.
type total struct {
	next http.RoundTripper
}

func newTotal(next http.RoundTripper, h *host) http.RoundTripper {
	return &total{next}
}

func (l *total) RoundTrip(req *http.Request) (*http.Response, error) {
	c := attemptOf(req).call
	if req.Response != nil {
		c.earlier = hopSpent(req.Response)
	}
	resp, err := l.next.RoundTrip(req)
	if err == nil && redirects(resp) {
		markHop(c, resp)
	}
	return resp, err
}

// redirects reports whether http.Client may follow the response.
func redirects(resp *http.Response) bool {
	return resp.StatusCode >= 300 && resp.StatusCode < 400 && resp.Header["Location"] != nil
}

// hop is the body of a redirect. http.Client hands the response it follows to the
// next request, so that the next call can tell how much of Total is used up.
type hop struct {
	io.ReadCloser
	spent time.Duration
}

// spent is the part of the total deadline that lies below the fallback, which may
// still have an answer: it refuses a hop for which nothing of Total is left, so
// that no host is asked, or judged, in vain.
type spent struct {
	next http.RoundTripper
}

func newSpent(next http.RoundTripper) http.RoundTripper { return &spent{next} }

func (l *spent) RoundTrip(req *http.Request) (*http.Response, error) {
	c := attemptOf(req).call
	if c.leftOfTotal(c.start) > 0 {
		return l.next.RoundTrip(req)
	}
	closeBody(req)
	e := c.totalTimeout("total")
	c.timedOut(e, 0, false)
	return nil, e
}

type hopKey struct{}

// markHop notes on a redirect what its call has used of Total. An http.Client
// with a Timeout wraps the body, and can be told by Request.Cancel: there the
// note travels in the context of Response.Request. So it does with a stored
// redirect, whose body has its label.
func markHop(c *call, resp *http.Response) {
	spent := c.used(resp)
	if _, stored := cache.FromResponse(resp); stored || c.req.Cancel != nil {
		resp.Request = resp.Request.WithContext(context.WithValue(resp.Request.Context(), hopKey{}, spent))
		return
	}
	resp.Body = &hop{resp.Body, spent}
}

// used is what a call has used of Total by the time of its answer, whose attempt
// may go on; what its bytes have earned stays earned.
func (c *call) used(resp *http.Response) time.Duration {
	now := c.h.t.now()
	if b, ok := resp.Body.(*body); ok {
		b.a.mu.Lock()
		defer b.a.mu.Unlock()
		if clock := &b.a.clock; !b.a.ended {
			return c.spent(now) - clock.pauses(now) - c.timeout.Extension(c.bytes+clock.bytes)
		}
	}
	return c.spent(now) - c.timeout.Extension(c.bytes)
}

// hopSpent is what the call that was answered with this redirect had used.
func hopSpent(resp *http.Response) time.Duration {
	if h, ok := resp.Body.(*hop); ok {
		return h.spent
	}
	if resp.Request != nil {
		if d, ok := resp.Request.Context().Value(hopKey{}).(time.Duration); ok {
			return d
		}
	}
	return 0
}

// limitOf is the limit on the present wait of the attempt, with the knob that
// sets it. mu must be held.
func (a *attempt) limitOf() (d time.Duration, knob string, kind error) {
	t := &a.call.timeout
	switch a.clock.phase {
	case phaseConnect:
		return t.Connect, "Timeout.Connect", ErrConnectTimeout
	case phaseTLS:
		return t.TLSHandshake, "Timeout.TLSHandshake", ErrTLSTimeout
	case phaseWrite, phaseHeader, phaseBody:
		if a.stream {
			if a.status != 0 {
				return t.StreamIdle, "Timeout.StreamIdle", errStreamIdle
			}
			return 0, "", nil
		}
		return t.Read, "Timeout.Read", ErrReadTimeout
	}
	return 0, "", nil
}

// watch arms the timer for what is due next. mu must be held.
//
// There is one timer, and it is only ever late to be re-armed, never late to
// fire: limits move later, as pauses and bytes extend them, and none that may
// yet begin ends sooner than the timer is set. So nothing is re-armed when a wait
// begins or ends; the timer finds what is due when it fires.
func (a *attempt) watch(now time.Duration) {
	d, next := a.look(now)
	if d.expired != nil || d.slow || d.leak || d.lease {
		next = 0
	}
	a.arm(next)
}

func (a *attempt) arm(next time.Duration) {
	switch {
	case next == forever:
	case a.timer == nil:
		a.timer = time.AfterFunc(next, a.tick)
	default:
		a.timer.Reset(next)
	}
}

// dues is what there is to do at one moment.
type dues struct {
	expired *Error // the first limit, the most specific one
	slow    bool
	leak    bool
	lease   bool
}

func (d *dues) expire(e *Error) {
	if d.expired == nil {
		d.expired = e
	}
}

// look finds what is due, and how long it is until something else may be. It
// changes nothing. mu must be held.
func (a *attempt) look(now time.Duration) (due dues, next time.Duration) {
	t, c := &a.call.timeout, &a.clock
	next = forever
	left := func(d, used time.Duration) bool {
		if rest := d - used; rest > 0 {
			next = min(next, rest)
			return false
		}
		return true
	}

	// The waits, present and to come.
	waited, waiting := c.waited(now)
	if a.stream && c.phase == phaseBody { // its silence is that of both sides
		waited, waiting = now-c.since, true
	}
	d, knob, kind := a.limitOf()
	wait := func() *Error {
		return &Error{Kind: kind, Layer: LayerTimeout, Phase: c.phase.String(), Limit: d, Knob: knob}
	}
	if d > 0 && left(d, waited) && waiting {
		due.expire(wait())
	}
	if c.phase <= phaseTLS {
		for _, d := range [...]time.Duration{t.Connect, t.TLSHandshake} {
			if d > 0 {
				next = min(next, d)
			}
		}
	}
	if d := t.Read; d > 0 && !a.stream {
		next = min(next, d)
	}
	if d := t.StreamIdle; d > 0 && (a.stream || c.phase < phaseBody) {
		next = min(next, d)
	}

	// The ages.
	if !a.stream {
		age := c.age(now)
		if t.Attempt > 0 && left(t.Attempt+t.Extension(c.bytes), age) {
			if d > 0 && waiting && waited >= d-d/20 { // it was all spent on one wait: that says more
				due.expire(wait())
			}
			due.expire(&Error{Kind: ErrAttemptTimeout, Layer: LayerTimeout, Phase: "attempt", Limit: t.Attempt, Knob: "Timeout.Attempt"})
		}
		if t.Total > 0 && left(t.Total+t.Extension(a.call.bytes+c.bytes), a.call.spent(now)-c.pauses(now)) {
			due.expire(&Error{Kind: ErrTotalTimeout, Layer: LayerTimeout, Phase: "total", Limit: t.Total, Knob: "Timeout.Total"})
		}
		if s := a.call.slowCall; s > 0 && !a.slow && left(s+t.Extension(c.bytes), age) {
			due.slow = true
		}
	}

	// The caller.
	if d := a.call.h.policy.Bulkhead.BodyIdle; d > 0 && !a.stream {
		next = min(next, d) // also for a pause that is yet to begin
		due.leak = c.phase == phaseIdle && left(d, now-c.mark)
	}
	if a.lease > 0 && left(a.lease, now) {
		due.lease = true
	}
	return due, next
}

// late reports whether the attempt's age has passed SlowCall. mu must be held.
func (a *attempt) late(now time.Duration) bool {
	s := a.call.slowCall
	return s > 0 && !a.stream && a.clock.age(now) >= s+a.call.timeout.Extension(a.clock.bytes)
}

// tick runs when the attempt's timer fires.
func (a *attempt) tick() {
	h := a.call.h
	now := h.t.now()
	a.mu.Lock()
	if a.ended {
		a.mu.Unlock()
		return
	}
	due, next := a.look(now)
	a.slow = a.slow || due.slow
	if due.lease {
		a.lease = 0
	}
	if a.expired != nil || a.shadowed { // told once
		due.expired = nil
	}
	kill := due.expired != nil && !a.call.timeout.Shadow
	if kill {
		a.expired = a.call.error(due.expired)
	}
	a.shadowed = a.shadowed || due.expired != nil && !kill
	a.arm(next)
	deaf := a.clock.phase == phaseBody && a.deaf()
	a.mu.Unlock()

	// Act first, tell afterwards: a listener may take its time.
	if kill {
		a.stop()
		if deaf {
			a.closeBase()
		}
	}
	if due.leak {
		a.leak(leakIdle)
	}
	if due.slow {
		h.breaker.slow(a, now)
	}
	if due.lease {
		a.judgeLease(now)
	}
	if due.expired != nil {
		h.counts.timeout(due.expired)
		if !kill { // else end tells
			a.call.tellTimeout(due.expired, a.number, true)
		}
	}
}

// timedOut counts a limit that fired on an attempt, or on none, and tells of it.
func (c *call) timedOut(e *Error, attempt int, shadow bool) {
	c.h.counts.timeout(e)
	c.tellTimeout(e, attempt, shadow)
}

func (c *call) tellTimeout(e *Error, attempt int, shadow bool) {
	c.observe(Event{Kind: EventTimeout, Layer: LayerTimeout, Attempt: attempt, Phase: e.Phase, Limit: e.Limit, Shadow: shadow})
}

// totalTimeout is the error of a call that has used up Total.
func (c *call) totalTimeout(phase string) *Error {
	return c.error(&Error{Kind: ErrTotalTimeout, Layer: LayerTimeout, Phase: phase, Limit: c.timeout.Total, Knob: "Timeout.Total"})
}
