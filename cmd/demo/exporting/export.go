package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/watertight-go/watertight/cmd/demo/internal/scene"
)

// every is how often metrics are sent: the demo is over in less than the minute that
// is usual.
const every = 2 * time.Second

// export is the scene's Exporter.
func export(ctx context.Context, to scene.Destination) (scene.Signals, error) {
	tellOnce()
	about, err := resource.New(ctx, resource.WithTelemetrySDK(),
		resource.WithAttributes(attribute.String("service.name", "watertight-demo")), resource.WithFromEnv()) // the last one wins
	if err != nil {
		return scene.Signals{}, err
	}
	var s scene.Signals
	traces := []trace.TracerProviderOption{trace.WithResource(about)}
	metrics := []metric.Option{metric.WithResource(about)}
	if to.Prometheus {
		registry := prometheus.NewRegistry()
		reader, err := exporter.New(exporter.WithRegisterer(registry))
		if err != nil {
			return scene.Signals{}, err
		}
		metrics = append(metrics, metric.WithReader(reader))
		s.Metrics = promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true}) // exemplars need it
	}
	if to.OTLP != nil {
		spans, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(below(to.OTLP, "v1/traces")))
		if err != nil {
			return scene.Signals{}, fmt.Errorf("-otlp: %w", err)
		}
		// Twenty times the scene's speed is some 11,000 spans a second.
		traces = append(traces, trace.WithBatcher(spans, trace.WithBatchTimeout(time.Second), trace.WithMaxQueueSize(65536), trace.WithMaxExportBatchSize(4096)))
		points, err := otlpmetrichttp.New(ctx, otlpmetrichttp.WithEndpointURL(below(to.OTLP, "v1/metrics")))
		if err != nil {
			return scene.Signals{}, fmt.Errorf("-otlp: %w", err)
		}
		metrics = append(metrics, metric.WithReader(metric.NewPeriodicReader(points, metric.WithInterval(every))))
	}
	tracers, meters := trace.NewTracerProvider(traces...), metric.NewMeterProvider(metrics...)
	s.Tracers, s.Meters = tracers, meters
	s.End = func(ctx context.Context) error {
		if err := errors.Join(tracers.Shutdown(ctx), meters.Shutdown(ctx)); err != nil {
			return fmt.Errorf("-otlp: not everything was sent: %w", err)
		}
		return nil
	}
	return s, nil
}

// below is a path of a collector.
func below(u *url.URL, path string) string { return u.JoinPath(path).String() }

// tellOnce tells of the first of the SDK's errors: a collector that is down is one
// with every batch.
func tellOnce() {
	var once sync.Once
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		once.Do(func() { fmt.Fprintf(os.Stderr, "\ndemo: %v (further errors of exporters are not told)\n", err) })
	}))
}
