package transport

import (
	"net/http"
	"sync/atomic"
	"time"
)

// tally takes in the good news of a closed breaker without its lock: attempts that got
// their headers in time, or were a success. Whoever has the lock next takes them over
// into the window. Calls of a healthy host do not wait for each other so.
//
// It holds for one bucket of the window and one state of the breaker. When either is
// over its mark changes, so that nothing can be added that belongs to the last one.
type tally struct {
	word   atomic.Uint64 // mark, attempts with headers, successes
	bucket atomic.Int64  // of the window, that it is for
	uneasy atomic.Bool   // the window holds bad news, so that each call may be the one that trips: the lock it is
}

const (
	tallySuccess = 1
	tallyTimed   = 1 << tallyBits
	tallyMark    = 1 << (2 * tallyBits)
	tallyBits    = 20 // of a count; there are hardly so many calls in one bucket
	tallyMask    = 1<<tallyBits - 1
)

// note adds to the tally for an attempt of the present state; false where the lock is
// to be taken. One who would have to wait for that insists.
func (b *breaker) note(what, generation uint64, now time.Duration, insists bool) bool {
	t := &b.tally
	for {
		was := t.word.Load() // first: its mark has changed if what follows is outdated
		if was&tallyMask == tallyMask || was>>tallyBits&tallyMask == tallyMask || t.uneasy.Load() && !insists ||
			t.bucket.Load() != int64(now/b.window.width) {
			return false
		}
		if s, g := b.load(); g != generation || s != Closed && s != ForcedClosed {
			return false
		}
		if t.word.CompareAndSwap(was, was+what) {
			return true
		}
	}
}

// noteHeaders notes an attempt that got its headers in time.
func (b *breaker) noteHeaders(a *attempt, now time.Duration) bool {
	e := &a.ticket.entry
	if e.bucket.Load() != 0 || !b.note(tallyTimed, a.ticket.generation, now, false) {
		return false
	}
	if !e.bucket.CompareAndSwap(0, int64(now/b.window.width)+1) { // its timer has just counted it, as slow
		b.mu.Lock()
		b.takeOver(now)
		if _, generation := b.load(); generation == a.ticket.generation {
			b.window.add(b.window.head, bucket{timed: 1}, -1)
		}
		b.mu.Unlock()
	}
	return true
}

// noteVerdict notes the verdict on an attempt that has ended, if it is a good one.
func (b *breaker) noteVerdict(a *attempt, resp *http.Response, now time.Duration, insists bool) bool {
	if resp == nil || a.ticket.entry.slow {
		return false
	}
	what := uint64(tallySuccess)
	if a.ticket.entry.bucket.Load() == 0 {
		what |= tallyTimed
	}
	return b.note(what, a.ticket.generation, now, insists)
}

// takeOver brings the window up to date: what was noted counts when it was. b.mu is
// held.
func (b *breaker) takeOver(now time.Duration) {
	t, w := &b.tally, b.window
	w.roll(now)
	n := t.bucket.Load()
	t.bucket.Store(w.head)
	was := t.word.Swap(t.next())
	ended, timed := int(was&tallyMask), int(was>>tallyBits&tallyMask)
	if ended > 0 {
		b.consecutive = 0
	}
	if w.holds(n) {
		w.succeeded(n, ended, timed)
	}
}

// next is a tally of nothing, with the next mark, which only changes under b.mu.
func (t *tally) next() uint64 { return t.word.Load()&^(tallyMark-1) + tallyMark }

// outdate drops what was noted in the state before. b.mu is held.
func (t *tally) outdate() { t.word.Store(t.next()) }

// settled says how the next calls are counted. b.mu is held.
func (b *breaker) settled() {
	w := b.window
	if uneasy := b.consecutive > 0 || !w.clean() || w.outcomes != nil; uneasy != b.tally.uneasy.Load() {
		b.tally.uneasy.Store(uneasy)
	}
}
