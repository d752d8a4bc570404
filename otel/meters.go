package otel

import (
	"context"
	"slices"
	"sync"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/watertight-go/watertight/transport"
)

// meters are the instruments, and the Transports they look at.
type meters struct {
	o     *Observer
	meter metric.Meter

	counters                                   []metric.Int64ObservableCounter // by family
	status                                     metric.Int64ObservableUpDownCounter
	failureRate, slowRate                      metric.Float64ObservableGauge
	windowCalls                                metric.Int64ObservableGauge
	usage, limit, queue                        metric.Int64ObservableUpDownCounter
	budgetUsage, budgetLimit                   metric.Float64ObservableUpDownCounter
	transitions                                metric.Int64Counter
	waits, staleness, requests, clientRequests histogram

	observables []metric.Observable // those that the provider made

	registering sync.Mutex // guards registered, and is held while the provider is at it
	registered  bool

	mu         sync.Mutex // guards transports
	transports map[*transport.Transport]bool
}

const transitionsName = "resilience.circuit_breaker.transitions"

// Bounds of the histograms, in seconds.
var (
	// Of http.client.request.duration, by the semantic conventions.
	durationBounds  = []float64{0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10}
	requestBounds   = append(slices.Clip(durationBounds), 30, 60) // several attempts, and waits
	waitBounds      = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}
	stalenessBounds = []float64{1, 5, 15, 60, 300, 900, 3600, 21600, 86400}
)

func (m *meters) init(o *Observer, meter metric.Meter) {
	m.o, m.meter, m.transports = o, meter, map[*transport.Transport]bool{}
	for _, f := range families {
		m.counters = append(m.counters, observable(m, meter.Int64ObservableCounter, f.name, f.unit, f.about))
	}
	m.status = observable(m, meter.Int64ObservableUpDownCounter, "resilience.circuit_breaker.status", "1", "1 for the state that a circuit breaker is in, else 0; of several hosts, how many are in it.")
	m.failureRate = observable(m, meter.Float64ObservableGauge, "resilience.circuit_breaker.failure_rate", "1", "Share of failures in the window; none below MinCalls, or without FailureRate; of several hosts, the highest.")
	m.slowRate = observable(m, meter.Float64ObservableGauge, "resilience.circuit_breaker.slow_call_rate", "1", "Share of slow calls in the window; none below MinCalls, or without SlowRate and SlowCall; of several hosts, the highest.")
	m.windowCalls = observable(m, meter.Int64ObservableGauge, "resilience.circuit_breaker.window.calls", "{call}", "Calls in the window that ended as success or failure.")
	m.usage = observable(m, meter.Int64ObservableUpDownCounter, "resilience.bulkhead.usage", "{request}", "Attempts under way, until their bodies have ended.")
	m.limit = observable(m, meter.Int64ObservableUpDownCounter, "resilience.bulkhead.limit", "{request}", "Permits in all.")
	m.queue = observable(m, meter.Int64ObservableUpDownCounter, "resilience.bulkhead.queue.usage", "{request}", "Attempts that wait for a permit.")
	m.budgetUsage = observable(m, meter.Float64ObservableUpDownCounter, "resilience.retry.budget.usage", "{retry}", "Retries of the budget that are used up.")
	m.budgetLimit = observable(m, meter.Float64ObservableUpDownCounter, "resilience.retry.budget.limit", "{retry}", "Retries of a full budget.")

	m.transitions = asked[metric.Int64Counter](transitionsName, noop.Int64Counter{}, func() (metric.Int64Counter, error) {
		return meter.Int64Counter(transitionsName, metric.WithUnit("{transition}"), metric.WithDescription("Changes of a circuit breaker's state."))
	})
	m.waits = histogramOf(meter, "resilience.bulkhead.wait.duration", "Waits for a permit, where there was one.", waitBounds)
	m.staleness = histogramOf(meter, "resilience.fallback.staleness", "How long ago a stored answer that was served had become stale.", stalenessBounds)
	m.requests = histogramOf(meter, "resilience.request.duration", "Calls, with all their attempts and waits, to the end of the body.", requestBounds)
	m.clientRequests = histogramOf(meter, "http.client.request.duration", "Duration of HTTP client requests.", durationBounds)
}

// observable makes an observable instrument; one that the provider does not make is
// the zero one, which is never observed.
func observable[T metric.Observable, O any](m *meters, ask func(string, ...O) (T, error), name, unit, about string) T {
	var none T
	made := asked(name, none, func() (T, error) {
		return ask(name, any(metric.WithUnit(unit)).(O), any(metric.WithDescription(about)).(O))
	})
	if any(made) != nil {
		m.observables = append(m.observables, made)
	}
	return made
}

// histogram is an instrument and its name.
type histogram struct {
	metric.Float64Histogram
	name string
}

func histogramOf(meter metric.Meter, name, about string, bounds []float64) histogram {
	return histogram{name: name, Float64Histogram: asked[metric.Float64Histogram](name, noop.Float64Histogram{}, func() (metric.Float64Histogram, error) {
		return meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(about), metric.WithExplicitBucketBoundaries(bounds...))
	})}
}

// enabled asks a histogram, and survives it.
func (o *Observer) enabled(ctx context.Context, h *histogram) bool {
	defer func() { o.survived(h.name, recover()) }()
	return h.Enabled(ctx)
}

// record tells a histogram, and survives it.
func (o *Observer) record(ctx context.Context, h *histogram, v float64, with []metric.RecordOption) {
	defer func() { o.survived(h.name, recover()) }()
	h.Record(ctx, v, with...)
}
