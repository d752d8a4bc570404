package otel_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	api "go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	tnoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/watertight-go/watertight/otel"
	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport/transporttest"
)

// traceparent is the header of a span.
func traceparent(s trace.SpanContext) string {
	return fmt.Sprintf("00-%s-%s-%s", s.TraceID(), s.SpanID(), s.TraceFlags())
}

func TestEachAttemptCarriesItsOwnContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSignals(t, sdktrace.AlwaysSample())
		p := bare()
		p.Retry = policy.Retry{MaxAttempts: 3, Statuses: []int{503}, Base: time.Millisecond}
		base := transporttest.NewBase(transporttest.Step{Status: 503}, transporttest.Step{Status: 503}, transporttest.Step{})
		req := request("GET", "http://a.test/")
		req.Header.Set("Traceparent", "the caller's own")
		if _, err := call(stack(s.observer(), base, p), req); err != nil {
			t.Fatal(err)
		}
		attempt := 0
		for _, span := range s.spans.GetSpans() {
			if span.SpanKind != trace.SpanKindClient {
				continue
			}
			if got, want := base.Hits()[attempt].Header["Traceparent"], traceparent(span.SpanContext); len(got) != 1 || got[0] != want {
				t.Errorf("attempt %d carries %q, its span is %s", attempt+1, got, want)
			}
			attempt++
		}
		if attempt != 3 {
			t.Errorf("%d attempts, want 3", attempt)
		}
		if h := req.Header["Traceparent"]; len(req.Header) != 1 || len(h) != 1 || h[0] != "the caller's own" {
			t.Errorf("the caller's header is now %v", req.Header)
		}
	})
}

func TestContextsGoOnWhereNothingIsRecorded(t *testing.T) {
	parent := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled, Remote: true})
	never := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample()))
	for _, test := range []struct {
		name     string
		provider trace.TracerProvider
		within   bool // a trace of the caller's
		want     func(got string) bool
	}{
		{"no provider", tnoop.NewTracerProvider(), true, func(got string) bool { return got == traceparent(parent) }},
		{"no provider and no trace", tnoop.NewTracerProvider(), false, func(got string) bool { return got == "" }},
		{"the trace is not sampled", never, true, func(got string) bool {
			return len(got) == 55 && got[:36] == traceparent(parent)[:36] && got[53:] == "00"
		}},
	} {
		ctx := t.Context()
		if test.within {
			ctx = trace.ContextWithRemoteSpanContext(ctx, parent)
		}
		base := transporttest.NewBase()
		s := newSignals(t, sdktrace.AlwaysSample())
		tr := stack(s.observer(func(c *otel.Config) { c.TracerProvider = test.provider }), base, bare())
		if _, err := call(tr, request("GET", "http://a.test/").WithContext(ctx)); err != nil {
			t.Fatal(err)
		}
		if got := base.Hits()[0].Header.Get("Traceparent"); !test.want(got) {
			t.Errorf("%s: sent %q, the caller's is %s", test.name, got, traceparent(parent))
		}
	}
}

func TestPropagatorsOfTheProgramAreAskedForEachAttempt(t *testing.T) {
	s := newSignals(t, sdktrace.AlwaysSample())
	base := transporttest.NewBase()
	tr := stack(s.observer(func(c *otel.Config) { c.Propagator = nil }), base, bare())
	before := api.GetTextMapPropagator()
	t.Cleanup(func() { api.SetTextMapPropagator(before) })
	api.SetTextMapPropagator(propagation.Baggage{}) // later than NewObserver
	member, err := baggage.NewMember("tenant", "7")
	if err != nil {
		t.Fatal(err)
	}
	bag, err := baggage.New(member)
	if err != nil {
		t.Fatal(err)
	}
	req := request("GET", "http://a.test/").WithContext(baggage.ContextWithBaggage(t.Context(), bag))
	if _, err := call(tr, req); err != nil {
		t.Fatal(err)
	}
	if got := base.Hits()[0].Header.Get("Baggage"); got != "tenant=7" {
		t.Errorf("sent %q, want the caller's baggage", got)
	}
}

func TestNothingIsSentWhereAttemptsAreNotOurs(t *testing.T) {
	s := newSignals(t, sdktrace.AlwaysSample())
	base := transporttest.NewBase()
	tr := stack(s.observer(func(c *otel.Config) { c.NoAttemptSpans = true }), base, bare())
	if _, err := call(tr, request("GET", "http://a.test/")); err != nil {
		t.Fatal(err)
	}
	if h := base.Hits()[0].Header; h.Get("Traceparent") != "" {
		t.Errorf("sent %v", h)
	}
	if got, want := s.trace(), "internal resilience GET 0s {attempts=1 outcome=success}\n"; withoutTime(got) != withoutTime(want) {
		t.Errorf("got %s, want %s", got, want)
	}
	if m := s.collect(); values(m["http.client.request.duration"]) != "" {
		t.Errorf("durations of attempts: %s", values(m["http.client.request.duration"]))
	}
}

func TestSpansAreChildrenOfTheCallers(t *testing.T) {
	s := newSignals(t, sdktrace.AlwaysSample())
	var inside trace.SpanContext
	base := rt(func(r *http.Request) (*http.Response, error) {
		inside = trace.SpanContextFromContext(r.Context())
		return transporttest.NewBase().RoundTrip(r)
	})
	ctx, span := s.tracers.Tracer("test").Start(context.Background(), "caller")
	if _, err := call(stack(s.observer(), base, bare()), request("GET", "http://a.test/").WithContext(ctx)); err != nil {
		t.Fatal(err)
	}
	span.End()
	byName := map[string]trace.SpanContext{}
	parents := map[string]trace.SpanID{}
	for _, sp := range s.spans.GetSpans() {
		byName[sp.Name], parents[sp.Name] = sp.SpanContext, sp.Parent.SpanID()
	}
	if parents["resilience GET"] != span.SpanContext().SpanID() || parents["GET"] != byName["resilience GET"].SpanID() {
		t.Errorf("parents are %v of %v", parents, byName)
	}
	if !inside.Equal(byName["GET"]) {
		t.Errorf("the base runs in %v, the attempt is %v", inside, byName["GET"])
	}
}

func TestTheContextOfAnAttemptStaysItsOwn(t *testing.T) {
	s := newSignals(t, sdktrace.AlwaysSample())
	steps := transporttest.NewBase(transporttest.Step{Status: 503}, transporttest.Step{})
	var kept []context.Context // as a goroutine of the base does
	base := rt(func(r *http.Request) (*http.Response, error) {
		kept = append(kept, r.Context())
		return steps.RoundTrip(r)
	})
	p := bare()
	p.Retry = policy.Retry{MaxAttempts: 2, Statuses: []int{503}, Base: time.Millisecond}
	if _, err := call(stack(s.observer(), base, p), request("GET", "http://a.test/")); err != nil {
		t.Fatal(err)
	}
	for i, h := range steps.Hits() {
		if got, want := traceparent(trace.SpanContextFromContext(kept[i])), h.Header.Get("Traceparent"); got != want {
			t.Errorf("attempt %d is in %s now, was sent from %s", i+1, got, want)
		}
	}
}
