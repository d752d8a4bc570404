package transport

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// windowCall is what the naive model remembers of a call; times are negative
// where it has not come so far.
type windowCall struct {
	e                   entry
	timed, slow, ended  time.Duration
	failed, slowAtItEnd bool
	first               int64 // the bucket that its verdict counts in
}

// windowModel counts a window from the whole history, bucket by bucket.
type windowModel struct {
	width    time.Duration
	buckets  int64
	calls    []*windowCall
	left     []time.Duration
	outcomes []bool        // in order
	timings  []*windowCall // in order; the last of a call's counts
}

func (m *windowModel) bucket(t time.Duration) int64 { return int64(t / m.width) }

func (m *windowModel) held(n int64, now time.Duration) bool { return n > m.bucket(now)-m.buckets }

// over counts what the newest n buckets hold.
func (m *windowModel) over(n int64, now time.Duration) (b bucket) {
	in := func(k int64) bool { return k > m.bucket(now)-n }
	for _, c := range m.calls {
		home := m.bucket(c.timed)
		if c.slow >= 0 {
			home = m.bucket(c.slow)
		}
		if (c.timed >= 0 || c.slow >= 0) && in(home) {
			b.timed++
			if c.slow >= 0 {
				b.slow++
			}
		}
		if c.ended >= 0 && in(c.first) {
			switch {
			case !c.failed:
				b.success++
			case c.slowAtItEnd:
				b.failure++
				b.both++
			default:
				b.failure++
			}
		}
	}
	for _, t := range m.left {
		if in(m.bucket(t)) {
			b.left++
		}
	}
	return b
}

// lastCalls counts the last so many outcomes and timings.
func (m *windowModel) lastCalls(n int) (b bucket) {
	for _, failed := range m.outcomes[max(0, len(m.outcomes)-n):] {
		if failed {
			b.failure++
		} else {
			b.success++
		}
	}
	last := m.timings[max(0, len(m.timings)-n):]
	for i, c := range last {
		b.timed++
		if c.slow >= 0 && !slices.Contains(last[i+1:], c) {
			b.slow++
		}
	}
	return b
}

func TestWindowAgreesWithANaiveModel(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 1))
		m := &windowModel{width: time.Duration(1 + r.IntN(4)), buckets: int64(1 + r.IntN(8))}
		slowCall := time.Duration(r.IntN(12))
		size := 0
		if seed%3 == 0 {
			size = 1 + r.IntN(6)
		}
		w := newWindow(m.width*time.Duration(m.buckets), int(m.buckets), size, slowCall)
		short := min(max(int64(slowCall/m.width), 1), m.buckets)
		longer := min(short+1, m.buckets)
		now := time.Duration(r.IntN(30))
		for step := range 400 {
			if r.IntN(3) == 0 {
				now += time.Duration(r.IntN(6))
			}
			if r.IntN(60) == 0 {
				now += m.width * time.Duration(m.buckets+1)
			}
			var c *windowCall
			if n := len(m.calls); n > 0 && r.IntN(2) == 0 {
				c = m.calls[max(0, n-1-r.IntN(8))]
			} else {
				c = &windowCall{timed: -1, slow: -1, ended: -1}
				m.calls = append(m.calls, c)
			}
			switch r.IntN(5) {
			case 0, 1:
				if c.ended >= 0 || c.timed >= 0 || c.slow >= 0 {
					break
				}
				w.answered(now, &c.e)
				c.timed = now
				m.timings = append(m.timings, c)
			case 2:
				if c.slow >= 0 {
					break
				}
				w.slowed(now, &c.e)
				if !slices.Contains(m.timings[max(0, len(m.timings)-max(size, 1)):], c) {
					m.timings = append(m.timings, c)
				}
				c.slow = now
			case 3:
				if c.ended >= 0 {
					break
				}
				c.ended, c.failed, c.first = now, r.IntN(2) == 0, m.bucket(now)
				if c.slow >= 0 && m.held(m.bucket(c.slow), now) {
					c.first, c.slowAtItEnd = m.bucket(c.slow), true
				}
				w.ended(now, &c.e, c.failed)
				m.outcomes = append(m.outcomes, c.failed)
			case 4:
				w.left(now)
				m.left = append(m.left, now)
			}
			looks := w.looks(now)
			want := [3]bucket{m.over(short, now), m.over(longer, now), m.over(m.buckets, now)}
			if sum := w.sum; sum != want[2] {
				t.Fatalf("seed %d, step %d: the sum is %+v, want %+v", seed, step, sum, want[2])
			}
			if size > 0 {
				want[2] = m.lastCalls(size)
			}
			for i, l := range looks {
				if l.bucket != want[i] {
					t.Fatalf("seed %d, step %d: look %d is %+v, want %+v", seed, step, i, l.bucket, want[i])
				}
				if l.both > l.failure || l.slow > l.timed || min(l.success, l.failure, l.timed, l.slow, l.both, l.left) < 0 {
					t.Fatalf("seed %d, step %d: look %d contradicts itself: %+v", seed, step, i, l.bucket)
				}
			}
		}
	}
}

func TestWindowIsEmptyAfterAnIdleWindow(t *testing.T) {
	w := newWindow(10*time.Second, 10, 0, 2*time.Second)
	now := 3 * time.Second
	for range 3 { // the same after each roll
		for i := range 100 {
			var e entry
			now += 100 * time.Millisecond
			w.answered(now, &e)
			w.slowed(now, &e)
			w.ended(now, &e, i%2 == 0)
			w.left(now)
		}
		now += 10 * time.Second
		if got := w.whole(now).bucket; got != (bucket{}) {
			t.Fatalf("%+v after an idle window, want nothing", got)
		}
	}
}

func TestWindowLetsABucketExpireAsAWhole(t *testing.T) {
	w := newWindow(10*time.Second, 10, 0, 0)
	for _, at := range []time.Duration{0, 999 * time.Millisecond, time.Second} {
		w.ended(at, &entry{}, true)
	}
	for _, test := range []struct {
		now  time.Duration
		want int32
	}{
		{10*time.Second - 1, 3},
		{10 * time.Second, 1},
		{11*time.Second - 1, 1},
		{11 * time.Second, 0},
	} {
		if got := w.whole(test.now).failure; got != test.want {
			t.Errorf("%d failures at %v, want %d", got, test.now, test.want)
		}
	}
}

func TestWindowOfCallsForgetsByNumberNotByTime(t *testing.T) {
	w := newWindow(time.Second, 1, 3, 0)
	for i := range 3 {
		w.ended(time.Duration(i)*time.Hour, &entry{}, true)
	}
	if got := w.whole(100 * time.Hour); got.failure != 3 || got.success != 0 || got.span != 0 {
		t.Fatalf("%+v, want 3 failures over no span", got)
	}
	w.ended(100*time.Hour, &entry{}, false)
	if got := w.whole(100 * time.Hour); got.failure != 2 || got.success != 1 {
		t.Fatalf("%+v, want 2 failures and a success", got)
	}
}

func TestWindowCountsACallOnce(t *testing.T) {
	for _, calls := range []int{0, 3} {
		w := newWindow(time.Minute, 60, calls, 2*time.Second)
		var e entry
		w.answered(0, &e)
		w.answered(0, &e) // counts once
		if got := w.whole(0); got.timed != 1 || !w.clean() {
			t.Errorf("%+v, want a window with 1 call that is clean", got)
		}
		w.slowed(0, &e)
		w.slowed(0, &e)
		w.ended(0, &e, true)
		w.left(0)
		if got := w.whole(0); got.timed != 1 || got.slow != 1 || got.failure != 1 || w.clean() {
			t.Errorf("%+v, want 1 call, slow and failed", got)
		}
	}
}

// A download that turns slow long after its headers must not be taken for one of
// the calls that came since.
func TestWindowOfCallsMarksTheCallThatIsSlow(t *testing.T) {
	w := newWindow(time.Second, 1, 3, 0)
	var first entry
	w.answered(0, &first)
	for range 2 {
		w.answered(0, &entry{})
	}
	w.slowed(0, &first)
	if got := w.whole(0); got.timed != 3 || got.slow != 1 {
		t.Fatalf("%+v, want 1 slow of 3", got)
	}
	w.answered(0, &entry{}) // pushes the slow one out
	if got := w.whole(0); got.timed != 3 || got.slow != 0 {
		t.Fatalf("%+v, want 0 slow of 3", got)
	}
}

// Calls that got their headers before they hung are found slow SlowCall later: a
// short look at the buckets of their headers would never see them.
func TestWindowShortLookSeesAHangThatBeganAfterTheHeaders(t *testing.T) {
	w := newWindow(time.Minute, 60, 0, 2*time.Second)
	for range 10_000 {
		var e entry
		w.answered(0, &e)
		w.ended(0, &e, false)
	}
	for range 20 {
		var e entry
		w.answered(time.Second, &e)
		w.slowed(3*time.Second, &e)
		w.ended(4*time.Second, &e, true)
	}
	short := w.looks(4 * time.Second)[0]
	if short.timed != 20 || short.slow != 20 || short.failure != 20 || short.both != 20 || short.span != 2*time.Second {
		t.Errorf("%+v, want 20 calls, slow and failed, in 2 s", short)
	}
	if whole := w.whole(4 * time.Second); whole.timed != 10_020 || whole.success+whole.failure != 10_020 {
		t.Errorf("%+v, want each of 10,020 calls counted once", whole)
	}
}

// The short look must hold nothing from before a hang when that is found, and
// all that was found within SlowCall: however its beginning falls into a bucket.
func TestWindowShortLooksFrameSlowCall(t *testing.T) {
	const width, slowCall = time.Second, 2 * time.Second
	for offset := time.Duration(0); offset < width; offset += 100 * time.Millisecond {
		w := newWindow(time.Minute, 60, 0, slowCall)
		hang := 10*time.Second + offset
		for range 1000 { // the last good calls end as the hang begins
			w.answered(hang, &entry{})
		}
		w.slowed(hang+slowCall, &entry{})
		if got := w.looks(hang + slowCall)[0]; got.timed != 1 || got.slow != 1 {
			t.Errorf("%v into a bucket: %+v, want the slow call alone", offset, got)
		}
		for d := 100 * time.Millisecond; d <= slowCall; d += 100 * time.Millisecond {
			w.slowed(hang+slowCall+d, &entry{})
		}
		if got := w.looks(hang + 2*slowCall)[1]; got.slow != 21 {
			t.Errorf("%v into a bucket: %d slow calls, want all 21", offset, got.slow)
		}
	}
}

func TestWindowLooksNeverReachBeyondTheWindow(t *testing.T) {
	for _, test := range []struct {
		buckets     int
		slowCall    time.Duration
		short, long time.Duration
	}{
		{1, 0, time.Second, time.Second},
		{5, 0, time.Second, 2 * time.Second},
		{5, 1500 * time.Millisecond, time.Second, 2 * time.Second},
		{5, 5 * time.Second, 5 * time.Second, 5 * time.Second},
		{5, time.Hour, 5 * time.Second, 5 * time.Second},
	} {
		w := newWindow(time.Duration(test.buckets)*time.Second, test.buckets, 0, test.slowCall)
		w.ended(time.Hour, &entry{}, true)
		looks := w.looks(time.Hour)
		name := fmt.Sprintf("%d buckets, SlowCall %v", test.buckets, test.slowCall)
		if looks[0].span != test.short || looks[1].span != test.long || looks[2].span != time.Duration(test.buckets)*time.Second {
			t.Errorf("%s: looks over %v, %v, %v; want %v, %v", name, looks[0].span, looks[1].span, looks[2].span, test.short, test.long)
		}
		for i, l := range looks {
			if l.failure != 1 {
				t.Errorf("%s: look %d counts %d failures, want 1", name, i, l.failure)
			}
		}
	}
}

// Rates are fractions that people write down, and 0.07 x 100 is more than 7.
func TestBreakerRateIsReachedExactlyAtEachPercent(t *testing.T) {
	for percent := int32(1); percent <= 100; percent++ {
		share := float64(percent) / 100
		if !reached(share, percent, 100, 1) {
			t.Errorf("%d of 100 does not reach %v", percent, share)
		}
		if reached(share, percent-1, 100, 1) {
			t.Errorf("%d of 100 reaches %v", percent-1, share)
		}
	}
	if reached(0.5, 19, 19, 20) || !reached(0.5, 10, 20, 20) || reached(0, 20, 20, 20) {
		t.Error("MinCalls, or a rate that is off, are not heeded")
	}
}
