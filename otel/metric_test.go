package otel_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/transporttest"
)

// kind is what a metric is.
func kind(m metricdata.Metrics) string {
	sum := func(monotonic bool) string {
		if monotonic {
			return "counter"
		}
		return "updowncounter"
	}
	switch d := m.Data.(type) {
	case metricdata.Sum[int64]:
		return sum(d.IsMonotonic)
	case metricdata.Sum[float64]:
		return sum(d.IsMonotonic)
	case metricdata.Gauge[int64], metricdata.Gauge[float64]:
		return "gauge"
	case metricdata.Histogram[float64]:
		return "histogram"
	}
	return fmt.Sprintf("%T", m.Data)
}

// keys are the names of the attributes of a metric's points, without the common
// one and those that are there for some only.
func keys(m metricdata.Metrics) string {
	all := map[string]bool{}
	for _, p := range points(m) {
		for _, a := range p.attrs.ToSlice() {
			all[string(a.Key)] = true
		}
	}
	var names []string
	for k := range all {
		if k != "resilience.policy.name" {
			names = append(names, strings.TrimPrefix(k, "resilience."))
		}
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func TestMetricsAreThoseOfTheTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSignals(t, sdktrace.AlwaysSample())
		p := policy.Service()
		p.Breaker.MinCalls = 1
		p.Bulkhead = policy.Bulkhead{MaxConcurrent: 1, MaxWait: time.Second}
		p.Fallback.MaxStale = time.Hour
		tr := stack(s.observer(), transporttest.NewBase(transporttest.Step{Body: "x", Delay: time.Second}, transporttest.Step{Status: 503, Delay: time.Millisecond}), p)
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = call(tr, request("GET", "http://a.test/"))
		}()
		synctest.Wait()
		time.Sleep(time.Millisecond)
		_, _ = call(tr, request("GET", "http://a.test/")) // waits, fails, and gets the other's answer
		<-done
		_, _ = call(tr, request("POST", "http://a.test/")) // fails

		want := `
http.client.request.duration histogram s: error.type http.request.method http.response.status_code network.protocol.version server.address server.port
resilience.attempts counter {attempt}: attempt.kind attempt.result
resilience.bulkhead.leaked counter {request}: bulkhead.reason
resilience.bulkhead.limit updowncounter {request}: 
resilience.bulkhead.queue.usage updowncounter {request}: 
resilience.bulkhead.rejections counter {request}: bulkhead.reason
resilience.bulkhead.usage updowncounter {request}: 
resilience.bulkhead.wait.duration histogram s: 
resilience.circuit_breaker.calls counter {call}: call.result call.slow
resilience.circuit_breaker.failure_rate gauge 1: 
resilience.circuit_breaker.not_permitted counter {call}: circuit_breaker.state
resilience.circuit_breaker.slow_call_rate gauge 1: 
resilience.circuit_breaker.status updowncounter 1: circuit_breaker.state
resilience.circuit_breaker.transitions counter {transition}: circuit_breaker.previous_state circuit_breaker.reason circuit_breaker.state
resilience.circuit_breaker.window.calls gauge {call}: 
resilience.fallback.staleness histogram s: 
resilience.fallbacks counter {response}: fallback.kind fallback.reason
resilience.request.duration histogram s: error.type outcome
resilience.retries counter {retry}: retry.reason
resilience.retry.budget.limit updowncounter {retry}: 
resilience.retry.budget.usage updowncounter {retry}: 
resilience.retry.suppressed counter {retry}: retry.reason
resilience.timeouts counter {timeout}: timeout.phase
`
		var got []string
		for name, m := range s.collect() {
			got = append(got, fmt.Sprintf("%s %s %s: %s", name, kind(m), m.Unit, keys(m)))
			if m.Description == "" {
				t.Errorf("%s has no description", name)
			}
		}
		slices.Sort(got)
		if text := "\n" + strings.Join(got, "\n") + "\n"; text != want {
			t.Errorf("got%swant%s", text, want)
		}
	})
}

func TestHistogramsHaveTheirBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSignals(t, sdktrace.AlwaysSample())
		p := bare()
		p.Fallback.MaxStale = time.Hour
		p.Bulkhead = policy.Bulkhead{MaxConcurrent: 1, MaxWait: time.Second}
		tr := stack(s.observer(), transporttest.NewBase(transporttest.Step{Body: "x"}, transporttest.Step{Status: 503, Delay: time.Millisecond}), p)
		held, err := tr.RoundTrip(request("GET", "http://a.test/"))
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Second/2, func() { _, _ = io.Copy(io.Discard, held.Body) })
		_, _ = call(tr, request("GET", "http://a.test/"))
		convention := []float64{0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10}
		got := s.collect()
		for name, want := range map[string][]float64{
			"http.client.request.duration":      convention,
			"resilience.request.duration":       append(convention, 30, 60),
			"resilience.bulkhead.wait.duration": {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10},
			"resilience.fallback.staleness":     {1, 5, 15, 60, 300, 900, 3600, 21600, 86400},
		} {
			h, ok := got[name].Data.(metricdata.Histogram[float64])
			if !ok || !slices.Equal(h.DataPoints[0].Bounds, want) {
				t.Errorf("%s: %+v, want bounds %v", name, h, want)
			}
		}
	})
}

func TestAnOutageIsCountedExactly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSignals(t, sdktrace.AlwaysSample())
		p := bare()
		p.Breaker = policy.Breaker{Window: time.Minute, MinCalls: 4, FailureRate: 0.5, OpenFor: 10 * time.Second, HalfOpenProbes: 2}
		p.Bulkhead.MaxConcurrent = 10
		base := transporttest.NewBase(transporttest.Step{}, transporttest.Step{Status: 404}, transporttest.Step{Status: 500}, transporttest.Step{Err: io.EOF},
			transporttest.Step{Status: 503}, transporttest.Step{Err: io.EOF}, transporttest.Step{Body: "x", Delay: time.Second})
		tr := stack(s.observer(), base, p)
		get := func() error { _, err := call(tr, request("GET", "http://a.test/")); return err }
		state := func(name string) {
			t.Helper()
			want := "{circuit_breaker.state=" + name + "} 1"
			if name == "closed" {
				want = "{} 1"
			}
			m := s.collect()["resilience.circuit_breaker.status"]
			if got := values(m); got != want || len(points(m)) != 5 {
				t.Errorf("status: %s of %d, want %s", got, len(points(m)), want)
			}
		}
		for range 4 {
			_ = get()
		}
		state("closed") // three of them count: below MinCalls
		s.mustCount(map[string]string{"resilience.circuit_breaker.failure_rate": "", "resilience.circuit_breaker.window.calls": "{} 3"})
		if m := s.collect(); len(points(m["resilience.circuit_breaker.failure_rate"])) != 0 {
			t.Error("a rate of fewer calls than MinCalls")
		}
		_ = get() // trips
		state("open")
		s.mustCount(map[string]string{"resilience.circuit_breaker.failure_rate": "{} 0.75", "resilience.circuit_breaker.window.calls": "{} 4"})
		refused := 0
		for range 7 {
			if errors.Is(get(), transport.ErrBreakerOpen) {
				refused++
			}
		}
		time.Sleep(12 * time.Second)
		state("half_open")
		_ = get() // a probe that fails
		for range 3 {
			if errors.Is(get(), transport.ErrBreakerOpen) {
				refused++
			}
		}
		time.Sleep(30 * time.Second)
		for range 2 { // probes that succeed, while a third call is refused
			go func() { _ = get() }()
		}
		synctest.Wait()
		s.mustCount(map[string]string{"resilience.bulkhead.usage": "{} 2", "resilience.bulkhead.limit": "{} 10"})
		third := get()
		if !errors.Is(third, transport.ErrBreakerOpen) {
			t.Errorf("got %v, want a refusal", third)
		}
		time.Sleep(2 * time.Second)
		state("closed")
		if refused != 10 {
			t.Errorf("%d refusals, want 10", refused)
		}
		s.mustCount(map[string]string{
			"resilience.circuit_breaker.transitions": strings.Join([]string{
				"{circuit_breaker.previous_state=closed circuit_breaker.reason=failure_rate circuit_breaker.state=open} 1",
				"{circuit_breaker.previous_state=half_open circuit_breaker.reason=probe_failed circuit_breaker.state=open} 1",
				"{circuit_breaker.previous_state=half_open circuit_breaker.reason=probes_succeeded} 1",
				"{circuit_breaker.previous_state=open circuit_breaker.reason=wait_over circuit_breaker.state=half_open} 2",
			}, "\n"),
			"resilience.circuit_breaker.not_permitted": "{circuit_breaker.state=half_open} 1\n{circuit_breaker.state=open} 10",
			"resilience.circuit_breaker.calls":         "{call.result=failure} 4\n{call.result=ignored} 1\n{call.result=success} 3",
			"resilience.attempts":                      "{attempt.kind=initial attempt.result=error} 4\n{attempt.kind=initial attempt.result=success} 4",
			"resilience.request.duration": strings.Join([]string{
				"{error.type=500 outcome=error} 1 of 0", "{error.type=503 outcome=error} 1 of 0", "{error.type=circuit_half_open outcome=rejected} 1 of 0",
				"{error.type=circuit_open outcome=rejected} 10 of 0", "{error.type=connection_error outcome=error} 2 of 0", "{outcome=success} 4 of 2"}, "\n"),
			"http.client.request.duration": strings.Join([]string{
				"{error.type=404 http.response.status_code=404} 1 of 0", "{error.type=500 http.response.status_code=500} 1 of 0", "{error.type=503 http.response.status_code=503} 1 of 0",
				"{error.type=connection_error} 2 of 0", "{http.response.status_code=200} 3 of 2"}, "\n"),
			"resilience.bulkhead.usage":      "",
			"resilience.bulkhead.rejections": "",
			"resilience.fallbacks":           "",
			"resilience.retries":             "",
			"resilience.timeouts":            "",
		})
	})
}

func TestTransitionsBeginAtZeroOnEveryEdge(t *testing.T) {
	s := newSignals(t, sdktrace.AlwaysSample())
	tr := stack(s.observer(), transporttest.NewBase(), bare())
	if _, err := call(tr, request("GET", "http://a.test/")); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range points(s.collect()["resilience.circuit_breaker.transitions"]) {
		from, _ := p.attrs.Value("resilience.circuit_breaker.previous_state")
		to, _ := p.attrs.Value("resilience.circuit_breaker.state")
		why, _ := p.attrs.Value("resilience.circuit_breaker.reason")
		got = append(got, fmt.Sprintf("%s %s %s %s", from.AsString(), to.AsString(), why.AsString(), p.value))
	}
	slices.Sort(got)
	want := []string{
		"closed open consecutive_failures 0", "closed open failure_rate 0", "closed open failures_in_window 0", "closed open slow_call_rate 0",
		"half_open closed abandoned 0", "half_open closed probes_succeeded 0", "half_open open probe_failed 0", "half_open open probe_slow 0",
		"open closed abandoned 0", "open half_open wait_over 0",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestRetriesAndTheirBudgetAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSignals(t, sdktrace.AlwaysSample())
		p := bare()
		p.Timeout.Attempt = time.Second
		p.Retry = policy.Retry{MaxAttempts: 3, Statuses: []int{503}, Base: time.Millisecond, MaxRetryAfter: time.Second, Budget: policy.Budget{Ratio: 0.01}}
		base := transporttest.NewBase(
			transporttest.Step{Status: 503}, transporttest.Step{Err: io.EOF}, transporttest.Step{Fault: transporttest.Hang}, // max_attempts
			transporttest.Step{Fault: transporttest.Hang}, transporttest.Step{}, // a timeout that is retried
			transporttest.Step{Status: 503},                                             // not_idempotent
			transporttest.Step{Status: 503, Header: http.Header{"Retry-After": {"60"}}}, // retry_after
			transporttest.Step{Status: 503},                                             // the budget runs out
		)
		tr := stack(s.observer(), base, p)
		get := func(method string) { _, _ = call(tr, request(method, "http://a.test/")) }
		for _, method := range []string{"GET", "GET", "POST", "GET"} {
			get(method)
		}
		s.mustCount(map[string]string{
			"resilience.retries":             "{retry.reason=connection} 1\n{retry.reason=timeout} 1\n{} 1",
			"resilience.retry.suppressed":    "{retry.reason=max_attempts} 1\n{retry.reason=not_idempotent} 1\n{retry.reason=retry_after} 1",
			"resilience.attempts":            "{attempt.kind=initial attempt.result=error} 4\n{attempt.kind=retry attempt.result=error} 2\n{attempt.kind=retry attempt.result=success} 1",
			"resilience.timeouts":            "{timeout.phase=attempt} 2",
			"resilience.retry.budget.limit":  fmt.Sprintf("{} %d", policy.BudgetBurst),
			"resilience.retry.budget.usage":  "{} 2.99",
			"resilience.bulkhead.rejections": "",
		})
		for range policy.BudgetBurst {
			get("GET")
		}
		got := values(s.collect()["resilience.retry.suppressed"])
		if !strings.Contains(got, "{retry.reason=budget}") {
			t.Errorf("suppressed: %s, want the budget among them", got)
		}
	})
}

func TestRatesThatAreOffAreNotTold(t *testing.T) {
	for name, b := range map[string]policy.Breaker{
		"":               {ConsecutiveFailures: 3},
		"failure_rate":   {FailureRate: 0.5, SlowCall: time.Second},
		"slow_call_rate": {SlowRate: 0.5, SlowCall: time.Second},
	} {
		s := newSignals(t, sdktrace.NeverSample())
		p := bare()
		p.Breaker = b
		p.Breaker.MinCalls, p.Breaker.OpenFor = 1, time.Minute
		tr := stack(s.observer(), stub{}, p)
		if _, err := call(tr, request("GET", "http://a.test/")); err != nil {
			t.Fatal(err)
		}
		got := s.collect()
		for _, rate := range []string{"failure_rate", "slow_call_rate"} {
			if n := len(points(got["resilience.circuit_breaker."+rate])); n > 0 != (rate == name) {
				t.Errorf("%+v: %d of %s", b, n, rate)
			}
		}
		_ = tr.Close()
	}
}

// TestOnlyRetriesThatAreMadeAreCounted: while one waits its caller may leave, or the
// breaker open.
func TestOnlyRetriesThatAreMadeAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSignals(t, sdktrace.NeverSample())
		p := bare()
		p.Retry = policy.Retry{MaxAttempts: 2, Statuses: []int{503}, Base: 10 * time.Second, Max: 10 * time.Second}
		p.Breaker = policy.Breaker{ConsecutiveFailures: 100, OpenFor: time.Hour}
		tr := stack(s.observer(), transporttest.NewBase(transporttest.Step{Status: 503}), p)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		time.AfterFunc(time.Second, cancel)
		_, _ = call(tr, request("GET", "http://a.test/").WithContext(ctx))
		time.AfterFunc(time.Second, tr.Host("a.test").ForceOpen)
		_, _ = call(tr, request("GET", "http://a.test/"))
		s.mustCount(map[string]string{
			"resilience.attempts":         "{attempt.kind=initial attempt.result=error} 2",
			"resilience.retries":          "",
			"resilience.retry.suppressed": "{retry.reason=breaker_open} 1",
		})
	})
}

func TestFallbacksAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSignals(t, sdktrace.AlwaysSample())
		p := bare()
		p.Timeout.Attempt = time.Second
		p.Bulkhead.MaxConcurrent = 1
		p.Fallback = policy.Fallback{MaxStale: time.Hour, FailFast503: true, Degraded: func(r *http.Request, _ error) *http.Response {
			if r.Method == "POST" {
				return &http.Response{}
			}
			return nil
		}}
		base := transporttest.NewBase(transporttest.Step{Body: "x", Header: http.Header{"Cache-Control": {"max-age=10"}}},
			transporttest.Step{Status: 503}, transporttest.Step{Fault: transporttest.Hang}, transporttest.Step{Err: io.EOF}, transporttest.Step{Body: "held"})
		tr := stack(s.observer(), base, p)
		do := func(method string) { _, _ = call(tr, request(method, "http://a.test/")) }
		do("GET")
		time.Sleep(time.Minute)
		do("GET")  // 503: stale, for 50 s
		do("POST") // a timeout: degraded
		do("PUT")  // no connection: fail fast
		held, err := tr.RoundTrip(request("PUT", "http://a.test/other"))
		if err != nil {
			t.Fatal(err)
		}
		do("GET") // full: stale, for 51 s
		_ = held.Body.Close()
		tr.Host("a.test").ForceOpen()
		do("DELETE") // refused: fail fast
		s.mustCount(map[string]string{
			"resilience.fallbacks": strings.Join([]string{
				"{fallback.kind=degraded fallback.reason=timeout} 1", "{fallback.kind=fail_fast fallback.reason=breaker_open} 1",
				"{fallback.kind=fail_fast fallback.reason=connection} 1", "{fallback.kind=stale fallback.reason=bulkhead_full} 1",
				"{fallback.kind=stale fallback.reason=status} 1"}, "\n"),
			"resilience.fallback.staleness":            "{} 2 of 101",
			"resilience.request.duration":              "{outcome=fallback} 5 of 1\n{outcome=success} 2 of 0",
			"resilience.bulkhead.rejections":           "{bulkhead.reason=full} 1",
			"resilience.circuit_breaker.not_permitted": "{circuit_breaker.state=forced_open} 1",
			"resilience.bulkhead.wait.duration":        "", // nothing has waited
			"resilience.circuit_breaker.status":        "{circuit_breaker.state=forced_open} 1",
		})
	})
}

func TestWaitsLeaksAndCancelsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSignals(t, sdktrace.AlwaysSample())
		p := bare()
		p.Bulkhead = policy.Bulkhead{MaxConcurrent: 1, MaxWait: 2 * time.Second, BodyIdle: time.Minute}
		tr := stack(s.observer(), transporttest.NewBase(transporttest.Step{Body: "x"}, transporttest.Step{Body: "x"}, transporttest.Step{Fault: transporttest.Hang}), p)
		held, err := tr.RoundTrip(request("GET", "http://a.test/"))
		if err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = call(tr, request("GET", "http://a.test/")) }() // waits in vain
		synctest.Wait()
		s.mustCount(map[string]string{"resilience.bulkhead.queue.usage": "{} 1", "resilience.bulkhead.usage": "{} 1"})
		time.Sleep(3 * time.Second)
		time.AfterFunc(time.Second, func() { _ = held.Body.Close() })
		if _, err := tr.RoundTrip(request("GET", "http://a.test/")); err != nil { // waits for a second; is forgotten
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		_, _ = call(tr, request("GET", "http://a.test/").WithContext(ctx))
		s.mustCount(map[string]string{
			"resilience.bulkhead.wait.duration": "{} 2 of 3",
			"resilience.bulkhead.rejections":    "{bulkhead.reason=wait_timeout} 1",
			"resilience.bulkhead.leaked":        "{bulkhead.reason=idle} 1",
			"resilience.bulkhead.queue.usage":   "",
			"resilience.bulkhead.usage":         "",
			"resilience.attempts":               "{attempt.kind=initial attempt.result=cancelled} 1\n{attempt.kind=initial attempt.result=success} 2",
			"resilience.request.duration":       "{error.type=bulkhead_wait_timeout outcome=rejected} 1 of 2\n{outcome=cancelled} 1 of 3\n{outcome=success} 2 of 65",
			"resilience.circuit_breaker.calls":  "{call.result=ignored} 1\n{call.result=success} 2",
		})
	})
}

func TestTimeoutsAreCountedByPhase(t *testing.T) {
	hang := transporttest.Step{Fault: transporttest.Hang}
	for _, test := range []struct {
		phase string
		limit policy.Timeout
		step  transporttest.Step
	}{
		{"response_header", policy.Timeout{Read: time.Second}, hang},
		{"body_stall", policy.Timeout{Read: time.Second}, transporttest.Step{Body: "abc", Fault: transporttest.Hang, At: 1}},
		{"attempt", policy.Timeout{Attempt: time.Second}, hang},
		{"total", policy.Timeout{Total: time.Second}, hang},
		{"queue", policy.Timeout{Total: time.Second}, transporttest.Step{Body: "held"}},
		{"connect", policy.Timeout{Connect: time.Second}, hang},
		{"tls", policy.Timeout{TLSHandshake: time.Second}, hang},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newSignals(t, sdktrace.AlwaysSample())
			p := policy.Policy{Timeout: test.limit}
			url := "http://a.test/"
			var base http.RoundTripper = transporttest.NewBase(test.step)
			switch test.phase {
			case "queue":
				p.Bulkhead = policy.Bulkhead{MaxConcurrent: 1, MaxWait: time.Hour}
			case "connect":
				o := transporttest.NewNet(t, nil)
				o.OnDial(transporttest.BlackHole)
				base = o.Base()
			case "tls":
				url = "https://a.test:80/"
				base = transporttest.NewNet(t, nil, transporttest.ServeConn(func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })).Base()
			}
			tr := stack(s.observer(), base, p)
			defer tr.Close()
			if test.phase == "queue" {
				held, err := tr.RoundTrip(request("GET", url))
				if err != nil {
					t.Fatal(err)
				}
				defer held.Body.Close()
			}
			if _, err := call(tr, request("GET", url)); err == nil {
				t.Fatal("no error")
			}
			s.mustCount(map[string]string{"resilience.timeouts": "{timeout.phase=" + test.phase + "} 1"})
		})
	}
}

func TestTransitionsAndDurationsLeadToTheirTrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSignals(t, sdktrace.AlwaysSample())
		p := bare()
		p.Breaker = policy.Breaker{ConsecutiveFailures: 1, OpenFor: time.Minute}
		_, _ = call(stack(s.observer(), transporttest.NewBase(transporttest.Step{Status: 500}), p), request("GET", "http://a.test/"))
		ids := map[string]string{} // of spans
		for _, span := range s.spans.GetSpans() {
			id := span.SpanContext.SpanID()
			ids[span.Name] = string(id[:])
		}
		got := s.collect()
		exemplar := func(name string) (span string) {
			switch d := got[name].Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range d.DataPoints {
					for _, e := range p.Exemplars {
						if e.Value > 0 {
							span = string(e.SpanID)
						}
					}
				}
			case metricdata.Histogram[float64]:
				for _, p := range d.DataPoints {
					for _, e := range p.Exemplars {
						span = string(e.SpanID)
					}
				}
			}
			return span
		}
		for name, want := range map[string]string{
			"resilience.circuit_breaker.transitions": "resilience GET",
			"resilience.request.duration":            "resilience GET",
			"http.client.request.duration":           "GET",
		} {
			if id := exemplar(name); id == "" || id != ids[want] {
				t.Errorf("%s leads to %x, want %x of %s", name, id, ids[want], want)
			}
		}
	})
}

// What is reused begins with the first: few hosts have it.
func TestReusesAreCounted(t *testing.T) {
	s := newSignals(t, sdktrace.AlwaysSample())
	p := policy.Policy{Cache: policy.Cache{Fresh: true}}
	tr := stack(s.observer(), transporttest.NewBase(transporttest.Step{Body: "x", Header: http.Header{"Cache-Control": {"max-age=60"}}}), p)
	defer tr.Close()
	for i := range 3 {
		if _, told := s.collect()["resilience.cache.reuses"]; told != (i > 1) {
			t.Errorf("after %d calls: %v", i, told)
		}
		if _, err := call(tr, request("GET", "http://a.test/")); err != nil {
			t.Fatal(err)
		}
	}
	sum, _ := s.collect()["resilience.cache.reuses"].Data.(metricdata.Sum[int64])
	if len(sum.DataPoints) != 1 || sum.DataPoints[0].Value != 2 {
		t.Errorf("%+v", sum)
	}
}
