package cache

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Received is told the final answer of the call, before its caller sees it. It removes what the answer
// supersedes, or forbids to serve from now on if it is a 304 or 206, and after a successful write the URI (RFC 9111 section 4.4). It returns a [Capture] if the body
// is worth keeping, nil if not: the answer may not be stored, or could never be served under w. An answer known
// to have no body is stored at once. Nothing is made of its Content-Type: whoever knows that the body is a stream calls
// [Capture.Discard].
func (c *Cache) Received(x *Exchange, req *http.Request, resp *http.Response, w Window) *Capture {
	capture, stored := c.received(x, req, resp, w)
	x.stored = stored
	if c.rules.LabelAll {
		x.label(resp, stored)
	}
	return capture
}

// Ignores reports that Validated and Received need not be asked about an answer, since both would do nothing: as about most that
// say nothing about their reuse, neither by Cache-Control nor by Expires, where nothing is stored. False says nothing. It takes less
// time than either.
func (c *Cache) Ignores(x *Exchange, resp *http.Response, w Window) bool {
	good := resp.StatusCode >= 200 && resp.StatusCode < 300
	return good && x.role == reader && !c.rules.Fresh && !c.rules.LabelAll && w.MaxStale == 0 && !c.holds(&x.key) && silent(resp.Header)
}

// silent reports whether an answer says nothing about its reuse.
func silent(h http.Header) bool { return len(h["Cache-Control"]) == 0 && len(h["Expires"]) == 0 }

func (c *Cache) received(x *Exchange, req *http.Request, resp *http.Response, w Window) (_ *Capture, stored bool) {
	switch {
	case c.Ignores(x, resp, w):
		return nil, false
	case x.role == writer:
		c.invalidate(x, req, resp)
		return nil, false
	case x.role == bystander:
		return nil, false
	case c.rules.Fresh && (resp.StatusCode == http.StatusNotModified || req.Method == http.MethodHead && resp.StatusCode == http.StatusOK):
		c.confirm(x, req, resp, w)
		return nil, false
	case resp.StatusCode == http.StatusNotModified || resp.StatusCode == http.StatusPartialContent:
		c.revoke(x, req, resp)
		return nil, false
	case !supersedes(resp.StatusCode) && !(c.rules.Fresh && resp.StatusCode >= 500 && c.find(x, req) == nil):
		return nil, false // a failure of the origin's is stored in no good answer's place
	}
	if c.rules.RefreshInterval > 0 && c.recent(x, req, resp) {
		return nil, false
	}
	var e *Entry
	if req.Method != http.MethodHead {
		e = c.entry(x, req, resp, w)
	}
	if e == nil {
		if supersedes(resp.StatusCode) {
			c.supersede(x, req, resp)
		}
		return nil, false
	}
	asked := c.selectable(req.Header)
	if resp.Body == nil || resp.Body == http.NoBody {
		c.commit(e, asked)
		return nil, true
	}
	capture := &Capture{entry: e, asked: asked, length: contentLength(resp), limit: c.store.MaxEntryBytes()}
	for _, v := range c.store.Lookup(e.key, e.partition) {
		if len(v.body) > 0 && slices.Equal(v.selectors, e.selectors) {
			capture.prior = v.body
		}
	}
	return capture, true
}

// recent reports whether a stored answer is so new that the next like it is not worth its copy. One that grants less than it is
// not like it.
func (c *Cache) recent(x *Exchange, req *http.Request, resp *http.Response) bool {
	e := c.find(x, req)
	if e == nil || int(e.status) != resp.StatusCode || x.sent < e.sent || x.ask.noStore {
		return false
	}
	wall := time.Now()
	now := wall.Sub(c.start)
	return now-e.received < c.rules.RefreshInterval && e.value("Etag") == resp.Header.Get("Etag") && e.value("Last-Modified") == resp.Header.Get("Last-Modified") && (e.ttlAt(now) > 0 || e.lifetime == 0) && !e.revokedBy(resp, wall)
}

// supersedes reports whether a status answers for the resource, so that an older answer is over.
func supersedes(status int) bool {
	return status >= 200 && status < 500 &&
		status != http.StatusPartialContent && status != http.StatusNotModified && status != http.StatusTooManyRequests
}

// contentLength is the announced length of the body, or -1. Zero counts only if it was said, since it is also what a
// RoundTripper leaves that never thought about it.
func contentLength(resp *http.Response) int64 {
	if resp.ContentLength == 0 && resp.Header.Get("Content-Length") != "0" {
		return -1
	}
	return resp.ContentLength
}

// entry returns what is to be stored of an answer but for its body, or nil if nothing is.
func (c *Cache) entry(x *Exchange, req *http.Request, resp *http.Response, w Window) *Entry {
	if x.ask.noStore || !c.rules.Fresh && w.MaxStale == 0 && silent(resp.Header) { // what is most of the traffic where nothing is configured
		return nil
	}
	says, omit := c.says(resp.Header)
	_, timed := lifetime(resp.Header, says, time.Time{})
	if !c.storable(resp.StatusCode, says, timed) || c.rules.Shared && !shareable(req, resp, says) {
		return nil
	}
	window := w.granted(nothing, says)
	if window == 0 && !timed && !c.rules.Fresh {
		return nil
	}
	if !whole(resp) || resp.ContentLength > c.store.MaxEntryBytes() {
		return nil
	}
	c.named(x)
	vary, ok := c.varyNames(resp.Header["Vary"])
	if !ok {
		return nil
	}
	if len(resp.Header["Content-Encoding"]) > 0 && !slices.Contains(vary, "Accept-Encoding") {
		vary = append(vary, "Accept-Encoding") // not everyone can read it, whether the origin says so or not
	}
	wall := time.Now()
	now := wall.Sub(c.start)
	date := wall
	if lines := resp.Header["Date"]; len(lines) > 0 {
		if date, ok = c.date(lines); !ok && !c.rules.Fresh {
			return nil
		}
		if !ok {
			date = wall // RFC 9110 section 6.6.1
		}
	}
	e := &Entry{entry: entry{
		owner:        c,
		key:          x.key,
		status:       int16(resp.StatusCode),
		uncompressed: resp.Uncompressed,
		timed:        timed,
		control:      says,
		sent:         x.sent,
		received:     now,
		epoch:        x.epoch,
		purge:        x.purge,
		date:         date.Unix(),
		age:          initialAge(resp.Header, date, wall, now-x.sent),
	}}
	e.lifetime, _ = lifetime(resp.Header, says, date)
	if c.rules.Fresh {
		if !timed && !says.noCache && heuristic(resp.StatusCode, says) {
			e.lifetime, e.timed = guess(resp.Header, date)
		}
		window = max(window, says.staleWhileRevalidate)
		if len(resp.Header["Etag"]) > 0 || len(resp.Header["Last-Modified"]) > 0 {
			window = max(window, validFor) // it can be validated
		}
		if resp.StatusCode >= 500 { // a failure is nothing to fall back to
			window, e.control.mustRevalidate = 0, true
		}
	}
	if e.lifetime-e.age+window <= 0 {
		return nil
	}
	e.useless = now + e.lifetime - e.age + window
	if !e.describe(req, resp, omit, vary, wall) {
		return nil
	}
	e.partition, e.whose = c.whose(x, req)
	return e
}

// storable reports whether an answer of this status may be stored (RFC 9111 section 3), which has a lifetime of its own if it is
// timed. must-understand lets a cache that knows the status ignore no-store (section 5.2.2.3). A fallback is for the last good
// answer, so 4xx are left out there, and what has to be validated. What is about a condition, a range or an expectation of the
// request's is no answer to one without.
func (c *Cache) storable(status int, says control, timed bool) bool {
	switch status {
	case http.StatusPreconditionFailed, http.StatusRequestedRangeNotSatisfiable, http.StatusExpectationFailed:
		return false
	}
	if c.rules.Fresh {
		if says.mustUnderstand {
			return understood(status)
		}
		return (timed || says.noCache || heuristic(status, says)) && !says.noStore
	}
	known := lasting(status) || (status == http.StatusFound || status == http.StatusTemporaryRedirect) && timed
	return known && !says.noCache && (!says.noStore || says.mustUnderstand)
}

// shareable reports whether an answer is for others than who has asked for it.
func shareable(req *http.Request, resp *http.Response, says control) bool {
	if says.private || len(resp.Header["Set-Cookie"]) > 0 && !says.public {
		return false
	}
	return says.forOthers || !personal(req)
}

// understood reports whether all that a status asks of a cache is done here.
func understood(status int) bool {
	return heuristic(status, control{}) || status == http.StatusFound || status == http.StatusSeeOther || status == http.StatusTemporaryRedirect
}

// validFor is how long a stale answer is kept that can be validated.
const validFor = 24 * time.Hour

// heuristic reports whether an answer of this status may have a lifetime that its origin has not given (RFC 9111 section 4.2.2,
// RFC 9110 section 15.1).
func heuristic(status int, says control) bool {
	switch status {
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusGone, http.StatusRequestURITooLong, http.StatusNotImplemented:
		return true
	}
	return lasting(status) || says.public
}

// lasting statuses may be stored without an explicit lifetime (RFC 9110 section 15.1).
func lasting(status int) bool {
	switch status {
	case http.StatusOK, http.StatusNonAuthoritativeInfo, http.StatusNoContent,
		http.StatusMultipleChoices, http.StatusMovedPermanently, http.StatusPermanentRedirect:
		return true
	}
	return false
}

// whole reports whether the end of the body can be told from its loss, and nothing follows it. A body that ends with the connection
// (RFC 9112 section 8) looks the same cut short, be it gzip: net/http reports a clean end where one was lost between two members, or
// before the first. It removes the length of what it decompresses; that there was one is then known by the connection going on.
func whole(resp *http.Response) bool {
	closeDelimited := resp.ProtoMajor == 1 && resp.ContentLength < 0 && (resp.Close || !resp.Uncompressed) &&
		!slices.Contains(resp.TransferEncoding, "chunked")
	return !closeDelimited && len(resp.Trailer) == 0 && len(resp.Header["Trailer"]) == 0
}

// commit stores an answer, or removes what it supersedes.
func (c *Cache) commit(e *Entry, asked []field) {
	c.keeps(&e.key)
	if !c.store.Put(e) {
		c.replace(e, asked)
	}
}

// replace removes what e, which is not stored, supersedes: every older answer to what was asked, whatever its Vary.
func (c *Cache) replace(e *Entry, asked []field) {
	for _, v := range c.store.Lookup(e.key, e.partition) {
		if !v.newer(e) && v.answers(asked) {
			c.end(&e.key)
			c.store.Delete(v)
		}
	}
}

// supersede removes what an answer that is not stored would have replaced, lest an outage bring it back. Where the
// answer says that the old one is gone (it is no success), older answers still on their way are not stored either;
// where it is merely not storable, only if there was something: most traffic is like that, and stripes are shared.
func (c *Cache) supersede(x *Exchange, req *http.Request, resp *http.Response) {
	head := req.Method == http.MethodHead
	if head && resp.StatusCode == http.StatusMethodNotAllowed {
		return
	}
	if resp.StatusCode >= 300 {
		c.named(x)
		c.end(&x.key)
	}
	if !c.holds(&x.key) || c.store.Len() == 0 {
		return
	}
	c.named(x)
	confirmed := head && resp.StatusCode == http.StatusOK // leaves the GET's answer, if it is still that one
	wall := time.Now()
	for _, e := range c.store.Lookup(x.key, c.partitionOf(x, req)) {
		if e.sent > x.sent || !e.matches(req) || confirmed && !e.contradicts(resp) && !e.revokedBy(resp, wall) {
			continue
		}
		c.end(&x.key)
		c.store.Delete(e)
	}
}

// revoke removes what a 304 or 206 no longer lets be served. Both speak of the answer that a 200 would have been, but to a caller
// who has a copy: nothing is merged here.
func (c *Cache) revoke(x *Exchange, req *http.Request, resp *http.Response) {
	if !c.holds(&x.key) || c.store.Len() == 0 {
		return
	}
	c.named(x)
	wall := time.Now()
	for _, e := range c.store.Lookup(x.key, c.partitionOf(x, req)) {
		if e.sent <= x.sent && e.matches(req) && e.revokedBy(resp, wall) {
			c.end(&x.key)
			c.store.Delete(e)
		}
	}
}

// invalidate removes the URI of a successful write, and those it says it has changed on the same origin.
func (c *Cache) invalidate(x *Exchange, req *http.Request, resp *http.Response) {
	if resp.StatusCode < 200 || resp.StatusCode >= 400 {
		return
	}
	c.forget(x.key)
	for name, refs := range resp.Header {
		if !strings.EqualFold(name, "Location") && !strings.EqualFold(name, "Content-Location") {
			continue
		}
		for _, ref := range refs {
			u, err := req.URL.Parse(ref)
			if err == nil && sameOrigin(u, req) {
				k := x.key
				k.name(c.seed, u)
				c.forget(k)
			}
		}
	}
}

func (c *Cache) forget(k Key) {
	c.end(&k)
	if c.holds(&k) {
		c.store.DeleteAll(k)
	}
}

func sameOrigin(u *url.URL, req *http.Request) bool {
	if u.Scheme != req.URL.Scheme {
		return false
	}
	host := authority(u.Scheme, u.Host)
	return host == authority(u.Scheme, req.URL.Host) || req.Host != "" && host == authority(u.Scheme, req.Host)
}
