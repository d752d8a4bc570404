package otel

import (
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
)

// Annotate returns a RoundTripper for below an instrumentation that itself is the
// Base of a Transport, such as otelhttp.NewTransport(otel.Annotate(base)): it adds
// http.request.resend_count to the span of a retry, which the instrumentation
// cannot know. Config.NoAttemptSpans belongs to it. A nil base is
// http.DefaultTransport.
func Annotate(base http.RoundTripper) http.RoundTripper {
	if base == nil {
		base = http.DefaultTransport
	}
	return annotator{base}
}

type annotator struct{ base http.RoundTripper }

func (a annotator) RoundTrip(req *http.Request) (*http.Response, error) {
	if at := innermost(req.Context()); at != nil && at.number > 1 {
		trace.SpanFromContext(req.Context()).SetAttributes(attribute.Int("http.request.resend_count", at.number-1))
	}
	return a.base.RoundTrip(req)
}

// CloseIdleConnections forwards to the base.
func (a annotator) CloseIdleConnections() {
	if c, ok := a.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}
