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

// Evidence is what a breaker had counted when it changed its state. Its Trigger is one
// of these:
//   - failure_rate, slow_call_rate, consecutive_failures, failures_in_window: the field
//     of policy.Breaker whose limit was reached, SlowRate for slow_call_rate
//   - probe_failed, probe_slow, probes_succeeded: what a half-open breaker decided by
//   - wait_over: OpenFor, and the first call since
//   - forced, reset: by hand, through Host
//   - abandoned: the host's state was dropped to make room (Config.MaxHosts)
type Evidence struct {
	Trigger     string
	Window      time.Duration // the span that was counted; zero for a window of calls
	Calls       int           // ended as success or failure
	Failures    int           // of those
	Timed       int           // got headers, or passed SlowCall
	Slow        int           // of those
	SlowCall    time.Duration // the age at which a call is slow; zero: none is
	Consecutive int           // failures in a row
	Threshold   float64       // what was reached: a share or a count
	Last        string        // what the last failure was: a status code or a kind of error
}

// String is the evidence as a phrase.
func (e *Evidence) String() string {
	over := ""
	if e.Window > 0 {
		over = fmt.Sprintf(" in the last %v", e.Window)
	}
	var s string
	switch e.Trigger {
	case "failure_rate":
		s = fmt.Sprintf("%d of %d calls failed%s (limit %.0f %%)", e.Failures, e.Calls, over, e.Threshold*100)
	case "slow_call_rate":
		s = fmt.Sprintf("%d of %d calls took %v or more%s (limit %.0f %%)", e.Slow, e.Timed, e.SlowCall, over, e.Threshold*100)
	case "consecutive_failures":
		s = counted(e.Consecutive, "failure") + " in a row"
	case "failures_in_window":
		s = counted(e.Failures, "failure") + over
	case "probe_failed":
		s = "a probe failed"
	case "probe_slow":
		s = "a probe was slow"
	default:
		return e.Trigger
	}
	if e.Last != "" {
		s += ", last: " + e.Last
	}
	return s
}

// counted is a number of things.
func counted(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// verdict is the policy's, and survives a Classify that panics.
func (b *breaker) verdict(resp *http.Response, err error) (v policy.Verdict) {
	if b.policy.Classify == nil {
		return policy.Judge(resp, err)
	}
	defer func() {
		if b.h.t.survived("Breaker.Classify", recover()) {
			v = policy.Judge(resp, err)
		}
	}()
	return b.policy.Judge(resp, err)
}

// headers counts an attempt that got its headers, and settles at once what they
// already decide: a failing status, and the verdict of a stream.
func (b *breaker) headers(a *attempt, resp *http.Response, slow, stream bool, now time.Duration) {
	if !a.ticket.governed {
		return
	}
	if slow {
		b.slow(a, now)
	} else {
		b.answered(a, now)
	}
	verdict := b.verdict(resp, nil)
	if verdict == policy.Failure || stream {
		b.settle(a, verdict, resp, nil, now)
	}
}

// answered counts an attempt that got its headers in time. Where many end at once
// it leaves that to settle, which counts it too: one wait for the lock is enough.
func (b *breaker) answered(a *attempt, now time.Duration) {
	if b.noteHeaders(a, now) || !b.mu.TryLock() {
		return
	}
	if state, generation := b.load(); generation == a.ticket.generation && state != HalfOpen {
		b.takeOver(now)
		b.countHeaders(a, now)
	}
	b.mu.Unlock()
}

// slow counts an attempt whose age has passed SlowCall, while it may still hang.
func (b *breaker) slow(a *attempt, now time.Duration) {
	if !a.ticket.governed {
		return
	}
	b.mu.Lock()
	state, generation := b.load()
	if generation != a.ticket.generation {
		b.mu.Unlock()
		return
	}
	if state != HalfOpen {
		b.evidence().slowed(now, &a.ticket.entry)
		b.tally.uneasy.Store(true)
		b.takeOver(now) // then: its headers may have been noted
		if state == Closed {
			b.evaluate(a.call.ctx, now, 0)
		}
	} else if a.ticket.done != nil && a.count(policy.Failure) {
		b.h.counts.verdict(policy.Failure)
		b.records().last = "slow call"
		b.record.failures.add(Failure{At: b.h.t.wall(now), What: b.record.last})
		a.ticket.done(errProbeFailed)
		b.changed(a.call.ctx, now, Evidence{Trigger: "probe_slow", Last: b.record.last}, 0)
	}
	b.ease()
	queued := b.queued()
	b.mu.Unlock()
	if queued {
		b.deliver()
	}
}

// left counts an attempt whose caller's own deadline ended it below SlowCall; when
// most of a window ends so, the breaker is blind.
func (b *breaker) left(a *attempt, now time.Duration, slow bool) {
	if !a.ticket.governed || slow || !errors.Is(a.call.ctx.Err(), context.DeadlineExceeded) {
		return
	}
	b.mu.Lock()
	if _, generation := b.load(); generation != a.ticket.generation {
		b.mu.Unlock()
		return
	}
	b.takeOver(now)
	all := b.evidence().left(now)
	was := b.blind
	b.blind = int(all.left) >= b.policy.MinCalls && all.left > all.success+all.failure
	tell := b.blind && !was
	b.mu.Unlock()
	if tell {
		b.h.t.log(a.call.ctx, slog.LevelWarn, "circuit breaker is blind: most calls end by their callers' deadlines",
			slog.String("host", b.h.name), slog.Float64("slow_call", b.policy.SlowCall.Seconds()))
		a.call.observe(Event{Kind: EventBlind, Layer: LayerBreaker,
			Reason: "most calls ended by their callers' deadlines below Breaker.SlowCall"})
	}
}

// count makes v the verdict that an attempt is counted with, if there is none yet.
func (a *attempt) count(v policy.Verdict) bool { return a.settled.CompareAndSwap(0, uint32(v)) }

// counted is the verdict that an attempt was counted with; Unclassified if there
// is none.
func (a *attempt) counted() policy.Verdict { return policy.Verdict(a.settled.Load()) }

// settle counts the verdict on an attempt, once.
func (b *breaker) settle(a *attempt, v policy.Verdict, resp *http.Response, err error, now time.Duration) {
	if a.ticket.done != nil {
		b.settleProbe(a, v, resp, err, now)
		return
	}
	if !a.count(v) {
		return
	}
	b.h.counts.verdict(v)
	if !a.ticket.governed {
		return
	}
	var last string // an error is not asked under mu
	switch v {
	case policy.Success:
		if b.noteSuccess(a, resp, now) {
			return
		}
	case policy.Failure:
		last = failureName(resp, err)
	default:
		if !b.tally.uneasy.Load() && (resp == nil || a.ticket.entry.bucket.Load() != 0) {
			return // there is nothing to count, nor anything that it could be the last to
		}
	}
	asked := a.asksFor(v)
	b.mu.Lock()
	if v == policy.Failure { // also one of an earlier state: it is no evidence, but tells of the host
		b.records().failures.add(Failure{At: b.h.t.wall(now), What: last})
	}
	state, generation := b.load()
	if generation != a.ticket.generation {
		b.mu.Unlock()
		return
	}
	if v == policy.Failure {
		b.records().last = last
		b.tally.uneasy.Store(true)
	}
	b.takeOver(now)
	if state == Closed || state == ForcedClosed {
		b.settleCall(a, v, resp, asked, now, state)
	}
	b.ease()
	queued := b.queued()
	b.mu.Unlock()
	if queued {
		b.deliver()
	}
}

// settleCall counts a call of a closed breaker, and trips it if need be: also
// with one whose verdict is neutral, since its headers may have been what the slow
// rate lacked in evidence.
func (b *breaker) settleCall(a *attempt, v policy.Verdict, resp *http.Response, asked, now time.Duration, state State) {
	if v == policy.Success && b.noteSuccess(a, resp, now) { // now that the tally is of this bucket
		return
	}
	if resp != nil {
		b.countHeaders(a, now)
	}
	switch v {
	case policy.Success:
		b.consecutive = 0
		b.evidence().ended(now, &a.ticket.entry, false)
	case policy.Failure:
		b.consecutive++
		b.evidence().ended(now, &a.ticket.entry, true)
	}
	if state == Closed {
		b.evaluate(a.call.ctx, now, asked)
	}
}

// proves reports whether a probe's verdict is proof that the host answers: a
// success, or a prompt and whole answer that is neutral, such as a 404.
func (a *attempt) proves(v policy.Verdict, resp *http.Response, err error) bool {
	return v == policy.Success ||
		v == policy.Neutral && resp != nil && resp.StatusCode < 500 && err == nil && a.call.gone() == nil
}

// settleProbe gives a probe's verdict to the machine. One that proves nothing
// gives its slot back. The timer may be at it while the probe ends, so it is counted
// under mu: whoever finds it counted also finds what came of it.
func (b *breaker) settleProbe(a *attempt, v policy.Verdict, resp *http.Response, err error, now time.Duration) {
	evidence := Evidence{Trigger: "probes_succeeded"}
	var outcome error
	switch { // neither the error nor the caller's context is asked under mu
	case v == policy.Failure:
		outcome = errProbeFailed
		evidence = Evidence{Trigger: "probe_failed", Last: failureName(resp, err)}
	case !a.proves(v, resp, err):
		outcome = errNoVerdict
	}
	sent, asked := a.wasSent(), a.asksFor(v)
	b.mu.Lock()
	if !a.count(v) {
		b.mu.Unlock()
		return
	}
	if sent {
		b.h.counts.verdict(v)
	}
	if _, generation := b.load(); generation == a.ticket.generation {
		if v == policy.Failure {
			b.records().last = evidence.Last
		}
		a.ticket.done(outcome)
		b.changed(a.call.ctx, now, evidence, asked)
	}
	queued := b.queued()
	b.mu.Unlock()
	if queued {
		b.deliver()
	}
}

// asksFor is what a failing response asked to be waited.
func (a *attempt) asksFor(v policy.Verdict) time.Duration {
	if v != policy.Failure {
		return 0
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.peekRare().retryAfter
}

// evaluate trips a closed breaker whose evidence meets a trigger. b.mu is held.
func (b *breaker) evaluate(ctx context.Context, now, retryAfter time.Duration) {
	if b.consecutive == 0 && (b.window == nil || b.window.clean()) {
		return
	}
	e, met := b.met(now)
	if !met {
		return
	}
	b.tripping = true
	if done, err := b.machine().Allow(); err == nil {
		done(errProbeFailed)
	}
	b.tripping = false
	b.changed(ctx, now, e, retryAfter)
}

// met compares the evidence with the triggers.
func (b *breaker) met(now time.Duration) (Evidence, bool) {
	p := b.policy
	looks := b.evidence().looks(now)
	for i := range looks {
		l := &looks[i]
		switch {
		case p.SlowCall > 0 && reached(p.SlowRate, l.slow, l.timed, p.MinCalls):
			return b.found(l, "slow_call_rate", p.SlowRate), true
		case reached(p.FailureRate, l.failure, l.success+l.failure, p.MinCalls):
			return b.found(l, "failure_rate", p.FailureRate), true
		}
	}
	whole := &looks[len(looks)-1]
	if n := p.ConsecutiveFailures; n > 0 && b.consecutive >= n {
		return b.found(whole, "consecutive_failures", float64(n)), true
	}
	if n := p.FailuresInWindow; n > 0 && int(whole.failure) >= n {
		return b.found(whole, "failures_in_window", float64(n)), true
	}
	return Evidence{}, false
}

// found is the evidence of a look at the window.
func (b *breaker) found(l *look, trigger string, threshold float64) Evidence {
	last := ""
	if b.record != nil {
		last = b.record.last
	}
	return Evidence{
		Trigger: trigger, Threshold: threshold, Window: l.span,
		Calls: int(l.success + l.failure), Failures: int(l.failure),
		Timed: int(l.timed), Slow: int(l.slow), SlowCall: b.policy.SlowCall,
		Consecutive: b.consecutive, Last: last,
	}
}

// reached reports whether part of whole is at least a share, on enough evidence.
// It divides: share x whole may come to a little more than the part that it is.
func reached(share float64, part, whole int32, least int) bool {
	return share > 0 && int(whole) >= least && float64(part)/float64(whole) >= share
}
