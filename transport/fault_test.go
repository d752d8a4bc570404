package transport_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/http/httputil"
	"net/textproto"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/transporttest"
)

// wantNeutral asks for one attempt that failed and was held against nobody, with a
// breaker that opens at the first failure.
func wantNeutral(t *testing.T, base http.RoundTripper, req *http.Request) error {
	t.Helper()
	p := retrySocketPolicy()
	p.Breaker.ConsecutiveFailures = 1
	tr := retryTransport(t, base, p, nil)
	resp, err := tr.RoundTrip(req)
	if err == nil {
		_ = resp.Body.Close()
		t.Fatal("no error")
	}
	s := tr.Snapshot()[0]
	if c := s.Counts; c.Attempts != 1 || c.Neutral != 1 || c.Failure != 0 || s.State != transport.Closed {
		t.Errorf("%d attempts, %d of them failures, %d neutral, breaker %v (%v); want one that is neutral", c.Attempts, c.Failure, c.Neutral, s.State, err)
	}
	return err
}

// What net/http refuses only when it has a connection says nothing about the host.
func TestRequestThatNetHTTPRefusesToWriteIsNeutral(t *testing.T) {
	h2 := []transporttest.Option{transporttest.TLS("h2")}
	trailer := func(r *http.Request) {
		r.Method, r.Body, r.ContentLength = http.MethodPut, io.NopCloser(strings.NewReader("x")), -1
		r.Trailer = http.Header{"Content-Length": nil}
	}
	for name, test := range map[string]struct {
		opts   []transporttest.Option
		change func(*http.Request)
	}{
		"h1 trailer":               {nil, trailer},
		"h1 length without a body": {nil, func(r *http.Request) { r.ContentLength = 3 }},
		"h1 control character":     {nil, func(r *http.Request) { r.URL.RawQuery = "a\nb" }},
		"h2 trailer":               {h2, trailer},
		"h2 Upgrade": {h2, func(r *http.Request) {
			r.Header.Set("Connection", "Upgrade")
			r.Header.Set("Upgrade", "tcp")
		}},
		"h2 Connection":        {h2, func(r *http.Request) { r.Header.Set("Connection", "foo") }},
		"h2 Transfer-Encoding": {h2, func(r *http.Request) { r.Header.Set("Transfer-Encoding", "gzip") }},
		"h2 Host":              {h2, func(r *http.Request) { r.Host = "a b" }},
		"h2 path":              {h2, func(r *http.Request) { r.URL.Opaque = "nopath" }},
	} {
		t.Run(name, func(t *testing.T) {
			o := transporttest.NewOrigin(t, test.opts...)
			req := retryRequest(t, http.MethodGet, o.URL, nil)
			test.change(req)
			_ = wantNeutral(t, o.Base(), req)
			if n := len(o.Hits()); n != 0 {
				t.Errorf("%d requests came", n)
			}
		})
	}
	t.Run("Host to a proxy", func(t *testing.T) {
		u, err := url.Parse(transporttest.NewOrigin(t).URL)
		if err != nil {
			t.Fatal(err)
		}
		req := retryRequest(t, http.MethodGet, "http://a.test/", nil)
		req.Host = "a b"
		_ = wantNeutral(t, &http.Transport{Proxy: http.ProxyURL(u)}, req)
	})
}

// The peer says in its SETTINGS how much header it takes; net/http goes by them.
func TestHeaderThatIsTooLargeForThePeerIsNeutral(t *testing.T) {
	o := transporttest.NewOrigin(t, transporttest.TLS("h2"))
	p := retrySocketPolicy()
	p.Breaker.ConsecutiveFailures = 1
	tr := retryTransport(t, o.Base(), p, nil)
	if status, _ := retryDo(t, tr, retryRequest(t, http.MethodGet, o.URL, nil)); status != 200 { // learn the settings
		t.Fatal(status)
	}
	req := retryRequest(t, http.MethodGet, o.URL, nil)
	req.Header.Set("Cookie", strings.Repeat("c", 2<<20))
	if _, err := tr.RoundTrip(req); err == nil || !strings.Contains(err.Error(), "header list") {
		t.Fatalf("%v, want that the header list is too large", err)
	}
	if s := tr.Snapshot()[0]; s.Counts.Attempts != 2 || s.Counts.Failure != 0 || s.State != transport.Closed {
		t.Errorf("%+v, breaker %v; want two attempts and no failure", s.Counts, s.State)
	}
}

// A stranger's request must not trip the breaker of all.
func TestReverseProxySurvivesUpgradesToAnHTTP2Backend(t *testing.T) {
	o := transporttest.NewOrigin(t, transporttest.TLS("h2"))
	p := retrySocketPolicy()
	p.Breaker.ConsecutiveFailures = 1
	tr := retryTransport(t, o.Base(), p, nil)
	u, err := url.Parse(o.URL)
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(u) }, Transport: tr,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	})
	t.Cleanup(front.Close)
	get := func(upgrade string) int {
		req := retryRequest(t, http.MethodGet, front.URL, nil)
		if upgrade != "" {
			req.Header.Set("Connection", "Upgrade")
			req.Header.Set("Upgrade", upgrade)
		}
		status, _ := retryDo(t, front.Client().Transport, req)
		return status
	}
	if a, b := get("foo"), get(""); a != http.StatusBadGateway || b != http.StatusOK {
		t.Errorf("%d, then %d to another; want 502, then 200", a, b)
	}
}

// A connection that fails before the header is written is the host's.
func TestConnectionThatFailsBeforeTheHeaderIsAFailure(t *testing.T) {
	for name, opts := range map[string][]transporttest.Option{"h1": nil, "h2": {transporttest.TLS("h2")}} {
		t.Run(name, func(t *testing.T) {
			o := transporttest.NewOrigin(t, append(opts, transporttest.ServeConn(func(c net.Conn) { _ = c.Close() }))...)
			tr := retryTransport(t, o.Base(), retrySocketPolicy(), nil)
			req := retryRequest(t, http.MethodGet, o.URL, nil)
			req.Header.Set("X", strings.Repeat("x", 1<<20)) // more than is buffered
			if _, err := tr.RoundTrip(req); err == nil {
				t.Fatal("no error")
			}
			if c := tr.Snapshot()[0].Counts; c.Attempts != 3 || c.Failure != 3 {
				t.Errorf("%+v, want three attempts, all failures", c)
			}
		})
	}
}

// What the caller's own code fails with inside of net/http is not the host's fault.
func TestErrorOfTheCallersCodeIsNeutral(t *testing.T) {
	mine := errors.New("mine")
	for name, opts := range map[string][]transporttest.Option{"h1": nil, "h2": {transporttest.TLS("h2")}} {
		t.Run("Got1xxResponse over "+name, func(t *testing.T) {
			o := transporttest.NewOrigin(t, opts...)
			o.Script(transporttest.Step{Interim: []transporttest.Step{{Status: 103}}, Body: "x"})
			req := retryRequest(t, http.MethodGet, o.URL, nil)
			req = req.WithContext(httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
				Got1xxResponse: func(int, textproto.MIMEHeader) error { return mine },
			}))
			if err := wantNeutral(t, o.Base(), req); !strings.Contains(err.Error(), "mine") {
				t.Errorf("%v, want the hook's", err)
			}
		})
	}
	for name, body := range map[string]func() io.Reader{
		"small": func() io.Reader { return strings.NewReader("x") },
		"large": func() io.Reader { return strings.NewReader(strings.Repeat("x", 1<<20)) },
	} {
		t.Run("GetBody of a "+name+" body", func(t *testing.T) {
			o := transporttest.NewOrigin(t, transporttest.TLS("h2"))
			o.Script(transporttest.Step{Fault: transporttest.GoAway})
			req := retryRequest(t, http.MethodPut, o.URL, body())
			req.GetBody = func() (io.ReadCloser, error) { return nil, mine }
			if err := wantNeutral(t, o.Base(), req); !errors.Is(err, mine) {
				t.Errorf("%v, want the caller's", err)
			}
		})
	}
}

// A process that has run out of something must not open the breakers of all hosts.
func TestExhaustionOfThisProcessIsNeutralAndRetried(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.EADDRNOTAVAIL, syscall.ENOBUFS, syscall.ENOMEM} {
		for name, base := range map[string]func(func() error) http.RoundTripper{
			"dial": func(fail func() error) http.RoundTripper {
				return &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return nil, fail() }}
			},
			"foreign base": func(fail func() error) http.RoundTripper {
				return rt(func(*http.Request) (*http.Response, error) { return nil, fail() })
			},
		} {
			t.Run(name+" "+errno.Error(), func(t *testing.T) {
				p := retrySocketPolicy()
				p.Breaker.ConsecutiveFailures = 1
				tr := retryTransport(t, base(func() error {
					return &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("socket", errno)}
				}), p, nil)
				_, err := tr.RoundTrip(retryRequest(t, http.MethodGet, "http://a.test/", nil))
				if !errors.Is(err, errno) {
					t.Errorf("%v, want %v", err, errno)
				}
				s := tr.Snapshot()[0]
				if c := s.Counts; c.Attempts != 3 || c.Neutral != 3 || s.State != transport.Closed {
					t.Errorf("%+v, breaker %v; want three attempts, all neutral", c, s.State)
				}
			})
		}
	}
}

// What an inner stack refuses was never sent to the host.
func TestRefusalOfAStackBelowIsNeutral(t *testing.T) {
	ok := rt(func(req *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
	})
	request := func() *http.Request { return retryRequest(t, http.MethodGet, "http://a.test/", nil) }
	t.Run("breaker open", func(t *testing.T) {
		inner := retryTransport(t, ok, retrySocketPolicy(), nil)
		inner.Host("a.test").ForceOpen()
		if err := wantNeutral(t, inner, request()); !errors.Is(err, transport.ErrBreakerOpen) {
			t.Errorf("%v, want ErrBreakerOpen", err)
		}
	})
	t.Run("bulkhead full", func(t *testing.T) {
		p := retrySocketPolicy()
		p.Bulkhead.MaxConcurrent = 1
		hold, held := make(chan struct{}), make(chan struct{})
		inner := retryTransport(t, rt(func(req *http.Request) (*http.Response, error) {
			close(held)
			<-hold
			return ok(req)
		}), p, nil)
		done := make(chan struct{})
		req := request()
		go func() {
			defer close(done)
			if resp, err := inner.RoundTrip(req); err == nil {
				_ = resp.Body.Close()
			}
		}()
		<-held
		if err := wantNeutral(t, inner, request()); !errors.Is(err, transport.ErrBulkheadFull) {
			t.Errorf("%v, want ErrBulkheadFull", err)
		}
		close(hold)
		<-done
	})
	t.Run("closed", func(t *testing.T) {
		inner := retryTransport(t, ok, retrySocketPolicy(), nil)
		_ = inner.Close()
		if err := wantNeutral(t, inner, request()); !errors.Is(err, transport.ErrClosed) {
			t.Errorf("%v, want ErrClosed", err)
		}
	})
}

// A response is never turned into an error, by whatever GetBody has for its retry.
func TestRetryWithAFaultyBodyReturnsTheAnswerBefore(t *testing.T) {
	const size = 628
	full := strings.Repeat("x", size)
	of := func(s string) func(*http.Request) {
		return func(r *http.Request) {
			r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(s)), nil }
		}
	}
	for name, change := range map[string]func(*http.Request){
		"none":     func(r *http.Request) { r.GetBody = func() (io.ReadCloser, error) { return nil, nil } },
		"an empty": func(r *http.Request) { r.GetBody = func() (io.ReadCloser, error) { return http.NoBody, nil } },
		"the same": func(r *http.Request) { r.GetBody = func() (io.ReadCloser, error) { return r.Body, nil } },
		"a short":  of("x"), "a long": of(full + "x"),
		"a broken": func(r *http.Request) {
			r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(retryBroken{}), nil }
		},
	} {
		for proto, opts := range map[string][]transporttest.Option{"h1": nil, "h2": {transporttest.TLS("h2")}} {
			t.Run(name+" over "+proto, func(t *testing.T) {
				o := transporttest.NewOrigin(t, opts...)
				o.Script(transporttest.Step{Status: 503, Body: "sorry"})
				p := retrySocketPolicy()
				p.Retry.Statuses = []int{503}
				tr := retryTransport(t, o.Base(), p, nil)
				req := retryRequest(t, http.MethodPut, o.URL, strings.NewReader(full))
				change(req)
				if status, body := retryDo(t, tr, req); status != 503 || body != "sorry" {
					t.Errorf("%d %q, want the 503 with its body", status, body)
				}
				if c := tr.Snapshot()[0].Counts; c.Failure > 1 { // that of the first
					t.Errorf("%+v, want at most one failure", c)
				}
			})
		}
	}
}

// A body that net/http asks GetBody for is watched, be the first one of those that need
// not be.
func TestSecondBodyThatFailsIsNeutral(t *testing.T) {
	for name, again := range map[string]io.Reader{
		"short":  strings.NewReader("he"),
		"long":   strings.NewReader("hello world"),
		"broken": io.MultiReader(strings.NewReader("he"), discreetReader{errors.New("the caller's disk")}),
	} {
		t.Run(name, func(t *testing.T) {
			o := transporttest.NewOrigin(t)
			o.Script(transporttest.Step{}, transporttest.Step{Fault: transporttest.Cut}, transporttest.Step{})
			p := retrySocketPolicy()
			tr := retryTransport(t, o.Base(), p, nil)
			if _, err := fetch(tr.Client(), retryRequest(t, http.MethodGet, o.URL, nil)); err != nil {
				t.Fatal(err)
			}
			req := retryRequest(t, http.MethodPut, o.URL, strings.NewReader("hello"))
			req.Header.Set("Idempotency-Key", "k") // or net/http would not send it again
			asked := false
			req.GetBody = func() (io.ReadCloser, error) { asked = true; return io.NopCloser(again), nil }
			resp, err := tr.RoundTrip(req)
			if err == nil {
				_ = resp.Body.Close()
			}
			answered := err == nil && name == "long" // before net/http has found that there is more
			if c := tr.Snapshot()[0].Counts; !asked || err == nil && !answered || c.Retries != 0 || c.Failure != 0 || c.Neutral != 1 {
				t.Errorf("%v, GetBody was asked: %v, %d retries, %d failures, %d neutral", err, asked, c.Retries, c.Failure, c.Neutral)
			}
		})
	}
}
