package scene

import (
	"context"
	"sync"
	"time"
)

// stalls are the times when the machine did not run us. A claim about time is
// widened by them, and says so: a clock that stood still proves nothing.
type stalls struct {
	mu  sync.Mutex // guards all
	all []stall
}

type stall struct {
	end  time.Time
	lost time.Duration
}

// What a sleep of stallStep may be late before it counts as a stall.
const (
	stallStep  = 2 * time.Millisecond
	stallGrace = 2 * time.Millisecond
)

// watch looks for stalls until ctx ends.
func (s *stalls) watch(ctx context.Context) {
	for ctx.Err() == nil {
		start := time.Now()
		time.Sleep(stallStep)
		now := time.Now()
		if late := now.Sub(start) - stallStep; late > stallGrace {
			s.mu.Lock()
			s.all = append(s.all, stall{now, late})
			s.mu.Unlock()
		}
	}
}

// between is how much of the time from one moment to another was lost.
func (s *stalls) between(from, to time.Time) (lost time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.all {
		start := x.end.Add(-x.lost)
		if start.Before(from) {
			start = from
		}
		end := x.end
		if end.After(to) {
			end = to
		}
		lost += max(end.Sub(start), 0)
	}
	return lost
}
