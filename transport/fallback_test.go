package transport_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watertight-go/watertight/cache"
	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/transporttest"
)

// fallbackRig is a stack over a script, and what it is told.
type fallbackRig struct {
	t    testing.TB
	base *transporttest.Base
	seen *transporttest.Recorder
	*transport.Transport
}

func newFallbackRig(t testing.TB, p policy.Policy, steps ...transporttest.Step) *fallbackRig {
	t.Helper()
	r := &fallbackRig{t: t, base: transporttest.NewBase(steps...), seen: &transporttest.Recorder{}}
	r.Transport = transport.Must(transport.New(transport.Config{
		Hosts: map[string]policy.Policy{"a.test": p}, Base: r.base, Observer: r.seen, Logger: quiet()}))
	return r
}

// do sends a request and reads the answer to its end.
func (r *fallbackRig) do(req *http.Request) (*http.Response, string, error) {
	r.t.Helper()
	resp, err := r.RoundTrip(req)
	if (resp == nil) == (err == nil) {
		r.t.Fatalf("response %v and error %v", resp, err)
	}
	if err != nil {
		return nil, "", err
	}
	text, err := io.ReadAll(resp.Body)
	if err := resp.Body.Close(); err != nil {
		r.t.Errorf("close: %v", err)
	}
	return resp, string(text), err
}

func (r *fallbackRig) get(path string, fields ...string) (*http.Response, string, error) {
	r.t.Helper()
	return r.do(fallbackRequest(http.MethodGet, "http://a.test"+path, fields...))
}

// fill has answers stored, and then fails every request.
func (r *fallbackRig) fill(path string, stored transporttest.Step, fields ...string) {
	r.t.Helper()
	r.base.Script(stored)
	if _, _, err := r.get(path, fields...); err != nil {
		r.t.Fatal(err)
	}
	r.base.Script(transporttest.Step{Err: errFallbackDial})
}

// fallbackRequest makes a request with fields, name and value in turn.
func fallbackRequest(method, target string, fields ...string) *http.Request {
	req, err := http.NewRequest(method, target, nil)
	if err != nil {
		panic(err)
	}
	for i := 0; i < len(fields); i += 2 {
		req.Header.Add(fields[i], fields[i+1])
	}
	return req
}

// fallbackStale is whether an answer is a stored one, and out of date.
func fallbackStale(resp *http.Response) bool {
	info, ok := cache.FromResponse(resp)
	return ok && info.FromCache && info.Stale
}

var errFallbackDial = &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}

// tenMinutes is a policy of nothing but a fallback.
func tenMinutes() policy.Policy {
	return policy.Policy{Fallback: policy.Fallback{MaxStale: 10 * time.Minute}}
}

func good(text string, fields ...string) transporttest.Step {
	h := http.Header{"Content-Type": {"text/plain"}}
	for i := 0; i < len(fields); i += 2 {
		h.Add(fields[i], fields[i+1])
	}
	return transporttest.Step{Body: text, Header: h}
}

func TestFallbackServesTheStoredAnswerInPlaceOfEveryFailure(t *testing.T) {
	t.Parallel()
	custom := errors.New("the base's own error")
	p := tenMinutes()
	p.Timeout = policy.Timeout{Read: time.Second}
	p.Bulkhead.MaxConcurrent = 1
	for _, test := range []struct {
		name   string
		step   transporttest.Step
		by     func(*fallbackRig) // what else stands in the way
		cause  error              // that the label can be asked for
		says   string             // the whole of Cache-Status
		reason string
		after  time.Duration
	}{
		{name: "refused connection", step: transporttest.Step{Err: errFallbackDial}, cause: syscall.ECONNREFUSED,
			says: "watertight; fwd=stale; detail=dial-error", reason: "dial-error"},
		{name: "unknown name", step: transporttest.Step{Err: &net.DNSError{Err: "no such host", Name: "a.test", IsNotFound: true}},
			says: "watertight; fwd=stale; detail=dns-error", reason: "dns-error"},
		{name: "reset", step: transporttest.Step{Fault: transporttest.Reset}, cause: syscall.ECONNRESET,
			says: "watertight; fwd=stale; detail=reset", reason: "reset"},
		{name: "connection closed", step: transporttest.Step{Fault: transporttest.Cut}, cause: io.EOF,
			says: "watertight; fwd=stale; detail=eof", reason: "eof"},
		{name: "an error of a custom base", step: transporttest.Step{Err: custom}, cause: custom,
			says: "watertight; fwd=stale; detail=error", reason: "error"},
		{name: "timeout", step: transporttest.Step{Fault: transporttest.Hang}, cause: transport.ErrReadTimeout,
			says: "watertight; fwd=stale; detail=timeout", reason: "timeout", after: time.Second},
		{name: "500", step: transporttest.Step{Status: 500}, says: "watertight; fwd=stale; fwd-status=500; detail=stale-if-error", reason: "stale-if-error"},
		{name: "502", step: transporttest.Step{Status: 502}, says: "watertight; fwd=stale; fwd-status=502; detail=stale-if-error", reason: "stale-if-error"},
		{name: "503", step: transporttest.Step{Status: 503}, says: "watertight; fwd=stale; fwd-status=503; detail=stale-if-error", reason: "stale-if-error"},
		{name: "504", step: transporttest.Step{Status: 504}, says: "watertight; fwd=stale; fwd-status=504; detail=stale-if-error", reason: "stale-if-error"},
		{name: "open breaker", by: func(r *fallbackRig) { r.Host("a.test").ForceOpen() }, cause: transport.ErrBreakerOpen,
			says: "watertight; hit; detail=breaker-open", reason: "breaker-open"},
		{name: "full bulkhead", by: func(r *fallbackRig) {
			r.base.Script(transporttest.Step{Body: "held"})
			resp, err := r.RoundTrip(fallbackRequest("GET", "http://a.test/other"))
			if err != nil {
				r.t.Fatal(err)
			}
			r.t.Cleanup(func() { _ = resp.Body.Close() })
		}, cause: transport.ErrBulkheadFull,
			says: "watertight; hit; detail=bulkhead-full", reason: "bulkhead-full"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newFallbackRig(t, p)
				r.fill("/", good("as it was", "Etag", `"1"`))
				stored := time.Now()
				time.Sleep(5 * time.Second)
				r.base.Script(test.step)
				if test.by != nil {
					test.by(r)
				}
				start := time.Now()
				req := fallbackRequest("GET", "http://a.test/")
				resp, text, err := r.do(req)
				if err != nil || resp.StatusCode != 200 || text != "as it was" {
					t.Fatalf("%v, %q, %v", resp, text, err)
				}
				if d := time.Since(start); d != test.after {
					t.Errorf("after %v, want %v", d, test.after)
				}
				info, ok := cache.FromResponse(resp)
				age := 5*time.Second + test.after
				if !ok || !info.Stale || !info.FromCache || info.Age != age || !info.AsOf.Equal(stored) {
					t.Errorf("%+v, %v; want stale, age %v, as of %v", info, ok, age, stored)
				}
				if test.cause != nil && !errors.Is(info.Cause, test.cause) || info.Cause == nil {
					t.Errorf("cause %v, want %v", info.Cause, test.cause)
				}
				h := resp.Header
				if h.Get("Age") != fmt.Sprint(int(age/time.Second)) || len(h["Cache-Status"]) != 1 || h.Get("Cache-Status") != test.says || h.Get("Etag") != `"1"` {
					t.Errorf("header %v, want Cache-Status %q", h, test.says)
				}
				if resp.Request != req || resp.ContentLength != int64(len(text)) || resp.Proto != "HTTP/1.1" || resp.Status != "200 OK" || resp.TLS != nil {
					t.Errorf("incomplete: %+v", resp)
				}
				events := r.seen.Events(transport.EventFallback)
				if len(events) != 1 || events[0].Fallback != "stale" || events[0].Reason != test.reason || events[0].Staleness != age || events[0].Host != "a.test:80" {
					t.Errorf("events %+v", events)
				}
				if n := r.Host("a.test").Snapshot()[0].Counts.Stale; n != 1 {
					t.Errorf("%d counted", n)
				}
			})
		})
	}
}

func TestFallbackServesTheStoredAnswerWhenAllRetriesHaveFailed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := tenMinutes()
		p.Retry = policy.Retry{MaxAttempts: 3, Base: time.Second, Max: time.Second}
		r := newFallbackRig(t, p)
		r.fill("/", good("old"))
		resp, text, err := r.get("/")
		if err != nil || text != "old" || !fallbackStale(resp) {
			t.Fatal(resp, text, err)
		}
		if n := len(r.base.Hits()); n != 1+3 {
			t.Errorf("%d attempts", n-1)
		}
		info, _ := cache.FromResponse(resp)
		var e *transport.Error
		if !errors.As(info.Cause, &e) || e.Attempts != 3 {
			t.Errorf("cause %v", info.Cause)
		}
	})
}

func TestFallbackIsNotAskedForOtherStatuses(t *testing.T) {
	for _, status := range []int{201, 204, 301, 304, 400, 401, 403, 404, 405, 408, 410, 418, 425, 429, 451, 501, 505, 507, 511, 599} {
		p := tenMinutes()
		p.Fallback.FailFast503 = true
		p.Fallback.Degraded = func(*http.Request, error) *http.Response { return &http.Response{StatusCode: 299} }
		r := newFallbackRig(t, p)
		r.fill("/", good("old", "Cache-Control", "max-age=600"))
		r.base.Script(transporttest.Step{Status: status, Header: http.Header{"Location": {"/x"}}})
		resp, _, err := r.get("/")
		if err != nil || resp.StatusCode != status || r.seen.Count(transport.EventFallback) != 0 {
			t.Errorf("%d: %v, %v", status, resp, err)
		}
	}
}

func TestFallbackIsNotAskedForACallerWhoHasGone(t *testing.T) {
	t.Parallel()
	hang := transporttest.Step{Fault: transporttest.Hang}
	for _, test := range []struct {
		name string
		step transporttest.Step
		gone func(*http.Request) (*http.Request, func())
	}{
		{"cancelled", hang, func(req *http.Request) (*http.Request, func()) {
			ctx, cancel := context.WithCancel(req.Context())
			time.AfterFunc(time.Second, cancel)
			return req.WithContext(ctx), cancel
		}},
		{"deadline", hang, func(req *http.Request) (*http.Request, func()) {
			ctx, cancel := context.WithTimeout(req.Context(), time.Second)
			return req.WithContext(ctx), cancel
		}},
		{"legacy cancel", transporttest.Step{Delay: time.Second, Status: 503}, func(req *http.Request) (*http.Request, func()) {
			done := make(chan struct{})
			req.Cancel = done
			time.AfterFunc(time.Second/2, func() { close(done) })
			return req, func() {}
		}},
		{"before it began", hang, func(req *http.Request) (*http.Request, func()) {
			ctx, cancel := context.WithCancel(req.Context())
			cancel()
			return req.WithContext(ctx), cancel
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := tenMinutes()
				p.Fallback.FailFast503 = true
				p.Fallback.Degraded = func(*http.Request, error) *http.Response {
					t.Error("asked for a degraded answer")
					return nil
				}
				r := newFallbackRig(t, p)
				r.fill("/", good("old"))
				r.base.Script(test.step)
				req, done := test.gone(fallbackRequest("GET", "http://a.test/"))
				defer done()
				resp, _, err := r.do(req)
				if resp != nil && resp.StatusCode != 503 || r.seen.Count(transport.EventFallback) != 0 {
					t.Errorf("%v, %v, %v", resp, err, r.seen.Events(transport.EventFallback))
				}
			})
		})
	}
}

func TestFallbackIsNotAskedOnceItsCallerHasGoneBeforeTheFailureCame(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	base := rt(func(req *http.Request) (*http.Response, error) {
		cancel()
		resp := ok(req, "sorry")
		resp.StatusCode = 503
		return resp, nil
	})
	p := policy.Policy{Fallback: policy.Fallback{Degraded: func(*http.Request, error) *http.Response { return &http.Response{} }}}
	tr := transport.Must(transport.New(transport.Config{Base: base, Default: p, Logger: quiet()}))
	resp, err := tr.RoundTrip(fallbackRequest("GET", "http://a.test/").WithContext(ctx))
	if err != nil || resp.StatusCode != 503 {
		t.Fatal(resp, err)
	}
	_ = resp.Body.Close()
}

func TestFallbackIsNotAskedForCertificateErrors(t *testing.T) {
	for _, err := range []error{
		&tls.CertificateVerificationError{Err: x509.HostnameError{Host: "a.test"}},
		x509.UnknownAuthorityError{},
		fmt.Errorf("proxy: %w", x509.HostnameError{Host: "a.test", Certificate: &x509.Certificate{}}),
		&url.Error{Op: "Get", URL: "https://a.test", Err: x509.CertificateInvalidError{}},
		x509.SystemRootsError{},
	} {
		p := tenMinutes()
		p.Fallback.FailFast503 = true
		p.Fallback.Degraded = func(*http.Request, error) *http.Response { return &http.Response{} }
		r := newFallbackRig(t, p)
		r.fill("/", good("old"))
		r.base.Script(transporttest.Step{Err: err})
		if resp, _, err := r.get("/"); err == nil {
			t.Errorf("%T: %v", err, resp)
		}
	}
}

func TestFallbackIsNotAskedForAnUntrustedPeer(t *testing.T) {
	transporttest.CheckLeaks(t)
	o := transporttest.NewOrigin(t, transporttest.TLS("http/1.1"))
	base := o.Base()
	base.TLSClientConfig = &tls.Config{} // trusts nobody
	p := policy.Service()
	p.Fallback = policy.Fallback{FailFast503: true, Degraded: func(*http.Request, error) *http.Response { return &http.Response{} }}
	tr := transport.Must(transport.New(transport.Config{Base: base, Default: p, Logger: quiet()}))
	defer tr.Close()
	resp, err := tr.RoundTrip(fallbackRequest("GET", "https://a.test/"))
	var untrusted x509.UnknownAuthorityError
	if !errors.As(err, &untrusted) {
		t.Fatal(resp, err)
	}
	if opened, _ := o.Connections(); opened != 1 {
		t.Errorf("%d handshakes", opened)
	}
	transporttest.CheckPermits(t, tr)
}

// fallbackFaultyBody fails as the caller's own file might.
type fallbackFaultyBody struct{}

var errFallbackBody = errors.New("disk gone")

func (fallbackFaultyBody) Read([]byte) (int, error) { return 0, errFallbackBody }
func (fallbackFaultyBody) Close() error             { return nil }

func TestFallbackIsNotAskedForBadRequests(t *testing.T) {
	transporttest.CheckLeaks(t)
	o := transporttest.NewOrigin(t)
	p := policy.Service()
	p.Fallback.FailFast503 = true
	p.Fallback.Degraded = func(*http.Request, error) *http.Response { return &http.Response{} }
	tr := transport.Must(transport.New(transport.Config{Base: o.Base(), Default: p, Logger: quiet()}))
	defer tr.Close()
	for name, spoil := range map[string]func(*http.Request){
		"header value": func(r *http.Request) { r.Header["X-A"] = []string{"a\nb"} },
		"header name":  func(r *http.Request) { r.Header["X A"] = []string{"a"} },
		"method":       func(r *http.Request) { r.Method = "G ET" },
		"body":         func(r *http.Request) { r.Method, r.Body, r.ContentLength = "PUT", fallbackFaultyBody{}, 10 },
		"no host":      func(r *http.Request) { r.URL.Host = "" },
		"scheme":       func(r *http.Request) { r.URL.Scheme = "ftp" },
	} {
		req := fallbackRequest("GET", "http://a.test/")
		spoil(req)
		if resp, err := tr.RoundTrip(req); err == nil {
			t.Errorf("%s: %v", name, resp)
		}
	}
	transporttest.CheckPermits(t, tr)
}

func TestFallbackPrefersStaleToDegradedToFailFast(t *testing.T) {
	const stale, degraded, failFast, failure = "stale", "degraded", "fail_fast", ""
	made := func(*http.Request, error) *http.Response { return &http.Response{StatusCode: 299} }
	for _, test := range []struct {
		name   string
		f      policy.Fallback
		stored bool
		method string
		want   string
	}{
		{"all there", policy.Fallback{MaxStale: time.Hour, Degraded: made, FailFast503: true}, true, "GET", stale},
		{"all there, for HEAD", policy.Fallback{MaxStale: time.Hour, Degraded: made, FailFast503: true}, true, "HEAD", stale},
		{"nothing stored", policy.Fallback{MaxStale: time.Hour, Degraded: made, FailFast503: true}, false, "GET", degraded},
		{"stored, but not for POST", policy.Fallback{MaxStale: time.Hour, Degraded: made, FailFast503: true}, true, "POST", degraded},
		{"no degraded answer", policy.Fallback{MaxStale: time.Hour, Degraded: func(*http.Request, error) *http.Response { return nil }, FailFast503: true}, false, "GET", failFast},
		{"one that panics", policy.Fallback{Degraded: func(*http.Request, error) *http.Response { panic("no") }, FailFast503: true}, false, "GET", failFast},
		{"fail fast alone", policy.Fallback{FailFast503: true}, false, "GET", failFast},
		{"a degraded answer that panics, alone", policy.Fallback{Degraded: func(*http.Request, error) *http.Response { panic("no") }}, false, "GET", failure},
		{"stale alone, for POST", policy.Fallback{MaxStale: time.Hour}, true, "POST", failure},
		{"off", policy.Fallback{}, true, "GET", failure},
	} {
		r := newFallbackRig(t, policy.Policy{Fallback: test.f})
		if test.stored {
			r.fill("/", good("old"))
		}
		r.base.Script(transporttest.Step{Err: errFallbackDial})
		resp, _, err := r.do(fallbackRequest(test.method, "http://a.test/"))
		got := failure
		if e := r.seen.Events(transport.EventFallback); len(e) == 1 {
			got = e[0].Fallback
		}
		status := map[string]int{stale: 200, degraded: 299, failFast: 503}[test.want]
		if got != test.want || (err != nil) != (status == 0) || resp != nil && resp.StatusCode != status {
			t.Errorf("%s: %q, %v, %v; want %q", test.name, got, resp, err, test.want)
		}
		c := r.Host("a.test").Snapshot()[0].Counts
		if counted := map[string]int64{stale: c.Stale, degraded: c.Degraded, failFast: c.FailFast}; test.want != failure && counted[test.want] != 1 || c.Stale+c.Degraded+c.FailFast > 1 {
			t.Errorf("%s: counted %v", test.name, counted)
		}
	}
}

func TestFallbackLeavesAFailedStatusAsItIsWhenThereIsNothingBetter(t *testing.T) {
	for _, f := range []policy.Fallback{{}, {MaxStale: time.Hour}, {FailFast503: true}, {StaleLimit: time.Hour}} {
		r := newFallbackRig(t, policy.Policy{Fallback: f}, transporttest.Step{Status: 502, Body: "gateway says no", Header: http.Header{"X-A": {"b"}}})
		resp, text, err := r.get("/")
		if err != nil || resp.StatusCode != 502 || text != "gateway says no" || resp.Header.Get("X-A") != "b" {
			t.Errorf("%+v: %v, %q, %v", f, resp, text, err)
		}
	}
}

func TestFallbackServesStaleOnlyWithinItsWindow(t *testing.T) {
	t.Parallel()
	type fields []string
	for _, test := range []struct {
		name       string
		fallback   policy.Fallback
		stored     fields // of the response that is stored
		ask        fields // of the request that fails
		from, till int    // in which seconds after storage it is served; till -1: never
	}{
		{"by policy", policy.Fallback{MaxStale: 60 * time.Second}, nil, nil, 0, 60},
		{"by policy, after its lifetime", policy.Fallback{MaxStale: 60 * time.Second}, fields{"Cache-Control", "max-age=30"}, nil, 0, 90},
		{"fresh, without a window", policy.Fallback{StaleLimit: time.Hour}, fields{"Cache-Control", "max-age=30"}, nil, 0, 29},
		{"without a lifetime or a window", policy.Fallback{StaleLimit: time.Hour}, nil, nil, 0, -1},
		{"granted by the origin", policy.Fallback{StaleLimit: time.Hour}, fields{"Cache-Control", "max-age=30, stale-if-error=30"}, nil, 0, 60},
		{"the origin's word before the policy's", policy.Fallback{MaxStale: 300 * time.Second}, fields{"Cache-Control", "max-age=30, stale-if-error=30"}, nil, 0, 60},
		{"capped", policy.Fallback{StaleLimit: 20 * time.Second}, fields{"Cache-Control", "max-age=30, stale-if-error=300"}, nil, 0, 50},
		{"forbidden by the origin", policy.Fallback{MaxStale: 60 * time.Second}, fields{"Cache-Control", "max-age=30, stale-if-error=0"}, nil, 0, 29},
		{"must-revalidate", policy.Fallback{MaxStale: 60 * time.Second}, fields{"Cache-Control", "max-age=30, must-revalidate, stale-if-error=60"}, nil, 0, 29},
		{"no-cache", policy.Fallback{MaxStale: 60 * time.Second}, fields{"Cache-Control", "no-cache, max-age=30"}, nil, 0, -1},
		{"no-store", policy.Fallback{MaxStale: 60 * time.Second}, fields{"Cache-Control", "no-store, max-age=30"}, nil, 0, -1},
		{"private", policy.Fallback{MaxStale: 60 * time.Second}, fields{"Cache-Control", "private"}, nil, 0, 60},
		{"the caller's no-cache", policy.Fallback{MaxStale: 60 * time.Second}, nil, fields{"Cache-Control", "no-cache"}, 0, -1},
		{"the caller's Pragma", policy.Fallback{MaxStale: 60 * time.Second}, nil, fields{"Pragma", "no-cache"}, 0, -1},
		{"the caller's max-age=0", policy.Fallback{MaxStale: 60 * time.Second}, nil, fields{"Cache-Control", "max-age=0"}, 0, -1},
		{"the caller's no-store", policy.Fallback{MaxStale: 60 * time.Second}, nil, fields{"Cache-Control", "no-store"}, 0, -1},
		{"the caller's stale-if-error", policy.Fallback{MaxStale: 60 * time.Second}, nil, fields{"Cache-Control", "no-cache, stale-if-error=20"}, 0, 20},
		{"the caller's max-stale", policy.Fallback{MaxStale: 60 * time.Second}, nil, fields{"Cache-Control", "max-stale=20"}, 0, 20},
		{"the caller's stale-if-error=0", policy.Fallback{MaxStale: 60 * time.Second}, nil, fields{"Cache-Control", "stale-if-error=0"}, 0, -1},
		{"the caller's stale-if-error, capped", policy.Fallback{StaleLimit: 20 * time.Second}, fields{"Cache-Control", "max-age=0, stale-if-error=60"}, fields{"Cache-Control", "stale-if-error=900"}, 0, 20},
	} {
		for _, failed := range []transporttest.Step{{Err: errFallbackDial}, {Status: 503}} {
			t.Run(test.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := newFallbackRig(t, policy.Policy{Fallback: test.fallback})
					r.fill("/", good("old", test.stored...))
					r.base.Script(failed)
					for second := 0; second <= max(test.till, 0)+2; second++ {
						resp, text, _ := r.get("/", test.ask...)
						_, served := cache.FromResponse(resp)
						if want := second >= test.from && second <= test.till; served != want || served && text != "old" {
							t.Errorf("after %d s: served %v, want %v", second, served, want)
						}
						time.Sleep(time.Second)
					}
				})
			})
		}
	}
}

func TestFallbackServesNothingStaleToACallThatHasNoUseForIt(t *testing.T) {
	p := tenMinutes()
	p.Fallback.Degraded = func(*http.Request, error) *http.Response { return &http.Response{StatusCode: 299} }
	r := newFallbackRig(t, p)
	r.fill("/", good("old"))
	req := fallbackRequest("GET", "http://a.test/")
	resp, _, err := r.do(req.WithContext(transport.WithCall(req.Context(), transport.Call{NoStale: true})))
	if err != nil || resp.StatusCode != 299 {
		t.Error(resp, err)
	}
	if resp, _, err := r.get("/"); err != nil || !fallbackStale(resp) {
		t.Error("its neighbour:", resp, err)
	}
}

func TestFallbackKeepsNothingWhereTheCacheIsOff(t *testing.T) {
	p := tenMinutes()
	p.Cache.Off = true
	r := newFallbackRig(t, p)
	r.fill("/", good("old", "Cache-Control", "max-age=600"))
	if resp, _, err := r.get("/"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Error(resp, err)
	}
}

func TestFallbackTellsWhyThroughAClientWithATimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newFallbackRig(t, tenMinutes())
		r.fill("/", good("old"))
		asOf := time.Now()
		r.Host("a.test").ForceOpen()
		time.Sleep(time.Minute)
		for _, c := range []*http.Client{{Transport: r}, {Transport: r, Timeout: 10 * time.Second}} {
			resp, err := c.Get("http://a.test/")
			if err != nil {
				t.Fatal(err)
			}
			info, ok := cache.FromResponse(resp)
			if !ok || !info.Stale || !info.AsOf.Equal(asOf) || info.Age != time.Minute || !errors.Is(info.Cause, transport.ErrBreakerOpen) {
				t.Errorf("%+v, %v", info, ok)
			}
			_ = resp.Body.Close()
		}
	})
}

func TestFallbackKeepsTheLabelOfAStoredRedirect(t *testing.T) {
	p := tenMinutes()
	p.Timeout.Total = time.Minute
	r := newFallbackRig(t, p)
	r.fill("/", transporttest.Step{Status: 301, Header: http.Header{"Location": {"/new"}}})
	resp, _, err := r.get("/")
	if err != nil || resp.StatusCode != 301 || !fallbackStale(resp) {
		t.Fatal(resp, err)
	}
	if to, err := resp.Location(); err != nil || to.String() != "http://a.test/new" {
		t.Error(to, err)
	}
}

func TestFallbackCompletesADegradedAnswer(t *testing.T) {
	shared := &http.Response{StatusCode: 203}
	for _, test := range []struct {
		name         string
		method       string
		made         func() *http.Response
		status, text string
		length       int64
	}{
		{"empty", "GET", func() *http.Response { return &http.Response{} }, "200 OK", "", 0},
		{"a status", "POST", func() *http.Response { return &http.Response{StatusCode: 206} }, "206 Partial Content", "", 0},
		{"an unknown status", "GET", func() *http.Response { return &http.Response{StatusCode: 299} }, "299 ", "", 0},
		{"a body", "GET", func() *http.Response {
			return &http.Response{Body: io.NopCloser(strings.NewReader("partial"))}
		}, "200 OK", "partial", -1},
		{"a body of known length", "PUT", func() *http.Response {
			return &http.Response{Body: io.NopCloser(strings.NewReader("partial")), ContentLength: 7}
		}, "200 OK", "partial", 7},
		{"a length without a body", "GET", func() *http.Response { return &http.Response{ContentLength: 7} }, "200 OK", "", 0},
		{"a body for HEAD", "HEAD", func() *http.Response {
			return &http.Response{Body: io.NopCloser(strings.NewReader("partial")), ContentLength: 7}
		}, "200 OK", "", 7},
		{"one answer for all", "GET", func() *http.Response { return shared }, "203 Non-Authoritative Information", "", 0},
	} {
		p := policy.Policy{Fallback: policy.Fallback{Degraded: func(*http.Request, error) *http.Response { return test.made() }}}
		r := newFallbackRig(t, p, transporttest.Step{Err: errFallbackDial})
		req := fallbackRequest(test.method, "http://a.test/dir/")
		resp, err := r.RoundTrip(req)
		if err != nil {
			t.Fatal(test.name, err)
		}
		if resp.Status != test.status || resp.ContentLength != test.length || resp.Request != req || resp.Header == nil || resp.Body == nil ||
			resp.Proto != "HTTP/1.1" || !resp.ProtoAtLeast(1, 1) {
			t.Errorf("%s: %+v", test.name, resp)
		}
		var wire bytes.Buffer
		if err := resp.Write(&wire); err != nil {
			t.Errorf("%s: write: %v", test.name, err)
		}
		again, err := http.ReadResponse(bufio.NewReader(&wire), req)
		if err != nil {
			t.Fatal(test.name, err)
		}
		if text, err := io.ReadAll(again.Body); err != nil || string(text) != test.text {
			t.Errorf("%s: %q, %v", test.name, text, err)
		}
		if _, ok := cache.FromResponse(resp); ok {
			t.Errorf("%s: taken for a stored answer", test.name)
		}
		_ = resp.Body.Close()
	}
	if shared.Request != nil || shared.Status != "" || shared.Body != nil {
		t.Errorf("the shared answer was changed: %+v", shared)
	}
}

func TestFallbackMayShareOneDegradedAnswer(t *testing.T) {
	shared := &http.Response{StatusCode: 204}
	p := policy.Policy{Fallback: policy.Fallback{Degraded: func(*http.Request, error) *http.Response { return shared }}}
	r := newFallbackRig(t, p, transporttest.Step{Err: errFallbackDial})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				req := fallbackRequest("GET", "http://a.test/")
				if resp, _, err := r.do(req); err != nil || resp.Request != req {
					t.Error(resp, err)
				}
			}
		})
	}
	all.Wait()
}

func TestFallbackTellsTheDegradedAnswerItsCause(t *testing.T) {
	for _, test := range []struct {
		step  transporttest.Step
		open  bool
		is    error
		names string
	}{
		{step: transporttest.Step{Err: errFallbackDial}, is: syscall.ECONNREFUSED},
		{step: transporttest.Step{Status: 503}, names: "503"},
		{open: true, is: transport.ErrBreakerOpen},
	} {
		var cause error
		var asked *http.Request
		p := policy.Policy{Fallback: policy.Fallback{Degraded: func(req *http.Request, err error) *http.Response {
			asked, cause = req, err
			return &http.Response{}
		}}}
		r := newFallbackRig(t, p, test.step)
		if test.open {
			r.Host("a.test").ForceOpen()
		}
		req := fallbackRequest("POST", "http://a.test/")
		if _, _, err := r.do(req); err != nil || asked != req {
			t.Error(asked, err)
		}
		if cause == nil || test.is != nil && !errors.Is(cause, test.is) || !strings.Contains(cause.Error(), test.names) {
			t.Errorf("%+v: cause %v", test, cause)
		}
	}
}

func TestFallbackFailsFastWithARetryAfter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := policy.Policy{
			Breaker:  policy.Breaker{ConsecutiveFailures: 1, OpenFor: 20 * time.Second},
			Fallback: policy.Fallback{FailFast503: true},
		}
		r := newFallbackRig(t, p, transporttest.Step{Err: errFallbackDial})
		req := fallbackRequest("GET", "http://a.test/")
		resp, text, err := r.do(req)
		if err != nil || resp.StatusCode != 503 || resp.Header.Get("Retry-After") != "1" || text != "dial-error\n" || resp.ContentLength != int64(len(text)) || resp.Request != req {
			t.Fatal(resp, text, err)
		}
		snapshot := r.Host("a.test").Snapshot()[0]
		time.Sleep(snapshot.RetryIn - 4500*time.Millisecond)
		resp, text, err = r.get("/")
		if err != nil || resp.StatusCode != 503 || resp.Header.Get("Retry-After") != "5" || text != "breaker-open\n" {
			t.Error(resp, text, err)
		}
		resp, text, err = r.do(fallbackRequest("HEAD", "http://a.test/"))
		if err != nil || resp.StatusCode != 503 || resp.Header.Get("Retry-After") != "5" || text != "" {
			t.Error(resp, text, err)
		}
	})
}

func TestFallbackReadsAShortFailureToItsEndAndClosesALongOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, test := range []struct {
			name  string
			step  transporttest.Step
			after time.Duration
		}{
			{"short", transporttest.Step{Status: 503, Size: 100}, 0},
			{"long", transporttest.Step{Status: 503, Size: 1 << 30}, 0},
			{"one that hangs", transporttest.Step{Status: 503, Size: 100, Fault: transporttest.Hang, At: transporttest.HeadersOnly}, 25 * time.Millisecond},
			{"one that drips", transporttest.Step{Status: 503, Size: 100, Chunk: 1, Pause: 10 * time.Millisecond}, 25 * time.Millisecond},
			{"one that breaks", transporttest.Step{Status: 503, Size: 100, Fault: transporttest.Reset, At: 10}, 0},
		} {
			p := tenMinutes()
			p.Bulkhead.MaxConcurrent = 1
			p.Breaker.ConsecutiveFailures = 10
			r := newFallbackRig(t, p)
			r.fill("/", good("old"))
			r.base.Script(test.step)
			start := time.Now()
			resp, text, err := r.get("/")
			if err != nil || text != "old" || !fallbackStale(resp) || time.Since(start) != test.after {
				t.Errorf("%s: %v, %q, %v after %v", test.name, resp, text, err, time.Since(start))
			}
			s := r.Host("a.test").Snapshot()[0]
			if now, _ := r.base.InFlight(); now != 0 || s.InFlight != 0 || s.Window.Failures != 1 {
				t.Errorf("%s: %d in flight at the base, %d permits held, %d failures", test.name, now, s.InFlight, s.Window.Failures)
			}
		}
	})
}

func TestFallbackUsesTheConnectionOfAFailureAgain(t *testing.T) {
	transporttest.CheckLeaks(t)
	o := transporttest.NewOrigin(t)
	tr := transport.Must(transport.New(transport.Config{Base: o.Base(), Default: tenMinutes(), Logger: quiet()}))
	defer tr.Close()
	fetch := func() *http.Response {
		resp, err := tr.RoundTrip(fallbackRequest("GET", "http://a.test/"))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		return resp
	}
	o.Script(good("old"))
	fetch()
	o.Script(transporttest.Step{Status: 503, Size: 3000})
	for range 5 {
		if !fallbackStale(fetch()) {
			t.Error("not served")
		}
	}
	if opened, _ := o.Connections(); opened != 1 {
		t.Errorf("%d connections", opened)
	}
	transporttest.CheckPermits(t, tr)
}

func TestFallbackChangesNothingWhileTheOriginAnswers(t *testing.T) {
	for _, proto := range []string{"http/1.1", "h2"} {
		t.Run(proto, func(t *testing.T) {
			transporttest.CheckLeaks(t)
			o := transporttest.NewOrigin(t, transporttest.TLS(proto))
			o.Script(transporttest.Step{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				h := w.Header()
				h["Date"] = []string{"Tue, 01 Jul 2025 10:00:00 GMT"}
				h.Set("Cache-Control", "max-age=600, stale-if-error=600")
				h.Set("Etag", `"1"`)
				h["Set-Cookie"] = []string{"a=1", "b=2"}
				h["Age"] = []string{"5"}
				h.Set("Cache-Status", "cdn; hit")
				if r.URL.Path == "/redirect" {
					h.Set("Location", "/target")
				}
				if r.URL.Path == "/304" || r.Header.Get("If-None-Match") == `"1"` {
					w.WriteHeader(304)
					return
				}
				var status int
				if _, err := fmt.Sscanf(r.URL.Path, "/%d", &status); err == nil {
					w.WriteHeader(status)
				}
				if r.URL.Path == "/chunked" {
					w.(http.Flusher).Flush()
				}
				fmt.Fprintf(w, "%s %s %s %v %d %v %v", r.Method, r.URL, r.Host, r.TransferEncoding, len(body), r.Header["X-A"], r.Header["If-None-Match"])
			})})
			tr := transport.Must(transport.New(transport.Config{Base: o.Base(), Logger: quiet(), Default: func() policy.Policy {
				p := policy.Default()
				p.Fallback = policy.Fallback{MaxStale: time.Hour, FailFast503: true}
				p.Retry = policy.Retry{}
				return p
			}()}))
			defer tr.Close()
			bare := o.Base()
			defer bare.CloseIdleConnections()
			see := func(rt http.RoundTripper, method, path, body string, fields []string) string {
				req := fallbackRequest(method, "https://a.test"+path, fields...)
				if body != "" {
					req.Body, req.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
				}
				resp, err := rt.RoundTrip(req)
				if err != nil {
					return "error " + err.Error()
				}
				text, err := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				return fmt.Sprint(resp.Status, resp.Proto, resp.Header, resp.ContentLength, resp.TransferEncoding, resp.Uncompressed, resp.Close,
					resp.Trailer, resp.Request.URL == req.URL, resp.TLS != nil, string(text), err)
			}
			for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND"} {
				for _, path := range []string{"/", "/chunked", "/redirect", "/200", "/204", "/206", "/301", "/304", "/401", "/404", "/410", "/429", "/500", "/501", "/503"} {
					for i, fields := range [][]string{nil, {"X-A", "b"}, {"If-None-Match", `"1"`}, {"Cache-Control", "no-cache"}, {"Range", "bytes=0-1"}} {
						if fields != nil && method != "GET" && method != "HEAD" {
							continue
						}
						target, body := path, ""
						if path == "/500" || path == "/503" {
							target += fmt.Sprintf("?%s%d", method, i) // nothing stored for it
						}
						if method == "POST" || method == "PUT" {
							body = "some text"
						}
						if want, got := see(bare, method, target, body, fields), see(tr, method, target, body, fields); got != want {
							t.Errorf("%s %s %v:\n  %s\nwithout the stack\n  %s", method, target, fields, got, want)
						}
					}
				}
			}
			transporttest.CheckPermits(t, tr)
		})
	}
}

func TestFallbackStoresNoBodyThatIsNotWhole(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	cut := func(s transporttest.Step) transporttest.Step {
		s.Header = http.Header{"Cache-Control": {"max-age=600"}}
		return s
	}
	for _, test := range []struct {
		name string
		step transporttest.Step
		read func(*http.Response, context.CancelFunc)
		want bool
	}{
		{"read to its end", cut(transporttest.Step{Body: long}), func(r *http.Response, _ context.CancelFunc) { _, _ = io.Copy(io.Discard, r.Body) }, true},
		{"chunked, read to its end", cut(transporttest.Step{Body: long, Framing: transporttest.Chunked}), func(r *http.Response, _ context.CancelFunc) { _, _ = io.Copy(io.Discard, r.Body) }, true},
		{"cut", cut(transporttest.Step{Body: long, Fault: transporttest.Cut, At: 50_000}), func(r *http.Response, _ context.CancelFunc) { _, _ = io.Copy(io.Discard, r.Body) }, false},
		{"chunked, cut", cut(transporttest.Step{Body: long, Framing: transporttest.Chunked, Fault: transporttest.Cut, At: 50_000}), func(r *http.Response, _ context.CancelFunc) { _, _ = io.Copy(io.Discard, r.Body) }, false},
		{"ended by the connection's end", cut(transporttest.Step{Body: long, Framing: transporttest.UntilClose}), func(r *http.Response, _ context.CancelFunc) { _, _ = io.Copy(io.Discard, r.Body) }, false},
		{"reset", cut(transporttest.Step{Body: long, Fault: transporttest.Reset, At: 50_000}), func(r *http.Response, _ context.CancelFunc) { _, _ = io.Copy(io.Discard, r.Body) }, false},
		{"stalled", cut(transporttest.Step{Body: long, Fault: transporttest.Hang, At: 50_000}), func(r *http.Response, _ context.CancelFunc) { _, _ = io.Copy(io.Discard, r.Body) }, false},
		{"closed early", cut(transporttest.Step{Body: long}), func(r *http.Response, _ context.CancelFunc) { _, _ = io.ReadFull(r.Body, make([]byte, 10)) }, false},
		{"chunked, closed early", cut(transporttest.Step{Body: long, Framing: transporttest.Chunked}), func(r *http.Response, _ context.CancelFunc) { _, _ = io.ReadFull(r.Body, make([]byte, 10)) }, false},
		{"closed unread", cut(transporttest.Step{Body: long, Framing: transporttest.Chunked}), func(*http.Response, context.CancelFunc) {}, false},
		{"cancelled", cut(transporttest.Step{Body: long, Fault: transporttest.Hang, At: 50_000}), func(r *http.Response, cancel context.CancelFunc) {
			_, _ = io.ReadFull(r.Body, make([]byte, 10))
			cancel()
			_, _ = io.Copy(io.Discard, r.Body)
		}, false},
		{"closed at its length", cut(transporttest.Step{Body: "{}"}), func(r *http.Response, _ context.CancelFunc) { _, _ = io.ReadFull(r.Body, make([]byte, 2)) }, true},
		{"closed just before its end", cut(transporttest.Step{Body: "{}\n", Framing: transporttest.Chunked}), func(r *http.Response, _ context.CancelFunc) { _ = json.NewDecoder(r.Body).Decode(new(any)) }, true},
		{"with trailers", cut(transporttest.Step{Body: long, Trailer: http.Header{"X-Sum": {"1"}}}), func(r *http.Response, _ context.CancelFunc) { _, _ = io.Copy(io.Discard, r.Body) }, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			transporttest.CheckLeaks(t)
			p := tenMinutes()
			if test.name == "stalled" {
				p.Timeout = policy.Timeout{Read: 200 * time.Millisecond}
			}
			o := transporttest.NewOrigin(t)
			tr := transport.Must(transport.New(transport.Config{Base: o.Base(), Default: p, Logger: quiet()}))
			defer tr.Close()
			o.Script(test.step)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			resp, err := tr.RoundTrip(fallbackRequest("GET", "http://a.test/").WithContext(ctx))
			if err != nil {
				t.Fatal(err)
			}
			test.read(resp, cancel)
			_ = resp.Body.Close()
			tr.Host("http://a.test").ForceOpen()
			resp, err = tr.RoundTrip(fallbackRequest("GET", "http://a.test/"))
			if (err == nil) != test.want {
				t.Fatalf("%v, %v; want it served: %v", resp, err, test.want)
			}
			if err == nil {
				text, err := io.ReadAll(resp.Body)
				if string(text) != test.step.Body || err != nil {
					t.Errorf("%d bytes of %d, %v", len(text), len(test.step.Body), err)
				}
				_ = resp.Body.Close()
			}
			transporttest.CheckPermits(t, tr)
		})
	}
}

func TestFallbackStoresWhatAJSONDecoderLeavesUnread(t *testing.T) {
	for _, opts := range [][]transporttest.Option{nil, {transporttest.TLS("h2")}} {
		o := transporttest.NewOrigin(t, opts...)
		tr := transport.Must(transport.New(transport.Config{Base: o.Base(), Default: tenMinutes(), Logger: quiet()}))
		o.Script(transporttest.Step{Body: `{"a": 1}` + "\n", Framing: transporttest.Chunked})
		target := strings.Split(o.URL, ":")[0] + "://a.test/"
		resp, err := tr.RoundTrip(fallbackRequest("GET", target))
		if err != nil {
			t.Fatal(err)
		}
		var v struct{ A int }
		if err := json.NewDecoder(resp.Body).Decode(&v); err != nil || v.A != 1 {
			t.Fatal(v, err)
		}
		_ = resp.Body.Close()
		tr.Host("a.test").ForceOpen()
		if resp, err = tr.RoundTrip(fallbackRequest("GET", target)); err != nil || !fallbackStale(resp) {
			t.Error(resp, err)
		}
		transporttest.CheckPermits(t, tr)
		_ = tr.Close()
	}
}

func TestFallbackShowsNoAnswerToAnotherCaller(t *testing.T) {
	for name, other := range map[string][]string{
		"no credentials":       {},
		"another token":        {"Authorization", "Bearer 2"},
		"another cookie":       {"Authorization", "Bearer 1", "Cookie", "session=2"},
		"another key":          {"Authorization", "Bearer 1", "X-Api-Key", "2"},
		"another tenant":       {"Authorization", "Bearer 1", "X-Tenant-Id", "2"},
		"two lines, reordered": {"Authorization", "Bearer 2", "Authorization", "Bearer 1"},
	} {
		r := newFallbackRig(t, tenMinutes())
		r.fill("/", good("for 1", "Cache-Control", "public, max-age=60"), "Authorization", "Bearer 1")
		if resp, text, err := r.get("/", other...); err == nil {
			t.Errorf("%s: %v, %q", name, resp, text)
		}
		if resp, text, err := r.get("/", "Authorization", "Bearer 1"); err != nil || text != "for 1" {
			t.Errorf("%s: the first caller: %v, %v", name, resp, err)
		}
	}
}

func TestFallbackKeepsHostsAndURLsApart(t *testing.T) {
	base := fallbackRequest("GET", "http://a.test/doc?a=1&b=2#one")
	same := map[string]func(*http.Request){
		"another fragment": func(r *http.Request) { r.URL.Fragment = "two" },
		"the default port": func(r *http.Request) { r.URL.Host = "a.test:80" },
		"upper case":       func(r *http.Request) { r.URL.Host = "A.TEST" },
		"its own host":     func(r *http.Request) { r.Host = "a.test" },
	}
	different := map[string]func(*http.Request){
		"another Request.Host": func(r *http.Request) { r.Host = "evil.test" },
		"https":                func(r *http.Request) { r.URL.Scheme = "https" },
		"another port":         func(r *http.Request) { r.URL.Host = "a.test:8080" },
		"another query":        func(r *http.Request) { r.URL.RawQuery = "a=2&b=2" },
		"another query order":  func(r *http.Request) { r.URL.RawQuery = "b=2&a=1" },
		"another path":         func(r *http.Request) { r.URL.Path = "/Doc" },
		"userinfo":             func(r *http.Request) { r.URL.User = url.UserPassword("u", "p") },
	}
	p := tenMinutes()
	script := transporttest.NewBase(good("stored"))
	tr := transport.Must(transport.New(transport.Config{Default: p, Base: script, Logger: quiet()}))
	r := &fallbackRig{t: t, Transport: tr}
	if _, _, err := r.do(base); err != nil {
		t.Fatal(err)
	}
	script.Script(transporttest.Step{Err: errFallbackDial})
	for name, change := range same {
		req := base.Clone(context.Background())
		change(req)
		if resp, _, err := r.do(req); err != nil || !fallbackStale(resp) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, change := range different {
		req := base.Clone(context.Background())
		change(req)
		if resp, text, err := r.do(req); err == nil {
			t.Errorf("%s: %v %q", name, resp, text)
		}
	}
}

func TestFallbackServesNoCookies(t *testing.T) {
	r := newFallbackRig(t, tenMinutes())
	r.base.Script(good("hello", "Set-Cookie", "session=1", "Cache-Control", "public"))
	resp, _, err := r.get("/")
	if err != nil || resp.Header.Get("Set-Cookie") != "session=1" {
		t.Fatal(resp, err)
	}
	r.base.Script(transporttest.Step{Status: 503})
	if resp, _, err = r.get("/"); err != nil || !fallbackStale(resp) || resp.Header["Set-Cookie"] != nil {
		t.Error(resp, err)
	}
}

func TestFallbackForgetsWhatAWriteHasChanged(t *testing.T) {
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "MKCOL"} {
		for _, test := range []struct {
			step transporttest.Step
			kept bool
		}{
			{transporttest.Step{Status: 200}, false},
			{transporttest.Step{Status: 204}, false},
			{transporttest.Step{Status: 303}, false},
			{transporttest.Step{Status: 404}, true},
			{transporttest.Step{Status: 500}, true},
			{transporttest.Step{Status: 503}, true},
			{transporttest.Step{Err: errFallbackDial}, true},
		} {
			r := newFallbackRig(t, tenMinutes())
			r.fill("/", good("old"), "Authorization", "Bearer 1")
			r.base.Script(test.step)
			_, _, _ = r.do(fallbackRequest(method, "http://a.test/"))
			r.base.Script(transporttest.Step{Err: errFallbackDial})
			if _, _, err := r.get("/", "Authorization", "Bearer 1"); (err == nil) != test.kept {
				t.Errorf("%s answered by %+v: %v, want it kept: %v", method, test.step, err, test.kept)
			}
		}
	}
}

func TestFallbackForgetsWhatTheOriginHasTakenBack(t *testing.T) {
	for _, test := range []struct {
		step transporttest.Step
		kept bool
	}{
		{transporttest.Step{Status: 404}, false},
		{transporttest.Step{Status: 410}, false},
		{transporttest.Step{Status: 401}, false},
		{transporttest.Step{Status: 403}, false},
		{good("secret", "Cache-Control", "no-store"), false},
		{transporttest.Step{Status: 503}, true},
		{transporttest.Step{Status: 429}, true},
		{transporttest.Step{Status: 304}, true},
	} {
		r := newFallbackRig(t, tenMinutes())
		r.fill("/", good("old"))
		r.base.Script(test.step)
		_, _, _ = r.get("/")
		r.Host("a.test").ForceOpen()
		if resp, text, err := r.get("/"); (err == nil) != test.kept || err == nil && text != "old" {
			t.Errorf("%+v: %v, %q, %v", test.step, resp, text, err)
		}
	}
}

func TestFallbackDoesNotStoreAnAnswerOlderThanAWrite(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newFallbackRig(t, tenMinutes())
		r.base.ScriptFunc(func(h transporttest.Hit) transporttest.Step {
			if h.Method == "GET" {
				return transporttest.Step{Body: "before the write", Delay: 2 * time.Second}
			}
			return transporttest.Step{Status: 204}
		})
		var reading sync.WaitGroup
		reading.Go(func() { _, _, _ = r.get("/") })
		time.Sleep(time.Second)
		if _, _, err := r.do(fallbackRequest("PUT", "http://a.test/")); err != nil {
			t.Fatal(err)
		}
		reading.Wait()
		r.Host("a.test").ForceOpen()
		if resp, text, err := r.get("/"); err == nil {
			t.Error(resp, text)
		}
	})
}

func TestFallbackAnswersCannotBeSpoiltByTheirCallers(t *testing.T) {
	r := newFallbackRig(t, tenMinutes())
	r.base.Script(good("old", "X-A", "1", "X-A", "2"))
	resp, _, err := r.get("/")
	if err != nil {
		t.Fatal(err)
	}
	spoil := func(h http.Header) {
		h["X-A"][0] = "spoilt"
		h["X-A"] = append(h["X-A"], "more")
		h.Del("Content-Type")
	}
	spoil(resp.Header)
	r.Host("a.test").ForceOpen()
	for range 3 {
		resp, text, err := r.get("/")
		if err != nil || text != "old" || fmt.Sprint(resp.Header["X-A"]) != "[1 2]" || resp.Header.Get("Content-Type") != "text/plain" {
			t.Fatal(resp, text, err)
		}
		spoil(resp.Header)
	}
}

func TestFallbackSendsNoRequestThatOnlyWantsAStoredAnswer(t *testing.T) {
	r := newFallbackRig(t, tenMinutes(), good("fresh", "Cache-Control", "max-age=60"))
	ask := []string{"Cache-Control", "only-if-cached"}
	if resp, _, err := r.get("/", ask...); err != nil || resp.StatusCode != 504 || len(r.base.Hits()) != 0 {
		t.Fatal(resp, err)
	}
	if _, _, err := r.get("/"); err != nil {
		t.Fatal(err)
	}
	if resp, text, err := r.get("/", ask...); err != nil || resp.StatusCode != 200 || text != "fresh" || len(r.base.Hits()) != 1 {
		t.Error(resp, text, err)
	}
	transporttest.CheckPermits(t, r.Transport)
	if starts, ends := len(r.seen.Starts()), r.seen.Count(transport.EventCallEnd)+r.seen.Count(transport.EventAttemptEnd); starts != ends {
		t.Errorf("%d began, %d ended", starts, ends)
	}
}

func TestFallbackInShadowModeChangesNothingAndTells(t *testing.T) {
	p := tenMinutes()
	p.Fallback.Shadow = true
	p.Fallback.FailFast503 = true
	r := newFallbackRig(t, p)
	r.fill("/", good("old"))
	if resp, _, err := r.get("/"); err != error(errFallbackDial) {
		t.Error(resp, err)
	}
	r.base.Script(transporttest.Step{Status: 503, Body: "sorry"})
	if resp, text, err := r.get("/"); err != nil || resp.StatusCode != 503 || text != "sorry" {
		t.Error(resp, text, err)
	}
	r.base.Script(good("asked"))
	if resp, text, err := r.get("/nothing", "Cache-Control", "only-if-cached"); err != nil || text != "asked" {
		t.Error(resp, text, err)
	}
	events := r.seen.Events(transport.EventFallback)
	if len(events) != 2 || !events[0].Shadow || events[0].Fallback != "stale" || !events[1].Shadow {
		t.Errorf("%+v", events)
	}
	if c := r.Host("a.test").Snapshot()[0].Counts; c.Stale != 0 || c.FailFast != 0 {
		t.Errorf("counted what was not served: %+v", c)
	}
}

func TestFallbackSendsAConditionalRequestAsItIs(t *testing.T) {
	r := newFallbackRig(t, tenMinutes())
	r.fill("/", good("old", "Etag", `"1"`, "Cache-Control", "max-age=600"))
	r.base.Script(transporttest.Step{Status: 304})
	resp, _, err := r.get("/", "If-None-Match", `"mine"`)
	hits := r.base.Hits()
	if last := hits[len(hits)-1]; err != nil || resp.StatusCode != 304 || fmt.Sprint(last.Header["If-None-Match"]) != `["mine"]` {
		t.Error(resp, err, last.Header)
	}
}

func TestFallbackKeepsPartsAndHeadsOutOfTheStore(t *testing.T) {
	r := newFallbackRig(t, tenMinutes())
	r.base.Script(transporttest.Step{Status: 206, Body: "part", Header: http.Header{"Cache-Control": {"max-age=60"}}})
	_, _, _ = r.get("/", "Range", "bytes=0-3")
	_, _, _ = r.do(fallbackRequest("HEAD", "http://a.test/"))
	r.base.Script(transporttest.Step{Err: errFallbackDial})
	if resp, text, err := r.get("/"); err == nil {
		t.Error(resp, text)
	}
	r.fill("/", good("whole"))
	resp, text, err := r.do(fallbackRequest("HEAD", "http://a.test/"))
	if err != nil || text != "" || resp.ContentLength != 5 || !fallbackStale(resp) {
		t.Error("HEAD from the GET's answer:", resp, text, err)
	}
	if resp, _, err := r.get("/", "Range", "bytes=0-3"); err == nil {
		t.Error("a part from the whole:", resp)
	}
}

// fallbackHeap is how much more memory is in use at the most while f runs than
// before; it asks often.
func fallbackHeap(f func(sample func())) uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	before, most := m.HeapAlloc, uint64(0)
	f(func() {
		runtime.GC()
		runtime.ReadMemStats(&m)
		if m.HeapAlloc > before {
			most = max(most, m.HeapAlloc-before)
		}
	})
	return most
}

func TestFallbackHoldsNoMoreOfAGzipBombThanAnEntryMayHave(t *testing.T) {
	transporttest.CheckLeaks(t)
	size := 32 << 20
	if raceEnabled {
		size = 12 << 20
	}
	var bomb bytes.Buffer
	z, _ := gzip.NewWriterLevel(&bomb, gzip.BestSpeed)
	for range size >> 20 {
		_, _ = z.Write(make([]byte, 1<<20))
	}
	_ = z.Close()
	o := transporttest.NewOrigin(t)
	o.Script(transporttest.Step{Body: bomb.String(), Header: http.Header{"Content-Encoding": {"gzip"}, "Cache-Control": {"max-age=600"}}})
	store, _ := cache.NewMemory(cache.Config{})
	tr := transport.Must(transport.New(transport.Config{Base: o.Base(), Store: store, Default: tenMinutes(), Logger: quiet()}))
	defer tr.Close()
	grown := fallbackHeap(func(sample func()) {
		resp, err := tr.RoundTrip(fallbackRequest("GET", "http://a.test/"))
		if err != nil {
			t.Fatal(err)
		}
		total := int64(0)
		for total < int64(size) {
			n, err := io.CopyN(io.Discard, resp.Body, 8<<20)
			total += n
			sample()
			if err != nil {
				break
			}
		}
		if n, err := io.Copy(io.Discard, resp.Body); total != int64(size) || n != 0 || err != nil || !resp.Uncompressed {
			t.Errorf("%d bytes, then %d, %v", total, n, err)
		}
		_ = resp.Body.Close()
	})
	if grown > 4<<20 || store.Len() != 0 {
		t.Errorf("%d bytes of heap, %d entries", grown, store.Len())
	}
	transporttest.CheckPermits(t, tr)
}

func TestFallbackReturnsAnEndlessStreamAtItsHeadersAndForgetsIt(t *testing.T) {
	transporttest.CheckLeaks(t)
	o := transporttest.NewOrigin(t)
	o.Script(transporttest.Step{Size: 1 << 50, Framing: transporttest.Chunked, Header: http.Header{"Cache-Control": {"max-age=600"}}})
	store, _ := cache.NewMemory(cache.Config{})
	tr := transport.Must(transport.New(transport.Config{Base: o.Base(), Store: store, Default: tenMinutes(), Logger: quiet()}))
	defer tr.Close()
	grown := fallbackHeap(func(sample func()) {
		resp, err := tr.RoundTrip(fallbackRequest("GET", "http://a.test/"))
		if err != nil {
			t.Fatal(err)
		}
		for range 8 {
			if _, err := io.CopyN(io.Discard, resp.Body, 4<<20); err != nil {
				t.Fatal(err)
			}
			sample()
		}
		_ = resp.Body.Close()
	})
	if grown > 4<<20 || store.Len() != 0 {
		t.Errorf("%d bytes of heap, %d entries", grown, store.Len())
	}
	transporttest.CheckPermits(t, tr)
}

func TestFallbackKeepsItsStoreWithinItsBound(t *testing.T) {
	store, _ := cache.NewMemory(cache.Config{MaxBytes: 1 << 20})
	tr := transport.Must(transport.New(transport.Config{Base: newStub(4 << 10), Store: store, Default: tenMinutes(), Logger: quiet()}))
	for i := range 2000 {
		resp, err := tr.RoundTrip(fallbackRequest("GET", fmt.Sprintf("http://a.test/%d", i)))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if store.Bytes() > 1<<20 {
			t.Fatalf("%d bytes after %d answers", store.Bytes(), i)
		}
	}
	if store.Len() < 100 {
		t.Errorf("%d entries", store.Len())
	}
}

// The race detector sees two callers write to one header.
func TestFallbackCallersMayChangeTheHeaderOfASharedDegradedAnswer(t *testing.T) {
	shared := &http.Response{Header: http.Header{"X-Part": {"no prices"}}}
	p := policy.Policy{Fallback: policy.Fallback{Degraded: func(*http.Request, error) *http.Response { return shared }}}
	r := newFallbackRig(t, p, transporttest.Step{Err: errFallbackDial})
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 50 {
				resp, _, err := r.get("/")
				if err != nil {
					t.Error(err)
					return
				}
				if len(resp.Header) != 1 || resp.Header.Get("X-Part") != "no prices" {
					t.Errorf("another caller's header: %v", resp.Header)
				}
				resp.Header.Set("X-Caller", fmt.Sprint(i))
				resp.Header["X-Part"][0] = "changed"
				resp.Header.Del("X-Part")
			}
		})
	}
	all.Wait()
	if len(shared.Header) != 1 || shared.Header.Get("X-Part") != "no prices" {
		t.Errorf("the shared header became %v", shared.Header)
	}
}

func TestFallbackKeepsNoStreamAndForgetsWhatOneSupersedes(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		contentType string
		call        bool
		policy      bool
	}{
		"events":        {contentType: "text/event-stream"},
		"events, utf-8": {contentType: "Text/Event-Stream; charset=utf-8"},
		"ndjson":        {contentType: "application/x-ndjson"},
		"by call":       {contentType: "text/plain", call: true},
		"by policy":     {contentType: "text/plain", policy: true},
	} {
		for _, length := range []transporttest.Framing{transporttest.Fixed, transporttest.Chunked} {
			t.Run(fmt.Sprintf("%s, framing %d", name, length), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p := tenMinutes()
					p.Streaming = test.policy
					origin := transporttest.NewNet(t, nil)
					tr := under(t, transport.Config{Base: origin.Base(), Default: p})
					do := func() (string, error) {
						req := fallbackRequest("GET", "http://a.test/")
						if test.call {
							req = req.WithContext(transport.WithCall(req.Context(), transport.Call{Streaming: true}))
						}
						return fetch(tr.Client(), req)
					}
					origin.Script(good("old"))
					if _, err := fetch(tr.Client(), fallbackRequest("GET", "http://a.test/")); err != nil {
						t.Fatal(err)
					}
					origin.OnDial(transporttest.Refuse)
					tr.CloseIdleConnections()
					if got, err := do(); (err == nil && got == "old") == test.policy {
						t.Fatalf("%q, %v: the test is about nothing", got, err)
					}
					origin.OnDial(nil)
					stream := good("stream")
					stream.Header.Set("Content-Type", test.contentType)
					stream.Framing = length
					origin.Script(stream)
					if got, err := do(); err != nil || got != "stream" {
						t.Fatal(got, err)
					}
					origin.OnDial(transporttest.Refuse)
					tr.CloseIdleConnections()
					if got, err := do(); err == nil {
						t.Errorf("%q was stored", got)
					}
				})
			})
		}
	}
}

// What is answered from the store, or not at all because the caller asked for
// that, was not refused.
func TestFallbackCountsNoRefusalOfACallThatOnlyWantsAStoredAnswer(t *testing.T) {
	base := transporttest.NewBase(good("old"))
	tr := transport.Must(transport.New(transport.Config{Base: base, Default: tenMinutes(), Logger: quiet()})) // no observer: the quick way
	call := func(fields ...string) int {
		resp, err := tr.RoundTrip(fallbackRequest("GET", "http://a.test/", fields...))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	if status := call("Cache-Control", "only-if-cached"); status != http.StatusGatewayTimeout {
		t.Errorf("closed: %d", status)
	}
	call()
	tr.Host("a.test").ForceOpen()
	call("Cache-Control", "only-if-cached")
	if n := tr.Snapshot()[0].Counts.RefusedOpen; n != 0 {
		t.Errorf("%d refusals", n)
	}
	call()
	if c := tr.Snapshot()[0].Counts; c.RefusedOpen != 1 || c.Stale != 1 || c.Calls != 4 {
		t.Errorf("%+v", c)
	}
}
