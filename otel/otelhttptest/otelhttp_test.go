package otelhttptest

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/watertight-go/watertight/otel"
	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/transporttest"
)

// program is one with providers.
type program struct {
	spans   *tracetest.InMemoryExporter
	tracers *sdktrace.TracerProvider
	reader  *sdkmetric.ManualReader
	meters  *sdkmetric.MeterProvider
}

func newProgram() *program {
	p := &program{spans: tracetest.NewInMemoryExporter(), reader: sdkmetric.NewManualReader()}
	p.tracers = sdktrace.NewTracerProvider(sdktrace.WithSyncer(p.spans))
	p.meters = sdkmetric.NewMeterProvider(sdkmetric.WithReader(p.reader))
	return p
}

func (p *program) stack(t *testing.T, base http.RoundTripper, c otel.Config) *transport.Transport {
	c.TracerProvider, c.MeterProvider, c.Propagator = p.tracers, p.meters, propagation.TraceContext{}
	o, err := otel.NewObserver(c)
	if err != nil {
		t.Fatal(err)
	}
	patient := policy.Policy{Retry: policy.Retry{MaxAttempts: 2, Statuses: []int{503}, Base: 2 * time.Second, Max: time.Second}}
	return transport.Must(transport.New(transport.Config{Base: base, Observer: o, Default: patient, Logger: slog.New(slog.DiscardHandler)}))
}

func (p *program) otelhttp(base http.RoundTripper) *otelhttp.Transport {
	return otelhttp.NewTransport(base, otelhttp.WithTracerProvider(p.tracers), otelhttp.WithMeterProvider(p.meters), otelhttp.WithPropagators(propagation.TraceContext{}))
}

// tree is the spans as text: those that a span has below it, and those attributes
// which are about attempts.
func (p *program) tree() string {
	spans := p.spans.GetSpans()
	slices.SortStableFunc(spans, func(a, b tracetest.SpanStub) int { return a.StartTime.Compare(b.StartTime) })
	var b strings.Builder
	var under func(parent trace.SpanID, indent string)
	under = func(parent trace.SpanID, indent string) {
		for _, s := range spans {
			if s.Parent.SpanID() != parent {
				continue
			}
			fmt.Fprintf(&b, "%s%s %s %v", indent, s.SpanKind, s.Name, s.EndTime.Sub(s.StartTime))
			if s.Status.Code == codes.Error {
				b.WriteString(" ERROR")
			}
			for _, k := range []attribute.Key{"http.request.resend_count", "http.response.status_code", "resilience.attempts"} {
				for _, a := range s.Attributes {
					if a.Key == k {
						fmt.Fprintf(&b, " %s=%s", k, a.Value.Emit())
					}
				}
			}
			b.WriteString("\n")
			under(s.SpanContext.SpanID(), indent+"  ")
		}
	}
	under(trace.SpanID{}, "")
	return b.String()
}

// durations is how many attempts http.client.request.duration tells of.
func (p *program) durations(t *testing.T) (n uint64) {
	var all metricdata.ResourceMetrics
	if err := p.reader.Collect(context.Background(), &all); err != nil {
		t.Fatal(err)
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if h, ok := m.Data.(metricdata.Histogram[float64]); ok && m.Name == "http.client.request.duration" {
				for _, point := range h.DataPoints {
					n += point.Count
				}
			}
		}
	}
	return n
}

func get(t *testing.T, rt http.RoundTripper) {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, "http://a.test/", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := rt.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Error(err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Error(err)
	}
}

// parents are the spans that requests were sent from, as their header says.
func parents(base *transporttest.Base) (ids []string) {
	for _, h := range base.Hits() {
		if p := h.Header.Get("Traceparent"); len(p) == 55 {
			ids = append(ids, p[36:52])
		}
	}
	return ids
}

// clients are the spans of attempts.
func (p *program) clients() (ids []string) {
	spans := p.spans.GetSpans()
	for _, s := range spans {
		above := slices.ContainsFunc(spans, func(o tracetest.SpanStub) bool { return o.Parent.SpanID() == s.SpanContext.SpanID() })
		if s.SpanKind == trace.SpanKindClient && !above {
			ids = append(ids, s.SpanContext.SpanID().String())
		}
	}
	return ids
}

func TestWaysToLiveWithOtelhttp(t *testing.T) {
	for _, test := range []struct {
		name      string
		build     func(*testing.T, *program, http.RoundTripper) http.RoundTripper
		durations uint64
		want      string
	}{
		{"alone", func(t *testing.T, p *program, base http.RoundTripper) http.RoundTripper {
			return p.stack(t, base, otel.Config{})
		}, 2, `
internal resilience GET 3s resilience.attempts=2
  client GET 1s ERROR http.response.status_code=503
  client GET 1s http.request.resend_count=1 http.response.status_code=200
`},
		{"below the stack", func(t *testing.T, p *program, base http.RoundTripper) http.RoundTripper {
			return p.stack(t, p.otelhttp(otel.Annotate(base)), otel.Config{NoAttemptSpans: true})
		}, 2, `
internal resilience GET 3s resilience.attempts=2
  client HTTP GET 1s ERROR http.response.status_code=503
  client HTTP GET 1s http.request.resend_count=1 http.response.status_code=200
`},
		{"around the stack", func(t *testing.T, p *program, base http.RoundTripper) http.RoundTripper {
			return p.otelhttp(p.stack(t, base, otel.Config{}))
		}, 3, `
client HTTP GET 3s http.response.status_code=200
  internal resilience GET 3s resilience.attempts=2
    client GET 1s ERROR http.response.status_code=503
    client GET 1s http.request.resend_count=1 http.response.status_code=200
`},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newProgram()
				base := transporttest.NewBase(transporttest.Step{Status: 503, Delay: time.Second}, transporttest.Step{Body: "x", Pause: time.Second})
				get(t, test.build(t, p, base))
				if got := "\n" + p.tree(); got != test.want {
					t.Errorf("got%swant%s", got, test.want)
				}
				if sent, have := parents(base), p.clients(); len(sent) != 2 || !slices.Equal(sent, have) {
					t.Errorf("attempts were sent from spans %v, have %v", sent, have)
				}
				if n := p.durations(t); n != test.durations {
					t.Errorf("%d durations, want %d", n, test.durations)
				}
			})
		})
	}
}
