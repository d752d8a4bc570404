package cache

import (
	"net/http"
	"time"
)

// Cache applies the rules of RFC 9111 for a private cache to a [Store]. It is safe for concurrent use and
// starts no goroutine.
type Cache struct{ store Store }

// New returns a Cache over store. Partitions are keyed with a random key that is never told, so what one Cache
// stored no other can find.
func New(store Store) *Cache { return &Cache{store: store} }

// Window says how long after its lifetime an answer may still stand in for a failed one.
type Window struct {
	// MaxStale is what a host's owner allows where the origin says nothing (RFC 9111 section 4.2.4). Zero:
	// only what the origin grants with stale-if-error (RFC 5861 section 4).
	MaxStale time.Duration
	// StaleLimit caps every grant, whoever made it. Zero means 24 h.
	StaleLimit time.Duration
}

// Failure is why an answer could not be had.
type Failure struct {
	// Err is the error, if the call ended in one. It becomes [Info.Cause].
	Err error
	// Status is the status of the failed answer, if there was one: 500, 502, 503 or 504 (RFC 5861 section 4).
	// Nothing is served in place of any other.
	Status int
	// Detail is the detail parameter of Cache-Status (RFC 9211 section 2.8): breaker-open, bulkhead-full,
	// timeout, dial-error, reset. An answer with a Status has stale-if-error.
	Detail string
	// Forwarded is true if the request was sent. It decides between hit and fwd (RFC 9211 section 2.1).
	Forwarded bool
}

// Exchange is one call, from [Cache.Begin] to [Cache.Received] or [Cache.Serve].
type Exchange struct{ key Key }

// Begin must be called before a request is sent.
func (c *Cache) Begin(req *http.Request) Exchange { return Exchange{} }

// Received is told the final answer of the call, before its caller sees it.
func (c *Cache) Received(x *Exchange, req *http.Request, resp *http.Response, w Window) *Capture {
	return nil
}

// Serve answers from the store after a failure, if that is allowed.
func (c *Cache) Serve(x *Exchange, req *http.Request, why Failure, w Window) (*http.Response, bool) {
	return nil, false
}

// OnlyIfCached answers a request that must not be forwarded: it says only-if-cached (RFC 9111 section 5.2.1.7).
// It returns false for every other request.
func (c *Cache) OnlyIfCached(x *Exchange, req *http.Request) (*http.Response, bool) { return nil, false }
