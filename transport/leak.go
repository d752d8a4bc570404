package transport

import (
	"runtime"
	"sync"
)

// guard is what an answer alone points to, so that it becomes unreachable with it, of
// which the garbage collector tells. It serves one answer after another, since to ask
// for that costs more than the rest of an answer, and has the alarm of its attempt, which
// does not point to it.
type guard struct {
	alarm   *alarm
	watched bool // it has been asked for
}

// guards are those that no attempt uses, and none of a bubble.
type guards struct{ free sync.Pool }

// take returns a guard for an attempt that begins; kept says whether another may have it
// after that.
func (s *guards) take(kept bool) *guard {
	if kept {
		if g, ok := s.free.Get().(*guard); ok {
			return g
		}
	}
	return &guard{alarm: &alarm{kept: kept}}
}

// release takes the guard of an attempt that has ended.
func (s *guards) release(g *guard) {
	if g.alarm.kept {
		s.free.Put(g)
	}
}

// watch has it told when the guard becomes unreachable.
func (g *guard) watch() {
	if !g.watched {
		g.watched = true
		runtime.AddCleanup(g, forgotten, g.alarm)
	}
}

// forgotten runs when an answer has become unreachable, or its guard has in another way.
func forgotten(r *alarm) {
	a := r.of.Load()
	if a == nil {
		return
	}
	a.mu.Lock()
	open := !a.ended && a.resp != nil && a.closing == bodyOpen
	bubble := a.call.h.t.now()-a.clock.since > decade // BodyIdle finds it from within
	a.mu.Unlock()
	if open && !bubble {
		go a.leak(leakUnreachable)
	}
}

// idles reports whether the peer waits for the caller: to read the response body, or
// to give more of the request body. mu must be held.
func (a *attempt) idles() bool {
	return a.clock.phase == phaseIdle || a.clock.uploading && !a.stream && !a.call.streaming()
}

// How a body is found to be forgotten.
const (
	leakUnreachable = "unreachable" // nothing points to its response any more
	leakIdle        = "idle"        // it was not read, or gave nothing, for BodyIdle
)

// leak ends an attempt of whose bodies its caller has forgotten one.
func (a *attempt) leak(why string) {
	h := a.call.h
	now := h.t.now()
	a.mu.Lock()
	readOn := why == leakIdle && !(a.idles() && now-a.clock.since >= h.policy.Bulkhead.BodyIdle) // just in time
	shadow := why == leakIdle && h.policy.Bulkhead.Shadow                                        // told once, and let be
	if a.ended || a.closing != bodyOpen || readOn || shadow && a.idled {
		a.mu.Unlock()
		return
	}
	a.idled, a.needRare().leaked = true, why
	if shadow {
		a.mu.Unlock()
		h.counts.others().leaked.Add(1)
		a.call.observe(Event{Kind: EventLeak, Layer: LayerBulkhead, Reason: why, Attempt: int(a.number), Shadow: true})
		return
	}
	a.closing = bodyClosed
	e := a.call.error(&Error{Kind: errBodyIdle, Layer: LayerBulkhead, Phase: phaseIdle.String(),
		Limit: h.policy.Bulkhead.BodyIdle, Knob: "Bulkhead.BodyIdle"})
	if why == leakIdle && a.clock.phase != phaseIdle {
		e.Kind, e.Phase = errUploadIdle, a.clock.phase.String()
	}
	a.readErr = e
	var err error
	if a.resp == nil { // nobody has heard of it, and its base may not return before the caller's Read does
		a.faulty, err = true, e
		dropped := make(chan struct{})
		a.needRare().dropped = dropped
		defer close(dropped)
	}
	a.mu.Unlock()
	h.counts.others().leaked.Add(1)
	a.stop()
	defer a.end(endLeaked, err) // also when the base's Close ends the goroutine
	a.closeBase()
}
