package otel_test

import (
	"context"
	"errors"
	"net/http"

	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	wtotel "github.com/watertight-go/watertight/otel"
	"github.com/watertight-go/watertight/transport"
)

// wire makes the one client of a program, and what is to be called when it ends. spans
// is an exporter, as of otlptracehttp; metrics a reader, as the exporter for Prometheus.
func wire(spans sdktrace.SpanExporter, metrics sdkmetric.Reader) (*http.Client, func(context.Context) error, error) {
	tracers := sdktrace.NewTracerProvider(sdktrace.WithBatcher(spans))
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(metrics))
	observer, err := wtotel.NewObserver(wtotel.Config{
		TracerProvider: tracers,
		MeterProvider:  meters,
		Propagator:     propagation.TraceContext{}, // or traces end here: the global one does nothing until it is set
	})
	if err != nil {
		return nil, nil, err
	}
	rt, err := transport.New(transport.Config{Observer: observer})
	if err != nil {
		return nil, nil, err
	}
	// In this order, after whatever makes calls (http.Server.Shutdown): the providers
	// send what is left.
	shutdown := func(ctx context.Context) error {
		return errors.Join(rt.Close(), tracers.Shutdown(ctx), meters.Shutdown(ctx))
	}
	return rt.Client(), shutdown, nil
}
