package otel

import (
	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
)

// look is what the hosts of one policy name look like at a collection: their sum,
// or the worst of them.
type look struct {
	states                                [2][len(states)]int64 // of breakers that decide, and of those in shadow mode
	breakers                              [2]int
	windowCalls, inFlight, limit, waiting int64
	budgetUsed, budgetLimit               float64
	failureRate, slowRate                 rate
}

func (l *look) add(s *transport.HostSnapshot) {
	shadow := 0
	if s.Policy.Breaker.Shadow {
		shadow = 1
	}
	l.breakers[shadow]++
	l.states[shadow][s.State]++
	l.windowCalls += int64(s.Window.Calls)
	l.inFlight += int64(s.InFlight)
	l.limit += int64(s.MaxConcurrent)
	l.waiting += int64(s.Waiting)
	if s.Policy.Retry.Enabled() && s.Policy.Retry.Budget.Enabled() {
		l.budgetLimit += policy.BudgetBurst
		l.budgetUsed += max(policy.BudgetBurst-s.RetryBudget, 0)
	}
	b := s.Policy.Breaker.WithDefaults(s.MaxConcurrent)
	least := max(b.MinCalls, 1)
	if b.FailureRate > 0 {
		l.failureRate.add(s.Window.Failures, s.Window.Calls, least)
	}
	if b.SlowRate > 0 && b.SlowCall > 0 {
		l.slowRate.add(s.Window.Slow, s.Window.Timed, least)
	}
}

// rate is the highest of some shares.
type rate struct {
	value float64
	known bool // there were enough calls
}

func (r *rate) add(part, whole, least int) {
	if whole >= least {
		r.value, r.known = max(r.value, float64(part)/float64(whole)), true
	}
}
