package transport

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/watertight-go/watertight/policy"
)

// verdict is the policy's, and survives a Classify that panics.
func (b *breaker) verdict(resp *http.Response, err error) (v policy.Verdict) {
	if b.policy.Classify == nil {
		return b.policy.Judge(resp, err)
	}
	defer func() {
		if recover() != nil {
			plain := b.policy
			plain.Classify = nil
			v = plain.Judge(resp, err)
		}
	}()
	return b.policy.Judge(resp, err)
}

// headers counts an attempt that got its headers, and settles at once what they
// already decide: a failing status, and the verdict of a stream.
func (b *breaker) headers(a *attempt, resp *http.Response, slow, newlySlow, stream bool, now time.Duration) {
	if !a.ticket.governed {
		return
	}
	what := bucket{timed: 1}
	if newlySlow {
		what.slow = 1
	}
	b.record(a, what, now)
	verdict := b.verdict(resp, nil)
	if verdict == policy.Failure || stream {
		b.settle(a, verdict, slow, resp, nil, now)
	}
}

// slow counts an attempt whose age has passed SlowCall.
func (b *breaker) slow(a *attempt, now time.Duration) {
	if !a.ticket.governed {
		return
	}
	b.record(a, bucket{slow: 1}, now)
}

// record counts what is known of an attempt before its verdict.
func (b *breaker) record(a *attempt, what bucket, now time.Duration) {
	b.mu.Lock()
	state, generation := b.load()
	if generation != a.ticket.generation {
		b.mu.Unlock()
		return
	}
	if what.timed == 0 && what.slow > 0 && !a.markCounted() {
		what.timed = 1
	} else if what.timed > 0 && a.markCounted() {
		what.timed = 0
	}
	switch state {
	case HalfOpen:
		if what.slow > 0 && a.ticket.done != nil && !a.settled.Swap(true) {
			b.last = "slow call"
			a.ticket.done(errProbeFailed)
			b.changed(now, Evidence{Trigger: "probe_slow", Last: b.last}, 0)
		}
	case Closed, ForcedClosed:
		a.ticket.first = b.window.count(now, a.ticket.first, what)
		if state == Closed && what.slow > 0 {
			b.evaluate(now, 0)
		}
	}
	queued := len(b.queue) > 0
	b.mu.Unlock()
	if queued {
		b.deliver(a.call.ctx)
	}
}

// markCounted puts the attempt into the slow rate's denominator, and reports
// whether it was there. b.mu is held.
func (a *attempt) markCounted() bool {
	was := a.ticket.counted
	a.ticket.counted = true
	return was
}

// left counts an attempt whose caller's own deadline ended it below SlowCall; when
// most of a window ends so, the breaker is blind.
func (b *breaker) left(a *attempt, now time.Duration, slow bool) {
	if !a.ticket.governed || slow || b.policy.WindowCalls > 0 || !errors.Is(a.call.ctx.Err(), context.DeadlineExceeded) {
		return
	}
	b.mu.Lock()
	if _, generation := b.load(); generation != a.ticket.generation {
		b.mu.Unlock()
		return
	}
	b.window.count(now, noBucket, bucket{left: 1})
	all, _ := b.window.totals(now)
	was := b.blind
	b.blind = int(all.left) >= b.policy.MinCalls && all.left > all.success+all.failure
	tell := b.blind && !was
	b.mu.Unlock()
	if tell {
		b.h.t.logger.LogAttrs(a.call.ctx, slog.LevelWarn, "circuit breaker is blind: most calls end by their callers' deadlines",
			slog.String("host", b.h.name), slog.Float64("slow_call", b.policy.SlowCall.Seconds()))
		a.call.observe(Event{Kind: Blind, Layer: LayerBreaker,
			Reason: "most calls ended by their callers' deadlines below Breaker.SlowCall"})
	}
}

// settle counts the verdict on an attempt, once.
func (b *breaker) settle(a *attempt, v policy.Verdict, slow bool, resp *http.Response, err error, now time.Duration) {
	if !a.ticket.governed || a.settled.Swap(true) {
		return
	}
	b.h.counts.verdict(v)
	b.mu.Lock()
	state, generation := b.load()
	if generation != a.ticket.generation {
		b.mu.Unlock()
		return
	}
	if v == policy.Failure {
		b.last = failureName(resp, err)
	}
	switch {
	case a.ticket.done != nil:
		b.settleProbe(a, v, resp, now)
	case state == Closed || state == ForcedClosed:
		b.settleCall(a, v, slow, resp, now, state)
	}
	queued := len(b.queue) > 0
	b.mu.Unlock()
	if queued {
		b.deliver(a.call.ctx)
	}
}

// settleCall counts a call of a closed breaker, and trips it if need be.
func (b *breaker) settleCall(a *attempt, v policy.Verdict, slow bool, resp *http.Response, now time.Duration, state State) {
	switch v {
	case policy.Success:
		b.consecutive = 0
		a.ticket.first = b.window.count(now, a.ticket.first, bucket{success: 1})
	case policy.Failure:
		b.consecutive++
		what := bucket{failure: 1}
		if slow {
			what.both = 1
		}
		a.ticket.first = b.window.count(now, a.ticket.first, what)
	default:
		return
	}
	if state == Closed {
		b.evaluate(now, retryAfterOf(resp, v))
	}
}

// settleProbe gives a probe's verdict to the machine. A prompt answer that is
// neutral, such as a 404, proves that the host answers.
func (b *breaker) settleProbe(a *attempt, v policy.Verdict, resp *http.Response, now time.Duration) {
	evidence := Evidence{Trigger: "probes_succeeded"}
	var outcome error
	switch {
	case v == policy.Failure:
		outcome = errProbeFailed
		evidence = Evidence{Trigger: "probe_failed", Last: b.last}
	case v == policy.Neutral && !(resp != nil && resp.StatusCode < 500 && a.call.gone() == nil):
		outcome = errNoVerdict
	}
	a.ticket.done(outcome)
	b.changed(now, evidence, retryAfterOf(resp, v))
}

// retryAfterOf is what a failing response asked to be waited.
func retryAfterOf(resp *http.Response, v policy.Verdict) time.Duration {
	if resp == nil || v != policy.Failure {
		return 0
	}
	d, _ := policy.RetryAfter(resp.Header, time.Now())
	return d
}

// evaluate trips a closed breaker whose evidence meets a trigger. b.mu is held.
func (b *breaker) evaluate(now time.Duration, retryAfter time.Duration) {
	e, met := b.met(now)
	if !met {
		return
	}
	b.tripping = true
	if done, err := b.machine.Allow(); err == nil {
		done(errProbeFailed)
	}
	b.tripping = false
	b.changed(now, e, retryAfter)
}

// met compares the evidence with the triggers.
func (b *breaker) met(now time.Duration) (Evidence, bool) {
	p := &b.policy
	all, last := b.window.totals(now)
	allSpan, lastSpan := b.window.span()
	for _, look := range [...]struct {
		bucket
		span time.Duration
	}{{last, lastSpan}, {all, allSpan}} {
		e := Evidence{
			Window: look.span, Calls: int(look.success + look.failure), Failures: int(look.failure),
			Timed: int(look.timed), Slow: int(look.slow), Consecutive: b.consecutive, Last: b.last,
		}
		if reached(p.SlowRate, e.Slow, e.Timed, p.MinCalls) && p.SlowCall > 0 {
			e.Trigger, e.Threshold = "slow_call_rate", p.SlowRate
			return e, true
		}
		if reached(p.FailureRate, e.Failures, e.Calls, p.MinCalls) {
			e.Trigger, e.Threshold = "failure_rate", p.FailureRate
			return e, true
		}
	}
	e := Evidence{
		Window: allSpan, Calls: int(all.success + all.failure), Failures: int(all.failure),
		Timed: int(all.timed), Slow: int(all.slow), Consecutive: b.consecutive, Last: b.last,
	}
	if n := p.ConsecutiveFailures; n > 0 && b.consecutive >= n {
		e.Trigger, e.Threshold = "consecutive_failures", float64(n)
		return e, true
	}
	if n := p.FailuresInWindow; n > 0 && int(all.failure) >= n {
		e.Trigger, e.Threshold = "failures_in_window", float64(n)
		return e, true
	}
	return Evidence{}, false
}

// reached reports whether part of whole is at least a share, on enough evidence.
func reached(share float64, part, whole, least int) bool {
	return share > 0 && whole >= least && float64(part) >= share*float64(whole)
}

// failureName names a failure for people: a status code or a kind of error.
func failureName(resp *http.Response, err error) string {
	if err != nil {
		return errorName(err)
	}
	if resp != nil {
		return fmt.Sprintf("status %d", resp.StatusCode)
	}
	return ""
}
