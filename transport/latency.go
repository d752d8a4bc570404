package transport

import (
	"math"
	"math/bits"
	"sync/atomic"
	"time"
)

// Latency is how long the attempts of the last minute or two have waited for their
// peer: what SlowCall judges, without the caller's own pauses. The percentiles are
// up to a quarter above the true ones, and nothing above some two minutes is told
// apart.
type Latency struct {
	Attempts      int64 // that got headers, or met a limit
	P50, P95, P99 time.Duration
}

const (
	latencyLeast = 64 * time.Microsecond // in the first slot is what is shorter
	latencySlots = 4 * 21                // four to each doubling: more than two minutes in the last
	latencyTurn  = time.Minute           // after which a half is dropped
)

// latency counts durations in two halves, the present and the previous minute. A
// host that is not used gives it back.
type latency struct {
	turned         atomic.Int64 // when recent began, on the clock
	recent, before [latencySlots]atomic.Uint32
}

// lone is the first attempt of a host, which is all that many hosts ever have: when it
// ended, in nanoseconds, and above that the slot of its duration and one; 0: none.
type lone struct{ word atomic.Uint64 }

const (
	loneBits = 56 // of the time: two years
	loneTime = 1<<loneBits - 1
)

// set makes an attempt the first one; false if there was one.
func (o *lone) set(now, took time.Duration) bool {
	return o.word.Load() == 0 && o.word.CompareAndSwap(0, uint64(latencySlot(took)+1)<<loneBits|uint64(now)&loneTime)
}

// addTo counts the first attempt in l, unless it is long ago.
func (o *lone) addTo(l *latency, now time.Duration) {
	word := o.word.Load()
	if slot := int(word >> loneBits); slot > 0 && now-time.Duration(word&loneTime) < latencyTurn {
		l.recent[slot-1].Add(1)
	}
}

// took counts an attempt of the host.
func (h *host) took(now, age time.Duration) {
	l := h.latency.Load()
	if l == nil {
		if h.lone.set(now, age) {
			return
		}
		made := &latency{}
		made.turned.Store(int64(now))
		h.lone.addTo(made, now)
		h.latency.CompareAndSwap(nil, made)
		l = h.latency.Load()
	}
	if l != nil { // not given back meanwhile
		l.add(now, age)
	}
}

// latencies are those of the host, as far as they are of the last minute or two.
func (h *host) latencies(now time.Duration) (sum Latency) {
	if l := h.latency.Load(); l != nil {
		return l.read(now)
	}
	var l latency
	l.turned.Store(int64(now))
	h.lone.addTo(&l, now)
	return l.read(now)
}

// giveBackLatency forgets them.
func (h *host) giveBackLatency() {
	h.latency.Store(nil)
	h.lone.word.Store(0)
}

// add counts one attempt. What is counted while the halves turn may be lost.
func (l *latency) add(now, took time.Duration) {
	l.turn(now)
	l.recent[latencySlot(took)].Add(1)
}

func (l *latency) turn(now time.Duration) {
	turned := l.turned.Load()
	if now-time.Duration(turned) < latencyTurn || !l.turned.CompareAndSwap(turned, int64(now)) {
		return
	}
	old := now-time.Duration(turned) >= 2*latencyTurn
	for i := range l.recent {
		n := l.recent[i].Swap(0)
		if old {
			n = 0
		}
		l.before[i].Store(n)
	}
}

// latencySlot is the slot of a duration: its octave, and the quarter of that.
func latencySlot(d time.Duration) int {
	n := uint64(max(d, 0) / (latencyLeast / 4))
	if n < 4 {
		return 0
	}
	octave := bits.Len64(n) - 3
	return min(4*octave+int(n>>octave&3), latencySlots-1)
}

// latencyEnd is the duration at which a slot ends.
func latencyEnd(slot int) time.Duration {
	octave, quarter := slot/4, slot%4
	return time.Duration(4+quarter+1) << octave * (latencyLeast / 4)
}

// read tells the percentiles.
func (l *latency) read(now time.Duration) (sum Latency) {
	l.turn(now)
	var slots [latencySlots]int64
	for i := range slots {
		slots[i] = int64(l.recent[i].Load()) + int64(l.before[i].Load())
		sum.Attempts += slots[i]
	}
	at := func(share float64) time.Duration {
		rank := int64(math.Ceil(share * float64(sum.Attempts)))
		for i, n := range slots {
			if rank -= n; rank <= 0 {
				return latencyEnd(i)
			}
		}
		return latencyEnd(latencySlots - 1)
	}
	if sum.Attempts > 0 {
		sum.P50, sum.P95, sum.P99 = at(0.50), at(0.95), at(0.99)
	}
	return sum
}
