package cache

import (
	"net/http"
	"time"
)

// Reuse is what [Cache.Reuse] makes of a request.
type Reuse struct {
	// Response is the answer to the caller; nil if the request is to be sent.
	Response *http.Response

	// Stored reports whether the Response is a stored answer that may be asked for again.
	Stored bool

	// Refresh reports whether the Response is stale, and its origin allows it to be served while it is asked again
	// (RFC 5861 section 3): a request is to be sent in the background, for which Begin and Refresh are called.
	Refresh bool

	// Request is what to send: the caller's, or a copy of it that asks whether the stored answer is still good
	// (RFC 9111 section 4.3.1). Of the latter [Cache.Validated] is told the answer. Nil if there is a Response.
	Request *http.Request
}

// Reuse answers a request from the store where RFC 9111 allows that, or says what to send. Ask it between Begin and sending. It
// never blocks. Without Rules.Fresh it only heeds only-if-cached. w.StaleLimit bounds what is served stale.
//
// A range is cut from a complete answer, HEAD is answered from the answer to GET, and a caller whose own copy is still good
// gets a 304.
func (c *Cache) Reuse(x *Exchange, req *http.Request, w Window) Reuse {
	if !c.rules.Fresh {
		if resp, ok := c.OnlyIfCached(x, req); ok {
			return Reuse{Response: resp}
		}
		return Reuse{Request: req}
	}
	if x.role != reader {
		return Reuse{Request: req}
	}
	x.reuse.forwarded = "uri-miss"
	if x.ask.noStore || x.guarded {
		x.reuse.forwarded = "request"
		return c.miss(x, req)
	}
	e := c.find(x, req)
	if e == nil {
		return c.miss(x, req)
	}
	wall := time.Now()
	now := wall.Sub(c.start)
	age, ttl := e.ageAt(now), e.ttlAt(now)
	mayBeServed := -ttl <= w.limit()
	switch {
	case mayBeServed && usable(*x.ask, e.control, age, ttl):
		return Reuse{Response: e.answer(x, req, wall), Stored: !x.ask.onlyIfCached}
	case x.ask.onlyIfCached:
		return c.miss(x, req)
	case ttl > 0 && !e.control.noCache:
		x.reuse.forwarded = "request"
	default:
		x.reuse.forwarded = "stale"
	}
	switch {
	case mayBeServed && whileRevalidating(*x.ask, e.control, ttl):
		return Reuse{Response: e.answer(x, req, wall), Stored: true, Refresh: true}
	case x.conditional || x.partial:
		return Reuse{Request: req} // the answer is about the caller's copy, or part
	}
	return Reuse{Request: x.asking(e, req)}
}

// asking is req as it is sent to learn whether e is still good: as it is, if e has no validator.
func (x *Exchange) asking(e *Entry, req *http.Request) *http.Request {
	conditional := e.conditional(req)
	if conditional == nil {
		return req
	}
	x.reuse.validated = e
	return conditional
}

// Refresh is Reuse for a request that is to be sent in any case: with the validators of what is stored, if it has any.
func (c *Cache) Refresh(x *Exchange, req *http.Request) *http.Request {
	if x.role != reader || x.ask.noStore || x.conditional || x.partial {
		return req
	}
	e := c.find(x, req)
	if e == nil {
		return req
	}
	return x.asking(e, req)
}

// miss is what becomes of a request for which nothing is stored that may be served.
func (c *Cache) miss(x *Exchange, req *http.Request) Reuse {
	if x.ask.onlyIfCached {
		return Reuse{Response: unsatisfied(req)}
	}
	return Reuse{Request: req}
}

// unsatisfied answers a request that must not be forwarded (RFC 9111 section 5.2.1.7).
func unsatisfied(req *http.Request) *http.Response {
	return &http.Response{
		Status:     "504 Gateway Timeout",
		StatusCode: http.StatusGatewayTimeout,
		Proto:      "HTTP/1.1",
		ProtoMajor: 1,
		ProtoMinor: 1,
		Header:     http.Header{"Cache-Status": {product + "; detail=only-if-cached"}},
		Body:       http.NoBody,
		Request:    req,
	}
}

// usable reports whether an answer of this age, with ttl of its lifetime left, may be served without asking (RFC 9111 sections 4
// and 5.2.1).
func usable(ask, stored control, age, ttl time.Duration) bool {
	switch {
	case stored.noCache, ask.noCache, ask.maxAge == 0:
		return false
	case ask.maxAge != absent && age > ask.maxAge:
		return false
	case ask.minFresh != absent && ttl < ask.minFresh:
		return false
	case ttl > 0:
		return true
	case stored.mustRevalidate:
		return false
	}
	return ask.maxStale != absent && -ttl <= ask.maxStale
}

// whileRevalidating reports whether a stale answer may be served while it is asked for again.
func whileRevalidating(ask, stored control, ttl time.Duration) bool {
	if stored.noCache || stored.mustRevalidate || ask.noCache || ask.maxAge != absent || ask.minFresh != absent {
		return false
	}
	return stored.staleWhileRevalidate != absent && ttl <= 0 && -ttl <= stored.staleWhileRevalidate
}

// conditional is a copy of req that asks whether e is still good; nil if e has no validator.
func (e *Entry) conditional(req *http.Request) *http.Request {
	etag, modified := e.value("Etag"), e.value("Last-Modified")
	if etag == "" && modified == "" {
		return nil
	}
	r := req.Clone(req.Context())
	if r.Header == nil {
		r.Header = http.Header{}
	}
	if etag != "" {
		r.Header["If-None-Match"] = []string{etag}
	}
	if modified != "" {
		r.Header["If-Modified-Since"] = []string{modified}
	}
	return r
}

// answer is e in answer to a request for which it is good: whole, a range of it, or that the caller's copy is as good.
func (e *Entry) answer(x *Exchange, req *http.Request, wall time.Time) *http.Response {
	resp := e.response(req, wall, Failure{collapsed: x.reuse.collapsed})
	if e.status != http.StatusOK {
		return resp
	}
	if e.known(req) {
		return notModified(resp)
	}
	e.cut(req, resp)
	return resp
}

// known reports whether the copy that the caller says it has is e (RFC 9111 section 4.3.2).
func (e *Entry) known(req *http.Request) bool {
	if len(req.Header["If-None-Match"]) == 0 && len(req.Header["If-Modified-Since"]) == 0 {
		return false
	}
	if len(req.Header["If-None-Match"]) > 0 {
		for _, line := range req.Header["If-None-Match"] {
			if trim(line) == "*" {
				return true
			}
		}
		return !e.outdates(req)
	}
	since, ok := parseDate(req.Header["If-Modified-Since"])
	modified, err := http.ParseTime(e.value("Last-Modified"))
	if err != nil {
		modified, err = http.ParseTime(e.value("Date"))
	}
	return ok && err == nil && !modified.After(since)
}

// notModified makes a 304 of an answer.
func notModified(resp *http.Response) *http.Response {
	b := resp.Body.(*body)
	b.reader.Reset(nil)
	resp.Status, resp.StatusCode = "304 Not Modified", http.StatusNotModified
	resp.ContentLength = 0
	for _, name := range [...]string{"Content-Length", "Content-Type", "Content-Encoding", "Content-Language", "Content-Range"} {
		delete(resp.Header, name)
	}
	return resp
}
