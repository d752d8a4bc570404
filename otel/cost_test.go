package otel_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"go.opentelemetry.io/otel/metric"
	mnoop "go.opentelemetry.io/otel/metric/noop"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	tnoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/watertight-go/watertight/otel"
	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
)

func TestAnObservedCallCostsFewAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	allocations := func(o transport.Observer) float64 {
		tr := stack(o, stub{}, policy.Default())
		defer tr.Close()
		req, buf := request("GET", "http://bench.test/path"), make([]byte, 512)
		return testing.AllocsPerRun(2000, func() { exchange(tr, req, buf) })
	}
	none := allocations(nil)
	global, err := otel.NewObserver(otel.Config{})
	if err != nil {
		t.Fatal(err)
	}
	without, err := otel.NewObserver(otel.Config{TracerProvider: tnoop.NewTracerProvider(), MeterProvider: mnoop.NewMeterProvider()})
	if err != nil {
		t.Fatal(err)
	}
	batcher := sdktrace.NewTracerProvider(sdktrace.WithBatcher(tracetest.NewNoopExporter()))
	defer func() { _ = batcher.Shutdown(context.Background()) }()
	sampled := newSignals(t, sdktrace.AlwaysSample())
	sampled.tracers = batcher
	for _, test := range []struct {
		name     string
		observer transport.Observer
		most     float64
	}{
		{"global providers that nobody set", global, 5},
		{"no provider", without, 2},
		{"not sampled", newSignals(t, sdktrace.NeverSample()).observer(func(c *otel.Config) { c.Propagator = nil }), 5},
		{"sampled", sampled.observer(func(c *otel.Config) { c.Propagator = nil }), 17},
	} {
		if n := allocations(test.observer) - none; n > test.most {
			t.Errorf("%s: %v allocations more than without an observer, want at most %v", test.name, n, test.most)
		}
	}
}

// manyHosts is a Transport that has called a thousand hosts.
func manyHosts(o transport.Observer) *transport.Transport {
	tr := transport.Must(transport.New(transport.Config{Base: stub{}, Observer: o, Logger: slog.New(slog.DiscardHandler)}))
	buf := make([]byte, 512)
	for i := range 1000 {
		for range 3 {
			exchange(tr, request("GET", fmt.Sprintf("http://%d.test/", i)), buf)
		}
	}
	return tr
}

// callbacks is a provider that keeps what is to be called by a collection.
type callbacks struct {
	mnoop.MeterProvider
	registered metric.Callback
}

func (c *callbacks) Meter(string, ...metric.MeterOption) metric.Meter { return &registering{of: c} }

type registering struct {
	mnoop.Meter
	of *callbacks
}

func (r *registering) RegisterCallback(f metric.Callback, _ ...metric.Observable) (metric.Registration, error) {
	r.of.registered = f
	return mnoop.Registration{}, nil
}

// TestACollectionOverAThousandHostsMakesLittle counts the allocations of our part,
// since time depends on the machine: BenchmarkCollect has the time of all of it.
func TestACollectionOverAThousandHostsMakesLittle(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	handle(t)
	var c callbacks
	o, err := otel.NewObserver(otel.Config{TracerProvider: tnoop.NewTracerProvider(), MeterProvider: &c})
	if err != nil {
		t.Fatal(err)
	}
	tr := manyHosts(o)
	defer tr.Close()
	n := testing.AllocsPerRun(5, func() {
		if err := c.registered(t.Context(), mnoop.Observer{}); err != nil {
			t.Fatal(err)
		}
	})
	if n > 5000 { // four of them the Transport's
		t.Errorf("%v allocations, want at most 5 for each host", n)
	}
}

// TestCallsDoNotWaitForACollection has calls inside of one, which a lock that both
// take would keep from ever ending.
func TestCallsDoNotWaitForACollection(t *testing.T) {
	s := newSignals(t, sdktrace.AlwaysSample())
	var tr *transport.Transport
	calls := 0
	o := s.observer(func(c *otel.Config) {
		c.PolicyName = func(host string) string {
			if host == "first.test:80" && calls > 0 { // only a collection asks again
				for _, url := range []string{"http://second.test/", "http://third.test/"} {
					if _, err := call(tr, request(http.MethodGet, url)); err != nil {
						t.Error(err)
					}
					calls++
				}
			}
			return host
		}
	})
	tr = stack(transport.Observer(lossy{o}), stub{}, bare())
	detach := o.Attach(tr)
	defer detach()
	if _, err := call(tr, request(http.MethodGet, "http://first.test/")); err != nil {
		t.Fatal(err)
	}
	calls++
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.collect()
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("a call waits for the collection it is in")
	}
	if calls != 3 {
		t.Errorf("%d calls, want 3", calls)
	}
}

// lossy tells of other hosts only, so that the first is new to a collection.
type lossy struct{ *otel.Observer }

func (l lossy) Start(ctx context.Context, s transport.Start) context.Context {
	if s.Host == "first.test:80" {
		return ctx
	}
	return l.Observer.Start(ctx, s)
}

func (l lossy) Observe(ctx context.Context, e transport.Event) {
	if e.Host != "first.test:80" {
		l.Observer.Observe(ctx, e)
	}
}
