package otel

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/watertight-go/watertight/transport"
)

func (o *Observer) startCall(ctx context.Context, s transport.Start) context.Context {
	c := &call{o: o, host: o.names.host(s.Host)}
	c.Context, c.span = o.begin(ctx, methods[methodOf(s.Request)].call, c.host.series.start[s.State]...)
	return c
}

func (o *Observer) startAttempt(ctx context.Context, s transport.Start) context.Context {
	c := o.callOf(ctx)
	if c == nil { // something between the Transport and us has lost it
		c = &call{o: o, host: o.names.host(s.Host), span: trace.SpanFromContext(ctx)}
	}
	if s.Attempt > 1 {
		c.host.series.count(familyRetries, false, c.again, "")
	}
	a := c.attempt(ctx, s.Attempt, methodOf(s.Request))
	if o.config.NoAttemptSpans {
		return a
	}
	if c.span.IsRecording() { // else the trace is not sampled
		a.Context, a.span = o.begin(ctx, methods[a.method].attempt, o.clientSpan(c.host, a, s.Request)...)
	}
	a.sent.HeaderCarrier = propagation.HeaderCarrier(s.Header)
	o.inject(a.Context, &a.sent)
	return a
}

// inject sends the context of an attempt with it.
func (o *Observer) inject(ctx context.Context, into propagation.TextMapCarrier) {
	defer func() { o.survived("Propagator.Inject", recover()) }()
	p := o.config.Propagator
	if p == nil {
		p = otel.GetTextMapPropagator()
	}
	p.Inject(ctx, into)
}

var clientKind = trace.WithSpanKind(trace.SpanKindClient)

// clientSpan are the attributes that samplers may want (semantic conventions, HTTP
// client spans).
func (o *Observer) clientSpan(h *host, a *attempt, req *http.Request) []trace.SpanStartOption {
	s := &struct { // in one allocation
		attrs   [6]attribute.KeyValue
		options [2]trace.SpanStartOption
	}{}
	attrs := append(s.attrs[:0], attribute.String("http.request.method", methods[a.method].name))
	if a.method == 0 {
		attrs = append(attrs, attribute.String("http.request.method_original", shortened(valid(req.Method), mostMethod)))
	}
	attrs = append(attrs, h.address...)
	attrs = append(attrs, attribute.String("url.full", validURL(o.fullURL(req.URL))))
	if a.number > 1 {
		attrs = append(attrs, attribute.Int("http.request.resend_count", a.number-1))
	}
	s.options[0], s.options[1] = clientKind, trace.WithAttributes(attrs...)
	return s.options[:]
}

func (o *Observer) attemptEnded(ctx context.Context, h *host, e *transport.Event) {
	a := o.attemptOf(ctx)
	if a == nil || o.config.NoAttemptSpans {
		return
	}
	k := sentKey{method: a.method, status: e.Status, version: versionOf(e.Proto)}
	if e.Outcome != "cancelled" {
		k.errorType = errorType(e, 400)
	}
	var as *sent
	if a.span != nil {
		var attrs []attribute.KeyValue
		if a.span.IsRecording() {
			as = h.sentAs(k)
			attrs = as.of(k)
		}
		o.end(a.span, k.errorType != "", attrs)
	}
	if m := &o.meters.clientRequests; o.enabled(ctx, m) {
		if as == nil {
			as = h.sentAs(k)
		}
		o.record(ctx, m, e.Duration.Seconds(), as.record)
	}
}

func (o *Observer) callEnded(ctx context.Context, c *call, s *series, e *transport.Event) {
	k := endKey{outcome: e.Outcome}
	if e.Outcome == "error" || e.Outcome == "rejected" {
		k.errorType = errorType(e, 500)
	}
	if c != nil {
		attrs := endOf(e.Outcome, e.Attempt)
		if k.errorType != "" {
			attrs = append(slices.Clip(attrs), attribute.String("error.type", k.errorType))
		}
		o.end(c.span, k.errorType != "", attrs)
	}
	if m := &o.meters.requests; o.enabled(ctx, m) {
		o.record(ctx, m, e.Duration.Seconds(), s.endedAs(k))
	}
}

// end ends a span, before whatever else may panic: an SDK's records the text of a panic
// that it is ended by.
func (o *Observer) end(span trace.Span, failed bool, attrs []attribute.KeyValue) {
	defer func() { o.survived("Span.End", recover()) }()
	if span.IsRecording() {
		span.SetAttributes(attrs...)
		if failed {
			span.SetStatus(codes.Error, "")
		}
	}
	span.End()
}

// ends are the attributes of a call's span by its outcome and the number of its
// attempts, as far as that is usual.
var ends = func() (all [len(outcomes)][4][]attribute.KeyValue) {
	for i := range all {
		for n := range all[i] {
			all[i][n] = makeEnd(outcomes[i], n)
		}
	}
	return all
}()

func endOf(outcome string, attempts int) []attribute.KeyValue {
	if i := slices.Index(outcomes[:], outcome); i >= 0 && attempts < len(ends[i]) {
		return ends[i][attempts]
	}
	return makeEnd(outcome, attempts)
}

func makeEnd(outcome string, attempts int) []attribute.KeyValue {
	return []attribute.KeyValue{attribute.String("resilience.outcome", outcome), attribute.Int("resilience.attempts", attempts)}
}

// otherType is the error.type of what has no better one (semantic conventions).
const otherType = "_OTHER"

// errorType names what surfaced: an error, or a status from least on; empty for
// neither. The texts of errors are not to be recorded.
func errorType(e *transport.Event, least int) string {
	switch {
	case e.Err != nil:
		for err := e.Err; ; {
			var ours *transport.Error
			if !errors.As(err, &ours) {
				return "connection_error"
			}
			if ours.Kind != nil || ours.Err == nil {
				return ours.ErrorType()
			}
			err = ours.Err // of a stack below
		}
	case e.Status >= least:
		return strconv.Itoa(e.Status)
	case e.Outcome == "error": // the base has panicked
		return otherType
	}
	return ""
}

// addEvent is the one place that knows of the API for events of spans, which is to
// be replaced.
func (o *Observer) addEvent(span trace.Span, name string, attrs ...attribute.KeyValue) {
	defer func() { o.survived("Span.AddEvent", recover()) }()
	span.AddEvent(name, trace.WithAttributes(attrs...))
}
