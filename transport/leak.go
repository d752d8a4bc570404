package transport

import (
	"time"
)

// forgotten runs when an answer has become unreachable.
func forgotten(a *attempt) {
	a.mu.Lock()
	open := !a.ended && a.closing == bodyOpen
	bubble := a.call.h.t.now()-a.clock.mark > decade
	a.mu.Unlock()
	if open && !bubble {
		go a.leak(leakUnreachable)
	}
}

// decade tells what began in a bubble of testing/synctest, where it is the year
// 2000, and whose timers and channels must not be touched from outside, where
// cleanups run. BodyIdle finds it from within.
const decade = 10 * 365 * 24 * time.Hour

// How a body is found to be forgotten.
const (
	leakUnreachable = "unreachable" // nothing points to its response any more
	leakIdle        = "idle"        // it was not read for BodyIdle
)

// leak closes a body that its caller has forgotten.
func (a *attempt) leak(why string) {
	h := a.call.h
	a.mu.Lock()
	readOn := why == leakIdle && a.clock.phase != phaseIdle // just in time
	shadow := why == leakIdle && h.policy.Bulkhead.Shadow   // told once, and let be
	if a.ended || a.closing != bodyOpen || readOn || shadow && a.idled {
		a.mu.Unlock()
		return
	}
	a.idled, a.leaked = true, why
	if shadow {
		a.mu.Unlock()
		h.counts.leaked.Add(1)
		a.call.observe(Event{Kind: EventLeak, Layer: LayerBulkhead, Reason: why, Attempt: a.number, Shadow: true})
		return
	}
	a.closing = bodyClosed
	a.readErr = a.call.error(&Error{Kind: errBodyIdle, Layer: LayerBulkhead, Phase: phaseIdle.String(),
		Limit: h.policy.Bulkhead.BodyIdle, Knob: "Bulkhead.BodyIdle"})
	a.mu.Unlock()
	h.counts.leaked.Add(1)
	a.stop()
	a.closeBase()
	a.end(endLeaked, nil)
}
