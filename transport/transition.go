package transport

import (
	"context"
	"log/slog"
	"time"
)

// Transition is one change of a breaker's state.
type Transition struct {
	From, To State
	At       time.Time
	Until    time.Time // when probes are let through; zero unless To is Open
	Evidence Evidence
}

// told is a transition that waits to be told of, with the context of the call that
// brought it about.
type told struct {
	ctx        context.Context
	transition *Transition
}

// line is a queue of transitions that one goroutine at a time serves; whoever finds
// another at it leaves the rest to that one.
type line struct {
	waiting []told
	served  bool // by some goroutine
}

// serve does with the first in a line what there is to do, outside all locks; false if
// there is none, or while another goroutine is at it.
func (b *breaker) serve(l *line, do func(context.Context, *Transition)) bool {
	b.mu.Lock()
	if len(l.waiting) == 0 || l.served {
		b.mu.Unlock()
		return false
	}
	t := l.waiting[0]
	l.waiting = l.waiting[1:]
	l.served = true
	b.mu.Unlock()
	defer func() { // also when a listener ends its goroutine
		b.mu.Lock()
		l.served = false
		b.mu.Unlock()
	}()
	do(t.ctx, t.transition)
	return true
}

// deliver retires the pool of a host that was given up, and tells of the transitions
// that wait, in order. The log has a line of its own, so that it holds up no observer:
// a handler may take its time, and the span of a call be over by then.
func (b *breaker) deliver() {
	b.mu.Lock()
	retiring, r := b.retiring, b.record
	b.retiring = false
	b.mu.Unlock()
	if r == nil { // there never was anything to tell of
		return
	}
	if retiring {
		b.h.pools.retire(b.h.pools.current.Load())
	}
	defer func() { // also when a listener ends its goroutine
		for b.serve(&r.toLog, b.log) {
		}
	}()
	for b.serve(&r.toTell, b.tell) {
	}
}

// tell reports a transition to all but the log, in whose line it stands from now on.
func (b *breaker) tell(ctx context.Context, t *Transition) {
	b.mu.Lock()
	b.record.toLog.waiting = append(b.record.toLog.waiting, told{ctx, t})
	b.mu.Unlock()
	b.h.t.history.add(HostTransition{Scheme: b.h.key.scheme, Host: b.h.name, Shadow: b.policy.Shadow, Transition: *t})
	b.h.t.observe(ctx, Event{Kind: EventTransition, Scheme: b.h.key.scheme, Host: b.h.name, Layer: LayerBreaker,
		Reason: t.Evidence.Trigger, Transition: t, Shadow: b.policy.Shadow})
}

func (b *breaker) log(ctx context.Context, t *Transition) {
	level := slog.LevelInfo
	if t.To == Open || t.To == ForcedOpen || t.To == ForcedClosed { // in which nothing protects
		level = slog.LevelWarn
	}
	attrs := []slog.Attr{
		slog.String("host", b.h.name),
		slog.String("previous_state", t.From.String()),
		slog.String("state", t.To.String()),
		slog.String("reason", t.Evidence.Trigger),
	}
	if why := t.Evidence.String(); why != t.Evidence.Trigger {
		attrs = append(attrs, slog.String("evidence", why))
	}
	if !t.Until.IsZero() {
		attrs = append(attrs, seconds("open_for_seconds", t.Until.Sub(t.At)))
	}
	if b.policy.Shadow {
		attrs = append(attrs, slog.Bool("shadow", true))
	}
	b.h.t.log(ctx, level, "circuit breaker state changed", attrs...)
}
