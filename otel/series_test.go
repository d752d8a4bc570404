package otel_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	api "go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	mnoop "go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/watertight-go/watertight/otel"
	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/transporttest"
)

// handled collects what goes to otel.Handle for the time of a test.
type handled struct {
	mu   sync.Mutex
	errs []string
}

func handle(t *testing.T) *handled {
	h := &handled{}
	api.SetErrorHandler(api.ErrorHandlerFunc(func(err error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.errs = append(h.errs, err.Error())
	}))
	t.Cleanup(func() { api.SetErrorHandler(api.ErrorHandlerFunc(func(error) {})) })
	return h
}

// all is what has been said, in a bubble.
func (h *handled) all() []string {
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.errs)
}

// policyNames are those of a metric's points, sorted.
func policyNames(m metricdata.Metrics) []string {
	all := map[string]bool{}
	for _, p := range points(m) {
		v, _ := p.attrs.Value("resilience.policy.name")
		all[v.AsString()] = true
	}
	var names []string
	for n := range all {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

func TestShadowDecisionsAreCountedApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSignals(t, sdktrace.AlwaysSample())
		p := bare()
		p.Timeout = policy.Timeout{Attempt: 10 * time.Second, Shadow: true}
		p.Breaker = policy.Breaker{ConsecutiveFailures: 2, OpenFor: time.Minute, Shadow: true}
		p.Bulkhead = policy.Bulkhead{MaxConcurrent: 1, BodyIdle: time.Minute, Shadow: true}
		p.Retry = policy.Retry{MaxAttempts: 2, Statuses: []int{503}, Shadow: true}
		p.Fallback = policy.Fallback{FailFast503: true, Shadow: true}
		tr := stack(s.observer(), transporttest.NewBase(
			transporttest.Step{Body: "held"}, transporttest.Step{Err: io.EOF}, transporttest.Step{Status: 503}, transporttest.Step{Delay: 20 * time.Second}), p)
		held, err := tr.RoundTrip(request("GET", "http://a.test/"))
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			_, _ = call(tr, request("GET", "http://a.test/"))
		}
		time.Sleep(2 * time.Minute)
		_ = held.Body.Close()
		s.mustCount(map[string]string{
			"resilience.circuit_breaker.status":        "{circuit_breaker.state=half_open shadow=true} 1",
			"resilience.circuit_breaker.not_permitted": "{circuit_breaker.state=open shadow=true} 1",
			"resilience.circuit_breaker.transitions":   "{circuit_breaker.previous_state=closed circuit_breaker.reason=consecutive_failures circuit_breaker.state=open shadow=true} 1",
			"resilience.bulkhead.rejections":           "{bulkhead.reason=full shadow=true} 3",
			"resilience.bulkhead.leaked":               "{bulkhead.reason=idle shadow=true} 1",
			"resilience.retries":                       "{retry.reason=connection shadow=true} 1\n{shadow=true} 1",
			"resilience.timeouts":                      "{shadow=true timeout.phase=attempt} 1",
			"resilience.fallbacks":                     "{fallback.kind=fail_fast fallback.reason=connection shadow=true} 1",
			"resilience.request.duration":              "{error.type=503 outcome=error} 1 of 0\n{error.type=connection_error outcome=error} 1 of 0\n{outcome=success} 2 of 160",
		})
		if trace := s.trace(); strings.Contains(trace, "resilience.retry") || strings.Contains(trace, "fallback") || strings.Contains(trace, "link") {
			t.Errorf("spans tell of what has not happened:\n%s", trace)
		}
	})
}

func TestOfADroppedHostOnlyItsCountsAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSignals(t, sdktrace.AlwaysSample())
		tr := transport.Must(transport.New(transport.Config{Base: transporttest.NewBase(), Observer: s.observer(), Default: bare(), MaxHosts: 2,
			Logger: slog.New(slog.DiscardHandler)}))
		for _, host := range []string{"a", "b", "a", "c", "b", "c", "b"} {
			_, _ = call(tr, request("GET", "http://"+host+".test/"))
			time.Sleep(time.Hour)
		}
		for range 4 {
			got := s.collect()
			if names, want := policyNames(got["resilience.attempts"]), []string{"a.test:80", "b.test:80", "c.test:80"}; !slices.Equal(names, want) {
				t.Errorf("attempts of %v, want %v", names, want)
			}
			if names, want := policyNames(got["resilience.circuit_breaker.status"]), []string{"b.test:80", "c.test:80"}; !slices.Equal(names, want) {
				t.Errorf("states of %v, want %v", names, want)
			}
			time.Sleep(time.Minute)
		}
	})
}

// TestDeltasAddUpWhereHostsComeAndGo: an SDK takes a counter that it has not seen for a
// while as a new one, and its value for an increase.
func TestDeltasAddUpWhereHostsComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSignals(t, sdktrace.NeverSample())
		s.reader = sdkmetric.NewManualReader(sdkmetric.WithTemporalitySelector(sdkmetric.DeltaTemporalitySelector))
		s.meters = sdkmetric.NewMeterProvider(sdkmetric.WithReader(s.reader))
		tr := transport.Must(transport.New(transport.Config{Base: stub{}, Observer: s.observer(), Default: bare(), MaxHosts: 1,
			Logger: slog.New(slog.DiscardHandler)}))
		var total int64
		for _, host := range []string{"a", "b", "a"} {
			_, _ = call(tr, request("GET", "http://"+host+".test/"))
			for range 4 {
				if sum, ok := s.collect()["resilience.attempts"].Data.(metricdata.Sum[int64]); ok {
					for _, p := range sum.DataPoints {
						total += p.Value
					}
				}
				time.Sleep(time.Minute)
			}
		}
		if total != 3 {
			t.Errorf("the deltas add up to %d attempts, want 3", total)
		}
	})
}

func TestTheLastCountsAreToldAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSignals(t, sdktrace.AlwaysSample())
		o := s.observer()
		tr := stack(o, transporttest.NewBase(), bare())
		if _, err := call(tr, request("GET", "http://a.test/")); err != nil {
			t.Fatal(err)
		}
		s.collect()
		time.Sleep(time.Hour) // readers may be rare
		_ = tr.Close()
		got := s.collect() // as the Shutdown of a provider does
		if v, want := values(got["resilience.attempts"]), "{attempt.kind=initial attempt.result=success} 1"; v != want {
			t.Errorf("got %s, want %s", v, want)
		}
		if n := len(points(got["resilience.circuit_breaker.status"])); n != 0 {
			t.Errorf("%d states of a Transport that is closed", n)
		}
		for range 3 {
			time.Sleep(2 * time.Minute)
			s.collect()
		}
		tr = stack(o, transporttest.NewBase(), bare()) // a second one of the same Observer
		if _, err := call(tr, request("GET", "http://a.test/")); err != nil {
			t.Fatal(err)
		}
		_ = tr.Close()
		if v, want := values(s.collect()["resilience.attempts"]), "{attempt.kind=initial attempt.result=success} 2"; v != want {
			t.Errorf("got %s, want %s", v, want)
		}
	})
}

// withReaders gives signals several readers, of which collect asks the first.
func withReaders(s *signals, n int) []*sdkmetric.ManualReader {
	var all []*sdkmetric.ManualReader
	var options []sdkmetric.Option
	for range n {
		r := sdkmetric.NewManualReader() // the one that s has is of another provider
		all, options = append(all, r), append(options, sdkmetric.WithReader(r))
	}
	s.reader, s.meters = all[0], sdkmetric.NewMeterProvider(options...)
	return all
}

// TestEveryReaderIsToldTheLastCounts: a Prometheus that scrapes each 15 s does not use
// up what an exporter wants each minute.
func TestEveryReaderIsToldTheLastCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSignals(t, sdktrace.NeverSample())
		readers := withReaders(s, 2)
		tr := stack(s.observer(), transporttest.NewBase(), bare())
		s.collect()
		if _, err := call(tr, request("GET", "http://a.test/")); err != nil {
			t.Fatal(err)
		}
		_ = tr.Close()
		for range 4 {
			time.Sleep(15 * time.Second)
			s.collect()
		}
		s.reader = readers[1]
		if v, want := values(s.collect()["resilience.attempts"]), "{attempt.kind=initial attempt.result=success} 1"; v != want {
			t.Errorf("got %q, want %s", v, want)
		}
	})
}

// TestCollectionsThatOverlapDoNotForgetANewHost has two that have looked at the
// Transport before there was a host, and go on once it is there.
func TestCollectionsThatOverlapDoNotForgetANewHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSignals(t, sdktrace.NeverSample())
		readers := withReaders(s, 2)
		goOn := make(chan struct{})
		o := s.observer(func(c *otel.Config) {
			c.PolicyName = func(host string) string {
				if host == "first.test:80" { // which only collections ask for, since lossy does not tell of it
					<-goOn
				}
				return host
			}
		})
		tr := stack(transport.Observer(lossy{o}), stub{}, bare())
		defer o.Attach(tr)()
		if _, err := call(tr, request(http.MethodGet, "http://first.test/")); err != nil {
			t.Fatal(err)
		}
		got := make([]metricdata.ResourceMetrics, len(readers))
		var all sync.WaitGroup
		for i, r := range readers {
			all.Go(func() {
				if err := r.Collect(context.Background(), &got[i]); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if _, err := call(tr, request(http.MethodGet, "http://second.test/")); err != nil {
			t.Fatal(err)
		}
		close(goOn)
		all.Wait()
		for i := range got {
			if names := policyNames(byName(got[i])["resilience.attempts"]); !slices.Contains(names, "second.test:80") {
				t.Errorf("reader %d is told of %v only", i, names)
			}
		}
	})
}

// TestCallsThatEndLongAfterCloseAreCounted, whether or not anything else is told.
func TestCallsThatEndLongAfterCloseAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSignals(t, sdktrace.NeverSample())
		tr := stack(s.observer(), transporttest.NewBase(transporttest.Step{Body: "x"}), bare())
		resp, err := tr.RoundTrip(request("GET", "http://a.test/"))
		if err != nil {
			t.Fatal(err)
		}
		_ = tr.Close()
		for range 4 {
			time.Sleep(time.Minute)
			s.collect()
		}
		_ = resp.Body.Close()
		s.mustCount(map[string]string{"resilience.attempts": "{attempt.kind=initial attempt.result=success} 1"})
	})
}

func TestTwoTransportsOfOneObserverAddUp(t *testing.T) {
	s := newSignals(t, sdktrace.AlwaysSample())
	o := s.observer()
	p := bare()
	p.Bulkhead.MaxConcurrent = 5
	one, two := stack(o, transporttest.NewBase(), p), stack(o, transporttest.NewBase(), p)
	for _, tr := range []*transport.Transport{one, two, two} {
		if _, err := call(tr, request("GET", "http://a.test/")); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]string{
		"resilience.attempts":               "{attempt.kind=initial attempt.result=success} 3",
		"resilience.bulkhead.limit":         "{} 10",
		"resilience.circuit_breaker.status": "{} 2",
	}
	s.mustCount(want)
	_ = two.Close()
	want["resilience.bulkhead.limit"], want["resilience.circuit_breaker.status"] = "{} 5", "{} 1"
	s.mustCount(want)
}

func TestClientNamesTellStacksApart(t *testing.T) {
	s := newSignals(t, sdktrace.AlwaysSample())
	for i, name := range []string{"mobile", "batch"} {
		tr := stack(s.observer(func(c *otel.Config) { c.ClientName = name }), transporttest.NewBase(), bare())
		for range i + 1 {
			if _, err := call(tr, request("GET", "http://a.test/")); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.mustCount(map[string]string{
		"resilience.attempts":               "{attempt.kind=initial attempt.result=success client.name=batch} 2\n{attempt.kind=initial attempt.result=success client.name=mobile} 1",
		"resilience.circuit_breaker.status": "{client.name=batch} 1\n{client.name=mobile} 1",
	})
	for _, m := range s.collect() {
		for _, p := range points(m) {
			if m.Name != "http.client.request.duration" && !p.attrs.HasValue("resilience.client.name") {
				t.Errorf("%s: %s", m.Name, text(p.attrs.ToSlice()))
			}
		}
	}
	if trace := s.trace(); strings.Count(trace, "client.name=batch") != 2 {
		t.Errorf("spans:\n%s", trace)
	}
}

func TestHostsOfOnePolicyNameAreAddedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSignals(t, sdktrace.AlwaysSample())
		p := bare()
		p.Breaker = policy.Breaker{Window: time.Minute, MinCalls: 2, FailureRate: 0.9, OpenFor: time.Minute}
		base := transporttest.NewBase()
		base.ScriptFunc(func(h transporttest.Hit) transporttest.Step {
			if strings.HasPrefix(h.Host, "2.") && h.Path == "/1" || strings.HasPrefix(h.Host, "1.") {
				return transporttest.Step{Status: 500}
			}
			return transporttest.Step{}
		})
		tr := stack(s.observer(func(c *otel.Config) { c.PolicyName = func(string) string { return "shards" } }), base, p)
		for host := range 4 {
			for i := range 2 {
				_, _ = call(tr, request("GET", fmt.Sprintf("http://%d.test/%d", host, i)))
			}
		}
		s.mustCount(map[string]string{
			"resilience.circuit_breaker.status":       "{circuit_breaker.state=open policy.name=shards} 1\n{policy.name=shards} 3",
			"resilience.circuit_breaker.failure_rate": "{policy.name=shards} 1", // the highest of them
			"resilience.circuit_breaker.window.calls": "{policy.name=shards} 8",
		})
	})
}

func TestNamesBeyondTheBoundAreOneAndSaidOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		said := handle(t)
		s := newSignals(t, sdktrace.NeverSample())
		tr := stack(s.observer(), transporttest.NewBase(), bare())
		for i := range 150 {
			if _, err := call(tr, request("GET", fmt.Sprintf("http://%d.test/", i))); err != nil {
				t.Fatal(err)
			}
		}
		got := s.collect()
		names := policyNames(got["resilience.circuit_breaker.status"])
		if len(names) != 101 || !slices.Contains(names, "_other") {
			t.Errorf("%d names, among them _other: %v; want 101", len(names), slices.Contains(names, "_other"))
		}
		for name, want := range map[string]string{
			"resilience.attempts":               "{attempt.kind=initial attempt.result=success policy.name=_other} 50",
			"resilience.circuit_breaker.status": "{policy.name=_other} 50",
		} {
			if !strings.Contains(values(got[name]), want) {
				t.Errorf("%s lacks %s", name, want)
			}
		}
		if errs := said.all(); len(errs) != 1 || !strings.Contains(errs[0], "more than 100 policy names") {
			t.Errorf("said %q, want one word on it", errs)
		}
	})
}

// TestNamesStayBoundedWhereHostsComeAndGo: an SDK keeps the attributes of counters
// and histograms for ever, so a name that was told once counts for ever.
func TestNamesStayBoundedWhereHostsComeAndGo(t *testing.T) {
	handle(t)
	s := newSignals(t, sdktrace.NeverSample())
	tr := transport.Must(transport.New(transport.Config{Base: transporttest.NewBase(), Default: bare(), MaxHosts: 10, Logger: slog.New(slog.DiscardHandler),
		Observer: s.observer(func(c *otel.Config) { c.MaxPolicyNames = 20 })}))
	for i := range 500 {
		if _, err := call(tr, request("GET", fmt.Sprintf("http://%d.test/", i))); err != nil {
			t.Fatal(err)
		}
		if i%10 == 0 {
			s.collect()
		}
	}
	for name, m := range s.collect() {
		if n := len(policyNames(m)); strings.HasPrefix(name, "resilience.") && n > 21 {
			t.Errorf("%s: %d policy names, want at most 21", name, n)
		}
	}
}

func TestManyHostsMethodsAndStatusesLoseNoAttributes(t *testing.T) {
	if testing.Short() || raceEnabled {
		t.Skip("visits 10,000 hosts")
	}
	handle(t)
	s := newSignals(t, sdktrace.NeverSample())
	p := bare()
	p.Breaker = policy.Breaker{ConsecutiveFailures: 1, OpenFor: time.Hour}
	n := 0
	base := rt(func(r *http.Request) (*http.Response, error) {
		if n++; n%7 == 0 {
			return nil, errors.New("no")
		}
		return &http.Response{StatusCode: 100 + n%900, Proto: fmt.Sprintf("HTTP/%d", n), Header: http.Header{}, Body: http.NoBody, Request: r}, nil
	})
	tr := stack(s.observer(), base, p)
	for i := range 10_000 {
		_, _ = call(tr, request("GET", fmt.Sprintf("http://%d.test/", i)))
	}
	for i := range 1000 {
		_, _ = call(tr, request(fmt.Sprintf("M%d", i), "http://0.test/"))
	}
	p.Breaker = policy.Breaker{}
	tr2 := stack(s.observer(func(c *otel.Config) { c.ClientName = "b" }), base, p)
	for i := range 19 * 900 {
		_, _ = call(tr2, request("GET", fmt.Sprintf("http://%d.test/", i%19)))
	}
	got := s.collect()
	for name, m := range got {
		all := points(m)
		if len(all) > 2000 {
			t.Errorf("%s has %d sets", name, len(all))
		}
		for _, p := range all {
			if p.attrs.HasValue("otel.metric.overflow") && name != "http.client.request.duration" { // which names hosts, as its convention says
				t.Errorf("%s has lost attributes: %s of %d sets", name, p.value, len(all))
			}
			if v, ok := p.attrs.Value("http.request.method"); ok && v.AsString() != "GET" && v.AsString() != "_OTHER" {
				t.Errorf("%s has the method %s", name, v.AsString())
			}
		}
	}
	if len(points(got["resilience.circuit_breaker.transitions"])) < 1000 {
		t.Errorf("%d sets of transitions", len(points(got["resilience.circuit_breaker.transitions"])))
	}
}

func TestAHostWithManyStatusesDoesNotUseUpTheMetricOfAll(t *testing.T) {
	s := newSignals(t, sdktrace.AlwaysSample())
	n := 0
	base := rt(func(r *http.Request) (*http.Response, error) {
		n++
		return &http.Response{StatusCode: 99 + n, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
	})
	tr := stack(s.observer(), base, bare())
	for range 900 {
		_, _ = call(tr, request("GET", "http://a.test/"))
	}
	all := points(s.collect()["http.client.request.duration"])
	total := 0
	for _, p := range all {
		var c int
		_, _ = fmt.Sscanf(p.value, "%d of", &c)
		total += c
	}
	if len(all) > 40 || total != 900 {
		t.Errorf("%d sets of %d attempts, want at most 40 of 900", len(all), total)
	}
	last := attribute.Int("http.response.status_code", 998)
	if !slices.ContainsFunc(s.spans.GetSpans(), func(s tracetest.SpanStub) bool { return slices.Contains(s.Attributes, last) }) {
		t.Error("spans do not tell the status")
	}
}

// TestWhatIsToldApartOfAHostIsBoundedWithoutAStatusToo: an attempt that fails before its
// status is still of a method and a version, and of one of many errors.
func TestWhatIsToldApartOfAHostIsBoundedWithoutAStatusToo(t *testing.T) {
	s := newSignals(t, sdktrace.NeverSample())
	o := s.observer()
	total := 0
	for _, kind := range []error{nil, transport.ErrConnectTimeout, transport.ErrTLSTimeout, transport.ErrReadTimeout, transport.ErrAttemptTimeout, transport.ErrTotalTimeout} {
		for _, proto := range []string{"", "HTTP/1.0", "HTTP/1.1", "HTTP/2.0", "HTTP/3.0"} {
			for _, method := range []string{"BREW", "GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT"} {
				ctx := o.Start(t.Context(), transport.Start{Host: "a.test:80", Attempt: 1, Request: request(method, "http://a.test/"), Header: http.Header{}})
				e := transport.Event{Kind: transport.EventAttemptEnd, Host: "a.test:80", Attempt: 1, Proto: proto, Outcome: "success"}
				if kind != nil {
					e.Outcome, e.Err = "error", &transport.Error{Kind: kind}
				}
				o.Observe(ctx, e)
				total++
			}
		}
	}
	all := points(s.collect()["http.client.request.duration"])
	count, failed := 0, 0
	for _, p := range all {
		var c int
		_, _ = fmt.Sscanf(p.value, "%d of", &c)
		count += c
		if p.attrs.HasValue("error.type") {
			failed += c
		}
	}
	if len(all) > 32+2*10 || count != total || failed != total*5/6 {
		t.Errorf("%d sets of %d attempts, %d of them failed; want at most 52 of %d, %d", len(all), count, failed, total, total*5/6)
	}
}

func TestSeveralReadersSeeTheSame(t *testing.T) {
	s := newSignals(t, sdktrace.NeverSample())
	both := withReaders(s, 2)
	tr := stack(s.observer(), stub{}, bare())
	stop := make(chan struct{})
	var calls sync.WaitGroup
	for range 2 {
		calls.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
					_, _ = call(tr, request("GET", fmt.Sprintf("http://%d.test/", i%10)))
				}
			}
		})
	}
	var readers sync.WaitGroup
	for _, r := range both {
		readers.Go(func() {
			for range 20 {
				var rm metricdata.ResourceMetrics
				if err := r.Collect(context.Background(), &rm); err != nil {
					t.Error(err)
				}
			}
		})
	}
	readers.Wait()
	close(stop)
	calls.Wait()
	want := values(s.collect()["resilience.attempts"])
	s.reader = both[1]
	if got := values(s.collect()["resilience.attempts"]); got != want || got == "" {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestHostsThatWereDroppedAreForgotten(t *testing.T) {
	if testing.Short() || raceEnabled {
		t.Skip("visits 8,000 hosts")
	}
	handle(t)
	synctest.Test(t, func(t *testing.T) {
		s := newSignals(t, sdktrace.NeverSample())
		c := callbacks{}
		o := s.observer(func(config *otel.Config) { config.MeterProvider = &c })
		tr := transport.Must(transport.New(transport.Config{Base: stub{}, Observer: o, Default: bare(), MaxHosts: 10, Logger: slog.New(slog.DiscardHandler)}))
		visit := func(from, to int) {
			for i := from; i < to; i++ {
				if _, err := call(tr, request("GET", fmt.Sprintf("http://%d.test/", i))); err != nil {
					t.Fatal(err)
				}
			}
			for range 4 {
				if err := c.registered(t.Context(), mnoop.Observer{}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
			}
		}
		visit(0, 200) // all the names there are
		before := heap()
		visit(200, 8000)
		if grown := heap() - before; grown > 1<<20 {
			t.Errorf("7,800 hosts that are gone have left %d KiB", grown>>10)
		}
		runtime.KeepAlive(o)
	})
}
