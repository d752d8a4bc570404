package soak

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
)

// books are kept from what the stack tells its Observer and its log, and from
// nothing else.
type books struct {
	run   *run
	hosts [hosts]account
	kinds [16]atomic.Int64 // events by kind
	lossy atomic.Bool      // records of the log may be lost from now on
	told  atomic.Int64     // events in all
}

// account is what is known of one host.
type account struct {
	calls, callEnds       atomic.Int64
	attempts, attemptEnds atomic.Int64
	retries               atomic.Int64 // attempts after the first of their call
	deposits              atomic.Int64 // answers that count for the retry budget

	mu     sync.Mutex // guards what follows
	state  transport.State
	moves  int
	told   []string // transitions that were told of, and not logged yet
	logged []string // the other way round
}

// span is a call or an attempt, from its Start to its end.
type span struct {
	host    string
	attempt int
	ended   atomic.Bool
}

type spanKey struct{ attempt bool }

// of is the account of a host.
func (b *books) of(host string) *account {
	i := hostOf(host)
	if i < 0 {
		b.run.fail("the stack knows its hosts", "%q", host)
		return &account{}
	}
	return &b.hosts[i]
}

// Start begins a span.
func (b *books) Start(ctx context.Context, s transport.Start) context.Context {
	h := b.of(s.Host)
	if s.Attempt == 0 {
		h.calls.Add(1)
	} else {
		h.attempts.Add(1)
		s.Header.Set(attemptHeader, strconv.Itoa(s.Attempt))
	}
	if s.Attempt > 1 {
		h.retries.Add(1)
	}
	return context.WithValue(ctx, spanKey{s.Attempt > 0}, &span{host: s.Host, attempt: s.Attempt})
}

// Observe books an event; now and then it takes its time, or panics.
func (b *books) Observe(ctx context.Context, e transport.Event) {
	b.kinds[e.Kind].Add(1)
	if e.Kind == transport.EventLogBlocked { // of no host; on a machine that is late
		b.lossy.Store(true)
		return
	}
	h := b.of(e.Host)
	switch e.Kind {
	case transport.EventCallEnd:
		h.callEnds.Add(1)
		b.end(ctx, e, spanKey{false}, 0)
	case transport.EventAttemptEnd:
		if s := e.Status; s > 0 && s < 500 && !policyOf(hostOf(e.Host)).Retry.Status(s) {
			h.deposits.Add(1)
		}
		h.attemptEnds.Add(1) // after the deposit: see budget
		b.end(ctx, e, spanKey{true}, e.Attempt)
	case transport.EventTransition:
		b.move(h, e)
	}
	switch n := b.told.Add(1); {
	case n%1009 == 0:
		panic("an Observer that panics")
	case n%211 == 0:
		time.Sleep(2 * time.Millisecond)
	}
}

func (b *books) end(ctx context.Context, e transport.Event, key spanKey, attempt int) {
	s, _ := ctx.Value(key).(*span)
	switch {
	case s == nil:
		b.run.fail("every Start has its end", "%v of %s without a Start", e.Kind, e.Host)
	case s.host != e.Host || s.attempt != attempt:
		b.run.fail("every Start has its end", "%v of %s, attempt %d, ends that of %s, attempt %d", e.Kind, e.Host, attempt, s.host, s.attempt)
	case s.ended.Swap(true):
		b.run.fail("every Start has its end", "%v of %s, attempt %d, a second time", e.Kind, e.Host, attempt)
	}
}

// legal are the moves of a breaker, with what can cause them.
var legal = map[[2]transport.State]map[string]bool{
	{transport.Closed, transport.Open}:             {"failure_rate": true, "slow_call_rate": true, "consecutive_failures": true, "failures_in_window": true},
	{transport.Open, transport.HalfOpen}:           {"wait_over": true},
	{transport.HalfOpen, transport.Closed}:         {"probes_succeeded": true, "reset": true},
	{transport.HalfOpen, transport.Open}:           {"probe_failed": true, "probe_slow": true},
	{transport.Open, transport.Closed}:             {"reset": true},
	{transport.ForcedOpen, transport.Closed}:       {"reset": true},
	{transport.ForcedClosed, transport.Closed}:     {"reset": true},
	{transport.Closed, transport.ForcedOpen}:       {"forced": true},
	{transport.Open, transport.ForcedOpen}:         {"forced": true},
	{transport.HalfOpen, transport.ForcedOpen}:     {"forced": true},
	{transport.ForcedClosed, transport.ForcedOpen}: {"forced": true},
	{transport.Closed, transport.ForcedClosed}:     {"forced": true},
	{transport.Open, transport.ForcedClosed}:       {"forced": true},
	{transport.HalfOpen, transport.ForcedClosed}:   {"forced": true},
	{transport.ForcedOpen, transport.ForcedClosed}: {"forced": true},
}

func (b *books) move(h *account, e transport.Event) {
	const invariant = "breakers move legally, and say so in order"
	t := e.Transition
	p := policyOf(hostOf(e.Host)).Breaker
	h.mu.Lock()
	defer h.mu.Unlock()
	h.moves++
	move := fmt.Sprintf("%v -> %v by %s", t.From, t.To, t.Evidence.Trigger)
	if t.From != h.state {
		b.run.fail(invariant, "%s: %s, but it was %v", e.Host, move, h.state)
	}
	h.state = t.To
	if !legal[[2]transport.State{t.From, t.To}][t.Evidence.Trigger] {
		b.run.fail(invariant, "%s: %s", e.Host, move)
	}
	open := t.Until.Sub(t.At)
	if (t.To == transport.Open) == t.Until.IsZero() || t.To == transport.Open && (open < p.OpenFor*9/10 || open > p.OpenForMax*11/10) {
		b.run.fail(invariant, "%s: %s for %v", e.Host, move, open)
	}
	h.told = append(h.told, move)
	b.agree(e.Host, h)
}

// agree compares what was told of with what was logged, each of which may be first, as
// far as both are known. h.mu is held.
func (b *books) agree(host string, h *account) {
	for len(h.told) > 0 && len(h.logged) > 0 {
		if h.told[0] != h.logged[0] && b.lossy.Load() {
			h.told = h.told[1:]
			continue
		}
		if h.told[0] != h.logged[0] {
			b.run.fail("breakers move legally, and say so in order", "%s: told of %v, logged %v", host, h.told, h.logged)
		}
		h.told, h.logged = h.told[1:], h.logged[1:]
	}
}

// budget is the most retries that a host may have had by now, by the rule of
// policy.Budget. Answers whose bodies are still open may have counted already.
func (h *account) budget(p policy.Budget, elapsed time.Duration) (retries int64, most float64) {
	retries = h.retries.Load() // first, so that what is read later can only allow more
	open := h.attempts.Load() - h.attemptEnds.Load()
	deposits := h.deposits.Load() + open
	return retries, policy.BudgetBurst + p.Ratio*float64(deposits) + p.MinPerSecond*elapsed.Seconds()
}

// logs is the slog.Handler of the stacks.
type logs struct{ b *books }

func (logs) Enabled(context.Context, slog.Level) bool { return true }
func (l logs) WithAttrs([]slog.Attr) slog.Handler     { return l }
func (l logs) WithGroup(string) slog.Handler          { return l }

func (l logs) Handle(_ context.Context, r slog.Record) error {
	if r.Message != "circuit breaker state changed" {
		return nil
	}
	at := map[string]string{}
	r.Attrs(func(a slog.Attr) bool { at[a.Key] = a.Value.String(); return true })
	h := l.b.of(at["host"])
	h.mu.Lock()
	defer h.mu.Unlock()
	h.logged = append(h.logged, fmt.Sprintf("%s -> %s by %s", at["previous_state"], at["state"], at["reason"]))
	l.b.agree(at["host"], h)
	return nil
}

var _ transport.Observer = (*books)(nil)
