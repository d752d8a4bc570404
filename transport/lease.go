package transport

import (
	"cmp"
	"time"

	"github.com/watertight-go/watertight/policy"
)

// probeLease is how long a probe may go without a verdict where no limit of its
// own says so.
const probeLease = 10 * time.Second

func (a *attempt) leaseTime() time.Duration {
	return cmp.Or(max(a.call.timeout.Attempt, 0), probeLease)
}

// unbounded reports whether no limit ends the wait for headers.
func (a *attempt) unbounded() bool {
	t := a.call.timeout
	return a.call.slowCall <= 0 && (t.Shadow || t.Attempt <= 0 && t.Total <= 0 && t.Read <= 0)
}

// judgeLease settles the verdict of a probe that is still under way.
func (a *attempt) judgeLease(now time.Duration) {
	b := &a.call.h.breaker
	a.mu.Lock()
	resp, expired := a.resp, a.expired
	if resp == nil && expired == nil && !a.clock.paused() && !a.stream && !a.unbounded() {
		a.needRare().lease = now + a.leaseTime() // the peer is waited for, and a limit ends that
		a.watch(now)
		a.mu.Unlock()
		return
	}
	a.mu.Unlock()
	switch {
	case expired != nil: // at this moment
		b.settle(a, b.verdict(resp, expired), resp, expired, now)
	case resp != nil:
		b.settle(a, b.verdict(resp, nil), resp, nil, now)
	default: // it has no headers yet, and may take its time
		b.settle(a, policy.Neutral, nil, nil, now)
	}
}
