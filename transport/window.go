package transport

import (
	"sync/atomic"
	"time"
)

// window counts the outcomes of a host's calls in buckets of time, of which the
// oldest expires as a new one begins. On request the last so many calls are what
// it holds, whatever their age; the buckets are then for its short looks alone.
// It is guarded by its breaker's mu.
type window struct {
	width   time.Duration // of a bucket
	buckets []bucket      // a ring
	head    int64         // number of the newest bucket: the clock / width
	sum     bucket        // of all buckets
	short   int           // buckets in a short look, the newest included

	outcomes, timings *ring // of the last so many calls
}

// bucket counts what became known of calls within its time.
type bucket struct {
	success, failure int32 // ended
	timed, slow      int32 // got headers or passed SlowCall; of those, slow
	both             int32 // slow, and then failed
	left             int32 // ended by their callers' deadlines below SlowCall
}

func (b *bucket) add(o bucket, sign int32) {
	b.success += sign * o.success
	b.failure += sign * o.failure
	b.timed += sign * o.timed
	b.slow += sign * o.slow
	b.both += sign * o.both
	b.left += sign * o.left
}

// entry is where a window holds one call, which is counted once in each total
// whatever becomes of it. The zero entry is of a call that was not counted yet.
type entry struct {
	bucket atomic.Int64 // that it is timed, and slow, in, plus one; 0: it is not timed yet
	seq    int64        // among the timings, in a window of calls
	slow   bool
}

// bucketWidth is the width of one of some buckets.
func bucketWidth(span time.Duration, buckets int) time.Duration {
	return max(span/time.Duration(buckets), 1)
}

func newWindow(span time.Duration, buckets, calls int, slowCall time.Duration) *window {
	w := &window{width: bucketWidth(span, buckets), buckets: make([]bucket, buckets)}
	w.short = int(min(max(slowCall/w.width, 1), time.Duration(buckets)))
	if calls > 0 {
		w.outcomes, w.timings = newRing(calls), newRing(calls)
	}
	return w
}

// roll lets buckets expire.
func (w *window) roll(now time.Duration) {
	seq, all := int64(now/w.width), int64(len(w.buckets))
	if seq-w.head >= all || w.head-seq >= all { // or the clock is another, that of a bubble of testing/synctest
		clear(w.buckets)
		w.sum, w.head = bucket{}, seq
		return
	}
	for w.head < seq {
		w.head++
		b := w.at(w.head)
		w.sum.add(*b, -1)
		*b = bucket{}
	}
}

// at returns a bucket that the window holds.
func (w *window) at(n int64) *bucket {
	all := int64(len(w.buckets))
	return &w.buckets[(n%all+all)%all]
}

// holds reports whether a bucket has not expired.
func (w *window) holds(n int64) bool { return n > w.head-int64(len(w.buckets)) }

func (w *window) add(n int64, what bucket, sign int32) {
	w.at(n).add(what, sign)
	w.sum.add(what, sign)
}

// answered counts a call that got its headers.
func (w *window) answered(now time.Duration, e *entry) {
	w.roll(now)
	if !e.bucket.CompareAndSwap(0, w.head+1) {
		return
	}
	w.add(w.head, bucket{timed: 1}, 1)
	if w.timings != nil {
		e.seq = w.timings.push(false)
	}
}

// slowed counts a call whose age has passed SlowCall. One that had got its
// headers moves to the newest bucket: it is now that its host is slow.
func (w *window) slowed(now time.Duration, e *entry) {
	if e.slow {
		return
	}
	w.roll(now)
	was := e.bucket.Swap(w.head + 1)
	if was != 0 && w.holds(was-1) {
		w.add(was-1, bucket{timed: 1}, -1)
	}
	if w.timings != nil && !(was != 0 && w.timings.set(e.seq)) {
		e.seq = w.timings.push(true)
	}
	e.slow = true
	w.add(w.head, bucket{timed: 1, slow: 1}, 1)
}

// ended counts the verdict on a call: that on a slow one where it was counted as
// slow, if that has not expired, since that was the first news of it.
func (w *window) ended(now time.Duration, e *entry, failed bool) {
	w.roll(now)
	what, n := bucket{success: 1}, w.head
	if failed {
		what = bucket{failure: 1}
	}
	if first := e.bucket.Load() - 1; e.slow && w.holds(first) {
		n, what.both = first, what.failure
	}
	w.add(n, what, 1)
	if w.outcomes != nil {
		w.outcomes.push(failed)
	}
}

// succeeded counts so many successes at once, and so many calls that got their
// headers, in a bucket that the window holds.
func (w *window) succeeded(n int64, ended, timed int) {
	w.add(n, bucket{success: int32(ended), timed: int32(timed)}, 1)
	for range timed {
		if w.timings != nil {
			w.timings.push(false)
		}
	}
	for range ended {
		if w.outcomes != nil {
			w.outcomes.push(false)
		}
	}
}

// left counts a call that its caller's deadline ended below SlowCall, and reports
// the sum of all buckets.
func (w *window) left(now time.Duration) bucket {
	w.roll(now)
	w.add(w.head, bucket{left: 1}, 1)
	return w.sum
}

// look is what a window, or its end, holds.
type look struct {
	bucket
	span time.Duration // zero for the last so many calls
}

// clean reports whether the window holds neither a failure nor a slow call, so
// that no rate and no count of them can be met.
func (w *window) clean() bool {
	return w.sum.failure == 0 && w.sum.slow == 0 &&
		(w.outcomes == nil || w.outcomes.count == 0 && w.timings.count == 0)
}

// whole looks at all that the window holds.
func (w *window) whole(now time.Duration) look {
	if w.outcomes != nil {
		return look{bucket: bucket{
			success: int32(w.outcomes.len() - w.outcomes.count), failure: int32(w.outcomes.count),
			timed: int32(w.timings.len()), slow: int32(w.timings.count),
		}}
	}
	w.roll(now)
	return look{w.sum, w.width * time.Duration(len(w.buckets))}
}

// looks are those that a rate is judged by: the last max(SlowCall, one bucket),
// and the whole window. Buckets are not as fine as time, so that there are two of
// the former: one that holds no call from before the hang that has just been
// found to be slow, and one that holds all which were found so within SlowCall.
func (w *window) looks(now time.Duration) [3]look {
	w.roll(now)
	var l look
	n := w.head
	for range w.short {
		l.add(*w.at(n), 1)
		n--
		if n < 0 {
			break
		}
	}
	l.span = w.width * time.Duration(w.short)
	longer := l
	if n >= 0 && w.short < len(w.buckets) {
		longer.add(*w.at(n), 1)
		longer.span += w.width
	}
	return [...]look{l, longer, w.whole(now)}
}

// ring remembers one bit of each of the last len(bits) calls.
type ring struct {
	bits  []bool
	total int64 // of pushes
	count int   // of bits that are set
}

func newRing(n int) *ring { return &ring{bits: make([]bool, n)} }

func (r *ring) len() int { return int(min(r.total, int64(len(r.bits)))) }

// push takes in a call, and returns its number.
func (r *ring) push(bit bool) int64 {
	b := &r.bits[r.total%int64(len(r.bits))]
	if *b {
		r.count--
	}
	*b = bit
	if bit {
		r.count++
	}
	r.total++
	return r.total - 1
}

// set sets the bit of a call; false if it is not among the last any more.
func (r *ring) set(seq int64) bool {
	if seq < r.total-int64(len(r.bits)) {
		return false
	}
	if b := &r.bits[seq%int64(len(r.bits))]; !*b {
		*b = true
		r.count++
	}
	return true
}
