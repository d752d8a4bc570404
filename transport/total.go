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
	l := &h.layers.total
	l.next = next
	return l
}

func (l *total) RoundTrip(req *http.Request) (*http.Response, error) {
	c := attemptOf(req).call
	if req.Response != nil {
		c.earlier = hopSpent(req.Response)
	}
	resp, err := l.next.RoundTrip(req)
	if err == nil && redirects(resp) && c.race == nil {
		markHop(c, resp)
	}
	return resp, err
}

// redirects reports whether http.Client may follow the response.
func redirects(resp *http.Response) bool {
	switch resp.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return resp.Header["Location"] != nil
	}
	return false
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

func newSpent(next http.RoundTripper, h *host) http.RoundTripper {
	l := &h.layers.spent
	l.next = next
	return l
}

func (l *spent) RoundTrip(req *http.Request) (*http.Response, error) {
	c := attemptOf(req).call
	if c.earlier <= 0 || c.leftOfTotal(c.start) > 0 {
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

// timedOut counts a limit that fired on an attempt, or on none, and tells of it.
func (c *call) timedOut(e *Error, attempt int, shadow bool) {
	c.h.counts.timeout(e)
	c.tellTimeout(e, attempt, shadow)
}

// tellTimeout tells the observer of a limit that fired. It is not inlined, for the 280
// bytes of an Event on the stack of endAt.
//
//go:noinline
func (c *call) tellTimeout(e *Error, attempt int, shadow bool) {
	c.observe(Event{Kind: EventTimeout, Layer: LayerTimeout, Attempt: attempt, Phase: e.Phase, Limit: e.Limit, Shadow: shadow})
}

// totalTimeout is the error of a call that has used up Total.
func (c *call) totalTimeout(phase string) *Error {
	return c.error(&Error{Kind: ErrTotalTimeout, Layer: LayerTimeout, Phase: phase, Limit: c.timeout.Total, Knob: "Timeout.Total"})
}
