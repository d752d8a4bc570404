package transport

import "time"

// window counts the outcomes of a host's calls: in buckets of time, of which the
// oldest expires as a new one begins, or over the last so many calls. It is
// guarded by its breaker's mu.
type window struct {
	width   time.Duration // of a bucket
	buckets []bucket      // a ring
	head    int64         // number of the newest bucket, on the clock / width
	sum     bucket        // of all buckets
	recent  int           // buckets that the second look of a rate takes in

	outcomes, timings *ring // instead of the buckets, for a window of calls
}

// bucket counts the calls that were first seen within its time.
type bucket struct {
	success, failure int32 // ended
	timed, slow      int32 // got headers or passed SlowCall; of those, slow
	both             int32 // slow and failed
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

// noBucket is where a call is that was not counted yet.
const noBucket = -1

func newWindow(span time.Duration, buckets, calls int, slowCall time.Duration) *window {
	w := &window{width: max(span/time.Duration(buckets), 1)}
	if calls > 0 {
		w.outcomes, w.timings = newRing(calls), newRing(calls)
		return w
	}
	w.buckets = make([]bucket, buckets)
	w.recent = min(int((max(slowCall, w.width)+w.width-1)/w.width), buckets)
	return w
}

// at returns the bucket that a call counts in: the one it was first counted in,
// if that is still in the window, else the newest; and its number.
func (w *window) at(now time.Duration, first int64) (*bucket, int64) {
	w.roll(now)
	n := w.head
	if first != noBucket && first > w.head-int64(len(w.buckets)) && first <= w.head {
		n = first
	}
	return &w.buckets[n%int64(len(w.buckets))], n
}

// roll lets buckets expire.
func (w *window) roll(now time.Duration) {
	seq := int64(now / w.width)
	if seq-w.head >= int64(len(w.buckets)) {
		clear(w.buckets)
		w.sum, w.head = bucket{}, seq
		return
	}
	for w.head < seq {
		w.head++
		b := &w.buckets[w.head%int64(len(w.buckets))]
		w.sum.add(*b, -1)
		*b = bucket{}
	}
}

// count adds to the bucket that a call belongs to, and returns its number.
func (w *window) count(now time.Duration, first int64, what bucket) int64 {
	if w.outcomes != nil {
		w.countCalls(what)
		return noBucket
	}
	b, n := w.at(now, first)
	b.add(what, 1)
	w.sum.add(what, 1)
	return n
}

func (w *window) countCalls(what bucket) {
	if what.success+what.failure > 0 {
		w.outcomes.push(what.failure > 0)
	}
	switch {
	case what.timed > 0:
		w.timings.push(what.slow > 0)
	case what.slow > 0:
		w.timings.mark() // it was pushed when it got its headers
	}
}

// totals are the counts over the window, and over its last buckets.
func (w *window) totals(now time.Duration) (all, last bucket) {
	if w.outcomes != nil {
		all = bucket{
			success: int32(w.outcomes.n - w.outcomes.set), failure: int32(w.outcomes.set),
			timed: int32(w.timings.n), slow: int32(w.timings.set),
		}
		return all, bucket{}
	}
	w.roll(now)
	for i := range int64(w.recent) {
		if n := w.head - i; n >= 0 {
			last.add(w.buckets[n%int64(len(w.buckets))], 1)
		}
	}
	return w.sum, last
}

// span is what totals are over: the window, and its last buckets.
func (w *window) span() (all, last time.Duration) {
	if w.outcomes != nil {
		return 0, 0
	}
	return w.width * time.Duration(len(w.buckets)), w.width * time.Duration(w.recent)
}

// reset forgets everything.
func (w *window) reset() {
	if w.outcomes != nil {
		w.outcomes.reset()
		w.timings.reset()
		return
	}
	clear(w.buckets)
	w.sum = bucket{}
}

// ring remembers one bit of each of the last len(bits) calls.
type ring struct {
	bits   []bool
	next   int
	n, set int
}

func newRing(n int) *ring { return &ring{bits: make([]bool, n)} }

func (r *ring) push(bit bool) {
	if r.n == len(r.bits) {
		if r.bits[r.next] {
			r.set--
		}
	} else {
		r.n++
	}
	r.bits[r.next] = bit
	if bit {
		r.set++
	}
	r.next = (r.next + 1) % len(r.bits)
}

// mark sets the bit of the newest call whose bit is not set: which of those in
// flight turned out slow does not matter to a count.
func (r *ring) mark() {
	for i := 1; i <= r.n; i++ {
		j := (r.next - i + len(r.bits)) % len(r.bits)
		if !r.bits[j] {
			r.bits[j] = true
			r.set++
			return
		}
	}
}

func (r *ring) reset() {
	clear(r.bits)
	r.next, r.n, r.set = 0, 0, 0
}
