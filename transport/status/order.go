package status

import (
	"cmp"
	"slices"

	"github.com/watertight-go/watertight/transport"
)

// order is the hosts by how much they need somebody: those that are refused, the
// first to go first; half-open ones, and those forced closed that are over a
// threshold; others forced closed, or open in shadow mode;
// then closed ones, the nearest to a threshold first. Hosts that are equally near,
// in quarters, keep their order by name, so that a list does not dance.
func order(all []transport.HostSnapshot) []*transport.HostSnapshot {
	type ranked struct {
		rank, trouble int
		*transport.HostSnapshot
	}
	hosts := make([]ranked, len(all))
	for i := range all {
		hosts[i] = ranked{rank(&all[i]), trouble(&all[i]), &all[i]}
	}
	slices.SortStableFunc(hosts, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), a.ClosedUntil.Compare(b.ClosedUntil), cmp.Compare(b.trouble, a.trouble))
	})
	sorted := make([]*transport.HostSnapshot, len(hosts))
	for i := range hosts {
		sorted[i] = hosts[i].HostSnapshot
	}
	return sorted
}

// refusing reports whether all calls to a host are refused.
func refusing(s *transport.HostSnapshot) bool {
	return (s.State == transport.Open || s.State == transport.ForcedOpen) && !s.Policy.Breaker.Shadow
}

// probing reports whether probes alone get to a host.
func probing(s *transport.HostSnapshot) bool {
	return s.State == transport.HalfOpen && !s.Policy.Breaker.Shadow
}

// exposed reports whether a breaker that was forced closed would open.
func exposed(s *transport.HostSnapshot) bool {
	if s.State != transport.ForcedClosed {
		return false
	}
	w := windowOf(s)
	return w != nil && w.Over
}

// rank is the group of a host in the order.
func rank(s *transport.HostSnapshot) int {
	switch {
	case s.State == transport.Closed:
		return 3
	case refusing(s):
		return 0
	case probing(s), exposed(s):
		return 1
	}
	return 2
}

// trouble is how near a host is to what it may not reach, in quarters.
func trouble(s *transport.HostSnapshot) int {
	near := 0.0
	if s.MaxConcurrent > 0 {
		near = float64(s.InFlight+s.Waiting) / float64(s.MaxConcurrent)
	}
	if w := windowOf(s); w != nil {
		of := func(value, threshold float64) {
			if threshold > 0 {
				near = max(near, value/threshold)
			}
		}
		if w.Calls >= w.MinCalls/2 {
			of(w.FailureRate, w.FailureRateThreshold)
		}
		if w.Timed >= w.MinCalls/2 {
			of(w.SlowRate, w.SlowRateThreshold)
		}
		of(float64(w.ConsecutiveFailures), float64(w.ConsecutiveFailuresThreshold))
		of(float64(w.Failures), float64(w.FailuresThreshold))
	}
	return int(min(near, 1) * 4)
}
