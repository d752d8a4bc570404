package transport_test

import (
	"context"
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

	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/transporttest"
)

// observerBalance fails the test if what began did not end, once each.
func observerBalance(t testing.TB, seen *transporttest.Recorder) {
	t.Helper()
	calls, attempts := 0, 0
	for _, s := range seen.Starts() {
		if s.Attempt == 0 {
			calls++
		} else {
			attempts++
		}
	}
	if ends := seen.Count(transport.EventCallEnd); ends != calls {
		t.Errorf("%d calls began, %d ended", calls, ends)
	}
	if ends := seen.Count(transport.EventAttemptEnd); ends != attempts {
		t.Errorf("%d attempts began, %d ended", attempts, ends)
	}
}

func TestObserverIsToldTheEndOfEveryCallAndAttempt(t *testing.T) {
	hang := transporttest.Step{Fault: transporttest.Hang}
	read := func(r *http.Response) { _, _ = io.Copy(io.Discard, r.Body); _ = r.Body.Close() }
	type end struct {
		outcome  string
		attempts int
		status   int
		after    time.Duration
		failed   bool // has an Err
		verdicts string
	}
	for _, test := range []struct {
		name   string
		steps  []transporttest.Step
		base   http.RoundTripper // instead of steps
		method string
		call   transport.Call
		before func(*transport.Transport)
		ctx    func(context.Context) context.Context
		use    func(*http.Response) // of the response; nil: read
		want   end
	}{
		{name: "read to the end", steps: []transporttest.Step{{Body: "abc", Chunk: 1, Pause: time.Second}}, want: end{"success", 1, 200, 3 * time.Second, false, "success"}},
		{name: "closed early", steps: []transporttest.Step{{Body: "abc", Chunk: 1, Pause: time.Second}}, use: func(r *http.Response) {
			_, _ = r.Body.Read(make([]byte, 1))
			_ = r.Body.Close()
			_ = r.Body.Close()
		}, want: end{"success", 1, 200, time.Second, false, "success"}},
		{name: "no body", steps: []transporttest.Step{{Status: 204, Delay: time.Second}}, want: end{"success", 1, 204, time.Second, false, "success"}},
		{name: "HEAD", method: "HEAD", steps: []transporttest.Step{{Body: "abc", Delay: time.Second}}, want: end{"success", 1, 200, time.Second, false, "success"}},
		{name: "not found", steps: []transporttest.Step{{Status: 404, Body: "x"}}, want: end{"success", 1, 404, 0, false, "neutral"}},
		{name: "server error", method: "POST", steps: []transporttest.Step{{Status: 500, Body: "x"}}, want: end{"error", 1, 500, 0, false, "failure"}},
		{name: "body cut", steps: []transporttest.Step{{Body: "abc", Fault: transporttest.Cut, At: 1}}, want: end{"error", 1, 200, 0, true, "failure"}},
		{name: "body stalled", steps: []transporttest.Step{{Body: "abc", Fault: transporttest.Hang, At: 1}}, want: end{"error", 1, 200, 3 * time.Second, true, "failure"}},
		{name: "no connection", method: "POST", steps: []transporttest.Step{{Err: io.ErrClosedPipe}}, want: end{"error", 1, 0, 0, true, "failure"}},
		{name: "timeout", method: "POST", steps: []transporttest.Step{hang}, want: end{"error", 1, 0, 3 * time.Second, true, "failure"}},
		{name: "a retry", steps: []transporttest.Step{{Status: 503}, {Body: "x"}}, want: end{"success", 2, 200, -1, false, "failure success"}},
		{name: "retries in vain", steps: []transporttest.Step{{Status: 503}, {Err: io.EOF}, {Status: 502}}, want: end{"error", 3, 502, -1, false, "failure failure failure"}},
		{name: "breaker", before: func(tr *transport.Transport) { tr.Host("a.test").ForceOpen() }, want: end{"rejected", 0, 0, 0, true, ""}},
		{name: "bulkhead", before: func(tr *transport.Transport) {
			for range 20 {
				resp, err := tr.RoundTrip(fallbackRequest("GET", "http://a.test/held"))
				if err == nil {
					time.AfterFunc(time.Hour, func() { _ = resp.Body.Close() })
				}
			}
		}, steps: []transporttest.Step{{Body: "held"}}, want: end{"rejected", 0, 0, 0, true, ""}},
		{name: "cancelled", steps: []transporttest.Step{hang}, ctx: func(ctx context.Context) context.Context {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(time.Second, cancel)
			return ctx
		}, want: end{"cancelled", 1, 0, time.Second, true, "neutral"}},
		{name: "cancelled in the body", steps: []transporttest.Step{{Body: "abc", Fault: transporttest.Hang, At: 1}}, ctx: func(ctx context.Context) context.Context {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(time.Second, cancel)
			return ctx
		}, want: end{"cancelled", 1, 200, time.Second, true, "neutral"}},
		{name: "cancelled in a backoff", steps: []transporttest.Step{{Status: 503, Header: http.Header{"Retry-After": {"2"}}}}, ctx: func(ctx context.Context) context.Context {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(time.Second, cancel)
			return ctx
		}, want: end{"cancelled", 1, 0, time.Second, true, "failure"}},
		{name: "forgotten", steps: []transporttest.Step{{Body: "abc"}}, use: func(*http.Response) { time.Sleep(2 * time.Minute) },
			want: end{"success", 1, 200, time.Minute, false, "success"}},
		{name: "stale", before: func(tr *transport.Transport) {
			_ = hostCall(tr, "http://a.test")
		}, steps: []transporttest.Step{{Body: "x"}, {Status: 503}}, want: end{"fallback", 3, 200, -1, false, "failure failure failure"}},
		{name: "an upgrade", base: rt(func(r *http.Request) (*http.Response, error) {
			resp := ok(r, "")
			resp.StatusCode = 101
			return resp, nil
		}), use: func(r *http.Response) { time.Sleep(time.Hour); _ = r.Body.Close() }, want: end{"success", 1, 101, 0, false, "success"}},
		{name: "a stream", steps: []transporttest.Step{{Body: "abc", Chunk: 1, Pause: time.Hour, Header: http.Header{"Content-Type": {"text/event-stream"}}}},
			want: end{"success", 1, 200, 3 * time.Hour, false, "success"}},
		{name: "a base that panics", base: rt(func(*http.Request) (*http.Response, error) {
			time.Sleep(time.Second)
			panic("base")
		}), want: end{"error", 1, 0, time.Second, false, "neutral"}},
		{name: "a base that ends its goroutine", base: rt(func(*http.Request) (*http.Response, error) {
			time.Sleep(time.Second)
			runtime.Goexit()
			return nil, nil
		}), want: end{"error", 1, 0, time.Second, false, "neutral"}},
		{name: "a base that returns nothing", method: "POST", base: rt(func(*http.Request) (*http.Response, error) { return nil, nil }),
			want: end{"error", 1, 0, 0, true, "failure"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := policy.Service()
				p.Fallback.MaxStale = time.Hour
				base := test.base
				if base == nil {
					base = transporttest.NewBase(test.steps...)
				}
				seen := &transporttest.Recorder{}
				tr := transport.Must(transport.New(transport.Config{Base: base, Observer: seen, Default: p, Logger: quiet()}))
				if test.before != nil {
					test.before(tr)
				}
				earlier := len(seen.Events())
				method := test.method
				if method == "" {
					method = "GET"
				}
				req := fallbackRequest(method, "http://a.test")
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
					if test.use == nil {
						test.use = read
					}
					test.use(resp)
				}()
				<-done
				var got end
				var verdicts []string
				for _, e := range seen.Events()[earlier:] {
					switch e.Kind {
					case transport.EventCallEnd:
						got = end{e.Outcome, e.Attempt, e.Status, e.Duration, e.Err != nil, ""}
					case transport.EventAttemptEnd:
						verdicts = append(verdicts, e.Verdict.String())
						if e.Attempt != len(verdicts) {
							t.Errorf("attempt %d ends as number %d", e.Attempt, len(verdicts))
						}
					}
				}
				got.verdicts = strings.Join(verdicts, " ")
				if test.want.after < 0 {
					test.want.after = got.after
				}
				if got != test.want {
					t.Errorf("got  %+v\nwant %+v", got, test.want)
				}
				time.Sleep(2 * time.Hour)
				observerBalance(t, seen)
				if s := tr.Snapshot()[0]; s.InFlight != 0 {
					t.Errorf("%d in flight", s.InFlight)
				}
			})
		})
	}
}

func TestObserverIsToldTheEndOfCallsOverSockets(t *testing.T) {
	for _, opts := range [][]transporttest.Option{{transporttest.TLS("http/1.1")}, {transporttest.TLS("h2")}} {
		transporttest.CheckLeaks(t)
		o := transporttest.NewOrigin(t, opts...)
		seen := &transporttest.Recorder{}
		p := policy.Service()
		p.Timeout.Read = 50 * time.Millisecond
		p.Retry.Base, p.Retry.Max = time.Millisecond, time.Millisecond
		tr := transport.Must(transport.New(transport.Config{Base: o.Base(), Observer: seen, Default: p, Logger: quiet()}))
		for _, step := range []transporttest.Step{{Body: "x"}, {Status: 204}, {Status: 304}, {Status: 503, Body: "x"}, {Fault: transporttest.Reset},
			{Fault: transporttest.Hang}, {Body: "abc", Fault: transporttest.Reset, At: 1}, {Body: "abc", Fault: transporttest.Hang, At: 1}, {Size: 1 << 20}} {
			o.Script(step)
			for _, method := range []string{"GET", "HEAD", "POST"} {
				for _, whole := range []bool{true, false} {
					resp, err := tr.RoundTrip(fallbackRequest(method, "https://a.test/"))
					if err != nil {
						continue
					}
					if whole {
						_, _ = io.Copy(io.Discard, resp.Body)
					}
					_ = resp.Body.Close()
				}
			}
		}
		transporttest.CheckPermits(t, tr)
		observerBalance(t, seen)
		_ = tr.Close()
	}
}

// observerFuncs is an Observer made of functions.
type observerFuncs struct {
	start   func(context.Context, transport.Start) context.Context
	observe func(context.Context, transport.Event)
}

func (o observerFuncs) Start(ctx context.Context, s transport.Start) context.Context {
	if o.start == nil {
		return ctx
	}
	return o.start(ctx, s)
}

func (o observerFuncs) Observe(ctx context.Context, e transport.Event) {
	if o.observe != nil {
		o.observe(ctx, e)
	}
}

func TestObserverSetsTheContextOfAllThatFollows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		var mu sync.Mutex
		var order []string
		note := func(ctx context.Context, what string) {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, fmt.Sprintf("%s in %v", what, ctx.Value(key{})))
		}
		base := rt(func(r *http.Request) (*http.Response, error) {
			note(r.Context(), "base")
			resp := ok(r, "")
			resp.StatusCode, resp.Body = 503, http.NoBody
			return resp, nil
		})
		tr := transport.Must(transport.New(transport.Config{
			Base: base, Logger: quiet(), Default: policy.Policy{
				Retry:   policy.Retry{MaxAttempts: 2, Base: time.Second, Max: time.Second},
				Breaker: policy.Breaker{ConsecutiveFailures: 2},
			},
			Observer: observerFuncs{
				start: func(ctx context.Context, s transport.Start) context.Context {
					return context.WithValue(ctx, key{}, fmt.Sprint(ctx.Value(key{}), ">", s.Attempt))
				},
				observe: func(ctx context.Context, e transport.Event) { note(ctx, fmt.Sprint(e.Kind)) },
			},
		}))
		ctx := context.WithValue(context.Background(), key{}, "caller")
		if _, err := tr.RoundTrip(fallbackRequest("GET", "http://a.test").WithContext(ctx)); err != nil {
			t.Fatal(err)
		}
		want := []string{
			"base in caller>0>1", fmt.Sprint(transport.EventAttemptEnd, " in caller>0>1"), fmt.Sprint(transport.EventRetry, " in caller>0"),
			"base in caller>0>2", fmt.Sprint(transport.EventTransition, " in caller>0"), fmt.Sprint(transport.EventAttemptEnd, " in caller>0>2"),
			fmt.Sprint(transport.EventRetrySuppressed, " in caller>0"), fmt.Sprint(transport.EventCallEnd, " in caller>0"),
		}
		if !slices.Equal(order, want) {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(order, "\n"), strings.Join(want, "\n"))
		}
	})
}

func TestObserverSetsHeadersOfOneAttemptAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := transporttest.NewBase(transporttest.Step{Status: 503}, transporttest.Step{})
		tr := transport.Must(transport.New(transport.Config{Base: base, Logger: quiet(), Observer: observerFuncs{
			start: func(ctx context.Context, s transport.Start) context.Context {
				if (s.Header == nil) != (s.Attempt == 0) || s.Host != "a.test:80" || s.Request == nil {
					t.Errorf("%+v", s)
				}
				if s.Header != nil {
					s.Header.Add("Traceparent", fmt.Sprint(s.Attempt))
				}
				return ctx
			}}}))
		for _, h := range []http.Header{{"X-A": {"b"}}, nil} {
			req := fallbackRequest("GET", "http://a.test")
			req.Header = h
			if _, err := tr.RoundTrip(req); err != nil {
				t.Fatal(err)
			}
			if len(req.Header) != len(h) || req.Header["Traceparent"] != nil {
				t.Errorf("the caller's header is now %v", req.Header)
			}
			base.Script(transporttest.Step{Status: 503}, transporttest.Step{})
		}
		for i, hit := range base.Hits() {
			if got := hit.Header["Traceparent"]; len(got) != 1 || got[0] != fmt.Sprint(i%2+1) {
				t.Errorf("attempt %d sent %v", i%2+1, got)
			}
		}
	})
}

func TestObserversAndLoggersThatPanicAreSurvived(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := transporttest.NewBase()
		p := policy.Service()
		p.Breaker.ConsecutiveFailures = 1
		p.Fallback.MaxStale = time.Hour
		for _, start := range []func(context.Context, transport.Start) context.Context{
			func(context.Context, transport.Start) context.Context { panic("start") },
			func(context.Context, transport.Start) context.Context { return nil },
		} {
			tr := transport.Must(transport.New(transport.Config{Base: base, Default: p, MaxHosts: 1,
				Observer: observerFuncs{start: start, observe: func(context.Context, transport.Event) { panic("observe") }},
				Logger:   slog.New(observerPanickingLog{})}))
			base.Script(transporttest.Step{Body: "x"})
			if err := hostCall(tr, "http://a.test"); err != nil {
				t.Error(err)
			}
			base.Script(transporttest.Step{Fault: transporttest.Hang})
			if err := hostCall(tr, "http://a.test"); err != nil {
				t.Error("nothing stale:", err)
			}
			for i := range 3 { // an overflow
				_ = hostCall(tr, fmt.Sprintf("http://h%d.test", i))
			}
			for i := range 60 { // a blind breaker
				ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
				resp, err := tr.RoundTrip(fallbackRequest("POST", "http://blind.test").WithContext(ctx))
				if err == nil {
					t.Error(i, resp)
				}
				cancel()
			}
			for _, s := range tr.Snapshot() {
				if s.InFlight != 0 {
					t.Errorf("%s: %d in flight", s.Host, s.InFlight)
				}
			}
		}
	})
}

func TestLoggersThatPanicOverABlindBreakerAreSurvived(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		seen := &transporttest.Recorder{}
		tr := transport.Must(transport.New(transport.Config{Base: transporttest.NewBase(transporttest.Step{Fault: transporttest.Hang}),
			Observer: seen, Logger: slog.New(observerPanickingLog{})}))
		for range 30 {
			ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
			_, _ = tr.RoundTrip(fallbackRequest("GET", "http://a.test").WithContext(ctx))
			cancel()
		}
		if seen.Count(transport.EventBlind) != 1 {
			t.Errorf("told %d times", seen.Count(transport.EventBlind))
		}
		observerBalance(t, seen)
	})
}

type observerPanickingLog struct{ slog.Handler }

func (observerPanickingLog) Enabled(context.Context, slog.Level) bool  { return true }
func (observerPanickingLog) Handle(context.Context, slog.Record) error { panic("log") }

func TestObserverMayCallAnyPublicMethod(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var tr *transport.Transport
		inside, used := 0, map[string]int{}
		use := func(what string) {
			if inside > 0 {
				return
			}
			inside++
			defer func() { inside-- }()
			tr.Snapshot()
			tr.CloseIdleConnections()
			tr.Host("other.test").ForceOpen()
			tr.Host("other.test").Reset()
			tr.Host("a.test").Snapshot()
			_ = hostCall(tr, "http://nested.test")
			used[what]++ // only now: it came through
		}
		base := transporttest.NewBase(transporttest.Step{Status: 503})
		p := policy.Service()
		p.Breaker.ConsecutiveFailures = 2
		tr = transport.Must(transport.New(transport.Config{Base: base, Default: p, MaxHosts: 3, Logger: quiet(), Observer: observerFuncs{
			start:   func(ctx context.Context, _ transport.Start) context.Context { use("start"); return ctx },
			observe: func(_ context.Context, e transport.Event) { use(e.Kind.String()) },
		}}))
		for i := range 5 {
			_ = hostCall(tr, "http://a.test")
			_ = hostCall(tr, fmt.Sprintf("http://h%d.test", i))
			time.Sleep(10 * time.Second)
		}
		for _, what := range []string{"start", "call_end", "attempt_end", "transition", "refusal", "retry", "retry_suppressed"} {
			if used[what] == 0 {
				t.Errorf("nothing was used at %s: %v", what, used)
			}
		}
	})
}

func TestObserverIsToldWhatEachLayerDid(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := policy.Policy{
			Timeout:  policy.Timeout{Read: time.Second},
			Retry:    policy.Retry{MaxAttempts: 2, Base: time.Second, Max: time.Second},
			Breaker:  policy.Breaker{ConsecutiveFailures: 2, OpenFor: 10 * time.Second},
			Fallback: policy.Fallback{MaxStale: time.Hour},
		}
		r := newFallbackRig(t, p)
		r.fill("/", good("old"))
		r.base.Script(transporttest.Step{Fault: transporttest.Hang})
		began := time.Now()
		if resp, _, err := r.get("/"); err != nil || !fallbackStale(resp) {
			t.Fatal(resp, err)
		}
		if _, _, err := r.do(fallbackRequest("POST", "http://a.test/")); err == nil {
			t.Fatal("not refused")
		}
		type event struct {
			kind           transport.EventKind
			layer, reason  string
			attempt        int
			phase          string
			fallback       string
			limit          time.Duration
			failed, shadow bool
		}
		var got []event
		for _, e := range r.seen.Events()[2:] { // after those of the answer that was stored
			got = append(got, event{e.Kind, e.Layer, e.Reason, e.Attempt, e.Phase, e.Fallback, e.Limit, e.Err != nil, e.Shadow})
			if e.Host != "a.test:80" {
				t.Errorf("%+v", e)
			}
		}
		want := []event{
			{kind: transport.EventTimeout, layer: "timeout", attempt: 1, phase: "response_header", limit: time.Second},
			{kind: transport.EventAttemptEnd, attempt: 1, failed: true},
			{kind: transport.EventRetry, layer: "retry", reason: "timeout", attempt: 1},
			{kind: transport.EventTransition, layer: "breaker", reason: "consecutive_failures"},
			{kind: transport.EventTimeout, layer: "timeout", attempt: 2, phase: "response_header", limit: time.Second},
			{kind: transport.EventAttemptEnd, attempt: 2, failed: true},
			{kind: transport.EventRetrySuppressed, layer: "retry", reason: "max_attempts", attempt: 2},
			{kind: transport.EventFallback, layer: "fallback", reason: "timeout", fallback: "stale", failed: true},
			{kind: transport.EventCallEnd, attempt: 2},
			{kind: transport.EventRefusal, layer: "breaker", reason: "open", attempt: 1, failed: true},
			{kind: transport.EventCallEnd, failed: true},
		}
		if !slices.Equal(got, want) {
			t.Errorf("got\n%+v\nwant\n%+v", got, want)
		}
		tr := r.seen.Events(transport.EventTransition)[0].Transition
		at := r.Snapshot()[0].Transitions[0]
		if tr.From != transport.Closed || tr.To != transport.Open || !tr.At.Equal(at.At) || tr.At.Sub(began) < 2*time.Second || tr.Until.Sub(tr.At) < 9*time.Second ||
			tr.Evidence.Consecutive != 2 || tr.Evidence.Last != "read timeout" {
			t.Errorf("%+v", tr)
		}
		if d := r.seen.Events(transport.EventRetry)[0].Delay; d < time.Second/2 || d > time.Second {
			t.Errorf("delay %v", d)
		}
	})
}

func TestLogTellsTransitionsWithTheirEvidence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		logs := &transporttest.Logs{}
		base := transporttest.NewBase(transporttest.Step{Status: 503})
		tr := transport.Must(transport.New(transport.Config{Base: base, Logger: slog.New(logs),
			Default: policy.Policy{Breaker: policy.Breaker{ConsecutiveFailures: 2, OpenFor: 10 * time.Second, HalfOpenProbes: 1}}}))
		for range 2 {
			_ = hostCall(tr, "http://a.test")
		}
		time.Sleep(11 * time.Second)
		base.Script(transporttest.Step{})
		_ = hostCall(tr, "http://a.test")
		var got []string
		for _, r := range logs.Records() {
			attrs := map[string]string{}
			r.Attrs(func(a slog.Attr) bool { attrs[a.Key] = a.Value.String(); return true })
			got = append(got, fmt.Sprint(r.Level, " ", r.Message, " ", attrs["host"], " ", attrs["previous_state"], ">", attrs["state"], " ", attrs["reason"], ": ", attrs["evidence"], " ", attrs["open_for_seconds"] != ""))
		}
		want := []string{
			"WARN circuit breaker state changed a.test:80 closed>open consecutive_failures: 2 failures in a row, last: status 503 true",
			"INFO circuit breaker state changed a.test:80 open>half_open wait_over:  false",
			"INFO circuit breaker state changed a.test:80 half_open>closed probes_succeeded:  false",
		}
		if !slices.Equal(got, want) {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}

func TestObserverIsToldKindsThatHaveNames(t *testing.T) {
	for kind, want := range map[transport.EventKind]string{
		0: "none", transport.EventCallEnd: "call_end", transport.EventAttemptEnd: "attempt_end", transport.EventTransition: "transition",
		transport.EventRefusal: "refusal", transport.EventPermit: "permit", transport.EventTimeout: "timeout", transport.EventRetry: "retry",
		transport.EventRetrySuppressed: "retry_suppressed", transport.EventFallback: "fallback", transport.EventLeak: "leak",
		transport.EventBlind: "blind", transport.EventOverflow: "overflow", transport.EventLogBlocked: "log_blocked",
		transport.EventReuse: "reuse", transport.EventReuse + 1: "unknown", 255: "unknown",
	} {
		if got := kind.String(); got != want {
			t.Errorf("kind %d is %q, want %q", kind, got, want)
		}
	}
}

func TestObserverThatEndsItsGoroutineLeavesNoBodyOpen(t *testing.T) {
	for attempt, what := range []string{"call", "attempt"} {
		t.Run(what, func(t *testing.T) {
			tr := bulkheadNew(t, transport.Config{Default: policy.Service(), Observer: observerFuncs{
				start: func(ctx context.Context, s transport.Start) context.Context {
					if s.Attempt == attempt {
						runtime.Goexit()
					}
					return ctx
				}},
				Base: rt(func(r *http.Request) (*http.Response, error) { t.Error("it was sent"); return nil, io.EOF })})
			body := &contractBody{Reader: strings.NewReader("x")}
			done := make(chan struct{})
			go func() {
				defer close(done)
				req := bulkheadRequest(t, t.Context(), http.MethodPut, "http://x.test/")
				req.Body = body
				_, _ = tr.RoundTrip(req)
			}()
			<-done
			bodyWait(t, "the body to be closed", func() bool { return body.Closed.Load() > 0 })
			transporttest.CheckPermits(t, tr)
		})
	}
}

// attached is an Observer that is given its Transport.
type attached struct {
	observerFuncs
	attach func(*transport.Transport) func()
}

func (a attached) Attach(t *transport.Transport) func() { return a.attach(t) }

func TestObserverThatAttachesIsGivenItsTransportUntilClose(t *testing.T) {
	var given *transport.Transport
	detached := 0
	tr := transport.Must(transport.New(transport.Config{Base: newStub(1), Logger: quiet(), Observer: attached{attach: func(t *transport.Transport) func() {
		given = t
		return func() { detached++ }
	}}}))
	if given != tr {
		t.Errorf("given %p, want %p", given, tr)
	}
	for range 2 {
		_ = tr.Close()
		if detached != 1 {
			t.Errorf("detached %d times", detached)
		}
	}
	for name, attach := range map[string]func(*transport.Transport) func(){
		"nothing to detach": func(*transport.Transport) func() { return nil },
		"panic":             func(*transport.Transport) func() { panic("no provider") },
		"panic in detach":   func(*transport.Transport) func() { return func() { panic("no provider") } },
	} {
		tr := transport.Must(transport.New(transport.Config{Base: newStub(1), Logger: quiet(), Observer: attached{attach: attach}}))
		if err := hostCall(tr, "http://a.test"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		_ = tr.Close()
	}
}
