package transport

import (
	"sync"
	"time"
)

// alarm is a timer that serves one attempt after another. It is not stopped when its
// attempt has ended: most often it is set for a moment before any limit of the next
// one, which finds then what it is really to wait for; else set moves it. So a host in
// steady use sets a timer every few seconds, and not for each of its calls. What is left
// of that when nobody calls any more, or after Close, is a timer that goes off once, at
// most alarmMost later, and does nothing.
type alarm struct {
	timer *time.Timer

	mu  sync.Mutex // guards what follows
	of  *attempt
	due time.Duration // when it goes off, on the clock; 0: it is not set
}

// ring runs when the timer fires.
func (r *alarm) ring() {
	r.mu.Lock()
	r.due = 0
	a := r.of
	r.mu.Unlock()
	if a != nil {
		a.tick()
	}
}

// set has the alarm go off after a while, or before.
func (r *alarm) set(after, now time.Duration) {
	after = min(after, alarmMost)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.due != 0 && r.due <= now+after {
		return
	}
	r.due = now + after
	if r.timer == nil {
		r.timer = time.AfterFunc(after, r.ring)
		return
	}
	r.timer.Reset(after)
}

// alarmMost is how long an alarm is set for at most, since nothing but the timer may
// know of it any more.
const alarmMost = 5 * time.Second

// alarms are those that nobody uses. None is kept of a bubble of testing/synctest, whose
// timers must not be touched from outside.
type alarms struct {
	real bool // the Transport was not made in a bubble; see keeps
	free sync.Pool
}

// take returns an alarm for a.
func (s *alarms) take(a *attempt, now time.Duration) *alarm {
	if s.keeps(now) {
		if r, ok := s.free.Get().(*alarm); ok {
			r.mu.Lock()
			r.of = a
			r.mu.Unlock()
			return r
		}
	}
	return &alarm{of: a}
}

// release takes an alarm back.
func (s *alarms) release(r *alarm, now time.Duration) {
	r.mu.Lock()
	r.of = nil
	r.mu.Unlock()
	if s.keeps(now) {
		s.free.Put(r)
	} else {
		r.timer.Stop()
	}
}

// keeps reports whether neither this goroutine nor the Transport is of a bubble, whose
// time is that of the year 2000.
func (s *alarms) keeps(now time.Duration) bool { return s.real && now >= 0 && now < decade }
