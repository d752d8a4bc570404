// Package cache keeps the last good answers of an HTTP client in memory and decides when one may stand
// in for an answer that could not be had: the rules of RFC 9111 for a private cache (or a shared one), partitioned by
// credentials, applied to a store that is bounded in bytes.
//
// By default it is a fallback, not an accelerator. While the origin answers, every request goes to the origin and
// nothing is looked up to answer it; the package only watches. [Rules.Fresh] makes it a cache in full, which [Cache.Reuse] is
// asked before a request is sent. It knows nothing of breakers or retries
// either: whoever sends the request says what happened, in this order.
//
//	x := c.Begin(req)                        // before the request is sent
//	resp, err := next.RoundTrip(req)
//	if failed(resp, err) {
//		if stale, ok := c.Serve(&x, req, why, window); ok {
//			return stale, nil                // labelled: Age, Cache-Status, FromResponse
//		}
//	}
//	capture := c.Received(&x, req, resp, window)
//	// capture.Write what the caller reads, capture.Complete at the end
//
// # What is kept
//
// Answers to GET with a status that means something later (200, 203, 204, 300, 301, 308; 302 and 307
// with an explicit lifetime) that the origin allows to be stored, whole, without trailers, and only
// where they could ever be served: within their lifetime, a stale-if-error of the origin (RFC 5861
// section 4), or a [Window] of the host's owner.
//
// # Who may see it
//
// A client shared by several users is a shared cache in the sense of RFC 9111 section 1, so every
// answer belongs to a partition. With [Rules.Fresh] that is a keyed hash of credentials alone: Authorization, Proxy-Authorization,
// Cookie, X-Api-Key, Api-Key, X-Auth-Token, the userinfo of the URL, and fields whose names end in -Token, -Key, -Secret, -Session,
// -Assertion, -Jwt, Apikey or Authorization; and of [Rules.KeyHeaders]. The origin names the rest in Vary, or [Rules.Partition] says whose a
// request is.
//
// Without Fresh it is more cautious, since nothing is lost by it but a fallback: a keyed hash of all request fields that may say who is asking, or by which origins
// answer without saying so in Vary. Only an equal set of them finds it again. Every field may, unless this
// package knows it to be harmless:
//
//   - Accept, Accept-Charset, Accept-Encoding, Accept-Language and User-Agent, for which there is Vary
//   - Cache-Control, Pragma, Range and preconditions, and what is about the connection or the message: Connection, Te,
//     Via, Date, Expect, Content-Type, Priority and the like
//   - what names a call in a trace or a log, or times it: Traceparent, Tracestate, B3, the fields of common tracers, names that
//     end in Request-Id, Correlation-Id, Trace-Id, Span-Id, Idempotency-Key, Retry-Count, Timeout or Deadline
//   - the addresses that proxies pass on: X-Forwarded-For, X-Real-Ip and the like
//
// So credentials, cookies, users, tenants, databases and feature flags separate, under whatever name. So does
// a field of your own that is new in every request: with one, nothing is ever found. Give it a name that ends
// like those above, such as X-Acme-Request-Id. The same goes for Baggage, unless all its members are Sentry's, and for
// signatures of requests (SigV4).
//
// A request or an answer with a field whose key is not canonical (req.Header["x-lang"], which net/http sends as it is) is
// kept out: use Set and Add, or [net/http.CanonicalHeaderKey].
//
// This works only below or beside whatever sets the credentials: a layer that adds them later is not seen.
//
// # When it ends
//
// A newer answer below 500 removes what it would have replaced, and a 304, a 206 or a HEAD what it no longer
// allows. A successful write removes the URI for everyone (RFC 9111 section 4.4), must-revalidate ends with the
// lifetime, and [Window.StaleLimit] ends everything.
//
// # Where to look
//
// cache.go has the beginning of a call, serve.go what is served after a failure, reuse.go and validate.go what is without one,
// receive.go what becomes of an answer, capture.go what happens while a body is read, control.go and
// freshness.go the rules, key.go, partition.go and vary.go what makes two requests alike, entry.go one stored answer, memory.go the
// bounded store behind [Store], info.go the label that needs no parsing.
package cache
