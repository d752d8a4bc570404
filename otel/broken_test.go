package otel_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	api "go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	mnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	tnoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/watertight-go/watertight/otel"
	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/transporttest"
)

// mustWork fails the test if calls through an Observer with this configuration are
// not as without.
func mustWork(t *testing.T, what string, c otel.Config) *otel.Observer {
	t.Helper()
	o, err := otel.NewObserver(c)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	p := bare()
	p.Retry = policy.Retry{MaxAttempts: 2, Statuses: []int{503}, Base: time.Nanosecond}
	p.Breaker = policy.Breaker{ConsecutiveFailures: 2, OpenFor: time.Hour}
	p.Bulkhead = policy.Bulkhead{MaxConcurrent: 1}
	p.Fallback.Degraded = func(r *http.Request, _ error) *http.Response {
		if r.Method == "PUT" {
			return &http.Response{StatusCode: 299}
		}
		return nil
	}
	tr := stack(o, transporttest.NewBase(transporttest.Step{Status: 503}, transporttest.Step{Body: "x"}, transporttest.Step{Status: 500}), p)
	for i, want := range []int{200, 500, 299, 0} {
		status, err := call(tr, request([]string{"GET", "POST", "PUT", "POST"}[i], "http://a.test/"))
		if status != want || want == 0 && !errors.Is(err, transport.ErrBreakerOpen) {
			t.Errorf("%s: call %d: %d, %v; want %d", what, i, status, err, want)
		}
	}
	if err := tr.Close(); err != nil {
		t.Errorf("%s: %v", what, err)
	}
	return o
}

// meters is a provider that makes broken instruments.
type meters struct {
	mnoop.MeterProvider
	how string // errors, nil, panics, used, asked (which panic then)
}

func (m *meters) Meter(string, ...metric.MeterOption) metric.Meter { return &meter{of: m} }

type meter struct {
	mnoop.Meter
	of *meters
}

var errBroken = errors.New("broken")

// broken is one of a provider's.
func broken[T any](m *meters, works T) (none T, err error) {
	switch m.how {
	case "errors":
		return none, errBroken
	case "panics":
		panic("instrument")
	case "used", "asked":
		return works, nil
	}
	return none, nil
}

func (m *meter) Int64ObservableCounter(string, ...metric.Int64ObservableCounterOption) (metric.Int64ObservableCounter, error) {
	return broken[metric.Int64ObservableCounter](m.of, mnoop.Int64ObservableCounter{})
}
func (m *meter) Int64ObservableUpDownCounter(string, ...metric.Int64ObservableUpDownCounterOption) (metric.Int64ObservableUpDownCounter, error) {
	return broken[metric.Int64ObservableUpDownCounter](m.of, mnoop.Int64ObservableUpDownCounter{})
}
func (m *meter) Int64ObservableGauge(string, ...metric.Int64ObservableGaugeOption) (metric.Int64ObservableGauge, error) {
	return broken[metric.Int64ObservableGauge](m.of, mnoop.Int64ObservableGauge{})
}
func (m *meter) Float64ObservableGauge(string, ...metric.Float64ObservableGaugeOption) (metric.Float64ObservableGauge, error) {
	return broken[metric.Float64ObservableGauge](m.of, mnoop.Float64ObservableGauge{})
}
func (m *meter) Float64ObservableUpDownCounter(string, ...metric.Float64ObservableUpDownCounterOption) (metric.Float64ObservableUpDownCounter, error) {
	return broken[metric.Float64ObservableUpDownCounter](m.of, mnoop.Float64ObservableUpDownCounter{})
}
func (m *meter) Int64Counter(string, ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	return broken[metric.Int64Counter](m.of, panics{})
}
func (m *meter) Float64Histogram(string, ...metric.Float64HistogramOption) (metric.Float64Histogram, error) {
	return broken[metric.Float64Histogram](m.of, panicsToo{asked: m.of.how == "asked"})
}
func (m *meter) RegisterCallback(metric.Callback, ...metric.Observable) (metric.Registration, error) {
	return broken[metric.Registration](m.of, mnoop.Registration{})
}

// panics is an instrument that panics when it is used.
type panics struct{ mnoop.Int64Counter }

func (panics) Add(context.Context, int64, ...metric.AddOption) { panic("add") }
func (panics) Enabled(context.Context) bool                    { panic("enabled") }

type panicsToo struct {
	mnoop.Float64Histogram
	asked bool
}

func (panicsToo) Record(context.Context, float64, ...metric.RecordOption) { panic("record") }
func (p panicsToo) Enabled(context.Context) bool {
	if p.asked {
		panic("enabled")
	}
	return true
}

func TestBrokenInstrumentsTakeNothingElseDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, how := range []string{"errors", "nil", "panics", "used", "asked"} {
			said := handle(t)
			s := newSignals(t, sdktrace.AlwaysSample())
			mustWork(t, how, otel.Config{TracerProvider: s.tracers, MeterProvider: &meters{how: how}})
			s.mustEnd()
			if trace := s.trace(); strings.Count(trace, "internal") != 4 || strings.Count(trace, "client") != 4 ||
				strings.Count(trace, "status_code=500") != 2 || strings.Contains(trace, "exception") || !strings.Contains(trace, "outcome=rejected") || !strings.Contains(trace, "circuit_breaker.transition") || !strings.Contains(trace, "link to") {
				t.Errorf("%s: spans are\n%s", how, trace)
			}
			switch errs := said.all(); {
			case how == "nil" && len(errs) > 0, (how == "used" || how == "asked") && len(errs) != 3, how == "errors" && (len(errs) != 24 || !strings.Contains(errs[0], "broken")), how == "panics" && len(errs) != 24:
				t.Errorf("%s: said %d: %q", how, len(errs), errs)
			}
		}
	})
}

// tracers is a provider of a broken tracer.
type tracers struct {
	tnoop.TracerProvider
	tracer trace.Tracer
}

func (p tracers) Tracer(string, ...trace.TracerOption) trace.Tracer { return p.tracer }

type tracerFunc struct {
	tnoop.Tracer
	start func(context.Context) (context.Context, trace.Span)
}

func (f tracerFunc) Start(ctx context.Context, _ string, _ ...trace.SpanStartOption) (context.Context, trace.Span) {
	return f.start(ctx)
}

func TestBrokenTracersTakeNoMetricsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, tracer := range map[string]trace.Tracer{
			"nil":    nil,
			"panics": tracerFunc{start: func(context.Context) (context.Context, trace.Span) { panic("start") }},
			"none":   tracerFunc{start: func(context.Context) (context.Context, trace.Span) { return nil, nil }},
		} {
			said := handle(t)
			s := newSignals(t, sdktrace.AlwaysSample())
			c := otel.Config{TracerProvider: tracers{tracer: tracer}, MeterProvider: s.meters}
			mustWork(t, name, c)
			got := s.collect()
			for metric, want := range map[string]string{
				"resilience.attempts":                      "{attempt.kind=initial attempt.result=error} 3\n{attempt.kind=retry attempt.result=success} 1",
				"resilience.circuit_breaker.not_permitted": "{circuit_breaker.state=open} 1",
			} {
				if v := values(got[metric]); v != want {
					t.Errorf("%s: %s: got %s, want %s", name, metric, v, want)
				}
			}
			if n := len(said.all()); name == "panics" && n != 1 || name != "panics" && n != 0 {
				t.Errorf("%s: said %q", name, said.all())
			}
		}
	})
}

// propagator is one that panics.
type propagator struct{ propagation.TraceContext }

func (propagator) Inject(context.Context, propagation.TextMapCarrier) { panic("inject") }

func TestAPropagatorThatPanicsLeavesSpansAsTheyAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		said := handle(t)
		s := newSignals(t, sdktrace.AlwaysSample())
		mustWork(t, "propagator", otel.Config{TracerProvider: s.tracers, MeterProvider: s.meters, Propagator: propagator{}})
		s.mustEnd()
		if trace := s.trace(); strings.Count(trace, "client") != 4 {
			t.Errorf("spans are\n%s", trace)
		}
		if errs := said.all(); len(errs) != 1 || !strings.Contains(errs[0], "Propagator.Inject") {
			t.Errorf("said %q, want one word on the propagator", errs)
		}
	})
}

func TestAHostWithoutAPolicyNameHasItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, f := range map[string]func(string) string{
			"panics": func(string) string { panic("name") },
			"none":   func(string) string { return "" },
		} {
			said := handle(t)
			s := newSignals(t, sdktrace.AlwaysSample())
			mustWork(t, name, otel.Config{TracerProvider: s.tracers, MeterProvider: s.meters, PolicyName: f})
			s.mustEnd()
			if names := policyNames(s.collect()["resilience.attempts"]); len(names) != 1 || names[0] != "a.test:80" {
				t.Errorf("%s: names are %v", name, names)
			}
			if n := len(said.all()); name == "panics" && n != 1 || name == "none" && n != 0 {
				t.Errorf("%s: said %q", name, said.all())
			}
		}
	})
}

func TestAnErrorHandlerThatPanicsIsSurvived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		handle(t)
		api.SetErrorHandler(api.ErrorHandlerFunc(func(error) { panic("handler") }))
		mustWork(t, "handler", otel.Config{MeterProvider: &meters{how: "errors"}, PolicyName: func(string) string { panic("name") }})
	})
}

func TestCallsGoOnWhenProvidersAreShutDown(t *testing.T) {
	s := newSignals(t, sdktrace.AlwaysSample())
	base := transporttest.NewBase(transporttest.Step{Body: "x"})
	tr := stack(s.observer(), base, bare())
	resp, err := tr.RoundTrip(request("GET", "http://a.test/"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.tracers.Shutdown(t.Context()), s.meters.Shutdown(t.Context())); err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	for range 3 {
		if status, err := call(tr, request("GET", "http://a.test/")); status != 200 || err != nil {
			t.Fatalf("got %d, %v", status, err)
		}
	}
	if err := tr.Close(); err != nil {
		t.Error(err)
	}
}

// exporter does not come back, or fails.
type exporter struct {
	block chan struct{} // nil: it fails
	calls int
}

func (e *exporter) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error {
	e.calls++
	if e.block != nil {
		<-e.block
	}
	return errBroken
}
func (*exporter) Shutdown(context.Context) error { return nil }

func TestCallsDoNotWaitForAnExporter(t *testing.T) {
	handle(t)
	for _, block := range []chan struct{}{nil, make(chan struct{})} {
		e := &exporter{block: block}
		provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(e, sdktrace.WithMaxQueueSize(256), sdktrace.WithMaxExportBatchSize(64), sdktrace.WithBatchTimeout(time.Millisecond)))
		s := newSignals(t, sdktrace.NeverSample())
		s.tracers = provider
		tr := stack(s.observer(), stub{}, bare())
		load := func(n int) {
			for range n {
				if _, err := call(tr, request("GET", "http://a.test/")); err != nil {
					t.Fatal(err)
				}
			}
		}
		load(1000)
		before := heap()
		load(5000)
		if grown := heap() - before; grown > 1<<20 {
			t.Errorf("5,000 calls have left %d KiB", grown>>10)
		}
		if block != nil {
			close(block)
		}
		if err := provider.Shutdown(t.Context()); err != nil && !errors.Is(err, errBroken) {
			t.Error(err)
		}
		if e.calls == 0 {
			t.Error("nothing was exported")
		}
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestMemoryIsBoundedWhereNothingCollects(t *testing.T) {
	if testing.Short() || raceEnabled {
		t.Skip("visits 60,000 hosts")
	}
	handle(t)
	o, err := otel.NewObserver(otel.Config{TracerProvider: tnoop.NewTracerProvider(), MeterProvider: mnoop.NewMeterProvider()})
	if err != nil {
		t.Fatal(err)
	}
	visit := func(from, to int) {
		for i := from; i < to; i++ {
			host := fmt.Sprintf("%d.test:80", i)
			ctx := o.Start(t.Context(), transport.Start{Host: host, Request: request("GET", "http://"+host)})
			o.Observe(ctx, transport.Event{Kind: transport.EventCallEnd, Host: host, Outcome: "success"})
		}
	}
	visit(0, 30_000)
	before := heap()
	visit(30_000, 60_000)
	if grown := heap() - before; grown > 4<<20 {
		t.Errorf("30,000 hosts more have left %d KiB", grown>>10)
	}
	runtime.KeepAlive(o)
}

func TestAnOverflowOfHostsIsSaidOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		said := handle(t)
		s := newSignals(t, sdktrace.AlwaysSample())
		o := s.observer()
		for range 2 {
			tr := transport.Must(transport.New(transport.Config{Base: transporttest.NewBase(transporttest.Step{Body: "held"}), Default: bare(), MaxHosts: 1,
				Observer: o, Logger: slog.New(slog.DiscardHandler)}))
			held, err := tr.RoundTrip(request("GET", "http://a.test/"))
			if err != nil {
				t.Fatal(err)
			}
			for _, url := range []string{"http://b.test/", "http://c.test/"} {
				if _, err := call(tr, request("GET", url)); err != nil {
					t.Fatal(err)
				}
			}
			_ = held.Body.Close()
		}
		if errs := said.all(); len(errs) != 1 || !strings.Contains(errs[0], "MaxHosts") {
			t.Errorf("said %q, want one word on it", errs)
		}
	})
}

// TestCallsDoNotWaitForTheHandlerOfErrors: it may never return.
func TestCallsDoNotWaitForTheHandlerOfErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		handle(t)
		release := make(chan struct{})
		defer close(release)
		api.SetErrorHandler(api.ErrorHandlerFunc(func(error) { <-release }))
		s := newSignals(t, sdktrace.AlwaysSample())
		o := s.observer(func(c *otel.Config) { c.MaxPolicyNames, c.Propagator = 1, propagator{} })
		tr := transport.Must(transport.New(transport.Config{Base: transporttest.NewBase(transporttest.Step{Body: "held"}), Default: bare(), MaxHosts: 2,
			Observer: o, Logger: slog.New(slog.DiscardHandler)}))
		for _, url := range []string{"http://a.test/", "http://b.test/", "http://c.test/"} { // a name too many, and a host
			held, err := tr.RoundTrip(request("GET", url))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = held.Body.Close() }()
		}
	})
}

// TestALogThatBlocksIsSaidOnce also where the program's handler of errors blocks, as
// both may write to one pipe that nobody reads.
func TestALogThatBlocksIsSaidOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		said := handle(t)
		api.SetErrorHandler(api.ErrorHandlerFunc(func(err error) {
			<-release
			said.mu.Lock()
			defer said.mu.Unlock()
			said.errs = append(said.errs, err.Error())
		}))
		s := newSignals(t, sdktrace.AlwaysSample())
		o := s.observer()
		p := bare()
		p.Breaker = policy.Breaker{ConsecutiveFailures: 1, OpenFor: time.Hour}
		begun := time.Now()
		for range 2 {
			tr := transport.Must(transport.New(transport.Config{Base: transporttest.NewBase(transporttest.Step{Status: 503}), Default: p,
				Observer: o, Logger: slog.New(blocking{release: release})}))
			_, _ = call(tr, request("GET", "http://a.test/"))
		}
		if took := time.Since(begun); took > time.Second {
			t.Errorf("the calls took %v", took)
		}
		close(release)
		synctest.Wait()
		if errs := said.all(); len(errs) != 1 || !strings.Contains(errs[0], "Logger") {
			t.Errorf("said %q, want one word on it", errs)
		}
	})
}

func TestALogThatPanicsIsNotSaidToBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		said := handle(t)
		s := newSignals(t, sdktrace.AlwaysSample())
		o := s.observer()
		o.Observe(t.Context(), transport.Event{Kind: transport.EventLogBlocked, Reason: "panicked"})
		o.Observe(t.Context(), transport.Event{Kind: transport.EventLogBlocked, Reason: "blocked", Limit: time.Second})
		synctest.Wait()
		errs := said.all()
		slices.Sort(errs)
		if len(errs) != 2 || !strings.Contains(errs[0], "not returned within 1s") || !strings.Contains(errs[1], "has panicked") {
			t.Errorf("said %q", errs)
		}
	})
}

// blocking is a slog.Handler that takes its time.
type blocking struct {
	slog.Handler
	release chan struct{}
}

func (b blocking) Enabled(context.Context, slog.Level) bool { return true }

func (b blocking) Handle(context.Context, slog.Record) error {
	<-b.release
	return nil
}

func TestConfigsThatMeanNothingAreRefusedWithAllTheirProblems(t *testing.T) {
	_, err := otel.NewObserver(otel.Config{MaxPolicyNames: -1, RedactQuery: []string{"a", ""}})
	if err == nil || !strings.Contains(err.Error(), "MaxPolicyNames: -1") || !strings.Contains(err.Error(), "RedactQuery[1]") {
		t.Errorf("got %v, want both problems", err)
	}
	if _, err := otel.NewObserver(otel.Config{MaxPolicyNames: 1001}); err == nil {
		t.Error("1001 names are allowed")
	}
	if _, err := otel.NewObserver(otel.Config{MaxPolicyNames: 1000}); err != nil {
		t.Error(err)
	}
}

func TestEventsOfNoHostMakeNoSeries(t *testing.T) {
	s := newSignals(t, sdktrace.AlwaysSample())
	o := s.observer()
	stack(o, transporttest.NewBase(), bare())
	for _, k := range []transport.EventKind{transport.EventOverflow, transport.EventLogBlocked, 0, 200} {
		o.Observe(t.Context(), transport.Event{Kind: k})
	}
	if names := policyNames(s.collect()["resilience.attempts"]); len(names) != 0 {
		t.Errorf("series of %q", names)
	}
}
