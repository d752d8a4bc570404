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
			t.bucket.Load() != int64(now/b.width) {
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
	if !e.bucket.CompareAndSwap(0, int64(now/b.width)+1) { // its timer has just counted it, as slow
		b.mu.Lock()
		b.takeOver(now)
		if _, generation := b.load(); generation == a.ticket.generation {
			w := b.evidence()
			w.roll(now)
			w.add(w.head, bucket{timed: 1}, -1)
		}
		b.mu.Unlock()
	}
	return true
}

// countHeaders counts them where the tally has just been taken over: in that again, so
// that a host that always answers needs no window. b.mu is held.
func (b *breaker) countHeaders(a *attempt, now time.Duration) {
	e := &a.ticket.entry
	if e.bucket.Load() == 0 && b.note(tallyTimed, a.ticket.generation, now, false) {
		e.bucket.Store(int64(now/b.width) + 1)
		return
	}
	b.evidence().answered(now, e)
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
	t := &b.tally
	n := t.bucket.Load()
	t.bucket.Store(int64(now / b.width))
	was := t.word.Swap(t.next())
	if was&(tallyMark-1) == 0 {
		return
	}
	w := b.evidence()
	w.roll(now)
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

// evidence is the window, to be added to. b.mu is held.
func (b *breaker) evidence() *window {
	if b.window == nil {
		b.window = newWindow(b.policy.Window, b.policy.Buckets, b.policy.WindowCalls, b.policy.SlowCall)
	}
	return b.window
}

// whole looks at all the evidence. b.mu is held.
func (b *breaker) whole(now time.Duration) look {
	switch {
	case b.window != nil:
		return b.window.whole(now)
	case b.policy.WindowCalls > 0:
		return look{}
	}
	return look{span: b.width * time.Duration(b.policy.Buckets)}
}

// giveBackWindow drops a window that holds nothing any more.
func (b *breaker) giveBackWindow(now time.Duration) {
	if !b.on || !b.mu.TryLock() {
		return
	}
	defer b.mu.Unlock()
	b.takeOver(now)
	if w := b.window; w != nil && w.outcomes == nil {
		if w.roll(now); w.sum == (bucket{}) {
			b.window = nil
		}
	}
}

// outdate drops what was noted in the state before. b.mu is held.
func (t *tally) outdate() { t.word.Store(t.next()) }

// settled says how the next calls are counted. b.mu is held.
func (b *breaker) settled() {
	if uneasy := b.consecutive > 0 || b.window != nil && !b.window.clean() || b.policy.WindowCalls > 0; uneasy != b.tally.uneasy.Load() {
		b.tally.uneasy.Store(uneasy)
	}
}
