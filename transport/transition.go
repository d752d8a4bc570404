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

// deliver retires the pool of a host that was given up, and tells of the queued
// transitions, in order, one goroutine at a time, outside all locks.
func (b *breaker) deliver() {
	b.mu.Lock()
	retiring := b.retiring
	b.retiring = false
	b.mu.Unlock()
	if retiring {
		b.h.pools.retire(b.h.pools.current.Load())
	}
	defer func() { // also when a listener ends its goroutine
		for b.logOne() {
		}
	}()
	for b.deliverOne() {
	}
}

// deliverOne tells of the first queued transition; false if there is none, or
// while another goroutine is at it, which then goes on with the rest.
func (b *breaker) deliverOne() bool {
	b.mu.Lock()
	if len(b.queue) == 0 || b.delivering {
		b.mu.Unlock()
		return false
	}
	t := b.queue[0]
	b.queue = b.queue[1:]
	b.unlogged = append(b.unlogged, t)
	b.delivering = true
	b.mu.Unlock()
	defer func() { // also when a listener ends its goroutine
		b.mu.Lock()
		b.delivering = false
		b.mu.Unlock()
	}()
	b.tell(t.ctx, t.transition)
	return true
}

// logOne is deliverOne for the log, which holds up no observer: a handler may take its
// time, and the span of a call be over by then.
func (b *breaker) logOne() bool {
	b.mu.Lock()
	if len(b.unlogged) == 0 || b.logging {
		b.mu.Unlock()
		return false
	}
	t := b.unlogged[0]
	b.unlogged = b.unlogged[1:]
	b.logging = true
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		b.logging = false
		b.mu.Unlock()
	}()
	b.log(t.ctx, t.transition)
	return true
}

// tell reports a transition to all but the log.
func (b *breaker) tell(ctx context.Context, t *Transition) {
	b.h.t.history.add(HostTransition{Scheme: b.h.key.scheme, Host: b.h.name, Shadow: b.policy.Shadow, Transition: *t})
	b.h.t.observe(ctx, Event{Kind: EventTransition, Scheme: b.h.key.scheme, Host: b.h.name, Layer: LayerBreaker,
		Reason: t.Evidence.Trigger, Transition: t, Shadow: b.policy.Shadow})
}

// seconds is a duration in a log, to the millisecond.
func seconds(key string, d time.Duration) slog.Attr {
	return slog.Float64(key, d.Round(time.Millisecond).Seconds())
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
