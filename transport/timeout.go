package transport

import (
	"time"

	"github.com/watertight-go/watertight/policy"
)

// limitOf is the limit on the present wait of the attempt, with the knob that
// sets it. mu must be held.
func (a *attempt) limitOf() (d time.Duration, knob string, kind error) {
	t := a.call.timeout
	switch a.clock.phase {
	case phaseConnect:
		return t.Connect, "Timeout.Connect", ErrConnectTimeout
	case phaseTLS:
		return t.TLSHandshake, "Timeout.TLSHandshake", ErrTLSTimeout
	case phaseWrite, phaseHeader, phaseBody:
		if a.stream {
			if a.resp != nil {
				return t.StreamIdle, "Timeout.StreamIdle", ErrStreamIdle
			}
			return 0, "", nil
		}
		return t.Read, "Timeout.Read", ErrReadTimeout
	}
	return 0, "", nil
}

// soonest is how long after the start of an attempt something may be due, at the
// soonest.
func soonest(p *policy.Policy) time.Duration {
	t, soonest := &p.Timeout, forever
	for _, d := range [...]time.Duration{t.Connect, t.TLSHandshake, t.Read, t.StreamIdle, t.Attempt, t.Total, p.Breaker.SlowCall, p.Bulkhead.BodyIdle} {
		if d > 0 {
			soonest = min(soonest, d)
		}
	}
	return soonest
}

// watch arms the timer for what is due next. mu must be held.
//
// There is one timer, and it is only ever late to be re-armed, never late to
// fire: limits move later, as pauses and bytes extend them, and none that may
// yet begin ends sooner than the timer is set. So nothing is re-armed when a wait
// begins or ends; the timer finds what is due when it fires.
func (a *attempt) watch(now time.Duration) {
	d, next := a.look(now)
	if d.expired != nil || d.slow || d.leak || d.lease {
		next = 0
	}
	a.arm(next, now)
}

func (a *attempt) arm(next, now time.Duration) {
	if next == forever || a.ended { // its alarm may be another's by now
		return
	}
	a.alarm.set(next, now)
}

// dues is what there is to do at one moment.
type dues struct {
	expired *Error // the first limit, the most specific one
	slow    bool
	leak    bool
	lease   bool
}

func (d *dues) expire(e *Error) {
	if d.expired == nil {
		d.expired = e
	}
}

// look finds what is due, and how long it is until something else may be. It
// changes nothing. mu must be held.
func (a *attempt) look(now time.Duration) (due dues, next time.Duration) {
	t, c := a.call.timeout, &a.clock
	next = forever
	left := func(d, used time.Duration) bool {
		if rest := d - used; rest > 0 {
			next = min(next, rest)
			return false
		}
		return true
	}

	// The waits, present and to come.
	waited, waiting := c.waited(now)
	if a.stream && c.phase == phaseBody { // its silence is that of both sides
		waited, waiting = now-c.since, true
	}
	d, knob, kind := a.limitOf()
	wait := func() *Error {
		return &Error{Kind: kind, Layer: LayerTimeout, Phase: c.phase.String(), Limit: d, Knob: knob}
	}
	if d > 0 && left(d, waited) && waiting {
		due.expire(wait())
	}
	if c.phase <= phaseTLS {
		for _, d := range [...]time.Duration{t.Connect, t.TLSHandshake} {
			if d > 0 {
				next = min(next, d)
			}
		}
	}
	if d := t.Read; d > 0 && !a.stream {
		next = min(next, d)
	}
	if d := t.StreamIdle; d > 0 && (a.stream || c.phase < phaseBody) {
		next = min(next, d)
	}

	// The ages.
	if !a.stream {
		age := c.age(now)
		if t.Attempt > 0 && left(t.Attempt+t.Extension(c.bytes), age) {
			if d > 0 && waiting && waited >= d-d/20 { // it was all spent on one wait: that says more
				due.expire(wait())
			}
			due.expire(&Error{Kind: ErrAttemptTimeout, Layer: LayerTimeout, Phase: "attempt", Limit: t.Attempt, Knob: "Timeout.Attempt"})
		}
		if t.Total > 0 && left(t.Total+t.Extension(a.call.bytes+c.bytes), a.call.spent(now)-c.pauses(now)) {
			due.expire(&Error{Kind: ErrTotalTimeout, Layer: LayerTimeout, Phase: "total", Limit: t.Total, Knob: "Timeout.Total"})
		}
		if s := a.call.slowCall; s > 0 && !a.slow && left(s+t.Extension(c.bytes), age) {
			due.slow = true
		}
	}

	// The caller.
	if d := a.call.h.policy.Bulkhead.BodyIdle; d > 0 && !a.stream {
		next = min(next, d) // also for a pause that is yet to begin
		due.leak = a.idles() && left(d, now-c.since)
	}
	if a.rare != nil && a.rare.lease > 0 && left(a.rare.lease, now) {
		due.lease = true
	}
	return due, next
}

// late reports whether the attempt's age has passed SlowCall. mu must be held.
func (a *attempt) late(now time.Duration) bool {
	s := a.call.slowCall
	if s <= 0 || a.stream {
		return false
	}
	age := a.clock.age(now)
	return age >= s && age >= s+a.call.timeout.Extension(a.clock.bytes)
}

// tick runs when the attempt's timer fires.
func (a *attempt) tick() {
	h := a.call.h
	now := h.t.now()
	a.mu.Lock()
	if a.ended {
		a.mu.Unlock()
		return
	}
	due, next := a.look(now)
	a.slow = a.slow || due.slow
	if due.lease {
		a.rare.lease = 0
	}
	if a.expired != nil || a.shadowed { // told once
		due.expired = nil
	}
	kill := due.expired != nil && !a.call.timeout.Shadow
	if kill {
		a.expired = a.call.error(due.expired)
	}
	a.shadowed = a.shadowed || due.expired != nil && !kill
	if a.clock.paused() { // what is left does not shrink in a pause: do not spin
		next = max(next, time.Millisecond)
	}
	a.arm(next, now)
	deaf := a.clock.phase == phaseBody && a.deaf()
	a.mu.Unlock()

	// Act first, tell afterwards: a listener may take its time.
	if due.expired != nil {
		h.counts.timeout(due.expired)
	}
	if kill {
		a.stop()
		if deaf {
			a.closeBase()
		}
	}
	if due.leak {
		a.leak(leakIdle)
	}
	if due.slow {
		h.breaker.slow(a, now)
	}
	if due.lease {
		a.judgeLease(now)
	}
	if due.expired != nil && !kill { // else end tells
		a.call.tellTimeout(due.expired, int(a.number), true)
	}
}
