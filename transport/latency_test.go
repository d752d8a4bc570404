package transport

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestLatencySlotsCoverAllDurations(t *testing.T) {
	for slot := range latencySlots - 1 {
		end := latencyEnd(slot)
		if got := latencySlot(end - 1); got != slot {
			t.Errorf("%v is in slot %d, want %d", end-1, got, slot)
		}
		if got := latencySlot(end); got != slot+1 {
			t.Errorf("%v is in slot %d, want %d", end, got, slot+1)
		}
	}
	for d, want := range map[time.Duration]int{-time.Second: 0, 0: 0, time.Hour: latencySlots - 1} {
		if got := latencySlot(d); got != want {
			t.Errorf("%v is in slot %d, want %d", d, got, want)
		}
	}
}

func TestLatencyIsAtMostAQuarterAboveTheTruth(t *testing.T) {
	var l latency
	r := rand.New(rand.NewPCG(1, 2))
	var all []time.Duration
	for range 1000 {
		d := time.Duration(float64(time.Millisecond) * (1 + 1000*r.ExpFloat64()))
		all = append(all, d)
		l.add(0, d)
	}
	slices.Sort(all)
	got := l.read(0)
	for _, c := range []struct{ got, truth time.Duration }{{got.P50, all[499]}, {got.P95, all[949]}, {got.P99, all[989]}} {
		if c.got < c.truth || c.got > c.truth*5/4 {
			t.Errorf("%v, truly %v", c.got, c.truth)
		}
	}
	if got.Attempts != 1000 {
		t.Errorf("%+v", got)
	}
}

func TestLatencyForgetsWhatIsOlderThanTwoMinutes(t *testing.T) {
	var l latency
	l.add(10*time.Second, time.Second)
	for at, want := range map[time.Duration]int64{59 * time.Second: 1} {
		if got := l.read(at); got.Attempts != want {
			t.Errorf("at %v: %+v", at, got)
		}
	}
	l.add(70*time.Second, time.Millisecond)
	if got := l.read(119 * time.Second); got.Attempts != 2 || got.P50 > 2*time.Millisecond || got.P99 < time.Second {
		t.Errorf("%+v", got)
	}
	if got := l.read(131 * time.Second); got.Attempts != 1 || got.P99 > 2*time.Millisecond {
		t.Errorf("%+v", got)
	}
	if got := l.read(time.Hour); got != (Latency{}) {
		t.Errorf("%+v", got)
	}
}

func TestTheFirstAttemptOfAHostIsCountedWithoutATable(t *testing.T) {
	h := &host{}
	if got := h.latencies(time.Second); got.Attempts != 0 {
		t.Errorf("%+v of none", got)
	}
	h.took(time.Second, 10*time.Millisecond)
	if got := h.latencies(2 * time.Second); got.Attempts != 1 || got.P99 < 10*time.Millisecond || got.P99 > 13*time.Millisecond || h.latency.Load() != nil {
		t.Errorf("%+v of one", got)
	}
	h.took(2*time.Second, 20*time.Millisecond)
	if got := h.latencies(2 * time.Second); got.Attempts != 2 || got.P50 > 13*time.Millisecond || got.P99 < 20*time.Millisecond {
		t.Errorf("%+v of two", got)
	}
	h.giveBackLatency()
	h.took(time.Second, time.Millisecond)
	if got := h.latencies(time.Second + latencyTurn); got.Attempts != 0 {
		t.Errorf("%+v of one that was long ago", got)
	}
	h.took(5*time.Minute, time.Millisecond)
	if got := h.latencies(5 * time.Minute); got.Attempts != 1 {
		t.Errorf("%+v, the first of which was long ago", got)
	}
}
