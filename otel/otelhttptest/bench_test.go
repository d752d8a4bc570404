package otelhttptest

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/metric"
	mnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	tnoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/watertight-go/watertight/otel"
	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
)

// stub answers at once, from memory.
type stub struct{}

var stubHeader = http.Header{"Content-Type": {"application/json"}}

func (stub) RoundTrip(req *http.Request) (*http.Response, error) {
	return &http.Response{
		Status: "200 OK", StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: stubHeader, Body: io.NopCloser(strings.NewReader("hello")), ContentLength: 5, Request: req,
	}, nil
}

// BenchmarkBeside is what a call costs over a stub: on the stub alone and with otelhttp
// around it, in the stack alone and with its observer. What otelhttp adds to the stub,
// and the observer to the stack, can be compared on any machine.
func BenchmarkBeside(b *testing.B) {
	for _, with := range []struct {
		name      string
		providers func() (trace.TracerProvider, metric.MeterProvider, func())
	}{
		{"no provider", func() (trace.TracerProvider, metric.MeterProvider, func()) {
			return tnoop.NewTracerProvider(), mnoop.NewMeterProvider(), func() {}
		}},
		{"unsampled", func() (trace.TracerProvider, metric.MeterProvider, func()) {
			return sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample())), meters(), func() {}
		}},
		{"sampled", func() (trace.TracerProvider, metric.MeterProvider, func()) {
			tracers := sdktrace.NewTracerProvider(sdktrace.WithBatcher(tracetest.NewNoopExporter()))
			return tracers, meters(), func() { _ = tracers.Shutdown(context.Background()) }
		}},
	} {
		tracers, meters, shutdown := with.providers()
		b.Run(with.name+"/stub", func(b *testing.B) { bench(b, stub{}) })
		b.Run(with.name+"/otelhttp", func(b *testing.B) {
			bench(b, otelhttp.NewTransport(stub{}, otelhttp.WithTracerProvider(tracers), otelhttp.WithMeterProvider(meters),
				otelhttp.WithPropagators(propagation.TraceContext{})))
		})
		b.Run(with.name+"/stack", func(b *testing.B) { benchStack(b, nil) })
		b.Run(with.name+"/observer", func(b *testing.B) {
			o, err := otel.NewObserver(otel.Config{TracerProvider: tracers, MeterProvider: meters, Propagator: propagation.TraceContext{}})
			if err != nil {
				b.Fatal(err)
			}
			benchStack(b, o)
		})
		shutdown()
	}
}

func meters() metric.MeterProvider {
	return sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))
}

func benchStack(b *testing.B, o transport.Observer) {
	tr := transport.Must(transport.New(transport.Config{Base: stub{}, Observer: o, Default: policy.Default()}))
	defer tr.Close()
	bench(b, tr)
}

func bench(b *testing.B, rt http.RoundTripper) {
	req, err := http.NewRequest(http.MethodGet, "http://bench.test/path", nil)
	if err != nil {
		b.Fatal(err)
	}
	buf := make([]byte, 512)
	b.ReportAllocs()
	for b.Loop() {
		resp, err := rt.RoundTrip(req)
		for err == nil {
			_, err = resp.Body.Read(buf)
		}
		_ = resp.Body.Close()
	}
}
