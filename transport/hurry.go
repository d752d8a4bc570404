package transport

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"sync"
	"time"

	"github.com/watertight-go/watertight/policy"
)

// A call that has a stored answer to fall back to need not wait for a slow origin longer
// than its owner wants. Its request goes on without it, on a goroutine of its own, and
// brings the store up to date; as long as it is under way, further calls for the same
// are answered at once.

// race is a call between the goroutine of its caller, who may stop to wait, and that of
// its request.
type race struct {
	brought  chan struct{} // takes what follows over, while the caller waits
	resp     *http.Response
	err      error
	end      func() // panics as the request has, or ends the goroutine
	replaced bool
	sent     int32

	left    chan struct{} // closed when the caller does not wait any more
	release func()        // then: to be called when the request is over
}

type raceKey struct{}

// raceOf is the race that a request belongs to, if it does: it is no call of its own to
// whoever counts or observes calls.
func raceOf(req *http.Request, p *policy.Fallback) *race {
	if p.After <= 0 {
		return nil
	}
	r, _ := req.Context().Value(raceKey{}).(*race)
	return r
}

// hurries reports whether a call is to have the stored answer where the origin is slow,
// and there is one.
func (f *fallback) hurries(c *call) bool {
	return f.policy.After > 0 && f.stores && !f.policy.Shadow && !c.opts.NoStale && c.race == nil && !refreshing(c.req) &&
		f.cache.Serves(&c.reuse.exchange, f.h.named(c.req), f.window)
}

// hurry makes a call on another goroutine, and leaves it there if it takes too long.
func (f *fallback) hurry(c *call) (*http.Response, error) {
	refreshes, k := &f.h.t.refreshes, f.refreshOf(&c.reuse, c.req)
	if refreshes.runs(k) { // for longer than that, or it is one that nobody waits for
		if stored := f.unanswered(c, false, func() bool { return true }); stored != nil {
			return stored, nil
		}
	}
	r := &race{brought: make(chan struct{}), left: make(chan struct{})}
	ctx, cancelWith := context.WithCancelCause(behind{context.WithoutCancel(c.ctx), raceKey{}, r})
	cancel := func() { cancelWith(nil) }
	follows := cancelAsCallerLeaves(c, cancelWith)
	req := c.req.Clone(ctx)
	req.Cancel = nil // which ends with the call
	go r.run(f.h.t, req)
	timer := time.NewTimer(f.policy.After)
	defer timer.Stop()
	select {
	case <-r.brought:
		return r.hand(c, follows)
	case <-c.ctx.Done():
	case <-c.req.Cancel:
	case <-timer.C:
		stored := f.unanswered(c, true, func() bool { return refreshes.adopt(f.h, k, r, cancel) })
		if stored != nil {
			f.h.counts.others().refreshes.Add(1)
			follows()
			close(r.left)
			return stored, nil
		}
	}
	<-r.brought
	return r.hand(c, follows)
}

// cancelAsCallerLeaves has a request cancelled when its caller leaves, until it is told not to.
func cancelAsCallerLeaves(c *call, cancel context.CancelCauseFunc) func() bool {
	stop := context.AfterFunc(c.ctx, func() { cancel(context.Cause(c.ctx)) })
	legacy := c.req.Cancel
	if legacy == nil {
		return stop
	}
	over := make(chan struct{})
	go func() {
		select {
		case <-legacy:
			cancel(errRequestCanceled)
		case <-over:
		}
	}()
	var once sync.Once
	return func() bool {
		once.Do(func() { close(over) })
		return stop()
	}
}

// unanswered is the stored answer for a call that does not wait any more.
func (f *fallback) unanswered(c *call, sent bool, may func() bool) *http.Response {
	why := &Error{Host: f.h.name, Layer: LayerFallback, Limit: f.policy.After, Knob: "Fallback.After", Err: fmt.Errorf("no answer within %v (Fallback.After); the request goes on in the background", f.policy.After)}
	return f.serve(c, why, "timeout", sent, may)
}

// run makes the call, and hands its answer to whoever waits for it, or else reads it off.
func (r *race) run(t *Transport, req *http.Request) {
	r.end = runtime.Goexit
	defer func() {
		p := recover()
		if p != nil {
			r.end = func() { panic(p) }
		}
		select {
		case r.brought <- struct{}{}:
			return
		case <-r.left:
		}
		t.survived("a request that its caller has not waited for", p)
		if r.resp != nil {
			t.survive("a refresh", func() { t.readOff(r.resp) })
		}
		r.release()
	}()
	r.resp, r.err = t.RoundTrip(req)
	r.end = nil
}

// hand gives the caller what the request has brought, whose body ends with his context.
func (r *race) hand(c *call, follows func() bool) (*http.Response, error) {
	if r.end != nil {
		follows()
		r.end()
	}
	c.replaced, c.sent = r.replaced, r.sent
	if r.err != nil {
		follows()
		if gone := c.gone(); gone != nil {
			return nil, gone
		}
		return nil, r.err
	}
	resp := r.resp
	r.resp = nil // to which its attempt leads, by its context: a body that is forgotten would never be found
	resp.Request = c.req
	if b, ok := resp.Body.(*body); !ok || !b.a.atEnd(follows) {
		follows()
	}
	return resp, nil
}

// atEnd has a function called when the attempt ends, unless it has.
func (a *attempt) atEnd(call func() bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended {
		return false
	}
	before := a.unhook
	a.unhook = func() bool {
		if before != nil {
			before()
		}
		return call()
	}
	return true
}
