package otel

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/watertight-go/watertight/transport"
)

// call is the context of a call, which has its span.
type call struct {
	context.Context
	o    *Observer
	host *host
	span trace.Span
}

// attempt is the context of an attempt, which has its span, or else the call's.
type attempt struct {
	context.Context
	number int
	span   trace.Span // nil: it has none of its own
	method method
}

type (
	callKey    struct{}
	attemptKey struct{}
)

func (c *call) Value(key any) any {
	if key == (callKey{}) {
		return c
	}
	return c.Context.Value(key)
}

func (a *attempt) Value(key any) any {
	if key == (attemptKey{}) {
		return a
	}
	return a.Context.Value(key)
}

func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

func attemptOf(ctx context.Context) *attempt {
	a, _ := ctx.Value(attemptKey{}).(*attempt)
	return a
}

// method is an HTTP method as signals name it: one of few.
type method uint8

// methods are those of RFC 9110 and RFC 5789; the first stands for all others
// (semantic conventions, http.request.method).
var methods = [...]struct{ name, call, attempt string }{
	{"_OTHER", "resilience HTTP", "HTTP"},
	{"GET", "resilience GET", "GET"},
	{"HEAD", "resilience HEAD", "HEAD"},
	{"POST", "resilience POST", "POST"},
	{"PUT", "resilience PUT", "PUT"},
	{"DELETE", "resilience DELETE", "DELETE"},
	{"PATCH", "resilience PATCH", "PATCH"},
	{"OPTIONS", "resilience OPTIONS", "OPTIONS"},
	{"TRACE", "resilience TRACE", "TRACE"},
	{"CONNECT", "resilience CONNECT", "CONNECT"},
}

func methodOf(req *http.Request) method {
	if req.Method == "" {
		return 1 // as net/http has it
	}
	for i := 1; i < len(methods); i++ {
		if methods[i].name == req.Method {
			return method(i)
		}
	}
	return 0
}

func (o *Observer) startCall(ctx context.Context, s transport.Start) context.Context {
	h := o.names.host(s.Host)
	c := &call{o: o, host: h}
	c.Context, c.span = o.tracer.Start(ctx, methods[methodOf(s.Request)].call, h.series.start[s.State]...)
	return c
}

func (o *Observer) startAttempt(ctx context.Context, s transport.Start) context.Context {
	a := &attempt{Context: ctx, number: s.Attempt, method: methodOf(s.Request)}
	if o.config.NoAttemptSpans {
		return a
	}
	c := callOf(ctx)
	if c == nil || c.o != o { // the owner's Start is wrapped by one that loses contexts
		c = &call{host: o.names.host(s.Host), span: trace.SpanFromContext(ctx)}
	}
	if c.span.IsRecording() { // else nobody samples this trace
		a.Context, a.span = o.tracer.Start(ctx, methods[a.method].attempt, o.clientSpan(c.host, a, s.Request)...)
	}
	p := o.config.Propagator
	if p == nil {
		p = otel.GetTextMapPropagator()
	}
	p.Inject(a.Context, propagation.HeaderCarrier(s.Header))
	return a
}

// clientSpan are the attributes that samplers may want (semantic conventions, HTTP
// client spans).
func (o *Observer) clientSpan(h *host, a *attempt, req *http.Request) []trace.SpanStartOption {
	attrs := make([]attribute.KeyValue, 0, 8)
	attrs = append(attrs, attribute.String("http.request.method", methods[a.method].name))
	if a.method == 0 {
		attrs = append(attrs, attribute.String("http.request.method_original", req.Method))
	}
	attrs = append(attrs, h.address...)
	attrs = append(attrs, attribute.String("url.full", o.fullURL(req.URL)))
	if a.number > 1 {
		attrs = append(attrs, attribute.Int("http.request.resend_count", a.number-1))
	}
	return []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attrs...)}
}

// sentKey is what tells the durations of attempts to a host apart.
type sentKey struct {
	method    method
	status    int
	errorType string
	version   string
}

// mostSent bounds the attribute sets of a host: a peer chooses its status.
const mostSent = 64

func (o *Observer) attemptEnded(ctx context.Context, h *host, e *transport.Event) {
	a := attemptOf(ctx)
	if a == nil || o.config.NoAttemptSpans {
		return
	}
	k := sentKey{method: a.method, status: e.Status, version: versionOf(e.Proto)}
	if e.Outcome != "cancelled" {
		k.errorType = errorType(e.Err, e.Status, 400)
	}
	if o.meters.clientRequests.Enabled(ctx) {
		o.meters.clientRequests.Record(a.Context, e.Duration.Seconds(), h.sentOptions(k)...)
	}
	if a.span == nil {
		return
	}
	if a.span.IsRecording() {
		a.span.SetAttributes(k.outcome()...)
		if k.errorType != "" {
			a.span.SetStatus(codes.Error, "")
		}
	}
	a.span.End()
}

// outcome are the attributes of how an attempt ended.
func (k sentKey) outcome() []attribute.KeyValue {
	attrs := make([]attribute.KeyValue, 0, 3)
	if k.status > 0 {
		attrs = append(attrs, attribute.Int("http.response.status_code", k.status))
	}
	if k.version != "" {
		attrs = append(attrs, attribute.String("network.protocol.version", k.version))
	}
	if k.errorType != "" {
		attrs = append(attrs, attribute.String("error.type", k.errorType))
	}
	return attrs
}

// versionOf is a protocol as network.protocol.version has it.
func versionOf(proto string) string {
	v := strings.TrimPrefix(proto, "HTTP/")
	if v == "2.0" || v == "3.0" {
		return v[:1]
	}
	return v
}

func (h *host) sentOptions(k sentKey) []metric.RecordOption {
	h.mu.RLock()
	o, full := h.sent[k], len(h.sent) >= mostSent
	h.mu.RUnlock()
	if o != nil {
		return o
	}
	if full && k != (sentKey{}) {
		return h.sentOptions(sentKey{})
	}
	attrs := append([]attribute.KeyValue{attribute.String("http.request.method", methods[k.method].name)}, h.address...)
	o = []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(append(attrs, k.outcome()...)...))}
	h.mu.Lock()
	h.sent[k] = o
	h.mu.Unlock()
	return o
}

// endKey is what tells the calls apart that failed.
type endKey struct{ outcome, errorType string }

func (o *Observer) callEnded(ctx context.Context, c *call, h *host, e *transport.Event) {
	k := endKey{outcome: e.Outcome}
	if e.Outcome == "error" || e.Outcome == "rejected" {
		k.errorType = errorType(e.Err, e.Status, 500)
	}
	if o.meters.requests.Enabled(ctx) {
		o.meters.requests.Record(ctx, e.Duration.Seconds(), h.series.endOptions(k)...)
	}
	if c == nil {
		return
	}
	if c.span.IsRecording() {
		c.span.SetAttributes(attribute.String("resilience.outcome", e.Outcome), attribute.Int("resilience.attempts", e.Attempt))
		if k.errorType != "" {
			c.span.SetAttributes(attribute.String("error.type", k.errorType))
		}
		if e.Outcome == "error" || e.Outcome == "rejected" {
			c.span.SetStatus(codes.Error, "")
		}
	}
	c.span.End()
}

func (s *series) endOptions(k endKey) []metric.RecordOption {
	if i := slices.Index(outcomes[:], k.outcome); i >= 0 && k.errorType == "" {
		return s.ended[i]
	}
	s.mu.RLock()
	o, full := s.failed[k], len(s.failed) >= mostSent
	s.mu.RUnlock()
	switch {
	case o != nil:
		return o
	case full:
		k.errorType = "_OTHER"
	}
	o = []metric.RecordOption{s.with(attribute.String("resilience.outcome", k.outcome), attribute.String("error.type", k.errorType))}
	s.mu.Lock()
	s.failed[k] = o
	s.mu.Unlock()
	return o
}
