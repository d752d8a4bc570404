package transport

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/watertight-go/watertight/policy"
)

// State is the state of a host's breaker.
type State uint8

// The states of a breaker.
const (
	// Closed lets calls through and counts their outcomes.
	Closed State = iota
	// Open refuses calls.
	Open
	// HalfOpen lets a few probes through and refuses the rest.
	HalfOpen
	// ForcedOpen refuses calls until Reset or ForceClosed.
	ForcedOpen
	// ForcedClosed lets calls through, whatever they come to, until Reset or
	// ForceOpen.
	ForcedClosed
)

// String is the state in lower case.
func (s State) String() string {
	switch s {
	case Closed:
		return "closed"
	case Open:
		return "open"
	case HalfOpen:
		return "half_open"
	case ForcedOpen:
		return "forced_open"
	case ForcedClosed:
		return "forced_closed"
	}
	return "unknown"
}

// breaker refuses attempts while its host is known to fail.
//
// gobreaker holds the state, and moves it:
//
//	closed    -> open       when the window's evidence meets a trigger (trip)
//	open      -> half-open  with the first call after the wait (probe)
//	half-open -> closed     when HalfOpenProbes probes have succeeded (settle)
//	half-open -> open       when one has failed or was slow (settle, slow)
//
// The evidence, the decision to trip, and the wait while open are kept here:
// gobreaker's own timeout is set so short that it is always over. Forced states
// are laid over it. word mirrors the state, so that admission while closed takes
// no lock; changed is the only function that writes it.
type breaker struct {
	next   http.RoundTripper
	h      *host
	policy policy.Breaker
	on     bool // some trigger is set

	word  atomic.Uint64 // generation << 3 | state
	until atomic.Int64  // when an open breaker lets probes through, on the clock

	mu          sync.Mutex // guards what follows
	machine     *gobreaker.TwoStepCircuitBreaker[struct{}]
	tripping    bool // machine is to open at the next failure
	moved       []gobreaker.State
	window      *window
	consecutive int
	reopens     int
	opened      time.Duration
	evidence    *Evidence // of the last trip
	last        string    // what the last failure was
	blind       bool
	recent      []Transition
	queue       []*Transition // to be delivered
	delivering  bool
}

// ticket is what admission hands to an attempt.
type ticket struct {
	generation uint64      // results of another one change nothing
	first      int64       // the bucket where the attempt was first counted
	governed   bool        // its outcome counts
	done       func(error) // of a probe
	counted    bool        // in the slow rate's denominator; guarded by the breaker's mu
}

var (
	errProbeFailed = errors.New("probe failed")
	errNoVerdict   = errors.New("no verdict")
)

// keepTransitions is how many transitions of a host Snapshot can show.
const keepTransitions = 16

func newBreaker(next http.RoundTripper, h *host) http.RoundTripper {
	b := &breaker{next: next, h: h, policy: h.policy.Breaker.WithDefaults(h.policy.Bulkhead.MaxConcurrent)}
	b.on = b.policy.Enabled()
	if b.on {
		b.window = newWindow(b.policy.Window, b.policy.Buckets, b.policy.WindowCalls, b.policy.SlowCall)
	}
	b.renew()
	h.breaker = b
	if h.overflow {
		return next
	}
	return b
}

// renew makes a new, closed machine.
func (b *breaker) renew() {
	b.machine = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		MaxRequests:   uint32(b.policy.HalfOpenProbes),
		Timeout:       time.Nanosecond,
		ReadyToTrip:   func(gobreaker.Counts) bool { return b.tripping },
		IsExcluded:    func(err error) bool { return err == errNoVerdict },
		OnStateChange: func(_ string, _, to gobreaker.State) { b.moved = append(b.moved, to) },
	})
}

func (b *breaker) load() (State, uint64) {
	w := b.word.Load()
	return State(w & 7), w >> 3
}

// pinned reports whether the state must not be forgotten.
func (b *breaker) pinned() bool {
	s, _ := b.load()
	return s != Closed
}

func (b *breaker) RoundTrip(req *http.Request) (*http.Response, error) {
	a := attemptOf(req)
	if refusal := b.admit(a); refusal != nil {
		b.h.counts.refused(refusal.State)
		a.call.observe(Event{Kind: Refusal, Layer: LayerBreaker, Reason: refusal.State.String(),
			Attempt: a.number, Err: refusal, Shadow: b.policy.Shadow})
		if !b.policy.Shadow {
			closeBody(req)
			return nil, refusal
		}
	}
	if a.ticket.done != nil {
		a.fresh = true
		defer b.giveBack(a)
	}
	return b.next.RoundTrip(req)
}

// giveBack returns the slot of a probe that was never sent, also on a panic.
func (b *breaker) giveBack(a *attempt) {
	a.mu.Lock()
	started := a.started
	a.mu.Unlock()
	if !started {
		b.settle(a, policy.Neutral, false, nil, nil, b.h.t.now())
	}
}

// admit lets an attempt through, or says why not.
func (b *breaker) admit(a *attempt) *Error {
	a.ticket = ticket{first: noBucket}
	state, generation := b.load()
	switch state {
	case Closed, ForcedClosed:
		a.ticket.generation, a.ticket.governed = generation, b.on
		return nil
	case ForcedOpen:
		return b.refuse(a, state, 0)
	case Open:
		if wait := time.Duration(b.until.Load()) - b.h.t.now(); wait > 0 {
			return b.refuse(a, state, wait)
		}
	}
	return b.probe(a)
}

// refuses reports whether an attempt would be refused now.
func (b *breaker) refuses() bool {
	if b.policy.Shadow {
		return false
	}
	s, _ := b.load()
	return s == ForcedOpen || s == Open && int64(b.h.t.now()) < b.until.Load()
}

// refuse makes the error of a refusal.
func (b *breaker) refuse(a *attempt, s State, wait time.Duration) *Error {
	e := &Error{Kind: ErrBreakerOpen, Layer: LayerBreaker, State: s, RetryIn: wait}
	b.mu.Lock()
	e.Evidence = b.evidence
	e.Opened = b.h.t.wall(b.opened)
	b.mu.Unlock()
	e.Host, e.Attempts = b.h.name, a.call.sent
	return e
}

// probe asks the machine of a breaker that is half-open, or whose wait is over.
func (b *breaker) probe(a *attempt) *Error {
	now := b.h.t.now()
	b.mu.Lock()
	if s, generation := b.load(); s == Closed || s == ForcedClosed { // changed meanwhile
		a.ticket.generation, a.ticket.governed = generation, b.on
		b.mu.Unlock()
		return nil
	} else if s == ForcedOpen || s == Open && int64(now) < b.until.Load() {
		wait := max(time.Duration(b.until.Load())-now, 0)
		b.mu.Unlock()
		if s == ForcedOpen {
			wait = 0
		}
		return b.refuse(a, s, wait)
	}
	done, err := b.machine.Allow()
	b.changed(now, Evidence{Trigger: "wait_over"}, 0)
	if err == nil {
		_, a.ticket.generation = b.load()
		a.ticket.governed, a.ticket.done = true, done
	}
	b.mu.Unlock()
	b.deliver(a.call.ctx)
	if err != nil {
		return b.refuse(a, HalfOpen, 0)
	}
	return nil
}

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

// changed takes over what the machine did: it is the one place where the state
// changes. b.mu is held.
func (b *breaker) changed(now time.Duration, e Evidence, retryAfter time.Duration) {
	for _, to := range b.moved {
		switch to {
		case gobreaker.StateOpen:
			if s, _ := b.load(); s == HalfOpen {
				b.reopens++
			} else {
				b.reopens = 0
			}
			b.opened = now
			b.evidence = &e
			b.until.Store(int64(now + b.policy.OpenDelay(b.reopens, retryAfter, random())))
			b.set(Open, now, e)
		case gobreaker.StateHalfOpen:
			b.set(HalfOpen, now, e)
		case gobreaker.StateClosed:
			b.reopens = 0
			b.forget()
			b.set(Closed, now, e)
		}
	}
	b.moved = b.moved[:0]
}

// set writes the state and queues the transition. b.mu is held.
func (b *breaker) set(to State, now time.Duration, e Evidence) {
	from, generation := b.load()
	b.word.Store((generation+1)<<3 | uint64(to))
	t := Transition{From: from, To: to, At: b.h.t.wall(now), Evidence: e}
	if to == Open {
		t.Until = b.h.t.wall(time.Duration(b.until.Load()))
	}
	if len(b.recent) == keepTransitions {
		b.recent = append(b.recent[:0], b.recent[1:]...)
	}
	b.recent = append(b.recent, t)
	b.queue = append(b.queue, &t)
}

// forget drops the evidence. b.mu is held.
func (b *breaker) forget() {
	b.consecutive = 0
	b.blind = false
	if b.window != nil {
		b.window.reset()
	}
}

// force moves the breaker by hand.
func (b *breaker) force(to State, trigger string) {
	if b.h.overflow {
		return
	}
	now := b.h.t.now()
	b.mu.Lock()
	if from, _ := b.load(); from != to {
		e := Evidence{Trigger: trigger}
		b.renew()
		b.moved = nil
		b.forget()
		b.reopens = 0
		if to == ForcedOpen {
			b.opened, b.evidence = now, &e
		}
		b.set(to, now, e)
	}
	b.mu.Unlock()
	b.deliver(context.Background())
}

// deliver tells of the queued transitions, in order, one goroutine at a time,
// outside all locks.
func (b *breaker) deliver(ctx context.Context) {
	for {
		b.mu.Lock()
		if len(b.queue) == 0 || b.delivering {
			b.mu.Unlock()
			return
		}
		t := b.queue[0]
		b.queue = b.queue[1:]
		b.delivering = true
		b.mu.Unlock()
		b.tell(ctx, t)
		b.mu.Lock()
		b.delivering = false
		b.mu.Unlock()
	}
}

// tell retires the pool of a host that was given up, and reports a transition.
func (b *breaker) tell(ctx context.Context, t *Transition) {
	if t.To == Open && !b.policy.Shadow {
		b.h.pools.retire(b.h.pools.current.Load())
	}
	b.log(ctx, t)
	b.h.t.observe(ctx, Event{Kind: TransitionEvent, Host: b.h.name, Layer: LayerBreaker,
		Reason: t.Evidence.Trigger, Transition: t, Shadow: b.policy.Shadow})
}

func (b *breaker) log(ctx context.Context, t *Transition) {
	defer func() { _ = recover() }() // a handler's panic is not the call's
	level := slog.LevelInfo
	if t.To == Open || t.To == ForcedOpen {
		level = slog.LevelWarn
	}
	attrs := []slog.Attr{
		slog.String("host", b.h.name),
		slog.String("previous_state", t.From.String()),
		slog.String("state", t.To.String()),
		slog.String("reason", t.Evidence.Trigger),
		slog.String("evidence", t.Evidence.String()),
	}
	if !t.Until.IsZero() {
		attrs = append(attrs, slog.Float64("open_for", t.Until.Sub(t.At).Seconds()))
	}
	if b.policy.Shadow {
		attrs = append(attrs, slog.Bool("shadow", true))
	}
	b.h.t.logger.LogAttrs(ctx, level, "circuit breaker state changed", attrs...)
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
