package transport

import (
	"sync/atomic"
	"time"
)

// alarm is a timer that serves one attempt after another. It is not stopped when its
// attempt has ended: most often it is set for a moment before any limit of the next
// one, which finds then what it is really to wait for; else set moves it. So a host in
// steady use sets a timer every few seconds, and not for each of its calls. What is left
// of that when nobody calls any more, or after Close, is a timer that goes off once, at
// most alarmMost later, and does nothing.
type alarm struct {
	of    atomic.Pointer[attempt]
	due   atomic.Int64 // when it goes off at the latest, on the clock; 0: it is not set
	timer *time.Timer  // guarded by mu of the attempt that has the alarm; no other has it before that one has ended
	kept  bool         // it is of no bubble
}

// ring runs when the timer fires. It clears due before it reads of; an attempt stores of
// before it reads due. So one of them sees the other.
func (r *alarm) ring() {
	r.due.Store(0)
	if a := r.of.Load(); a != nil {
		a.tick()
	}
}

// isSet reports whether the alarm goes off within a while.
func (r *alarm) isSet(within, now time.Duration) bool {
	due := time.Duration(r.due.Load())
	return due != 0 && due <= now+min(within, alarmMost)
}

// set has the alarm go off after a while, or before. The mu of its attempt must be held.
func (r *alarm) set(after, now time.Duration) {
	if r.isSet(after, now) {
		return
	}
	after = min(after, alarmMost)
	r.due.Store(int64(now + after))
	if r.timer == nil {
		r.timer = time.AfterFunc(after, r.ring)
		return
	}
	r.timer.Reset(after)
}

// letGo has the alarm of an attempt that has ended go off for nobody. It does not touch
// what a bubble has left, in which the attempt has begun. mu must be held.
func (a *attempt) letGo() {
	r := a.alarm
	a.alarm = nil
	r.of.Store(nil)
	if left := a.clock.since-a.clock.start >= decade; !r.kept && r.timer != nil && !left {
		r.timer.Stop()
	}
}

// alarmMost is how long an alarm is set for at most, since nothing but the timer may
// know of it any more.
const alarmMost = 5 * time.Second
