package transport

import (
	"math"
	"net/http"
	"sync/atomic"
	"time"
)

// tally takes in the good news of a closed breaker without its lock: attempts that got
// their headers in time, or were a success. Whoever has the lock next takes them over
// into the window. Calls of a healthy host do not wait for each other so.
//
// It holds for one bucket of the window and one state of the breaker. Its mark changes
// with each of them, and with whoever takes it over, while it is for no bucket at all.
// So who finds it to be for his bucket, having read its word before, adds to that, or
// to nothing, since the mark has changed.
type tally struct {
	word   atomic.Uint64 // mark, attempts with headers, successes; the mark changes under the breaker's mu alone
	bucket atomic.Int64  // of the window, that it is for
	uneasy atomic.Bool   // the window holds bad news: each call may be the one that trips, and takes the lock
}

const (
	tallySuccess = 1
	tallyTimed   = 1 << tallyBits
	tallyMark    = 1 << (2 * tallyBits)
	tallyBits    = 20 // of a count; there are hardly so many calls in one bucket
	tallyMask    = 1<<tallyBits - 1

	noBucket = math.MinInt64
)

// note adds to the tally for an attempt of the present state, and returns the bucket
// that it is for; false where the lock is to be taken.
func (b *breaker) note(what, generation uint64, now time.Duration) (bucket int64, ok bool) {
	t := &b.tally
	for {
		was := t.word.Load() // first
		bucket = t.bucket.Load()
		if was&tallyMask == tallyMask || was>>tallyBits&tallyMask == tallyMask || t.uneasy.Load() || !b.inBucket(bucket, now) {
			return 0, false
		}
		if s, g := b.load(); g != generation || s != Closed && s != ForcedClosed {
			return 0, false
		}
		if t.word.CompareAndSwap(was, was+what) {
			return bucket, true
		}
	}
}

// inBucket reports whether a moment is in a bucket, without a division.
func (b *breaker) inBucket(n int64, now time.Duration) bool {
	since := now - time.Duration(n)*b.width
	return n != noBucket && since >= 0 && since < b.width
}

// noteHeaders notes an attempt that got its headers in time.
func (b *breaker) noteHeaders(a *attempt, now time.Duration) bool {
	e := &a.ticket.entry
	if e.bucket.Load() != 0 {
		return false
	}
	n, ok := b.note(tallyTimed, a.ticket.generation, now)
	if !ok {
		return false
	}
	if !e.bucket.CompareAndSwap(0, n+1) { // its timer has just counted it, as slow
		b.mu.Lock()
		b.takeOver(now)
		if _, generation := b.load(); generation == a.ticket.generation {
			if w := b.evidence(); w.holds(n) {
				w.add(n, bucket{timed: 1}, -1)
			}
		}
		b.mu.Unlock()
	}
	return true
}

// countHeaders counts them where the tally has just been taken over: in that again, so
// that a host that always answers needs no window. b.mu is held.
func (b *breaker) countHeaders(a *attempt, now time.Duration) {
	e := &a.ticket.entry
	if e.bucket.Load() == 0 {
		if n, ok := b.note(tallyTimed, a.ticket.generation, now); ok {
			e.bucket.Store(n + 1)
			return
		}
	}
	b.evidence().answered(now, e)
}

// noteSuccess notes an attempt that was one. Its timer is over, so that nobody changes
// its entry any more: judge has counted it as slow before, if it was.
func (b *breaker) noteSuccess(a *attempt, resp *http.Response, now time.Duration) bool {
	if resp == nil || a.ticket.entry.slow {
		return false
	}
	what := uint64(tallySuccess)
	if a.ticket.entry.bucket.Load() == 0 {
		what |= tallyTimed
	}
	_, ok := b.note(what, a.ticket.generation, now)
	return ok
}

// takeOver brings the window up to date: what was noted counts when it was. Readings of
// the clock come here out of order, and the tally never goes back. b.mu is held.
func (b *breaker) takeOver(now time.Duration) {
	t := &b.tally
	n := t.bucket.Swap(noBucket) // nobody adds to what is taken
	newest := max(int64(now/b.width), n)
	was := t.word.Swap(t.next())
	t.bucket.Store(newest)
	if was&(tallyMark-1) == 0 {
		return
	}
	w := b.evidence()
	w.roll(max(now, time.Duration(newest)*b.width))
	ended, timed := int(was&tallyMask), int(was>>tallyBits&tallyMask)
	if ended > 0 {
		b.consecutive = 0
	}
	if w.holds(n) {
		w.succeeded(n, ended, timed)
	}
}

// next is a tally of nothing, with the next mark. The breaker's mu is held.
func (t *tally) next() uint64 { return t.word.Load()&^(tallyMark-1) + tallyMark }

// outdate drops what was noted in the state before, and lets nothing be noted until the
// next takeOver. b.mu is held.
func (t *tally) outdate() {
	t.bucket.Store(noBucket)
	t.word.Store(t.next())
}

// ease says whether the next calls need the lock to be counted. b.mu is held.
func (b *breaker) ease() {
	if uneasy := b.consecutive > 0 || b.window != nil && !b.window.clean() || b.policy.WindowCalls > 0; uneasy != b.tally.uneasy.Load() {
		b.tally.uneasy.Store(uneasy)
	}
}
