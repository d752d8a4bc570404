package otel_test

import (
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/metric"
	mnoop "go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	tnoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/watertight-go/watertight/otel"
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

func benchmark(b *testing.B, o transport.Observer) {
	rt := transport.Must(transport.New(transport.Config{Base: stub{}, Observer: o, Logger: slog.New(slog.DiscardHandler)}))
	defer rt.Close()
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
	observed(b, sdktrace.NewTracerProvider(sdktrace.WithBatcher(tracetest.NewNoopExporter())),
		sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader())))
}
