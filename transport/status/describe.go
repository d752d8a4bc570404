package status

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
)

// describe is the state of a host as at a moment: without what does not change
// often, which detail adds.
func describe(s *transport.HostSnapshot, at time.Time) Host {
	p, c := &s.Policy, &s.Counts
	h := Host{
		Scheme: s.Scheme, Host: s.Host, Shadow: shadowed(p),
		State: s.State.String(),
		Since: stamp(s.Since), SinceSeconds: ago(at, s.Since),
		ClosedUntil: stamp(s.ClosedUntil), ClosedUntilSeconds: ago(at, s.ClosedUntil),
		Window:   windowOf(s),
		Failures: kinds(s.Failures),
		Permits:  Permits{InUse: s.InFlight, Limit: s.MaxConcurrent, Waiting: s.Waiting},
		Retries:  Retries{Made: c.Retries, Suppressed: c.RetriesSuppressed},
		Latency: Latency{Attempts: s.Latency.Attempts,
			P50: seconds(s.Latency.P50), P95: seconds(s.Latency.P95), P99: seconds(s.Latency.P99)},
		Calls:    Calls{Total: c.Calls, Attempts: c.Attempts, Success: c.Success, Failure: c.Failure, Neutral: c.Neutral},
		Refusals: Refusals{BreakerOpen: c.RefusedOpen, BreakerHalfOpen: c.RefusedHalfOpen, Bulkhead: c.Rejected},
		Timeouts: Timeouts{
			Queue: c.Timeouts["queue"], Connect: c.Timeouts["connect"], TLS: c.Timeouts["tls"], Write: c.Timeouts["write"],
			ResponseHeader: c.Timeouts["response_header"],
			Body:           c.Timeouts["body"], Attempt: c.Timeouts["attempt"], Total: c.Timeouts["total"], Stream: c.Timeouts["stream"],
		},
		Fallbacks: Fallbacks{Stale: c.Stale, Degraded: c.Degraded, FailFast: c.FailFast, MaxStale: seconds(p.Fallback.MaxStale)},
		Cache:     Cache{Hits: c.Hits, Collapsed: c.Collapsed, Validated: c.Validated, Refreshes: c.Refreshes},
		Leaks:     c.Leaked,
	}
	if n := len(s.Transitions); n > 0 && s.State == transport.Open {
		due := s.Transitions[n-1].Until
		h.ProbeDue, h.ProbeDueSeconds = stamp(due), max(ago(due, at), 0)
	}
	if s.Cause != nil {
		cause := evidenceOf(s.Cause)
		h.Cause = &cause
	}
	if s.Trip != nil {
		h.Trip = &Trip{At: stamp(s.Tripped), AgoSeconds: ago(at, s.Tripped), Evidence: evidenceOf(s.Trip)}
	}
	if p.Retry.Enabled() && p.Retry.Budget.Enabled() {
		h.Retries.Budget = &Budget{Left: math.Floor(s.RetryBudget*10) / 10, Limit: policy.BudgetBurst}
	}
	if l := s.Stale; !l.At.IsZero() {
		h.Fallbacks.LastStale = &Stale{At: stamp(l.At), AgoSeconds: ago(at, l.At), AsOf: stamp(l.AsOf), AgeSeconds: ago(l.At, l.AsOf)}
	}
	return h
}

// detail adds a host's own transitions and its policy.
func (h *Host) detail(s *transport.HostSnapshot, at time.Time) {
	for i := range s.Transitions {
		h.Transitions = append(h.Transitions, transitionOf(&transport.HostTransition{Scheme: s.Scheme, Host: s.Host,
			Shadow: s.Policy.Breaker.Shadow, Transition: s.Transitions[i]}, at))
	}
	h.Policy = policyOf(s.Policy)
}

func shadowed(p *policy.Policy) []string {
	names := []string{}
	for _, l := range []struct {
		name   string
		shadow bool
	}{
		{transport.LayerTimeout, p.Timeout.Shadow},
		{transport.LayerBulkhead, p.Bulkhead.Shadow},
		{transport.LayerBreaker, p.Breaker.Shadow},
		{transport.LayerRetry, p.Retry.Shadow},
		{transport.LayerFallback, p.Fallback.Shadow},
	} {
		if l.shadow {
			names = append(names, l.name)
		}
	}
	return names
}

func windowOf(s *transport.HostSnapshot) *Window {
	if !s.Policy.Breaker.Enabled() {
		return nil
	}
	b, w := s.Policy.Breaker.WithDefaults(s.MaxConcurrent), &s.Window
	slow := b.SlowRate
	if b.SlowCall == 0 {
		slow = 0
	}
	d := &Window{
		Seconds: seconds(w.Window), MinCalls: b.MinCalls,
		Calls: w.Calls, Failures: w.Failures, FailureRate: share(w.Failures, w.Calls),
		FailureRateThreshold: b.FailureRate, FailuresThreshold: b.FailuresInWindow,
		Timed: w.Timed, Slow: w.Slow, SlowRate: share(w.Slow, w.Timed),
		SlowRateThreshold: slow, SlowCallSeconds: seconds(b.SlowCall),
		ConsecutiveFailures: w.Consecutive, ConsecutiveFailuresThreshold: b.ConsecutiveFailures, LastFailure: w.Last,
	}
	d.Over = d.over()
	return d
}

// over reports whether a closed breaker would open by what is in the window.
func (w *Window) over() bool {
	reached := func(value, threshold float64) bool { return threshold > 0 && value >= threshold }
	return w.Calls >= w.MinCalls && reached(w.FailureRate, w.FailureRateThreshold) ||
		w.Timed >= w.MinCalls && reached(w.SlowRate, w.SlowRateThreshold) ||
		reached(float64(w.ConsecutiveFailures), float64(w.ConsecutiveFailuresThreshold)) ||
		reached(float64(w.Failures), float64(w.FailuresThreshold))
}

func evidenceOf(e *transport.Evidence) Evidence {
	return Evidence{
		Trigger: e.Trigger, Text: e.String(), WindowSeconds: seconds(e.Window),
		Calls: e.Calls, Failures: e.Failures, Timed: e.Timed, Slow: e.Slow,
		ConsecutiveFailures: e.Consecutive, Threshold: e.Threshold, LastFailure: e.Last,
	}
}

func transitionOf(t *transport.HostTransition, at time.Time) Transition {
	d := Transition{
		ID: t.ID, Scheme: t.Scheme, Host: t.Host, Shadow: t.Shadow,
		From: t.From.String(), To: t.To.String(),
		At: stamp(t.At), AgoSeconds: ago(at, t.At), Evidence: evidenceOf(&t.Evidence),
	}
	if !t.Until.IsZero() {
		d.OpenForSeconds = ago(t.Until, t.At)
	}
	return d
}

// kinds counts failures by what they were.
func kinds(all []transport.Failure) []FailureKind {
	found := []FailureKind{}
	for _, f := range all {
		i := slices.IndexFunc(found, func(k FailureKind) bool { return k.What == f.What })
		if i < 0 {
			i, found = len(found), append(found, FailureKind{What: f.What})
		}
		found[i].Count++
		found[i].LastAt = stamp(f.At)
	}
	slices.SortStableFunc(found, func(a, b FailureKind) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), b.LastAt.Compare(a.LastAt))
	})
	return found
}

// stamp is a time in JSON, to the millisecond.
func stamp(t time.Time) time.Time { return t.UTC().Round(time.Millisecond) }

// seconds is a duration in JSON, to the microsecond.
func seconds(d time.Duration) float64 { return decimal(d, time.Microsecond) }

// decimal is a duration in seconds, rounded to a unit: one division of whole numbers
// gives the number that is written so, where Duration.Seconds adds two and may give
// 28.349999999999998.
func decimal(d, unit time.Duration) float64 {
	return float64(d.Round(unit)/unit) / float64(time.Second/unit)
}

// ago is how long before at a time was, to the millisecond; 0 for none. Both have a
// reading of the monotonic clock, so that a change of the time of day is no age.
func ago(at, then time.Time) float64 {
	if then.IsZero() {
		return 0
	}
	return decimal(at.Sub(then), time.Millisecond)
}

// share is a part of a whole, to four digits.
func share(part, whole int) float64 {
	if whole == 0 {
		return 0
	}
	return math.Round(float64(part)/float64(whole)*1e4) / 1e4
}
