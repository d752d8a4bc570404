// Package cachetest is a suite that any store or cache can run: [TestStore] is for one who writes a [cache.Store] of his own, and
// [TestRoundTripper] for whoever has an http.RoundTripper that caches, be it this module's or another.
//
//	func TestMine(t *testing.T) {
//		cachetest.TestStore(t, func(t *testing.T, c cache.Config) cache.Store { return mine.New(c.MaxBytes, c.MaxEntryBytes) })
//	}
//
// All that is tested is seen from outside. Each subtest is one promise or rule, by which it is named, and which it says when it
// fails, with the section of the RFC that has it.
//
// # What is expected of a store
//
// Package cache says what a Store promises. It may drop entries at any moment, and a test of one that does could prove
// nothing. So TestStore expects that nothing is dropped but for want of room: of what weighs less than half the bound
// in all, everything stays, and what was put into a full store is found right after. It also measures what package cache leaves to
// each store: that the heap holds at most 1.2 times MaxBytes when ten times as much was offered, in entries of many sizes.
//
// That a Put is waited for, or not interleaved with another, cannot be seen from outside but by luck. TestStore has them meet a
// thousand times, and a little later each time. A pass on one processor says less than one on several.
//
// # What is expected of a cache
//
// RFC 9111 says what must not be reused; what may be, hardly ever must. TestRoundTripper expects that an answer is reused
// while it is fresh, by whoever asks the same with the same credentials; that HEAD and single ranges are answered from it; and that
// what is stale is validated. It expects more than RFC 9111 where that is about one user's browser, or leaves to a cache
// what can be told wrong only by harm:
//
//   - Authorization, Cookie, X-Api-Key and userinfo separate callers: a client that several users share is a shared cache
//   - X-HTTP-Method-Override bypasses the cache, which origins that heed it never think of
//   - a body that ends with its connection is not stored, for it may have been cut
//   - of a repeated max-age the lowest counts, and one that cannot be read is 0
//   - an answer that is not stored ends the older one that it would have replaced
//   - a 412, 416 or 417 is for whoever had the condition, range or expectation
//   - the caller gets what has arrived of a body at once, and a header that is all his own
//   - Set-Cookie is kept, as are trailers, or else an answer with trailers is not stored
//
// Labels may be left out, but for Age: where there is a Cache-Status it must be true, and one that RFC 9211 allows.
//
// # Where to look
//
// store.go has the promises, bounds.go those about room, races.go those about concurrent calls, and forge.go makes
// the entries. roundtripper.go runs the rules, which isolation.go, bodies.go, writes.go and their like have; origin.go answers by
// a script, probe.go asks, and structured.go reads labels.
package cachetest
