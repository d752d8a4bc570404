package otel_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/watertight-go/watertight/otel"
	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/transporttest"
)

// rt is a RoundTripper that is a function.
type rt func(*http.Request) (*http.Response, error)

func (f rt) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// within is what makes a context end after a second.
func within(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	time.AfterFunc(time.Second, cancel)
	return ctx
}

func TestSpansTellWhatBecameOfACall(t *testing.T) {
	hang := transporttest.Step{Fault: transporttest.Hang}
	for _, test := range []struct {
		name   string
		policy func(*policy.Policy)
		steps  []transporttest.Step
		base   http.RoundTripper // instead of steps
		method string
		before func(*transport.Transport)
		ctx    func(context.Context) context.Context
		use    func(*http.Response) // nil: read it
		want   string
	}{
		{name: "read to the end", steps: []transporttest.Step{{Body: "abc", Chunk: 1, Pause: time.Second}}, want: `
internal resilience GET 3s {attempts=1 outcome=success}
  client GET 3s {http.response.status_code=200}`},
		{name: "closed early", steps: []transporttest.Step{{Body: "abc", Chunk: 1, Pause: time.Second}}, use: func(r *http.Response) {
			_, _ = r.Body.Read(make([]byte, 1))
			_ = r.Body.Close()
		}, want: `
internal resilience GET 1s {attempts=1 outcome=success}
  client GET 1s {http.response.status_code=200}`},
		{name: "forgotten", steps: []transporttest.Step{{Body: "abc"}}, use: func(*http.Response) { time.Sleep(time.Hour) }, want: `
internal resilience GET 1m0s {attempts=1 outcome=success}
  at 1m0s resilience.leak {bulkhead.reason=idle}
  client GET 1m0s {http.response.status_code=200}`},
		{name: "forgotten, in shadow mode", steps: []transporttest.Step{{Body: "abc"}}, policy: func(p *policy.Policy) { p.Bulkhead.Shadow = true },
			use: func(r *http.Response) { time.Sleep(time.Hour); _ = r.Body.Close() }, want: `
internal resilience GET 1h0m0s {attempts=1 outcome=success}
  at 1m0s resilience.leak {bulkhead.reason=idle shadow=true}
  client GET 1h0m0s {http.response.status_code=200}`},
		{name: "cut", steps: []transporttest.Step{{Body: "abc", Fault: transporttest.Cut, At: 1, Chunk: 1, Pause: time.Second}}, want: `
internal resilience GET 1s ERROR {attempts=1 error.type=connection_error outcome=error}
  client GET 1s ERROR {error.type=connection_error http.response.status_code=200}`},
		{name: "HEAD", method: "HEAD", steps: []transporttest.Step{{Body: "abc", Delay: time.Second}}, want: `
internal resilience HEAD 1s {attempts=1 outcome=success}
  client HEAD 1s {http.request.method=HEAD http.response.status_code=200}`},
		{name: "no content", steps: []transporttest.Step{{Status: 204}}, want: `
internal resilience GET 0s {attempts=1 outcome=success}
  client GET 0s {http.response.status_code=204}`},
		{name: "an upgrade", base: rt(func(r *http.Request) (*http.Response, error) {
			client, _ := io.Pipe()
			return &http.Response{StatusCode: 101, Proto: "HTTP/1.1", Header: http.Header{}, Body: client, Request: r}, nil
		}), use: func(r *http.Response) { time.Sleep(time.Hour); _ = r.Body.Close() }, want: `
internal resilience GET 0s {attempts=1 outcome=success}
  client GET 0s {http.response.status_code=101}`},
		{name: "not found", steps: []transporttest.Step{{Status: 404, Body: "x"}}, want: `
internal resilience GET 0s {attempts=1 outcome=success}
  client GET 0s ERROR {error.type=404 http.response.status_code=404}`},
		{name: "a server's error", method: "POST", steps: []transporttest.Step{{Status: 500, Body: "x"}}, want: `
internal resilience POST 0s ERROR {attempts=1 error.type=500 outcome=error}
  at 0s resilience.retry.suppressed {retry.reason=not_idempotent}
  client POST 0s ERROR {error.type=500 http.request.method=POST http.response.status_code=500}`},
		{name: "a method of the caller's own", method: "BREW", steps: []transporttest.Step{{}}, want: `
internal resilience HTTP 0s {attempts=1 outcome=success}
  client HTTP 0s {http.request.method=_OTHER http.request.method_original=BREW http.response.status_code=200}`},
		{name: "a method in lower case", method: "get", steps: []transporttest.Step{{}}, want: `
internal resilience HTTP 0s {attempts=1 outcome=success}
  client HTTP 0s {http.request.method=_OTHER http.request.method_original=get http.response.status_code=200}`},
		{name: "a retry that helps", steps: []transporttest.Step{{Status: 503, Delay: time.Second}, {Body: "x"}}, want: `
internal resilience GET 2s {attempts=2 outcome=success}
  at 1s resilience.retry {retry.delay=1}
  client GET 1s ERROR {error.type=503 http.response.status_code=503}
  client GET 0s {http.request.resend_count=1 http.response.status_code=200}`},
		{name: "retries in vain", steps: []transporttest.Step{{Status: 503}, {Err: io.EOF}, {Status: 502}}, want: `
internal resilience GET 2s ERROR {attempts=3 error.type=502 outcome=error}
  at 0s resilience.retry {retry.delay=1}
  at 1s resilience.retry {retry.delay=1 retry.reason=connection}
  at 2s resilience.retry.suppressed {retry.reason=max_attempts}
  client GET 0s ERROR {error.type=503 http.response.status_code=503}
  client GET 0s ERROR {error.type=connection_error http.request.resend_count=1}
  client GET 0s ERROR {error.type=502 http.request.resend_count=2 http.response.status_code=502}`},
		{name: "an error after retries", steps: []transporttest.Step{{Err: io.EOF}}, want: `
internal resilience GET 2s ERROR {attempts=3 error.type=connection_error outcome=error}
  at 0s resilience.retry {retry.delay=1 retry.reason=connection}
  at 1s resilience.retry {retry.delay=1 retry.reason=connection}
  at 2s resilience.retry.suppressed {retry.reason=max_attempts}
  client GET 0s ERROR {error.type=connection_error}
  client GET 0s ERROR {error.type=connection_error http.request.resend_count=1}
  client GET 0s ERROR {error.type=connection_error http.request.resend_count=2}`},
		{name: "a breaker that was opened by hand", before: func(tr *transport.Transport) { tr.Host("a.test").ForceOpen() }, want: `
internal resilience GET 0s ERROR {attempts=0 circuit_breaker.state=forced_open error.type=circuit_open outcome=rejected}`},
		{name: "a full bulkhead", policy: func(p *policy.Policy) { p.Bulkhead.MaxConcurrent, p.Breaker = 1, policy.Breaker{} },
			steps: []transporttest.Step{{Body: "held"}}, before: func(tr *transport.Transport) {
				resp, _ := tr.RoundTrip(request("GET", "http://a.test/"))
				time.AfterFunc(time.Second, func() { _ = resp.Body.Close() })
			}, want: `
internal resilience GET 0s ERROR {attempts=0 error.type=bulkhead_full outcome=rejected}
internal resilience GET 1s {attempts=1 outcome=success}
  client GET 1s {http.response.status_code=200}`},
		{name: "a stored answer", policy: func(p *policy.Policy) { p.Fallback.MaxStale = time.Hour; p.Retry = policy.Retry{} },
			before: func(tr *transport.Transport) {
				_, _ = call(tr, request("GET", "http://a.test/"))
				time.Sleep(time.Minute)
			}, steps: []transporttest.Step{{Body: "x", Header: http.Header{"Cache-Control": {"max-age=10"}}}, {Status: 503}}, want: `
internal resilience GET 0s {attempts=1 outcome=success}
  client GET 0s {http.response.status_code=200}
internal resilience GET 0s {attempts=1 fallback.kind=stale fallback.reason=status fallback.staleness=50 outcome=fallback}
  client GET 0s ERROR {error.type=503 http.response.status_code=503}`},
		{name: "a partial answer", policy: func(p *policy.Policy) {
			p.Retry = policy.Retry{}
			p.Fallback.Degraded = func(*http.Request, error) *http.Response { return &http.Response{} }
		}, steps: []transporttest.Step{{Err: io.EOF}}, want: `
internal resilience GET 0s {attempts=1 fallback.kind=degraded fallback.reason=connection outcome=fallback}
  client GET 0s ERROR {error.type=connection_error}`},
		{name: "a 503 for a refusal", policy: func(p *policy.Policy) { p.Fallback.FailFast503 = true },
			before: func(tr *transport.Transport) { tr.Host("a.test").ForceOpen() }, want: `
internal resilience GET 0s {attempts=0 circuit_breaker.state=forced_open fallback.kind=fail_fast fallback.reason=breaker_open outcome=fallback}`},
		{name: "a caller who leaves", steps: []transporttest.Step{hang}, ctx: within, want: `
internal resilience GET 1s {attempts=1 outcome=cancelled}
  client GET 1s {}`},
		{name: "a caller who leaves the body", steps: []transporttest.Step{{Body: "abc", Fault: transporttest.Hang, At: 1}}, ctx: within, want: `
internal resilience GET 1s {attempts=1 outcome=cancelled}
  client GET 1s {http.response.status_code=200}`},
		{name: "a caller who leaves a backoff", steps: []transporttest.Step{{Status: 503}}, policy: func(p *policy.Policy) { p.Retry.Base, p.Retry.Max = 4*time.Second, 2*time.Second }, ctx: within, want: `
internal resilience GET 1s {attempts=1 outcome=cancelled}
  at 0s resilience.retry {retry.delay=2}
  client GET 0s ERROR {error.type=503 http.response.status_code=503}`},
		{name: "no headers in time", method: "POST", steps: []transporttest.Step{hang}, policy: func(p *policy.Policy) { p.Timeout.Read = 2500 * time.Millisecond }, want: `
internal resilience POST 2.5s ERROR {attempts=1 error.type=timeout_response_header outcome=error}
  at 2.5s resilience.retry.suppressed {retry.reason=not_idempotent}
  client POST 2.5s ERROR {error.type=timeout_response_header http.request.method=POST}`},
		{name: "a body that stalls", steps: []transporttest.Step{{Body: "abc", Fault: transporttest.Hang, At: 1}}, policy: func(p *policy.Policy) { p.Timeout.Read = 2500 * time.Millisecond }, want: `
internal resilience GET 2.5s ERROR {attempts=1 error.type=timeout_body outcome=error}
  client GET 2.5s ERROR {error.type=timeout_body http.response.status_code=200}`},
		{name: "an attempt that takes too long", method: "POST", steps: []transporttest.Step{hang}, policy: func(p *policy.Policy) { p.Timeout.Read = 0 }, want: `
internal resilience POST 3s ERROR {attempts=1 error.type=timeout_attempt outcome=error}
  at 3s resilience.retry.suppressed {retry.reason=not_idempotent}
  client POST 3s ERROR {error.type=timeout_attempt http.request.method=POST}`},
		{name: "a call that takes too long", steps: []transporttest.Step{hang}, policy: func(p *policy.Policy) {
			p.Timeout.Read, p.Timeout.Attempt, p.Timeout.Total = 0, 0, 3*time.Second
		}, want: `
internal resilience GET 3s ERROR {attempts=1 error.type=deadline_exceeded outcome=error}
  client GET 3s ERROR {error.type=deadline_exceeded}`},
		{name: "a base that panics", base: rt(func(*http.Request) (*http.Response, error) {
			time.Sleep(time.Second)
			panic("base")
		}), want: `
internal resilience GET 1s ERROR {attempts=1 error.type=_OTHER outcome=error}
  client GET 1s ERROR {error.type=_OTHER}`},
		{name: "a base that ends its goroutine", base: rt(func(*http.Request) (*http.Response, error) {
			runtime.Goexit()
			return nil, nil
		}), want: `
internal resilience GET 0s ERROR {attempts=1 error.type=_OTHER outcome=error}
  client GET 0s ERROR {error.type=_OTHER}`},
		{name: "a protocol that does not exist", base: rt(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Proto: "HTTP/1.1; secret=1", Header: http.Header{}, Body: http.NoBody, Request: r}, nil
		}), want: `
internal resilience GET 0s {attempts=1 outcome=success}
  client GET 0s {http.response.status_code=200}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSignals(t, sdktrace.AlwaysSample())
				p := policy.Service()
				p.Retry.Base, p.Retry.Max = 2*time.Second, time.Second // a second, then, without jitter
				p.Retry.Budget = policy.Budget{}
				if test.policy != nil {
					test.policy(&p)
				}
				base := test.base
				if base == nil {
					base = transporttest.NewBase(test.steps...)
				}
				tr := stack(s.observer(), base, p)
				if test.before != nil {
					test.before(tr)
				}
				req := request(test.method, "http://a.test/")
				if test.ctx != nil {
					req = req.WithContext(test.ctx(req.Context()))
				}
				done := make(chan struct{})
				go func() {
					defer close(done)
					defer func() { _ = recover() }()
					resp, err := tr.RoundTrip(req)
					if err != nil {
						return
					}
					if test.use != nil {
						test.use(resp)
						return
					}
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}()
				<-done
				time.Sleep(time.Hour)
				if got, want := s.trace(), strings.TrimPrefix(test.want, "\n")+"\n"; got != want {
					t.Errorf("got\n%swant\n%s", got, want)
				}
				s.mustEnd()
			})
		})
	}
}

func TestSpansTellWhichLimitOnConnectingFired(t *testing.T) {
	for _, test := range []struct {
		name  string
		hook  transporttest.DialHook
		serve func(net.Conn) // instead of the script
		url   string
		want  string
	}{
		{name: "connect", hook: transporttest.BlackHole, url: "http://a.test/", want: `
internal resilience GET 1s ERROR {attempts=1 error.type=timeout_connect outcome=error}
  client GET 1s ERROR {error.type=timeout_connect}`},
		{name: "tls", serve: func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }, url: "https://a.test/", want: `
internal resilience GET 2s ERROR {attempts=1 error.type=timeout_tls outcome=error policy.name=a.test:443}
  client GET 2s ERROR {error.type=timeout_tls server.port=443 url.full=https://a.test/}`},
		{name: "refused", hook: transporttest.Refuse, url: "http://a.test/", want: `
internal resilience GET 0s ERROR {attempts=1 error.type=connection_error outcome=error}
  client GET 0s ERROR {error.type=connection_error}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var opts []transporttest.Option
				if test.serve != nil {
					opts = append(opts, transporttest.ServeConn(test.serve))
				}
				o := transporttest.NewNet(t, nil, opts...)
				o.OnDial(test.hook)
				s := newSignals(t, sdktrace.AlwaysSample())
				p := bare()
				p.Timeout.Connect, p.Timeout.TLSHandshake = time.Second, 2*time.Second
				tr := stack(s.observer(), o.Base(), p)
				defer tr.Close()
				_, _ = call(tr, request("GET", test.url))
				if got, want := s.trace(), strings.TrimPrefix(test.want, "\n")+"\n"; got != want {
					t.Errorf("got\n%swant\n%s", got, want)
				}
				s.mustEnd()
			})
		})
	}
}

func TestSpansOfRefusedCallsLinkToTheOneThatTrippedTheBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSignals(t, sdktrace.AlwaysSample())
		p := bare()
		p.Breaker = policy.Breaker{ConsecutiveFailures: 1, OpenFor: time.Minute, HalfOpenProbes: 1}
		base := transporttest.NewBase(transporttest.Step{Status: 500}, transporttest.Step{Body: "x", Chunk: 1, Pause: time.Second})
		tr := stack(s.observer(), base, p)
		_, _ = call(tr, request("GET", "http://a.test/")) // trips
		time.Sleep(time.Second)
		if _, err := call(tr, request("PUT", "http://a.test/")); !errors.Is(err, transport.ErrBreakerOpen) {
			t.Fatalf("got %v, want a refusal", err)
		}
		time.Sleep(2 * time.Minute)
		probe, err := tr.RoundTrip(request("DELETE", "http://a.test/"))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		_, _ = call(tr, request("PUT", "http://a.test/")) // while the probe is under way
		_, _ = io.Copy(io.Discard, probe.Body)
		time.Sleep(time.Second)
		tr.Host("a.test").ForceOpen()
		_, _ = call(tr, request("PUT", "http://a.test/")) // refused by hand: no call is to blame
		want := strings.TrimPrefix(`
internal resilience GET 0s ERROR {attempts=1 error.type=500 outcome=error}
  at 0s resilience.circuit_breaker.transition {circuit_breaker.evidence=1 failure in a row, last: status 500 circuit_breaker.previous_state=closed circuit_breaker.reason=consecutive_failures circuit_breaker.state=open}
  client GET 0s ERROR {error.type=500 http.response.status_code=500}
internal resilience PUT 0s ERROR {attempts=0 circuit_breaker.state=open error.type=circuit_open outcome=rejected}
  link to resilience GET {link=tripped_by}
internal resilience DELETE 2s {attempts=1 circuit_breaker.state=half_open outcome=success}
  at 0s resilience.circuit_breaker.transition {circuit_breaker.evidence=wait_over circuit_breaker.previous_state=open circuit_breaker.reason=wait_over circuit_breaker.state=half_open}
  at 2s resilience.circuit_breaker.transition {circuit_breaker.evidence=probes_succeeded circuit_breaker.previous_state=half_open circuit_breaker.reason=probes_succeeded}
  client DELETE 2s {http.request.method=DELETE http.response.status_code=200}
internal resilience PUT 0s ERROR {attempts=0 circuit_breaker.state=half_open error.type=circuit_half_open outcome=rejected}
  link to resilience GET {link=tripped_by}
internal resilience PUT 0s ERROR {attempts=0 circuit_breaker.state=forced_open error.type=circuit_open outcome=rejected}
`, "\n")
		if got := s.trace(); got != want {
			t.Errorf("got\n%swant\n%s", got, want)
		}
		s.mustEnd()
	})
}

func TestSpansTellThatABreakerIsBlind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSignals(t, sdktrace.AlwaysSample())
		p := bare()
		p.Breaker = policy.Breaker{SlowRate: 0.5, SlowCall: time.Second, MinCalls: 2, OpenFor: time.Minute}
		tr := stack(s.observer(), transporttest.NewBase(transporttest.Step{Fault: transporttest.Hang}), p)
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			_, _ = call(tr, request("GET", "http://a.test/").WithContext(ctx))
			cancel()
		}
		const call = "internal resilience GET 1ms {attempts=1 outcome=cancelled}\n"
		const attempt = "  client GET 1ms {}\n"
		const blind = "  at 1ms resilience.circuit_breaker.blind {circuit_breaker.reason=most calls ended by their callers' deadlines below Breaker.SlowCall}\n"
		if got, want := s.trace(), call+attempt+call+blind+attempt+call+attempt; got != want {
			t.Errorf("got\n%swant\n%s", got, want)
		}
	})
}

// TestSpansTellWhichBodiesWereForgotten: by the garbage collector it is as by BodyIdle,
// of which the table above has a case.
func TestSpansTellWhichBodiesWereForgotten(t *testing.T) {
	s := newSignals(t, sdktrace.AlwaysSample())
	tr := stack(s.observer(), transporttest.NewBase(transporttest.Step{Body: "abc"}), bare())
	if _, err := tr.RoundTrip(request("GET", "http://a.test/")); err != nil { // and nobody has the response
		t.Fatal(err)
	}
	for range 100 {
		runtime.GC()
		if s.ended.Load() == 2 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if got := s.trace(); !strings.Contains(got, "resilience.leak {bulkhead.reason=unreachable}") {
		t.Errorf("got\n%s", got)
	}
}

func TestSpansTellOfARequestBodyThatStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSignals(t, sdktrace.AlwaysSample())
		p := bare()
		p.Bulkhead = policy.Bulkhead{MaxConcurrent: 1, BodyIdle: time.Minute}
		base := rt(func(r *http.Request) (*http.Response, error) {
			defer r.Body.Close()
			_, err := io.Copy(io.Discard, r.Body)
			return nil, err
		})
		body, forgotten := io.Pipe()
		req, err := http.NewRequest("POST", "http://a.test/", body)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := call(stack(s.observer(), base, p), req); err == nil {
			t.Fatal("there is an answer")
		}
		_ = forgotten.Close()
		if got := s.trace(); strings.Count(got, "error.type=request_body_stalled") != 2 || !strings.Contains(got, "resilience.leak {bulkhead.reason=idle}") {
			t.Errorf("got\n%s", got)
		}
	})
}

func TestSpansLinkToNoCallThatWasNotSampled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSignals(t, sampler(func(p sdktrace.SamplingParameters) bool { return p.Name == "resilience PUT" }))
		p := bare()
		p.Breaker = policy.Breaker{ConsecutiveFailures: 1, OpenFor: time.Minute}
		tr := stack(s.observer(), transporttest.NewBase(transporttest.Step{Status: 500}), p)
		_, _ = call(tr, request("GET", "http://a.test/"))
		_, _ = call(tr, request("PUT", "http://a.test/"))
		want := "internal resilience PUT 0s ERROR {attempts=0 circuit_breaker.state=open error.type=circuit_open outcome=rejected}\n"
		if got := s.trace(); got != want {
			t.Errorf("got\n%swant\n%s", got, want)
		}
	})
}

func TestASamplerThatDropsACallDropsItsAttempts(t *testing.T) {
	s := newSignals(t, sampler(func(p sdktrace.SamplingParameters) bool { return p.Kind == trace.SpanKindClient }))
	var parent string
	base := rt(func(r *http.Request) (*http.Response, error) {
		parent = r.Header.Get("Traceparent")
		return stub{}.RoundTrip(r)
	})
	_, _ = call(stack(s.observer(), base, bare()), request("GET", "http://a.test/"))
	if got := s.trace(); got != "" || !strings.HasSuffix(parent, "-00") { // as Config.TracerProvider says
		t.Errorf("spans\n%s, sent on as %s", got, parent)
	}
}

// sampler samples what it says yes to.
type sampler func(sdktrace.SamplingParameters) bool

func (f sampler) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	if f(p) {
		return sdktrace.SamplingResult{Decision: sdktrace.RecordAndSample}
	}
	return sdktrace.SamplingResult{Decision: sdktrace.Drop}
}

func (sampler) Description() string { return "by the test" }

func TestSamplersSeeWhatIsKnownAtTheStart(t *testing.T) {
	seen := map[string]string{}
	s := newSignals(t, sampler(func(p sdktrace.SamplingParameters) bool {
		seen[p.Name] = fmt.Sprint(p.Kind) + " " + text(p.Attributes)
		return true
	}))
	tr := stack(s.observer(), transporttest.NewBase(), bare())
	if _, err := call(tr, request("PUT", "http://b.test:8080/x")); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"resilience PUT": "internal {policy.name=b.test:8080}", // the breaker is closed, as usual
		"PUT":            "client {http.request.method=PUT server.address=b.test server.port=8080 url.full=http://b.test:8080/x}",
	} {
		if seen[name] != want {
			t.Errorf("%s: got %s, want %s", name, seen[name], want)
		}
	}
}

func TestStacksWithinStacksHaveSpansWithinSpans(t *testing.T) {
	for _, shared := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := newSignals(t, sdktrace.AlwaysSample())
			o := s.observer()
			p := bare()
			p.Retry = policy.Retry{MaxAttempts: 2, Statuses: []int{503}, Base: 2 * time.Second, Max: time.Second}
			inner := stack(o, transporttest.NewBase(transporttest.Step{Status: 503}, transporttest.Step{Status: 503}, transporttest.Step{Body: "x", Delay: time.Second}), p)
			if !shared {
				o = s.observer()
			}
			outer := stack(o, inner, p)
			if status, err := call(outer, request("GET", "http://a.test/")); status != 200 || err != nil {
				t.Fatalf("got %d, %v", status, err)
			}
			want := strings.TrimPrefix(`
internal resilience GET 3s {attempts=2 outcome=success}
  at 1s resilience.retry {retry.delay=1}
  client GET 1s ERROR {error.type=503 http.response.status_code=503}
    internal resilience GET 1s ERROR {attempts=2 error.type=503 outcome=error}
      at 0s resilience.retry {retry.delay=1}
      at 1s resilience.retry.suppressed {retry.reason=max_attempts}
      client GET 0s ERROR {error.type=503 http.response.status_code=503}
      client GET 0s ERROR {error.type=503 http.request.resend_count=1 http.response.status_code=503}
  client GET 1s {http.request.resend_count=1 http.response.status_code=200}
    internal resilience GET 1s {attempts=1 outcome=success}
      client GET 1s {http.response.status_code=200}
`, "\n")
			if got := s.trace(); got != want {
				t.Errorf("shared %v: got\n%swant\n%s", shared, got, want)
			}
			s.mustEnd()
		})
	}
}

func TestErrorsOfAStackBelowKeepTheirType(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSignals(t, sdktrace.AlwaysSample())
		inner := stack(nil, transporttest.NewBase(transporttest.Step{Fault: transporttest.Hang}), policy.Policy{Timeout: policy.Timeout{Attempt: time.Second}})
		p := bare()
		p.Retry = policy.Retry{MaxAttempts: 2, Base: 2 * time.Second, Max: time.Second}
		between := rt(func(r *http.Request) (*http.Response, error) {
			resp, err := inner.RoundTrip(r)
			if err != nil {
				err = fmt.Errorf("between: %w", err)
			}
			return resp, err
		})
		_, _ = call(stack(s.observer(), between, p), request("GET", "http://a.test/"))
		want := strings.TrimPrefix(`
internal resilience GET 3s ERROR {attempts=2 error.type=timeout_attempt outcome=error}
  at 1s resilience.retry {retry.delay=1 retry.reason=timeout}
  at 3s resilience.retry.suppressed {retry.reason=max_attempts}
  client GET 1s ERROR {error.type=timeout_attempt}
  client GET 1s ERROR {error.type=timeout_attempt http.request.resend_count=1}
`, "\n")
		if got := s.trace(); got != want {
			t.Errorf("got\n%swant\n%s", got, want)
		}
	})
}

// TestAnAttemptWhoseCallWasLostIsOfItsOwnHost has an Observer between that drops what
// it is told of calls, in a call that another one observes.
func TestAnAttemptWhoseCallWasLostIsOfItsOwnHost(t *testing.T) {
	s := newSignals(t, sdktrace.AlwaysSample())
	outer, inner := s.observer(), s.observer()
	req := request("GET", "http://a.test/")
	ctx := outer.Start(t.Context(), transport.Start{Host: "outer.test:80", Request: req})
	attempt := inner.Start(ctx, transport.Start{Host: "a.test:80", Attempt: 1, Request: req, Header: http.Header{}})
	inner.Observe(attempt, transport.Event{Kind: transport.EventAttemptEnd, Host: "a.test:80", Attempt: 1, Status: 200, Outcome: "success"})
	outer.Observe(ctx, transport.Event{Kind: transport.EventCallEnd, Host: "outer.test:80", Attempt: 1, Outcome: "success"})
	s.mustEnd()
	stack(inner, stub{}, bare()) // so that there is a collection
	s.mustCount(map[string]string{"resilience.attempts": "{attempt.kind=initial attempt.result=success} 1"})
	want := "internal resilience GET {attempts=1 outcome=success policy.name=outer.test:80}\n  client GET {http.response.status_code=200}\n"
	if got := withoutTime(s.trace()); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// both passes on what it is told to two Observers.
type both [2]*otel.Observer

func (b both) Start(ctx context.Context, s transport.Start) context.Context {
	return b[1].Start(b[0].Start(ctx, s), s)
}

func (b both) Observe(ctx context.Context, e transport.Event) {
	b[0].Observe(ctx, e)
	b[1].Observe(ctx, e)
}

// TestTwoObserversOfOneTransportHaveTheirOwnSpans: the contexts of one are within those
// of the other, and both look for their own in them.
func TestTwoObserversOfOneTransportHaveTheirOwnSpans(t *testing.T) {
	one, two := newSignals(t, sdktrace.AlwaysSample()), newSignals(t, sdktrace.AlwaysSample())
	tr := stack(both{one.observer(), two.observer()}, transporttest.NewBase(transporttest.Step{Status: 503}), bare())
	if _, err := call(tr, request("GET", "http://a.test/")); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*signals{one, two} {
		s.mustEnd()
		if trace := s.trace(); strings.Count(trace, "outcome=error") != 1 || strings.Count(trace, "status_code=503") != 1 {
			t.Errorf("spans are\n%s", trace)
		}
	}
}
