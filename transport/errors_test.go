package transport_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watertight-go/watertight/cache"
	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/transporttest"
)

// errorDialling is a base whose dials end in conn, or not at all.
func errorDialling(conn func() net.Conn) *http.Transport {
	return &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		if conn == nil {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return conn(), nil
	}}
}

// errorSilent is a connection whose peer takes everything and says nothing.
func errorSilent() net.Conn {
	ours, theirs := net.Pipe()
	go func() { _, _ = io.Copy(io.Discard, theirs) }()
	return ours
}

func TestErrorsOfEveryLayerAreFoundThroughAClient(t *testing.T) {
	t.Parallel()
	hang := transporttest.Step{Fault: transporttest.Hang}
	for _, test := range []struct {
		name    string
		base    http.RoundTripper
		policy  policy.Policy
		before  func(*transport.Transport) // the call
		target  string
		is      error
		timeout bool
		typ     string
		want    transport.Error // the fields that are compared
		after   time.Duration
		text    string
	}{
		{
			name: "breaker", base: newStub(1), before: func(tr *transport.Transport) { tr.Host("a.test").ForceOpen() },
			is: transport.ErrBreakerOpen, typ: "circuit_open",
			want: transport.Error{Layer: transport.LayerBreaker, State: transport.ForcedOpen},
			text: "watertight: circuit breaker of a.test:80 is forced_open: forced",
		},
		{
			name: "bulkhead", base: transporttest.NewBase(hang), policy: policy.Policy{Bulkhead: policy.Bulkhead{MaxConcurrent: 1}, Timeout: policy.Timeout{Read: time.Hour}},
			before: func(tr *transport.Transport) {
				go func() { _ = hostCall(tr, "http://a.test") }()
				synctest.Wait()
			},
			is: transport.ErrBulkheadFull, typ: "bulkhead_full",
			want: transport.Error{Layer: transport.LayerBulkhead, Phase: "queue", Knob: "Bulkhead.MaxConcurrent"},
			text: "watertight: bulkhead of a.test:80 full (Bulkhead.MaxConcurrent; are all bodies closed?)",
		},
		{
			name: "bulkhead after a wait", base: transporttest.NewBase(hang), policy: policy.Policy{Bulkhead: policy.Bulkhead{MaxConcurrent: 1, MaxWait: 2 * time.Second}, Timeout: policy.Timeout{Read: time.Hour}},
			before: func(tr *transport.Transport) {
				go func() { _ = hostCall(tr, "http://a.test") }()
				synctest.Wait()
			},
			is: transport.ErrBulkheadFull, typ: "bulkhead_wait_timeout", after: 2 * time.Second,
			want: transport.Error{Layer: transport.LayerBulkhead, Phase: "queue", Knob: "Bulkhead.MaxConcurrent", Limit: 2 * time.Second},
			text: "watertight: bulkhead of a.test:80 full for 2s (Bulkhead.MaxConcurrent)",
		},
		{
			name: "connect", base: errorDialling(nil), policy: policy.Policy{Timeout: policy.Timeout{Connect: time.Second}},
			is: transport.ErrConnectTimeout, timeout: true, typ: "timeout_connect", after: time.Second,
			want: transport.Error{Layer: transport.LayerTimeout, Phase: "connect", Knob: "Timeout.Connect", Limit: time.Second, Attempts: 1},
			text: "watertight: a.test:80: connect timeout in phase connect after 1s (Timeout.Connect; ",
		},
		{
			name: "TLS", base: errorDialling(errorSilent), policy: policy.Policy{Timeout: policy.Timeout{TLSHandshake: time.Second}}, target: "https://a.test",
			is: transport.ErrTLSTimeout, timeout: true, typ: "timeout_tls", after: time.Second,
			want: transport.Error{Host: "a.test:443", Layer: transport.LayerTimeout, Phase: "tls", Knob: "Timeout.TLSHandshake", Limit: time.Second, Attempts: 1},
			text: "watertight: a.test:443: TLS handshake timeout in phase tls after 1s (Timeout.TLSHandshake; ",
		},
		{
			name: "read", base: errorDialling(errorSilent), policy: policy.Policy{Timeout: policy.Timeout{Read: time.Second}},
			is: transport.ErrReadTimeout, timeout: true, typ: "timeout_response_header", after: time.Second,
			want: transport.Error{Layer: transport.LayerTimeout, Phase: "response_header", Knob: "Timeout.Read", Limit: time.Second, Attempts: 1},
			text: "watertight: a.test:80: read timeout in phase response_header after 1s (Timeout.Read; ",
		},
		{
			name: "attempt", base: transporttest.NewBase(hang), policy: policy.Policy{Timeout: policy.Timeout{Attempt: time.Second}},
			is: transport.ErrAttemptTimeout, timeout: true, typ: "timeout_attempt", after: time.Second,
			want: transport.Error{Layer: transport.LayerTimeout, Phase: "attempt", Knob: "Timeout.Attempt", Limit: time.Second, Attempts: 1},
			text: "watertight: a.test:80: attempt timeout in phase attempt after 1s (Timeout.Attempt; ",
		},
		{
			name: "total", base: transporttest.NewBase(hang), policy: policy.Policy{
				Timeout: policy.Timeout{Attempt: 2 * time.Second, Total: 5 * time.Second},
				Retry:   policy.Retry{MaxAttempts: 9, Base: time.Nanosecond, Max: time.Nanosecond},
			},
			is: transport.ErrTotalTimeout, timeout: true, typ: "deadline_exceeded", after: 5 * time.Second,
			want: transport.Error{Layer: transport.LayerTimeout, Phase: "total", Knob: "Timeout.Total", Limit: 5 * time.Second, Attempts: 3},
			text: "watertight: a.test:80: total timeout in phase total after 5s (Timeout.Total; a slower endpoint needs a policy or a transport.Call of its own), after 3 attempts",
		},
		{
			name: "closed", base: newStub(1), before: func(tr *transport.Transport) { _ = tr.Close() },
			is: transport.ErrClosed, typ: "transport_closed", text: "watertight: a.test:80: transport closed",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tr := transport.Must(transport.New(transport.Config{Base: test.base, Logger: quiet(),
					Hosts: map[string]policy.Policy{"a.test": test.policy}}))
				if test.before != nil {
					test.before(tr)
				}
				target := test.target
				if target == "" {
					target = "http://a.test"
				}
				start := time.Now()
				resp, err := tr.Client().Get(target)
				if err == nil {
					t.Fatal(resp)
				}
				if d := time.Since(start); d.Round(time.Microsecond) != test.after {
					t.Errorf("after %v, want %v", d, test.after)
				}
				var e *transport.Error
				var n net.Error
				if !errors.Is(err, test.is) || !errors.As(err, &e) || !errors.As(err, &n) {
					t.Fatalf("%v is no %v", err, test.is)
				}
				if n.Timeout() != test.timeout || e.Timeout() != test.timeout || errors.Is(err, context.DeadlineExceeded) != test.timeout || errors.Is(err, context.Canceled) {
					t.Errorf("timeout %v, deadline %v, cancelled %v", n.Timeout(), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled))
				}
				if temporary := test.is != transport.ErrClosed; e.Temporary() != temporary {
					t.Errorf("temporary %v", e.Temporary())
				}
				if e.ErrorType() != test.typ {
					t.Errorf("type %q, want %q", e.ErrorType(), test.typ)
				}
				for _, other := range []error{transport.ErrBreakerOpen, transport.ErrBulkheadFull, transport.ErrConnectTimeout, transport.ErrTLSTimeout,
					transport.ErrReadTimeout, transport.ErrAttemptTimeout, transport.ErrTotalTimeout, transport.ErrClosed} {
					if errors.Is(err, other) != (other == test.is) {
						t.Errorf("is %v: %v", other, errors.Is(err, other))
					}
				}
				got := transport.Error{Host: e.Host, Layer: e.Layer, Phase: e.Phase, Knob: e.Knob, Limit: e.Limit, Attempts: e.Attempts, State: e.State}
				if test.want.Host == "" {
					test.want.Host = "a.test:80"
				}
				if got != test.want {
					t.Errorf("got  %+v\nwant %+v", got, test.want)
				}
				if !strings.HasPrefix(e.Error(), test.text) {
					t.Errorf("text %q, want %q", e.Error(), test.text)
				}
				time.Sleep(2 * time.Hour) // until what still hangs has ended
			})
		})
	}
}

func TestErrorOfAnOpenBreakerSaysWhyAndWhenToComeBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := transporttest.NewBase(transporttest.Step{Status: 503})
		p := policy.Policy{Breaker: policy.Breaker{Window: time.Minute, MinCalls: 4, FailureRate: 0.5, OpenFor: 10 * time.Second, HalfOpenProbes: 1}}
		tr := transport.Must(transport.New(transport.Config{Base: base, Default: p, Logger: quiet()}))
		for range 4 {
			_ = hostCall(tr, "http://a.test")
		}
		opened := time.Now()
		time.Sleep(2 * time.Second)
		err := hostCall(tr, "http://a.test")
		var e *transport.Error
		if !errors.As(err, &e) || e.State != transport.Open || !e.Opened.Equal(opened) || e.Attempts != 0 {
			t.Fatalf("%+v", err)
		}
		if e.RetryIn < 7*time.Second || e.RetryIn > 9*time.Second || e.RetryIn != tr.Snapshot()[0].RetryIn {
			t.Errorf("retry in %v", e.RetryIn)
		}
		if v := e.Evidence; v == nil || v.Trigger != "failure_rate" || v.Calls != 4 || v.Failures != 4 || v.Threshold != 0.5 || v.Last != "status 503" {
			t.Errorf("%+v", v)
		}
		for _, want := range []string{"a.test:80 is open", "4 of 4 calls failed", "limit 50 %", "last: status 503", "next probe in " + e.RetryIn.Round(time.Millisecond).String()} {
			if !strings.Contains(e.Error(), want) {
				t.Errorf("%q lacks %q", e, want)
			}
		}
		time.Sleep(10 * time.Second)
		base.Script(transporttest.Step{Body: "x"})
		probe := hostHold(t, tr, "http://a.test")
		err = hostCall(tr, "http://a.test")
		if !errors.As(err, &e) || e.State != transport.HalfOpen || e.RetryIn != 0 || e.ErrorType() != "circuit_half_open" {
			t.Errorf("%+v", err)
		}
		_ = probe.Close()
	})
}

func TestErrorOfOneAttemptIsTheBasesOwn(t *testing.T) {
	base := transporttest.NewBase(transporttest.Step{Err: errFallbackDial})
	tr := transport.Must(transport.New(transport.Config{Base: base, Logger: quiet(), Hosts: map[string]policy.Policy{"a.test": {Retry: policy.Retry{MaxAttempts: 1}}}}))
	if err := hostCall(tr, "http://a.test"); err != error(errFallbackDial) {
		t.Errorf("%#v", err)
	}
}

func TestErrorOfSeveralAttemptsCountsThemAndKeepsItsCause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := transporttest.NewBase(transporttest.Step{Err: errFallbackDial})
		tr := transport.Must(transport.New(transport.Config{Base: base, Logger: quiet()}))
		_, err := tr.Client().Get("http://a.test")
		var e *transport.Error
		var op *net.OpError
		if !errors.As(err, &e) || e.Attempts != 3 || e.Host != "a.test:80" || e.Layer != transport.LayerRetry || e.Kind != nil ||
			!errors.As(err, &op) || !errors.Is(err, syscall.ECONNREFUSED) || e.Timeout() || e.ErrorType() != "connection_error" {
			t.Fatalf("%+v", err)
		}
		if want := "watertight: a.test:80, after 3 attempts: dial tcp: connect: connection refused"; e.Error() != want {
			t.Errorf("%q, want %q", e, want)
		}
	})
}

func TestErrorsOfCallersAreTheirOwn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tr := transport.Must(transport.New(transport.Config{Base: transporttest.NewBase(transporttest.Step{Fault: transporttest.Hang}), Logger: quiet()}))
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		req, _ := http.NewRequestWithContext(ctx, "GET", "http://a.test", nil)
		_, err := tr.Client().Do(req)
		var ours *transport.Error
		if !errors.Is(err, context.DeadlineExceeded) || errors.As(err, &ours) {
			t.Errorf("deadline: %v", err)
		}
		_, err = (&http.Client{Transport: tr, Timeout: time.Second}).Get("http://a.test")
		var timeout *url.Error
		if !errors.As(err, &timeout) || !timeout.Timeout() || errors.As(err, &ours) {
			t.Errorf("client timeout: %v", err)
		}
		ctx, stop := context.WithCancel(context.Background())
		time.AfterFunc(time.Second, stop)
		req, _ = http.NewRequestWithContext(ctx, "GET", "http://a.test", nil)
		if _, err = tr.Client().Do(req); !errors.Is(err, context.Canceled) || errors.As(err, &ours) {
			t.Errorf("cancel: %v", err)
		}
	})
}

// errorSecrets are planted where they must not come out.
var errorSecrets = []string{"S3CRET-userinfo", "S3CRET-query", "S3CRET-token", "S3CRET-cookie", "S3CRET-answer", "S3CRET-path"}

func TestErrorsEventsLogsAndSnapshotsHoldNoSecrets(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := policy.Service()
		p.Breaker.ConsecutiveFailures = 20
		p.Fallback.MaxStale = time.Hour
		base := transporttest.NewBase()
		logs, seen := &transporttest.Logs{}, &transporttest.Recorder{}
		tr := transport.Must(transport.New(transport.Config{Base: base, Default: p, MaxHosts: 2, Observer: seen, Logger: slog.New(logs)}))

		var dump strings.Builder
		note := func(err error) {
			if err == nil {
				return
			}
			fmt.Fprintf(&dump, "%v\n%+v\n%q\n", err, err, err)
			var e *transport.Error
			if errors.As(err, &e) {
				fmt.Fprintf(&dump, "%+v %+v\n", *e, e.Evidence)
			}
		}
		call := func(method, path string) {
			req := fallbackRequest(method, "http://user:S3CRET-userinfo@a.test/S3CRET-path"+path+"?sig=S3CRET-query&X-Amz-Signature=S3CRET-query",
				"Authorization", "Bearer S3CRET-token", "Cookie", "session=S3CRET-cookie")
			if method == "POST" {
				req.Body = io.NopCloser(strings.NewReader("S3CRET-token"))
			}
			resp, err := tr.RoundTrip(req)
			note(err)
			if resp == nil {
				return
			}
			_, err = io.Copy(io.Discard, resp.Body)
			note(err)
			_ = resp.Body.Close()
			if info, ok := cache.FromResponse(resp); ok {
				fmt.Fprintf(&dump, "%+v\n", info)
				note(info.Cause)
				fmt.Fprintf(&dump, "%s\n", resp.Header["Cache-Status"])
			}
		}
		secret := http.Header{"Set-Cookie": {"S3CRET-answer"}, "Location": {"http://u:S3CRET-userinfo@b.test/?sig=S3CRET-query"}, "Retry-After": {"S3CRET-answer"}, "Cache-Control": {"S3CRET-answer"}}
		ours := &url.Error{Op: "Get", URL: "http://a.test/?sig=S3CRET-query", Err: errFallbackDial} // of a base that is a client itself
		for _, step := range []transporttest.Step{
			{Body: "S3CRET-answer", Header: secret},
			{Status: 302, Header: secret},
			{Status: 404, Body: "S3CRET-answer", Header: secret},
			{Body: "S3CRET-answer", Header: secret}, // kept, to be served from here on
			{Status: 503, Body: "S3CRET-answer", Header: secret},
			{Err: errFallbackDial},
			{Err: ours},
			{Fault: transporttest.Reset},
			{Fault: transporttest.Hang},
			{Fault: transporttest.Hang, At: 5, Body: "S3CRET-answer"},
		} {
			base.Script(step)
			for _, method := range []string{"DELETE", "POST", "HEAD", "GET"} { // what a write makes obsolete comes last
				call(method, "")
				call(method, "/other")
			}
			time.Sleep(3 * time.Second)
		}
		for range 30 {
			base.Script(transporttest.Step{Status: 503, Header: secret})
			call("POST", "")
		}
		if tr.Host("http://a.test").Snapshot()[0].State != transport.Open {
			t.Error("the breaker did not open: not all was tried")
		}
		for i := range 30 { // full bulkheads, too many hosts
			base.Script(transporttest.Step{Fault: transporttest.Hang})
			go func() { _ = hostCall(tr, fmt.Sprintf("http://user:S3CRET-userinfo@h%d.test/?sig=S3CRET-query", i)) }()
		}
		synctest.Wait()
		note(hostCall(tr, "http://user:S3CRET-userinfo@h99.test/?sig=S3CRET-query"))
		time.Sleep(time.Minute)
		bad := fallbackRequest("GET", "http://a.test")
		bad.URL.Host = "user:S3CRET-userinfo@a.test"
		_, err := tr.RoundTrip(bad)
		note(err)
		_, err = transport.New(transport.Config{Hosts: map[string]policy.Policy{
			"http://user:S3CRET-userinfo@a.test/?sig=S3CRET-query": {}, "user:S3CRET-userinfo@a.test": {Timeout: policy.Timeout{Read: -1}}}})
		note(err)
		note(tr.Host("http://user:S3CRET-userinfo@a.test/?sig=S3CRET-query").Err())
		fmt.Fprintf(&dump, "%+v\n", tr.Snapshot())
		_ = tr.Close()
		_, err = tr.RoundTrip(bad)
		note(err)
		call("GET", "")

		kinds := map[transport.EventKind]bool{}
		for _, e := range seen.Events() {
			kinds[e.Kind] = true
			note(e.Err)
			e.Err = nil
			fmt.Fprintf(&dump, "%+v %+v\n", e, e.Transition)
		}
		for _, k := range []transport.EventKind{transport.EventCallEnd, transport.EventAttemptEnd, transport.EventTransition, transport.EventRefusal,
			transport.EventTimeout, transport.EventRetry, transport.EventRetrySuppressed, transport.EventFallback, transport.EventOverflow} {
			if !kinds[k] {
				t.Errorf("no event of kind %d: not all was tried", k)
			}
		}
		dump.WriteString(logs.String())
		if !strings.Contains(dump.String(), "a.test:80") || len(logs.Records()) == 0 {
			t.Fatal("nothing was dumped")
		}
		for line := range strings.Lines(dump.String()) {
			for _, s := range errorSecrets {
				if strings.Contains(line, s) {
					t.Errorf("%s is in %s", s, line)
				}
			}
		}
	})
}

func TestErrorOfABaseThatIsAClientLosesItsURL(t *testing.T) {
	base := transporttest.NewBase(transporttest.Step{Err: &url.Error{Op: "Get", URL: "http://a.test/?sig=S3CRET", Err: errFallbackDial}})
	tr := transport.Must(transport.New(transport.Config{Base: base, Logger: quiet(), Hosts: map[string]policy.Policy{"a.test": {}}}))
	if err := hostCall(tr, "http://a.test/?sig=S3CRET"); err != error(errFallbackDial) {
		t.Error(err)
	}
}

func TestErrorEvidenceIsAPhrase(t *testing.T) {
	for want, e := range map[string]transport.Evidence{
		"12 of 20 calls failed in the last 1m0s (limit 50 %), last: status 503": {Trigger: "failure_rate", Window: time.Minute, Calls: 20, Failures: 12, Threshold: 0.5, Last: "status 503"},
		"12 of 20 calls failed (limit 50 %)":                                    {Trigger: "failure_rate", Calls: 20, Failures: 12, Threshold: 0.5},
		"10 of 20 calls took 2s or more in the last 2s (limit 50 %)":            {Trigger: "slow_call_rate", Window: 2 * time.Second, Timed: 20, Slow: 10, SlowCall: 2 * time.Second, Threshold: 0.5},
		"5 failures in a row, last: read timeout":                               {Trigger: "consecutive_failures", Consecutive: 5, Last: "read timeout"},
		"3 failures in the last 10s":                                            {Trigger: "failures_in_window", Window: 10 * time.Second, Failures: 3},
		"a probe failed, last: reset":                                           {Trigger: "probe_failed", Last: "reset"},
		"a probe was slow, last: slow call":                                     {Trigger: "probe_slow", Last: "slow call"},
		"forced":                                                                {Trigger: "forced"},
	} {
		if got := e.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		if _, err := json.Marshal(e); err != nil {
			t.Error(err)
		}
	}
}
