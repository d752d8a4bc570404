package transport

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// guard is what an answer alone points to, so that it becomes unreachable with it, of
// which the garbage collector tells. It serves one answer after another, since to ask
// for that costs more than the rest of an answer.
type guard struct{ over *watched }

// watched is the attempt whose answer a guard belongs to; it does not point to that.
type watched struct{ a atomic.Pointer[attempt] }

// guards are those that no answer uses. What becomes of these is of no interest.
type guards struct{ free sync.Pool }

func (s *guards) set(a *attempt) *guard {
	g, ok := s.free.Get().(*guard)
	if !ok {
		g = &guard{over: &watched{}}
		runtime.AddCleanup(g, forgotten, g.over)
	}
	g.over.a.Store(a)
	return g
}

// release takes the guard of an answer whose attempt has ended; nil if it was taken.
func (s *guards) release(g *guard) {
	if g != nil {
		g.over.a.Store(nil)
		s.free.Put(g)
	}
}

// forgotten runs when an answer has become unreachable.
func forgotten(w *watched) {
	a := w.a.Load()
	if a == nil {
		return
	}
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
	readOn := why == leakIdle && !(a.idles() && now-a.clock.mark >= h.policy.Bulkhead.BodyIdle) // just in time
	shadow := why == leakIdle && h.policy.Bulkhead.Shadow                                       // told once, and let be
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

// back says that the base has returned, after which the caller's time begins anew; or
// it waits until the attempt has been ended that was dropped meanwhile, and gives the
// error for that.
func (a *attempt) back(now time.Duration) error {
	a.mu.Lock()
	dropped, err := a.peekRare().dropped, a.readErr
	if dropped == nil {
		a.clock.shift(now, a.clock.phase, a.clock.uploading)
	}
	a.mu.Unlock()
	if dropped == nil {
		return nil
	}
	<-dropped
	return err
}
