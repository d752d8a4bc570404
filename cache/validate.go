package cache

import (
	"net/http"
	"time"
)

// Validated is told the answer to a request that Reuse has made conditional. If that says that the stored answer is still
// good, it is brought up to date, stored, and returned to be handed to the caller (RFC 9111 section 4.3.3); else false: the answer
// itself is the caller's, of which Received is told. req is the caller's request.
func (c *Cache) Validated(x *Exchange, req *http.Request, resp *http.Response, w Window) (*http.Response, bool) {
	if x.reuse == nil {
		return nil, false
	}
	e := x.reuse.validated
	if e == nil || resp.StatusCode != http.StatusNotModified {
		return nil, false
	}
	up, stored := c.freshened(x, req, e, resp.Header, w)
	x.stored = stored && !up.control.noCache && up.ttlAt(c.now()) > 0
	if stored {
		c.commit(up, c.selectable(req.Header))
	} else {
		c.store.Delete(e)
	}
	return up.response(req, time.Now(), Failure{Forwarded: true, validated: true}), true
}

// freshened is e with the header of an answer that confirms it (RFC 9111 section 3.2), and whether it may be stored.
func (c *Cache) freshened(x *Exchange, req *http.Request, e *Entry, with http.Header, w Window) (*Entry, bool) {
	header := make(http.Header, len(e.header)+len(with))
	for _, f := range e.header {
		header[f.name] = append(header[f.name], f.value)
	}
	for name, values := range with {
		if !ofBody(name) {
			header[name] = values
		}
	}
	if len(with["Date"]) == 0 {
		delete(header, "Date")
	}
	merged := &http.Response{
		Status: e.statusText, StatusCode: int(e.status), Proto: e.proto, ProtoMajor: int(e.major), ProtoMinor: int(e.minor),
		Header: header, ContentLength: int64(len(e.body)), Uncompressed: e.uncompressed,
	}
	up := c.entry(x, req, merged, w)
	stored := up != nil
	if !stored {
		up = &Entry{entry: e.entry}
		up.received, up.age = c.now(), 0
	}
	up.body = e.body
	return up, stored
}

// ofBody reports whether a field describes the stored body, of which an answer without it can say nothing new.
func ofBody(name string) bool {
	switch name {
	case "Content-Length", "Content-Encoding", "Content-Range", "Content-Md5", "Digest", "Content-Digest", "Repr-Digest", "Etag":
		return true
	}
	return false
}

// confirm brings up to date what an answer without a body confirms: a 304 to the caller's own condition, or a 200 to HEAD.
func (c *Cache) confirm(x *Exchange, req *http.Request, resp *http.Response, w Window) {
	if x.ask.noStore {
		return
	}
	for _, e := range c.store.Lookup(x.key, c.partitionOf(x, req)) {
		if e.sent > x.sent || !e.matches(req) {
			continue
		}
		if resp.StatusCode == http.StatusOK && e.contradicts(resp) {
			c.end(&x.key)
			c.store.Delete(e)
			continue
		}
		if resp.StatusCode == http.StatusNotModified && !e.validatedBy(req, resp) {
			continue
		}
		if up, stored := c.freshened(x, req, e, resp.Header, w); stored {
			c.commit(up, c.selectable(req.Header))
		} else {
			c.store.Delete(e)
		}
	}
}

// validatedBy reports whether a 304 to a caller's own condition is about e: it has the validators of e, or none, and e has none
// either (RFC 9111 section 4.3.4) or is what the caller has a copy of.
func (e *Entry) validatedBy(req *http.Request, resp *http.Response) bool {
	if etag := resp.Header.Get("Etag"); etag != "" {
		return etag == e.value("Etag")
	}
	if modified := resp.Header.Get("Last-Modified"); modified != "" {
		return modified == e.value("Last-Modified")
	}
	return e.value("Etag") == "" && e.value("Last-Modified") == "" || !e.outdates(req)
}
