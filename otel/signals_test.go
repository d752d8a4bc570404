package otel_test

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/watertight-go/watertight/otel"
	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
)

// signals are what a program sees of a stack.
type signals struct {
	t       testing.TB
	spans   *tracetest.InMemoryExporter
	began   atomic.Int64
	ended   atomic.Int64
	tracers *sdktrace.TracerProvider
	reader  *sdkmetric.ManualReader
	meters  *sdkmetric.MeterProvider
}

func newSignals(t testing.TB, sampler sdktrace.Sampler) *signals {
	s := &signals{t: t, spans: tracetest.NewInMemoryExporter(), reader: sdkmetric.NewManualReader()}
	s.tracers = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(s), sdktrace.WithSyncer(s.spans), sdktrace.WithSampler(sampler))
	s.meters = sdkmetric.NewMeterProvider(sdkmetric.WithReader(s.reader))
	return s
}

// It counts spans as a SpanProcessor.

func (s *signals) OnStart(context.Context, sdktrace.ReadWriteSpan) { s.began.Add(1) }
func (s *signals) OnEnd(sdktrace.ReadOnlySpan)                     { s.ended.Add(1) }
func (s *signals) Shutdown(context.Context) error                  { return nil }
func (s *signals) ForceFlush(context.Context) error                { return nil }

// observer is one that these signals come from.
func (s *signals) observer(more ...func(*otel.Config)) *otel.Observer {
	s.t.Helper()
	c := otel.Config{TracerProvider: s.tracers, MeterProvider: s.meters, Propagator: propagation.TraceContext{}}
	for _, set := range more {
		set(&c)
	}
	o, err := otel.NewObserver(c)
	if err != nil {
		s.t.Fatal(err)
	}
	return o
}

// stack is a Transport over a base with an Observer.
func stack(o transport.Observer, base http.RoundTripper, p policy.Policy) *transport.Transport {
	return transport.Must(transport.New(transport.Config{Base: base, Observer: o, Default: p, Logger: slog.New(slog.DiscardHandler)}))
}

// bare is a policy that does nothing.
func bare() policy.Policy { return policy.Policy{Timeout: policy.Timeout{Total: time.Hour}} }

func request(method, url string) *http.Request {
	req, err := http.NewRequest(method, url, nil)
	if err != nil {
		panic(err)
	}
	return req
}

// call does a request and reads what comes.
func call(rt http.RoundTripper, req *http.Request) (status int, err error) {
	resp, err := rt.RoundTrip(req)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return resp.StatusCode, err
}

// usual are attributes that text leaves out.
var usual = map[attribute.KeyValue]bool{
	attribute.String("resilience.policy.name", "a.test:80"):           true,
	attribute.String("resilience.circuit_breaker.state", "closed"):    true,
	attribute.String("server.address", "a.test"):                      true,
	attribute.Int("server.port", 80):                                  true,
	attribute.String("http.request.method", "GET"):                    true,
	attribute.String("url.full", "http://a.test/"):                    true,
	attribute.String("network.protocol.version", "1.1"):               true,
	attribute.String("resilience.retry.reason", "status"):             true,
	attribute.Bool("resilience.call.slow", false):                     true,
	attribute.String("resilience.circuit_breaker.reason", "no trips"): true,
}

// text is a set of attributes by their short names, sorted, without the usual.
func text(attrs []attribute.KeyValue) string {
	var all []string
	for _, a := range attrs {
		if !usual[a] {
			all = append(all, fmt.Sprintf("%s=%s", strings.TrimPrefix(string(a.Key), "resilience."), a.Value.Emit()))
		}
	}
	slices.Sort(all)
	return "{" + strings.Join(all, " ") + "}"
}

// trace is all spans so far, by start, as text: how long they took, their status if
// it is an error, what they have.
func (s *signals) trace() string {
	spans := s.spans.GetSpans()
	slices.SortStableFunc(spans, func(a, b tracetest.SpanStub) int {
		return cmp.Or(a.StartTime.Compare(b.StartTime), cmp.Compare(depth(spans, a), depth(spans, b)))
	})
	var b strings.Builder
	for _, span := range spans {
		indent := strings.Repeat("  ", depth(spans, span))
		fmt.Fprintf(&b, "%s%s %s %v", indent, span.SpanKind, span.Name, span.EndTime.Sub(span.StartTime))
		if span.Status.Code == codes.Error {
			b.WriteString(" ERROR")
		}
		if span.Status.Description != "" {
			fmt.Fprintf(&b, " described: %q", span.Status.Description)
		}
		fmt.Fprintf(&b, " %s\n", text(span.Attributes))
		for _, e := range span.Events {
			fmt.Fprintf(&b, "%s  at %v %s %s\n", indent, e.Time.Sub(span.StartTime), e.Name, text(e.Attributes))
		}
		for _, l := range span.Links {
			to := "nowhere"
			for _, other := range spans {
				if other.SpanContext.Equal(l.SpanContext) {
					to = other.Name
				}
			}
			fmt.Fprintf(&b, "%s  link to %s %s\n", indent, to, text(l.Attributes))
		}
	}
	return b.String()
}

func depth(spans tracetest.SpanStubs, of tracetest.SpanStub) int {
	for _, s := range spans {
		if s.SpanContext.SpanID() == of.Parent.SpanID() {
			return 1 + depth(spans, s)
		}
	}
	return 0
}

// mustEnd fails the test where spans do not end.
func (s *signals) mustEnd() {
	s.t.Helper()
	if began, ended := s.began.Load(), s.ended.Load(); began != ended || began == 0 {
		s.t.Errorf("%d spans began, %d ended", began, ended)
	}
}

// collect is what a reader gets, by name.
func (s *signals) collect() map[string]metricdata.Metrics {
	s.t.Helper()
	var all metricdata.ResourceMetrics
	if err := s.reader.Collect(context.Background(), &all); err != nil {
		s.t.Fatal(err)
	}
	return byName(all)
}

func byName(all metricdata.ResourceMetrics) map[string]metricdata.Metrics {
	found := map[string]metricdata.Metrics{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			found[m.Name] = m
		}
	}
	return found
}

// point is one of a metric: its attributes, and a value or a count and a sum.
type point struct {
	attrs attribute.Set
	value string
}

func points(m metricdata.Metrics) (all []point) {
	switch d := m.Data.(type) {
	case metricdata.Sum[int64]:
		for _, p := range d.DataPoints {
			all = append(all, point{p.Attributes, fmt.Sprint(p.Value)})
		}
	case metricdata.Sum[float64]:
		for _, p := range d.DataPoints {
			all = append(all, point{p.Attributes, fmt.Sprint(p.Value)})
		}
	case metricdata.Gauge[int64]:
		for _, p := range d.DataPoints {
			all = append(all, point{p.Attributes, fmt.Sprint(p.Value)})
		}
	case metricdata.Gauge[float64]:
		for _, p := range d.DataPoints {
			all = append(all, point{p.Attributes, fmt.Sprint(p.Value)})
		}
	case metricdata.Histogram[float64]:
		for _, p := range d.DataPoints {
			all = append(all, point{p.Attributes, fmt.Sprintf("%d of %v", p.Count, p.Sum)})
		}
	}
	return all
}

// values is what the points of a metric that are not zero say, sorted; usual
// attributes are left out.
func values(m metricdata.Metrics) string {
	var all []string
	for _, p := range points(m) {
		if p.value != "0" {
			all = append(all, text(p.attrs.ToSlice())+" "+p.value)
		}
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// mustCount fails the test unless metrics are what is wanted, by name.
func (s *signals) mustCount(want map[string]string) {
	s.t.Helper()
	got := s.collect()
	for name, w := range want {
		if v := values(got[name]); v != w {
			s.t.Errorf("%s:\ngot  %s\nwant %s", name, v, w)
		}
	}
}

// withoutTime is a trace without how long things took, for tests outside bubbles.
func withoutTime(trace string) string { return durations.ReplaceAllString(trace, "") }

var durations = regexp.MustCompile(` [0-9.]+(ns|µs|ms|s)\b`)
