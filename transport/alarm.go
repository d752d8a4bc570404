package transport

import (
	"sync"
	"sync/atomic"
	"time"
)

// alarm is a timer that serves one attempt after another, since to make one costs
// more than all else that a limit needs.
type alarm struct {
	timer *time.Timer
	of    atomic.Pointer[attempt]
}

// ring runs when the timer fires. It may be late, and then meet the attempt after the
// one that it was set for: to tick once more does no harm.
func (r *alarm) ring() {
	if a := r.of.Load(); a != nil {
		a.tick()
	}
}

// alarms are those that nobody uses. None is kept of a bubble of testing/synctest, whose
// timers must not be touched from outside.
type alarms struct {
	real bool // the Transport was not made in a bubble
	free sync.Pool
}

// set returns an alarm that rings for a.
func (s *alarms) set(a *attempt, after, now time.Duration) *alarm {
	if s.keeps(now) {
		if r, ok := s.free.Get().(*alarm); ok {
			r.of.Store(a)
			r.timer.Reset(after)
			return r
		}
	}
	r := &alarm{}
	r.of.Store(a)
	r.timer = time.AfterFunc(after, r.ring)
	return r
}

// release takes an alarm back. One that has just gone off is left to itself.
func (s *alarms) release(r *alarm, now time.Duration) {
	if r != nil && r.timer.Stop() && s.keeps(now) {
		r.of.Store(nil)
		s.free.Put(r)
	}
}

func (s *alarms) keeps(now time.Duration) bool { return s.real && now < decade }
