package otel

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
)

// Observer makes traces and metrics. It is made by NewObserver, and may serve
// several Transports. An Observer of the program's own that passes on to it what it
// is told, or to several, passes on contexts and Attach too, without which there are no
// metrics but durations and transitions.
type Observer struct {
	config Config
	common []attribute.KeyValue // of all series
	tracer trace.Tracer
	redact redaction
	names  names
	meters meters
	told   sync.Map // what was reported once
}

var _ transport.Attacher = (*Observer)(nil)

// Start begins the span of a call or of an attempt.
func (o *Observer) Start(ctx context.Context, s transport.Start) context.Context {
	if s.Attempt == 0 {
		return o.startCall(ctx, s)
	}
	return o.startAttempt(ctx, s)
}

// Observe counts an event, and adds it to the span it belongs to.
func (o *Observer) Observe(ctx context.Context, e transport.Event) {
	if e.Host == "" { // it is of none
		if e.Kind == transport.EventLogBlocked {
			o.logBlocked(&e)
		}
		return
	}
	c := o.callOf(ctx)
	var h *host
	if c != nil {
		h = c.host
	} else {
		h = o.names.host(e.Host)
	}
	s := h.series
	switch e.Kind {
	case transport.EventCallEnd:
		o.callEnded(ctx, c, s, &e)
	case transport.EventAttemptEnd:
		s.count(familyCalls, false, resultOf(e.Verdict), slowOf(e.Slow))
		s.count(familyAttempts, false, kindOf(e.Attempt), e.Outcome)
		o.attemptEnded(ctx, h, &e)
	case transport.EventTransition:
		o.transition(ctx, c, h, &e)
	case transport.EventRefusal:
		o.refusal(ctx, c, h, &e)
	case transport.EventPermit:
		o.waited(ctx, s, e.Duration)
	case transport.EventTimeout:
		s.count(familyTimeouts, e.Shadow, phaseOf(e.Phase), "")
	case transport.EventRetry:
		o.retry(c, s, &e)
	case transport.EventRetrySuppressed:
		s.count(familySuppressed, e.Shadow, e.Reason, "")
		o.suppressed(c, &e)
	case transport.EventFallback:
		o.fallback(ctx, c, s, &e)
	case transport.EventLeak:
		s.count(familyLeaked, e.Shadow, e.Reason, "")
		o.leak(c, &e)
	case transport.EventBlind:
		o.blind(c, &e)
	case transport.EventReuse:
		s.count(familyReuses, false, e.Reason, "")
	case transport.EventOverflow:
		o.once("overflow", func() {
			handle(errors.New("transport.Config.MaxHosts are in use: further hosts share one state without a breaker; further times are not reported"))
		})
	}
}

func resultOf(v policy.Verdict) string {
	switch v {
	case policy.Success:
		return "success"
	case policy.Failure:
		return "failure"
	}
	return "ignored"
}

func slowOf(slow bool) string {
	if slow {
		return "true"
	}
	return "false"
}

func kindOf(attempt int) string {
	if attempt > 1 {
		return "retry"
	}
	return "initial"
}

func phaseOf(phase string) string {
	if phase == "body" {
		return "body_stall"
	}
	return phase
}

// refusal counts a refused attempt. By a breaker, its call's span links to that of
// the call which tripped it.
func (o *Observer) refusal(ctx context.Context, c *call, h *host, e *transport.Event) {
	if e.Layer == transport.LayerBulkhead {
		h.series.count(familyRejections, e.Shadow, e.Reason, "")
		o.waited(ctx, h.series, e.Duration)
		return
	}
	h.series.count(familyNotPermitted, e.Shadow, e.Reason, "")
	if e.Shadow || !c.recording() {
		return
	}
	if opened := h.tripped.Load(); opened != nil {
		c.span.AddLink(trace.Link{SpanContext: *opened, Attributes: []attribute.KeyValue{attribute.String("resilience.link", "tripped_by")}})
	}
}

// waited records a wait for a permit.
func (o *Observer) waited(ctx context.Context, s *series, d time.Duration) {
	if m := &o.meters.waits; d > 0 && o.enabled(ctx, m) {
		o.record(ctx, m, d.Seconds(), s.record)
	}
}

func (o *Observer) fallback(ctx context.Context, c *call, s *series, e *transport.Event) {
	reason := fallbackReason(e.Reason)
	s.count(familyFallbacks, e.Shadow, e.Fallback, reason)
	if e.Shadow {
		return
	}
	stale := e.Fallback == "stale"
	if m := &o.meters.staleness; stale && o.enabled(ctx, m) {
		o.record(ctx, m, e.Staleness.Seconds(), s.record)
	}
	if c.recording() {
		c.span.SetAttributes(attribute.String("resilience.fallback.kind", e.Fallback), attribute.String("resilience.fallback.reason", reason))
		if stale {
			c.span.SetAttributes(attribute.Float64("resilience.fallback.staleness", e.Staleness.Seconds()))
		}
	}
}

// fallbackReason is a reason of the transport's as one of few.
func fallbackReason(reason string) string {
	switch reason {
	case "breaker-open":
		return "breaker_open"
	case "bulkhead-full":
		return "bulkhead_full"
	case "timeout":
		return "timeout"
	case "stale-if-error":
		return "status"
	}
	return "connection"
}

func (o *Observer) transition(ctx context.Context, c *call, h *host, e *transport.Event) {
	t := e.Transition
	if t.To != transport.HalfOpen { // which still is due to the call that tripped it
		h.tripped.Store(tripperOf(c, t))
	}
	if c.recording() {
		attrs := []attribute.KeyValue{
			attribute.String("resilience.circuit_breaker.previous_state", t.From.String()),
			attribute.String("resilience.circuit_breaker.state", t.To.String()),
			attribute.String("resilience.circuit_breaker.reason", t.Evidence.Trigger),
			attribute.String("resilience.circuit_breaker.evidence", t.Evidence.String()),
		}
		if e.Shadow {
			attrs = append(attrs, inShadow)
		}
		o.addEvent(c.span, "resilience.circuit_breaker.transition", attrs...)
	}
	defer func() { o.survived(transitionsName, recover()) }()
	o.meters.transitions.Add(ctx, 1, h.series.edge(t.From, t.To, t.Evidence.Trigger, e.Shadow))
}

// tripperOf is the span to blame for a transition: that of a sampled call which has
// opened a breaker. It is not kept alive.
func tripperOf(c *call, t *transport.Transition) *trace.SpanContext {
	if c == nil || t.To != transport.Open {
		return nil
	}
	sc := c.span.SpanContext()
	if !sc.IsValid() || !sc.IsSampled() {
		return nil
	}
	return &sc
}

// retry tells of one that is about to wait, after which it may not be made: it is
// counted when its attempt starts.
func (o *Observer) retry(c *call, s *series, e *transport.Event) {
	if c == nil || e.Shadow { // nothing else will tell of it
		s.count(familyRetries, e.Shadow, e.Reason, "")
		return
	}
	c.again = e.Reason
	if c.recording() {
		o.addEvent(c.span, "resilience.retry",
			attribute.Float64("resilience.retry.delay", e.Delay.Seconds()),
			attribute.String("resilience.retry.reason", e.Reason))
	}
}

// suppressed tells why a call that failed was not tried again.
func (o *Observer) suppressed(c *call, e *transport.Event) {
	if !e.Shadow && c.recording() {
		o.addEvent(c.span, "resilience.retry.suppressed", attribute.String("resilience.retry.reason", e.Reason))
	}
}

// leak tells which call it was whose body was forgotten. Its span is open still: the
// attempt and the call end with the leak.
func (o *Observer) leak(c *call, e *transport.Event) {
	if !c.recording() {
		return
	}
	attrs := []attribute.KeyValue{attribute.String("resilience.bulkhead.reason", e.Reason)}
	if e.Shadow {
		attrs = append(attrs, inShadow)
	}
	o.addEvent(c.span, "resilience.leak", attrs...)
}

// blind tells, on the span of the call that showed it, that a breaker cannot judge.
func (o *Observer) blind(c *call, e *transport.Event) {
	if c.recording() {
		o.addEvent(c.span, "resilience.circuit_breaker.blind", attribute.String("resilience.circuit_breaker.reason", e.Reason))
	}
}

// logBlocked reports a Logger that loses records, once for each way in which it does.
func (o *Observer) logBlocked(e *transport.Event) {
	what := "has panicked: log records are lost"
	if e.Reason != "panicked" {
		what = fmt.Sprintf("has not returned within %v: log records are lost until it does", e.Limit)
	}
	o.once("Logger "+e.Reason, func() {
		handle(fmt.Errorf("transport.Config.Logger %s; further times are not reported", what))
	})
}
