package cache

import (
	"net/http"
	"time"
)

// Serve answers from the store after a failure, if the origin or w allow it and nothing forbids it: a fresh answer, or
// one not staler than the first that was given of the request's stale-if-error, its max-stale, the response's
// stale-if-error and w.MaxStale, in any case w.StaleLimit. It never blocks.
//
// It returns false for a caller who has gone, for requests for a part (Range, If-Range) or with a
// precondition (If-Match, If-Unmodified-Since), and for a no-cache or max-age=0 without stale-if-error or max-stale. A
// caller with If-None-Match or If-Modified-Since has a copy of its own: it gets the whole stored answer, never an
// invented 304, and only if that is not older than its copy: it has the named ETag, or a Last-Modified not
// before the named date.
//
// It finds nothing for a request with a field that is new in every call and that this package does not know to be harmless: the
// package documentation says which are.
func (c *Cache) Serve(x *Exchange, req *http.Request, why Failure, w Window) (*http.Response, bool) {
	if x.role != reader || !c.holds(&x.key) || !why.served() || gone(req) {
		return nil, false
	}
	wall := why.At
	if wall.IsZero() {
		wall = time.Now()
	}
	e := c.servable(x, req, w, wall)
	if e == nil {
		return nil, false
	}
	return e.response(req, wall, why), true
}

// Serves reports whether Serve would have an answer now.
func (c *Cache) Serves(x *Exchange, req *http.Request, w Window) bool {
	return c.servable(x, req, w, time.Now()) != nil
}

// servable is the stored answer that may stand in for a failed one, or nil.
func (c *Cache) servable(x *Exchange, req *http.Request, w Window, wall time.Time) *Entry {
	if x.role != reader || x.partial || x.ask.noStore {
		return nil
	}
	e := c.find(x, req)
	if e == nil || x.conditional && e.outdates(req) {
		return nil
	}
	now := wall.Sub(c.start)
	if !w.allows(*x.ask, e.control, e.ageAt(now), e.ttlAt(now)) {
		if now > e.useless {
			c.retire(x, req, e)
		}
		return nil
	}
	return e
}

// OnlyIfCached answers a request that must not be forwarded because it says only-if-cached: from the store, while
// fresh or within its own max-stale, or with a 504 (RFC 9111 section 5.2.1.7). It returns false for every other request. Ask it
// between Begin and sending.
func (c *Cache) OnlyIfCached(x *Exchange, req *http.Request) (*http.Response, bool) {
	if x.role != reader || !x.ask.onlyIfCached {
		return nil, false
	}
	if e := c.find(x, req); e != nil && !x.partial && !x.ask.noStore && !(x.conditional && e.outdates(req)) {
		wall, ask := time.Now(), *x.ask
		now := wall.Sub(c.start)
		ask.staleIfError = absent // nothing has failed
		if ask.maxStale == absent {
			ask.maxStale = 0
		}
		if (Window{}).allows(ask, e.control, e.ageAt(now), e.ttlAt(now)) {
			return e.response(req, wall, Failure{}), true
		}
	}
	return unsatisfied(req), true
}

// find is the newest stored answer to a request.
func (c *Cache) find(x *Exchange, req *http.Request) *Entry {
	if !c.holds(&x.key) || c.store.Len() == 0 {
		return nil
	}
	c.named(x)
	var best *Entry
	for _, e := range c.store.Lookup(x.key, c.partitionOf(x, req)) {
		if x.reuse != nil && x.reuse.forwarded == "uri-miss" {
			x.reuse.forwarded = "vary-miss"
		}
		if e.matches(req) && (best == nil || e.date > best.date || e.date == best.date && e.sent > best.sent) {
			best = e
		}
	}
	return best
}

// retire removes an answer that is past its use, and with it the older ones that it hid: they would be next.
func (c *Cache) retire(x *Exchange, req *http.Request, old *Entry) {
	for _, e := range c.store.Lookup(x.key, old.partition) {
		if e == old || !e.newer(old) && e.matches(req) {
			c.store.Delete(e)
		}
	}
}

// served reports whether an answer may stand in for this failure at all. Package policy lists the same statuses, and
// package transport the same errors as untrusted. This package imports neither and keeps its promise to whoever else
// sends the requests: it is the last that can.
func (f Failure) served() bool {
	switch f.Status {
	case 0:
		return f.Err != nil && !untrusted(f.Err)
	case http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// gone reports whether nobody waits for the answer any more.
func gone(req *http.Request) bool {
	select {
	case <-req.Cancel:
		return true
	default:
		return req.Context().Err() != nil
	}
}
