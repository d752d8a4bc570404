package transport

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	"github.com/watertight-go/watertight/policy"
)

// counts are the totals of a host since its state was created.
type counts struct {
	calls, attempts, success atomic.Int64
	other                    atomic.Pointer[otherCounts] // nil: all of them are zero
}

// otherCounts are the totals that stay zero at a host that always answers.
type otherCounts struct {
	retries, suppressed                                              atomic.Int64
	failure, neutral                                                 atomic.Int64
	refusedOpen, refusedHalfOpen, rejected                           atomic.Int64
	stale, degraded, failFast                                        atomic.Int64
	hits, collapsed, validated, refreshes                            atomic.Int64
	queue, connect, tls, write, header, body, attempt, total, stream atomic.Int64
	leaked                                                           atomic.Int64
}

// others are the other totals, to be added to.
func (c *counts) others() *otherCounts {
	if other := c.other.Load(); other != nil {
		return other
	}
	c.other.CompareAndSwap(nil, &otherCounts{})
	return c.other.Load()
}

func (c *counts) verdict(v policy.Verdict) {
	switch v {
	case policy.Success:
		c.success.Add(1)
	case policy.Failure:
		c.others().failure.Add(1)
	default:
		c.others().neutral.Add(1)
	}
}

func (c *counts) refused(s State) {
	other := c.others()
	if s == HalfOpen {
		other.refusedHalfOpen.Add(1)
		return
	}
	other.refusedOpen.Add(1)
}

func (c *counts) timeout(e *Error) {
	other := c.others()
	switch e.Kind {
	case ErrConnectTimeout:
		other.connect.Add(1)
	case ErrTLSTimeout:
		other.tls.Add(1)
	case ErrReadTimeout:
		switch e.Phase {
		case phaseBody.String():
			other.body.Add(1)
		case phaseWrite.String():
			other.write.Add(1)
		default:
			other.header.Add(1)
		}
	case ErrAttemptTimeout:
		other.attempt.Add(1)
	case ErrTotalTimeout:
		if e.Phase == "queue" {
			other.queue.Add(1)
		} else {
			other.total.Add(1)
		}
	case ErrStreamIdle:
		other.stream.Add(1)
	}
}

func (c *counts) fallback(kind string, shadow bool) {
	if shadow {
		return
	}
	other := c.others()
	switch kind {
	case "stale":
		other.stale.Add(1)
	case "degraded":
		other.degraded.Add(1)
	case "fail_fast":
		other.failFast.Add(1)
	}
}

// HostSnapshot is the state of one host at one moment.
type HostSnapshot struct {
	Scheme string
	Host   string        // host:port
	Policy policy.Policy // not to be changed

	State       State         // HalfOpen also when the wait is over and no call has come
	Since       time.Time     // when State began; zero for a breaker that never moved
	ClosedUntil time.Time     // when it last left Closed; zero while it is Closed
	Cause       *Evidence     // why it did; Trip is what was found since, such as a probe that failed
	RetryIn     time.Duration // until probes are let through; zero unless Open
	Window      Evidence      // what the window holds now
	Trip        *Evidence     // why it last opened, by a trip or by hand; nil if it never did
	Tripped     time.Time     // when that was
	Transitions []Transition  // the last ones, the oldest first
	Failures    []Failure     // the last ones, the oldest first; none where the breaker is off

	InFlight      int     // attempts under way, until their bodies have ended: those that hold a permit, where there are permits
	MaxConcurrent int     // 0: no bound
	Waiting       int     // calls that wait for a permit
	RetryBudget   float64 // tokens left; meaningless without a budget

	Latency Latency
	Stale   ServedStale // the last one
	Counts  Counts
}

// Failure is an attempt that counted as one.
type Failure struct {
	At   time.Time
	What string // a status code or a kind of error, as Evidence.Last has it
}

// ServedStale tells of a stored answer that was served in place of a failure.
type ServedStale struct {
	At   time.Time // zero: there was none
	AsOf time.Time // when the origin gave that answer
}

// Counts are the totals of a host since its state was created.
type Counts struct {
	Calls, Attempts, Retries     int64
	RetriesSuppressed            int64
	Success, Failure, Neutral    int64            // verdicts
	RefusedOpen, RefusedHalfOpen int64            // by the breaker
	Rejected                     int64            // by the bulkhead
	Stale, Degraded, FailFast    int64            // fallbacks served
	Hits, Collapsed              int64            // answers from the store with no contact, or after that of another like it (Cache.Fresh)
	Validated, Refreshes         int64            // answers that the origin has confirmed, and requests in the background
	Leaked                       int64            // forgotten bodies
	Timeouts                     map[string]int64 // by phase: queue (of Total), connect, tls, write, response_header, body, attempt, total, stream
}

// Snapshot tells the state of every host, sorted by host and scheme. It blocks no
// call.
func (t *Transport) Snapshot() []HostSnapshot {
	return snapshots(slices.Collect(t.hosts.all()))
}

// snapshots are those of some hosts, sorted.
func snapshots(hosts []*host) []HostSnapshot {
	slices.SortFunc(hosts, func(a, b *host) int { // not the snapshots, which are large
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.key.scheme, b.key.scheme))
	})
	all := make([]HostSnapshot, len(hosts))
	for i, h := range hosts {
		all[i] = h.snapshot()
	}
	return all
}

func (h *host) snapshot() HostSnapshot {
	now := h.t.now()
	s := HostSnapshot{
		Scheme: h.key.scheme, Host: h.name, Policy: *h.policy,
		InFlight: int(h.bulkhead.held.Load()), Waiting: int(h.bulkhead.waiting.Load()),
		MaxConcurrent: h.policy.Bulkhead.MaxConcurrent,
		RetryBudget:   h.budget().left(now),
		Counts:        h.counts.snapshot(),
	}
	s.Latency = h.latencies(now)
	if f := h.fallback; f != nil {
		if at := f.servedAt.Load(); at != 0 {
			s.Stale = ServedStale{At: h.t.wall(time.Duration(at)), AsOf: h.t.wall(time.Duration(f.servedAsOf.Load()))}
		}
	}
	b := &h.breaker
	b.mu.Lock()
	defer b.mu.Unlock()
	s.State, _ = b.load()
	if r := b.record; r != nil {
		s.Transitions, s.Failures = slices.Clone(r.recent), r.failures.all()
		if n := len(r.recent); n > 0 {
			s.Since = r.recent[n-1].At
		}
	}
	if s.State == Open {
		if s.RetryIn = max(time.Duration(b.until.Load())-now, 0); s.RetryIn == 0 {
			s.State, s.Since = HalfOpen, h.t.wall(time.Duration(b.until.Load()))
		}
	}
	if s.State != Closed {
		s.ClosedUntil, s.Cause = b.record.outage.At, &b.record.outage.Evidence
	}
	if t := b.trip.Load(); t != nil {
		s.Trip, s.Tripped = &t.evidence, t.at
	}
	if b.on {
		b.takeOver(now)
		whole := b.whole(now)
		s.Window = b.found(&whole, "", 0)
	}
	return s
}

func (c *counts) snapshot() Counts {
	other := c.other.Load()
	if other == nil {
		other = &otherCounts{}
	}
	return Counts{
		Calls: c.calls.Load(), Attempts: c.attempts.Load(), Retries: other.retries.Load(),
		RetriesSuppressed: other.suppressed.Load(),
		Success:           c.success.Load(), Failure: other.failure.Load(), Neutral: other.neutral.Load(),
		RefusedOpen: other.refusedOpen.Load(), RefusedHalfOpen: other.refusedHalfOpen.Load(), Rejected: other.rejected.Load(),
		Stale: other.stale.Load(), Degraded: other.degraded.Load(), FailFast: other.failFast.Load(), Leaked: other.leaked.Load(),
		Hits: other.hits.Load(), Collapsed: other.collapsed.Load(), Validated: other.validated.Load(), Refreshes: other.refreshes.Load(),
		Timeouts: map[string]int64{
			"queue": other.queue.Load(), "connect": other.connect.Load(), "tls": other.tls.Load(), "write": other.write.Load(),
			"response_header": other.header.Load(), "body": other.body.Load(), "attempt": other.attempt.Load(), "total": other.total.Load(),
			"stream": other.stream.Load(),
		},
	}
}
