package otel

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"syscall"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
)

// Observer makes traces and metrics. It is made by NewObserver, and may serve
// several Transports.
type Observer struct {
	config Config
	common []attribute.KeyValue // of all series
	tracer trace.Tracer
	names  names
	meters meters
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
	c := callOf(ctx)
	var h *host
	if c != nil && c.o == o {
		h = c.host
	} else {
		c, h = nil, o.names.host(e.Host)
	}
	s := h.series
	switch e.Kind {
	case transport.EventCallEnd:
		o.callEnded(ctx, c, h, &e)
	case transport.EventAttemptEnd:
		result := "ignored"
		switch e.Verdict {
		case policy.Success:
			result = "success"
		case policy.Failure:
			result = "failure"
		}
		s.count(familyCalls, false, result, strconv.FormatBool(e.Slow))
		kind := "initial"
		if e.Attempt > 1 {
			kind = "retry"
		}
		s.count(familyAttempts, false, kind, e.Outcome)
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
		s.count(familyRetries, e.Shadow, e.Reason, "")
		o.retry(c, &e)
	case transport.EventRetrySuppressed:
		s.count(familySuppressed, e.Shadow, e.Reason, "")
	case transport.EventFallback:
		o.fallback(ctx, c, s, &e)
	case transport.EventLeak:
		s.count(familyLeaked, e.Shadow, e.Reason, "")
	}
}

func phaseOf(phase string) string {
	if phase == "body" {
		return "body_stall"
	}
	return phase
}

func (o *Observer) refusal(ctx context.Context, c *call, h *host, e *transport.Event) {
	if e.Layer == transport.LayerBulkhead {
		h.series.count(familyRejections, e.Shadow, e.Reason, "")
		o.waited(ctx, h.series, e.Duration)
		return
	}
	h.series.count(familyNotPermitted, e.Shadow, e.Reason, "")
	if c == nil || e.Shadow || !c.span.IsRecording() {
		return
	}
	if opened := h.tripped.Load(); opened != nil {
		c.span.AddLink(trace.Link{SpanContext: *opened, Attributes: []attribute.KeyValue{attribute.String("resilience.link", "tripped_by")}})
	}
}

// waited records a wait for a permit.
func (o *Observer) waited(ctx context.Context, s *series, d time.Duration) {
	if d > 0 && o.meters.waits.Enabled(ctx) {
		o.meters.waits.Record(ctx, d.Seconds(), s.record...)
	}
}

func (o *Observer) fallback(ctx context.Context, c *call, s *series, e *transport.Event) {
	s.count(familyFallbacks, e.Shadow, e.Fallback, fallbackReason(e.Reason))
	if e.Shadow {
		return
	}
	stale := e.Fallback == "stale"
	if stale && o.meters.staleness.Enabled(ctx) {
		o.meters.staleness.Record(ctx, e.Staleness.Seconds(), s.record...)
	}
	if c != nil && c.span.IsRecording() {
		c.span.SetAttributes(attribute.String("resilience.fallback.kind", e.Fallback), attribute.String("resilience.fallback.reason", fallbackReason(e.Reason)))
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
	edge := h.series.edge(t.From, t.To, t.Evidence.Trigger)
	o.meters.transitions.Add(ctx, 1, edge)
	if t.To == transport.Open {
		var opened *trace.SpanContext
		if c != nil {
			if sc := c.span.SpanContext(); sc.IsValid() && sc.IsSampled() {
				opened = &sc
			}
		}
		h.tripped.Store(opened)
	}
	if c != nil && c.span.IsRecording() {
		addEvent(c.span, "resilience.circuit_breaker.transition",
			attribute.String("resilience.circuit_breaker.previous_state", t.From.String()),
			attribute.String("resilience.circuit_breaker.state", t.To.String()),
			attribute.String("resilience.circuit_breaker.reason", t.Evidence.Trigger),
			attribute.String("resilience.circuit_breaker.evidence", t.Evidence.String()))
	}
}

func (o *Observer) retry(c *call, e *transport.Event) {
	if c != nil && !e.Shadow && c.span.IsRecording() {
		addEvent(c.span, "resilience.retry",
			attribute.Float64("resilience.retry.delay", e.Delay.Seconds()),
			attribute.String("resilience.retry.reason", e.Reason))
	}
}

// addEvent is the one place that knows of the API for events of spans, which is to
// be replaced.
func addEvent(span trace.Span, name string, attrs ...attribute.KeyValue) {
	span.AddEvent(name, trace.WithAttributes(attrs...))
}

// errorType names what surfaced: an error, or a status from least on; empty for
// neither.
func errorType(err error, status, least int) string {
	if err == nil {
		if status >= least {
			return strconv.Itoa(status)
		}
		return ""
	}
	var ours *transport.Error
	if errors.As(err, &ours) {
		return ours.ErrorType()
	}
	var network net.Error
	var errno syscall.Errno
	if errors.As(err, &network) || errors.As(err, &errno) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return "connection_error"
	}
	return "_OTHER" // semantic conventions, error.type
}
