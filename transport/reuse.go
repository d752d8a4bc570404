package transport

import (
	"net/http"
	"time"

	"github.com/watertight-go/watertight/cache"
)

// partition is a function of the owner's, and what it means when it panics: that nobody
// knows whose the request is.
func (t *Transport) partition(of func(*http.Request) (string, bool)) func(*http.Request) (string, bool) {
	return func(req *http.Request) (tenant string, ok bool) {
		defer func() {
			if t.survived("Cache.Partition", recover()) {
				ok = false
			}
		}()
		return of(req)
	}
}

// keep gives an answer to the cache, which may be the one that others wait for.
func (f *fallback) keep(c *call, resp *http.Response, leads **flight) {
	capture := f.cache.Received(&c.reuse.exchange, f.h.named(c.req), resp, f.window)
	if fl := *leads; fl != nil {
		*leads = nil
		switch {
		case capture != nil:
			fl.since = f.h.t.now()
			close(fl.headed)
			capture.Settled(func(how cache.Settlement) { fl.end(how, f.h.t.now()) })
		case c.reuse.exchange.Stored():
			fl.end(cache.Kept, f.h.t.now())
		case resp.StatusCode >= 500: // the next one may be better
			fl.end(failed, f.h.t.now())
		default:
			fl.end(cache.Useless, f.h.t.now())
		}
	}
	keep(resp, capture)
}

// reuse is what the cache makes of a call before it is sent.
type reuse struct {
	exchange cache.Exchange
	stored   *http.Response // its answer, where there is one
	header   http.Header    // what to send, where that is not the caller's
	begun    bool
	waited   bool // for the answer to another
}

// begin tells the cache of a call, which may have waited for another.
func (f *fallback) begin(u *reuse, req *http.Request, waited *cache.Exchange, now time.Duration) {
	u.begun = true
	if !f.stores {
		return
	}
	asked := f.h.named(req)
	f.cache.BeginIn(&u.exchange, asked, f.h.t.wall(now))
	if f.fresh && refreshing(req) {
		u.header = changed(asked, f.cache.Refresh(&u.exchange, asked))
		return
	}
	if waited != nil {
		waited.Collapsed(&u.exchange)
	}
	if f.fresh && callOf(req.Context()).NoStale {
		return
	}
	from := f.cache.Reuse(&u.exchange, asked, f.window)
	if from.Response == nil || f.policy.Shadow && !f.fresh {
		u.header = changed(asked, from.Request)
		return
	}
	from.Response.Request = req
	if from.Refresh && !f.h.breaker.refuses() || f.fresh && from.Stored && f.h.breaker.probing() { // which hits alone would never close
		if !f.h.t.refreshes.begin(f.h, req, f.refreshOf(u, req)) && from.Refresh { // this call brings it up to date, then
			u.header = changed(asked, f.cache.Refresh(&u.exchange, asked))
			return
		}
	}
	u.stored, u.waited = from.Response, waited != nil
}

// reused counts an answer from the store that needed no contact, and names how; empty
// for one that says that there is none (only-if-cached).
func (f *fallback) reused(u *reuse) string {
	switch _, ok := cache.FromResponse(u.stored); {
	case !ok:
		return ""
	case u.waited:
		f.h.counts.others().collapsed.Add(1)
		return "collapsed"
	}
	f.h.counts.others().hits.Add(1)
	return "hit"
}

// reused tells the observer how an answer from the store came about. It is not inlined,
// for the 280 bytes of an Event on the stack of each call that waits.
//
//go:noinline
func (c *call) reused(how string) {
	if how != "" {
		c.observe(Event{Kind: EventReuse, Layer: LayerFallback, Reason: how})
	}
}

// refreshOf is the refresh of what a request may be served.
func (f *fallback) refreshOf(u *reuse, req *http.Request) cache.Flight {
	return f.cache.Stands(&u.exchange, f.h.named(req))
}

// spare is the stored answer that a call need not wait for its own for, where the owner
// has said that answers are reused: while the breaker lets probes through, a request in
// the background is the probe, and no caller. nil if there is none, or no such request.
func (f *fallback) spare(c *call) *http.Response {
	if !f.fresh || c.opts.NoStale || f.policy.Shadow || refreshing(c.req) || !f.h.breaker.probing() {
		return nil
	}
	refusal := f.h.breaker.refuse(f.h.breaker.trip.Load(), HalfOpen, 0, 0)
	return f.serve(c, refusal, "breaker-open", false, func() bool { return f.h.t.refreshes.begin(f.h, c.req, f.refreshOf(&c.reuse, c.req)) })
}

// changed is the header of a request where that is not the asked one's.
func changed(asked, send *http.Request) http.Header {
	if send == nil || send == asked {
		return nil
	}
	return send.Header
}
