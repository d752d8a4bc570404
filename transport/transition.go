package transport

import (
	"context"
	"log/slog"
)

// deliver tells of the queued transitions, in order, one goroutine at a time,
// outside all locks.
func (b *breaker) deliver(ctx context.Context) {
	for b.deliverOne(ctx) {
	}
}

// deliverOne tells of the first queued transition; false if there is none, or
// while another goroutine is at it, which then goes on with the rest.
func (b *breaker) deliverOne(ctx context.Context) bool {
	b.mu.Lock()
	if len(b.queue) == 0 || b.delivering {
		b.mu.Unlock()
		return false
	}
	t := b.queue[0]
	b.queue = b.queue[1:]
	b.delivering = true
	b.mu.Unlock()
	defer func() { // also when a listener ends its goroutine
		b.mu.Lock()
		b.delivering = false
		b.mu.Unlock()
	}()
	b.tell(ctx, t)
	return true
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
