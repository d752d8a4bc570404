package transport

import (
	"context"
	"errors"
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

// MarshalText is String, so that a state reads well in JSON.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

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
// no lock; enter is the only function that writes it.
type breaker struct {
	next   http.RoundTripper
	h      *host
	policy *policy.Breaker // with its defaults
	on     bool            // some trigger is set

	word  atomic.Uint64        // generation << 3 | state
	until atomic.Int64         // when an open breaker lets probes through, on the clock
	trip  atomic.Pointer[trip] // the last one

	tally tally
	width time.Duration // of a bucket of the window

	mu          sync.Mutex // guards what follows
	window      *window    // nil: there is no evidence
	consecutive int
	record      *record // nil: there was never a failure or a transition
	blind       bool
	tripping    bool // the machine is to open at the next failure
	retiring    bool // the pool, once b.mu is released
}

// trip is why and when a breaker opened.
type trip struct {
	at       time.Time
	evidence Evidence
	shared   atomic.Pointer[sharedRefusal] // the last one of a call that had sent nothing
}

// sharedRefusal is an error that is given to all calls that are refused about the same time.
type sharedRefusal struct {
	err   Error
	at    time.Duration // on the clock
	until time.Duration // what RetryIn counts to; of no meaning where it is forced
}

// refusalTime is by how much Error.RetryIn may be too long: the refusals of a host that is
// down, which may be many, share an error for so long.
const refusalTime = time.Millisecond

// ticket is what admission hands to an attempt.
type ticket struct {
	generation uint64      // results of another one change nothing
	done       func(error) // of a probe
	entry      entry       // in the window
	governed   bool        // its outcome counts
}

var (
	errProbeFailed = errors.New("probe failed")
	errNoVerdict   = errors.New("no verdict")
)

// keepTransitions is how many transitions of a host Snapshot can show.
const keepTransitions = 16

func newBreaker(next http.RoundTripper, h *host) http.RoundTripper {
	b := &h.breaker
	b.next, b.h, b.policy = next, h, h.t.breakerPolicy(h.policy)
	b.on = b.policy.Enabled()
	if b.on {
		b.width = bucketWidth(b.policy.Window, b.policy.Buckets)
		b.ease()
	}
	if h.overflow {
		return next
	}
	return b
}

func (b *breaker) load() (State, uint64) {
	w := b.word.Load()
	return State(w & 7), w >> 3
}

// pinned reports whether the state must not be forgotten: a forced one, and one
// that is not closed until nobody has called for a window after its wait, when what
// tripped it is no evidence any more. A breaker moves with calls only, so names that
// died and are never called again would else be kept for ever.
func (b *breaker) pinned(now time.Duration) bool {
	switch s, _ := b.load(); s {
	case Closed:
		return false
	case Open, HalfOpen:
		return now < time.Duration(max(b.until.Load(), b.h.used.Load()))+max(b.policy.Window, usedEvery)
	}
	return true
}

// abandon closes the breaker of a host that is dropped; deliver tells of it.
func (b *breaker) abandon() {
	if s, _ := b.load(); s != Closed {
		b.force(Closed, "abandoned")
	}
}

func (b *breaker) RoundTrip(req *http.Request) (*http.Response, error) {
	switch probing, err := b.pass(attemptOf(req)); {
	case err != nil:
		closeBody(req)
		return nil, err
	case probing:
		return b.sendProbe(req)
	}
	return b.next.RoundTrip(req)
}

// pass admits an attempt, or not, and reports whether it is a probe, which holds a slot
// that sendProbe gives back.
//
//go:noinline
func (b *breaker) pass(a *attempt) (probing bool, err error) {
	refusal, moved := b.admit(a)
	probing = a.ticket.done != nil
	if moved && !probing { // else within what gives its slot back
		b.deliver()
	}
	if refusal != nil {
		b.tellRefusal(a, refusal)
		if !b.policy.Shadow {
			return false, refusal
		}
	}
	return probing, nil
}

// sendProbe sends a probe, within what gives its slot back if it is not sent: a listener
// may panic that is told of a transition, be it another's.
func (b *breaker) sendProbe(req *http.Request) (*http.Response, error) {
	a := attemptOf(req)
	a.fresh = a.fresh || !b.policy.Shadow
	defer b.giveBack(a)
	b.deliver()
	return b.next.RoundTrip(req)
}

// tellRefusal tells of an attempt that is refused.
func (b *breaker) tellRefusal(a *attempt, refusal *Error) {
	b.h.tellRefusal(a.call.ctx, refusal, b.policy.Shadow, b.h.t.now())
	a.call.observe(Event{Kind: EventRefusal, Layer: LayerBreaker, Reason: refusal.State.String(),
		Attempt: int(a.number), Err: refusal, Shadow: b.policy.Shadow})
}

// tellRefusal counts a call that the breaker refuses, or the bulkhead where nobody waits, and logs it.
func (h *host) tellRefusal(ctx context.Context, refusal *Error, shadow bool, now time.Duration) {
	if refusal.Kind == ErrBulkheadFull {
		h.bulkhead.tell(ctx, "full", shadow, now)
		return
	}
	h.counts.refused(refusal.State)
	if h.t.debugging(ctx, now) {
		h.t.log(ctx, slog.LevelDebug, "call refused", slog.String("host", h.name), slog.String("layer", LayerBreaker),
			slog.String("reason", refusal.State.String()), seconds("retry_in_seconds", refusal.RetryIn), slog.Bool("shadow", shadow))
	}
}

// giveBack returns the slot of a probe that was never sent, also on a panic.
func (b *breaker) giveBack(a *attempt) {
	a.mu.Lock()
	started := a.started
	a.mu.Unlock()
	if !started {
		b.settle(a, policy.Neutral, nil, nil, b.h.t.now())
	}
}

// admit lets an attempt through, or says why not, and whether there is a transition
// to tell of.
func (b *breaker) admit(a *attempt) (refusal *Error, moved bool) {
	a.ticket = ticket{}
	state, generation := b.load()
	switch state {
	case Closed, ForcedClosed:
		a.ticket.generation, a.ticket.governed = generation, b.on
		return nil, false
	}
	if refusal := b.refusal(int(a.call.sent), b.h.t.now()); refusal != nil {
		return refusal, false
	}
	return b.probe(a)
}

// state is the state that a call meets: half-open also when the wait is over.
func (b *breaker) state() State {
	s, _ := b.load()
	if s == Open && b.wait() == 0 {
		return HalfOpen
	}
	return s
}

// refuses reports whether an attempt would be refused now.
func (b *breaker) refuses() bool {
	s, _ := b.load()
	return !b.policy.Shadow && (s == ForcedOpen || s == Open && b.wait() > 0)
}

// wait is how long an open breaker stays so.
func (b *breaker) wait() time.Duration {
	return max(time.Duration(b.until.Load())-b.h.t.now(), 0)
}

// probing reports whether what is sent now is, or may be, a probe.
func (b *breaker) probing() bool {
	s, _ := b.load()
	return !b.policy.Shadow && (s == HalfOpen || s == Open && b.wait() == 0)
}

// refusal is the error of an attempt that an open breaker refuses, or nil.
func (b *breaker) refusal(sent int, now time.Duration) *Error {
	switch s, _ := b.load(); s {
	case ForcedOpen:
		return b.refuseUntil(now, s, sent, now)
	case Open:
		if until := time.Duration(b.until.Load()); until > now {
			return b.refuseUntil(until, s, sent, now)
		}
	}
	return nil
}

// refuseUntil is refuse, with one error for all calls of the same moment that have sent nothing.
func (b *breaker) refuseUntil(until time.Duration, s State, sent int, now time.Duration) *Error {
	t := b.trip.Load()
	if t == nil || sent > 0 {
		return b.refuse(t, s, until-now, sent)
	}
	last := t.shared.Load()
	same := last != nil && last.err.State == s && (last.until == until || s == ForcedOpen)
	if !same || now < last.at || now-last.at >= refusalTime {
		last = &sharedRefusal{*b.refuse(t, s, until-now, 0), now, until}
		t.shared.Store(last)
	}
	return &last.err
}

// refuse makes the error of a refusal due to a trip, if there was one, after so many
// attempts that were sent.
func (b *breaker) refuse(t *trip, s State, wait time.Duration, sent int) *Error {
	e := &Error{Kind: ErrBreakerOpen, Host: b.h.name, Layer: LayerBreaker, Attempts: sent, State: s, RetryIn: wait}
	if t != nil {
		e.Opened, e.Evidence = t.at, &t.evidence
	}
	return e
}

// probe asks the machine of a breaker that is half-open, or whose wait is over.
func (b *breaker) probe(a *attempt) (refusal *Error, moved bool) {
	now := b.h.t.now()
	b.mu.Lock()
	if s, generation := b.load(); s == Closed || s == ForcedClosed { // changed meanwhile
		a.ticket.generation, a.ticket.governed = generation, b.on
		b.mu.Unlock()
		return nil, false
	} else if s == ForcedOpen || s == Open && int64(now) < b.until.Load() {
		b.mu.Unlock()
		return b.admit(a)
	}
	done, err := b.machine().Allow()
	b.changed(a.call.ctx, now, Evidence{Trigger: "wait_over"}, 0)
	if err == nil {
		_, a.ticket.generation = b.load()
		a.ticket.governed, a.ticket.done = true, done
	}
	moved = b.queued()
	b.mu.Unlock()
	if err != nil {
		return b.refuse(b.trip.Load(), HalfOpen, 0, int(a.call.sent)), moved
	}
	return nil, moved
}

// changed takes over what the machine did. Here and in force the state changes, by
// set. b.mu is held.
func (b *breaker) changed(ctx context.Context, now time.Duration, e Evidence, retryAfter time.Duration) {
	r := b.records()
	for _, to := range r.moved {
		switch to {
		case gobreaker.StateOpen:
			if s, _ := b.load(); s == HalfOpen {
				r.reopens++
			} else {
				r.reopens = 0
			}
			b.trip.Store(&trip{at: b.h.t.wall(now), evidence: e})
			b.until.Store(int64(now + b.policy.OpenDelay(r.reopens, retryAfter, random())))
			b.set(ctx, Open, now, e)
		case gobreaker.StateHalfOpen:
			b.set(ctx, HalfOpen, now, e)
		case gobreaker.StateClosed:
			r.reopens = 0
			b.forget()
			b.set(ctx, Closed, now, e)
		}
	}
	r.moved = r.moved[:0]
}

// enter begins a new generation: the results of earlier ones change nothing.
// b.mu is held.
func (b *breaker) enter(s State) {
	_, generation := b.load()
	b.tally.bucket.Store(noBucket) // nobody notes anything for the one state in the other
	b.word.Store((generation+1)<<3 | uint64(s))
	b.tally.outdate()
}

// set enters a state and queues the transition. b.mu is held.
func (b *breaker) set(ctx context.Context, to State, now time.Duration, e Evidence) {
	from, _ := b.load()
	r := b.records()
	b.enter(to)
	t := Transition{From: from, To: to, At: b.h.t.wall(now), Evidence: e}
	if from == Closed {
		r.outage = &t
	}
	if to == Open {
		t.Until = b.h.t.wall(time.Duration(b.until.Load()))
		b.retiring = !b.policy.Shadow
	}
	if len(r.recent) == keepTransitions {
		r.recent = append(r.recent[:0], r.recent[1:]...)
	}
	r.recent = append(r.recent, t)
	r.toTell.waiting = append(r.toTell.waiting, told{ctx, &t})
}

// forget drops the evidence. b.mu is held.
func (b *breaker) forget() {
	b.consecutive, b.blind = 0, false
	if b.record != nil {
		b.record.last = ""
	}
	if b.on {
		b.window = nil
		b.tally.outdate()
		b.ease()
	}
}

// force moves the breaker by hand; deliver tells of it.
func (b *breaker) force(to State, trigger string) {
	if b.h.overflow {
		return
	}
	now := b.h.t.now()
	b.mu.Lock()
	if from, _ := b.load(); from != to {
		e := Evidence{Trigger: trigger}
		r := b.records()
		r.machine, r.moved, r.reopens = nil, nil, 0
		b.forget()
		if to == ForcedOpen {
			b.trip.Store(&trip{at: b.h.t.wall(now), evidence: e})
		}
		b.set(context.Background(), to, now, e)
	} else if to == Closed { // no transition, but evidence to forget, and that of calls in flight
		b.forget()
		b.enter(Closed)
	}
	b.mu.Unlock()
}
