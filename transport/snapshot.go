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
	few                      atomic.Pointer[fewCounts] // nil: all of them are zero
}

// fewCounts are the totals that stay zero at a host that always answers.
type fewCounts struct {
	retries, suppressed                                              atomic.Int64
	failure, neutral                                                 atomic.Int64
	refusedOpen, refusedHalfOpen, rejected                           atomic.Int64
	stale, degraded, failFast                                        atomic.Int64
	hits, collapsed, validated, refreshes                            atomic.Int64
	queue, connect, tls, write, header, body, attempt, total, stream atomic.Int64
	leaked                                                           atomic.Int64
}

// seldom are the few, to be added to.
func (c *counts) seldom() *fewCounts {
	if few := c.few.Load(); few != nil {
		return few
	}
	c.few.CompareAndSwap(nil, &fewCounts{})
	return c.few.Load()
}

func (c *counts) verdict(v policy.Verdict) {
	switch v {
	case policy.Success:
		c.success.Add(1)
	case policy.Failure:
		c.seldom().failure.Add(1)
	default:
		c.seldom().neutral.Add(1)
	}
}

func (c *counts) refused(s State) {
	few := c.seldom()
	if s == HalfOpen {
		few.refusedHalfOpen.Add(1)
		return
	}
	few.refusedOpen.Add(1)
}

func (c *counts) timeout(e *Error) {
	few := c.seldom()
	switch e.Kind {
	case ErrConnectTimeout:
		few.connect.Add(1)
	case ErrTLSTimeout:
		few.tls.Add(1)
	case ErrReadTimeout:
		switch e.Phase {
		case phaseBody.String():
			few.body.Add(1)
		case phaseWrite.String():
			few.write.Add(1)
		default:
			few.header.Add(1)
		}
	case ErrAttemptTimeout:
		few.attempt.Add(1)
	case ErrTotalTimeout:
		if e.Phase == "queue" {
			few.queue.Add(1)
		} else {
			few.total.Add(1)
		}
	case ErrStreamIdle:
		few.stream.Add(1)
	}
}

func (c *counts) fallback(kind string, shadow bool) {
	if shadow {
		return
	}
	few := c.seldom()
	switch kind {
	case "stale":
		few.stale.Add(1)
	case "degraded":
		few.degraded.Add(1)
	case "fail_fast":
		few.failFast.Add(1)
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
		RetryBudget:   h.budget.left(now),
		Counts:        h.counts.snapshot(),
	}
	if l := h.latency.Load(); l != nil {
		s.Latency = l.read(now)
	}
	if f := h.fallback; f != nil {
		if at := f.servedAt.Load(); at != 0 {
			s.Stale = ServedStale{At: h.t.wall(time.Duration(at)), AsOf: h.t.wall(time.Duration(f.servedAsOf.Load()))}
		}
	}
	b := h.breaker
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
	few := c.few.Load()
	if few == nil {
		few = &fewCounts{}
	}
	return Counts{
		Calls: c.calls.Load(), Attempts: c.attempts.Load(), Retries: few.retries.Load(),
		RetriesSuppressed: few.suppressed.Load(),
		Success:           c.success.Load(), Failure: few.failure.Load(), Neutral: few.neutral.Load(),
		RefusedOpen: few.refusedOpen.Load(), RefusedHalfOpen: few.refusedHalfOpen.Load(), Rejected: few.rejected.Load(),
		Stale: few.stale.Load(), Degraded: few.degraded.Load(), FailFast: few.failFast.Load(), Leaked: few.leaked.Load(),
		Hits: few.hits.Load(), Collapsed: few.collapsed.Load(), Validated: few.validated.Load(), Refreshes: few.refreshes.Load(),
		Timeouts: map[string]int64{
			"queue": few.queue.Load(), "connect": few.connect.Load(), "tls": few.tls.Load(), "write": few.write.Load(),
			"response_header": few.header.Load(), "body": few.body.Load(), "attempt": few.attempt.Load(), "total": few.total.Load(),
			"stream": few.stream.Load(),
		},
	}
}
