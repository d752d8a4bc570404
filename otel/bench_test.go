package otel_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	mnoop "go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
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

// exchange is a call that is read to its end.
func exchange(rt http.RoundTripper, req *http.Request, buf []byte) {
	resp, err := rt.RoundTrip(req)
	if err != nil {
		panic(err)
	}
	for err == nil {
		_, err = resp.Body.Read(buf)
	}
	_ = resp.Body.Close()
}

func benchmark(b *testing.B, o transport.Observer) {
	tr := stack(o, stub{}, policy.Default())
	defer tr.Close()
	req, buf := request(http.MethodGet, "http://bench.test/path"), make([]byte, 512)
	b.ReportAllocs()
	for b.Loop() {
		exchange(tr, req, buf)
	}
}

func observed(b *testing.B, t trace.TracerProvider, m metric.MeterProvider) {
	o, err := otel.NewObserver(otel.Config{TracerProvider: t, MeterProvider: m})
	if err != nil {
		b.Fatal(err)
	}
	benchmark(b, o)
}

// BenchmarkObservedNot is a call without an observer, to compare with.
func BenchmarkObservedNot(b *testing.B) { benchmark(b, nil) }

// BenchmarkObservedNoProvider is a call whose program has no providers.
func BenchmarkObservedNoProvider(b *testing.B) {
	observed(b, tnoop.NewTracerProvider(), mnoop.NewMeterProvider())
}

// BenchmarkObservedGlobal is the same with the global providers that were never set.
func BenchmarkObservedGlobal(b *testing.B) { observed(b, nil, nil) }

// BenchmarkObservedUnsampled is a call with metrics, whose trace is not sampled.
func BenchmarkObservedUnsampled(b *testing.B) {
	observed(b, sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample())),
		sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader())))
}

// BenchmarkObservedSampled is a call with metrics, whose trace is sampled and batched.
func BenchmarkObservedSampled(b *testing.B) {
	tracers := sdktrace.NewTracerProvider(sdktrace.WithBatcher(tracetest.NewNoopExporter()))
	defer func() { _ = tracers.Shutdown(context.Background()) }()
	observed(b, tracers, sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader())))
}

// BenchmarkSDKAlone is what the SDK takes for the spans and durations of such a call,
// whoever makes them: the least that BenchmarkObservedSampled, or Unsampled, is above
// BenchmarkObservedNot.
func BenchmarkSDKAlone(b *testing.B) {
	b.Run("sampled", func(b *testing.B) {
		tracers := sdktrace.NewTracerProvider(sdktrace.WithBatcher(tracetest.NewNoopExporter()))
		defer func() { _ = tracers.Shutdown(context.Background()) }()
		alone(b, tracers)
	})
	b.Run("unsampled", func(b *testing.B) {
		alone(b, sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample())))
	})
}

func alone(b *testing.B, tracers *sdktrace.TracerProvider) {
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))
	tracer := tracers.Tracer("alone")
	calls, _ := meters.Meter("alone").Float64Histogram("calls")
	attempts, _ := meters.Meter("alone").Float64Histogram("attempts")
	var (
		callStart    = trace.WithAttributes(attribute.String("resilience.policy.name", "bench.test:80"), attribute.String("resilience.circuit_breaker.state", "closed"))
		callEnd      = []attribute.KeyValue{attribute.String("resilience.outcome", "success"), attribute.Int("resilience.attempts", 1)}
		attemptStart = trace.WithAttributes(attribute.String("http.request.method", "GET"), attribute.String("server.address", "bench.test"),
			attribute.Int("server.port", 80), attribute.String("url.full", "http://bench.test/path"))
		attemptEnd = []attribute.KeyValue{attribute.Int("http.response.status_code", 200), attribute.String("network.protocol.version", "1.1")}
		internal   = trace.WithSpanKind(trace.SpanKindInternal)
		client     = trace.WithSpanKind(trace.SpanKindClient)
		set        = metric.WithAttributeSet(attribute.NewSet(callEnd...))
	)
	b.ReportAllocs()
	for b.Loop() {
		ctx, call := tracer.Start(b.Context(), "resilience GET", internal, callStart)
		of := ctx
		if call.IsRecording() {
			var attempt trace.Span
			of, attempt = tracer.Start(ctx, "GET", client, attemptStart)
			attempt.SetAttributes(attemptEnd...)
			attempt.End()
			call.SetAttributes(callEnd...)
		}
		attempts.Record(of, 0.001, set)
		calls.Record(ctx, 0.001, set)
		call.End()
	}
}

// BenchmarkCollect is a collection of metrics over a thousand hosts.
func BenchmarkCollect(b *testing.B) {
	for name, config := range map[string]otel.Config{
		"hosts": {},
		"one":   {PolicyName: func(string) string { return "one" }},
	} {
		b.Run(name, func(b *testing.B) {
			reader := sdkmetric.NewManualReader()
			config.MeterProvider = sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
			o, err := otel.NewObserver(config)
			if err != nil {
				b.Fatal(err)
			}
			tr := manyHosts(o)
			defer tr.Close()
			var all metricdata.ResourceMetrics
			b.ReportAllocs()
			for b.Loop() {
				if err := reader.Collect(b.Context(), &all); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
