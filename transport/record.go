package transport

import (
	"time"

	"github.com/sony/gobreaker/v2"
)

// record is what the breaker of a host that has always answered has not.
type record struct {
	machine  *gobreaker.TwoStepCircuitBreaker[struct{}] // nil: a new one, closed
	moved    []gobreaker.State
	reopens  int
	last     string // what the last failure was
	failures failures
	outage   *Transition // the last one from Closed
	recent   []Transition
	toTell   line
	toLog    line
}

// records is the record of the breaker, to be added to. b.mu is held.
func (b *breaker) records() *record {
	if b.record == nil {
		b.record = &record{}
	}
	return b.record
}

// queued reports whether there are transitions to tell of. b.mu is held.
func (b *breaker) queued() bool { return b.record != nil && len(b.record.toTell.waiting) > 0 }

// machine is that of the breaker; a new one is closed. b.mu is held.
func (b *breaker) machine() *gobreaker.TwoStepCircuitBreaker[struct{}] {
	r := b.records()
	if r.machine == nil {
		r.machine = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
			MaxRequests:   uint32(b.policy.HalfOpenProbes),
			Timeout:       time.Nanosecond,
			ReadyToTrip:   func(gobreaker.Counts) bool { return b.tripping },
			IsExcluded:    func(err error) bool { return err == errNoVerdict },
			OnStateChange: func(_ string, _, to gobreaker.State) { r.moved = append(r.moved, to) },
		})
	}
	return r.machine
}
