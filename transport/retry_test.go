package transport_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/url"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/transporttest"
)

// retryPolicy retries twice, with no other layer in the way.
func retryPolicy() policy.Policy {
	return policy.Policy{Retry: policy.Retry{
		MaxAttempts:   3,
		Base:          200 * time.Millisecond,
		Max:           2 * time.Second,
		MaxRetryAfter: 10 * time.Second,
		ReplayBody:    64 << 10,
	}}
}

// retrySocketPolicy is retryPolicy for real sockets: its waits are short.
func retrySocketPolicy() policy.Policy {
	p := retryPolicy()
	p.Retry.Base = 2 * time.Millisecond
	return p
}

func retryTransport(t testing.TB, base http.RoundTripper, p policy.Policy, obs transport.Observer) *transport.Transport {
	t.Helper()
	tr, err := transport.New(transport.Config{Base: base, Default: p, Observer: obs, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = tr.Close()
		if _, ok := base.(*http.Transport); ok {
			transporttest.CheckPermits(t, tr)
		}
	})
	return tr
}

func retryRequest(t testing.TB, method, url string, body io.Reader) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// retryDo does one call that must be answered, and reads the answer.
func retryDo(t testing.TB, rt http.RoundTripper, req *http.Request) (status int, body string) {
	t.Helper()
	resp, err := rt.RoundTrip(req)
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	b, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil {
		t.Errorf("body: %v", err)
	}
	return resp.StatusCode, string(b)
}

// retryOrigins runs a test against an origin of each protocol.
func retryOrigins(t *testing.T, test func(t *testing.T, o *transporttest.Origin)) {
	for proto, opts := range map[string][]transporttest.Option{"HTTP1": nil, "HTTP2": {transporttest.TLS("h2")}} {
		t.Run(proto, func(t *testing.T) {
			transporttest.CheckLeaks(t)
			test(t, transporttest.NewOrigin(t, opts...))
		})
	}
}

func retryOneShot(s string) io.Reader { return io.MultiReader(strings.NewReader(s)) }

// A request that may have been carried out is not sent again, however it failed.
func TestRetryNeverRepeatsAnUnsafeMethod(t *testing.T) {
	transporttest.CheckLeaks(t)
	const limit = 100 * time.Millisecond
	faults := map[string]struct {
		step  transporttest.Step
		limit time.Duration
	}{
		"503":                       {step: transporttest.Step{Status: 503}},
		"no headers":                {transporttest.Step{Fault: transporttest.Hang}, limit},
		"reset":                     {step: transporttest.Step{Fault: transporttest.Reset}},
		"closed":                    {step: transporttest.Step{Fault: transporttest.Cut}},
		"body stalls":               {transporttest.Step{Size: 100, Fault: transporttest.Hang, At: 50}, limit},
		"body reset":                {step: transporttest.Step{Size: 100, Fault: transporttest.Reset, At: 50}},
		"stale connection":          {step: transporttest.Step{Fault: transporttest.Cut}},
		"first on a new connection": {step: transporttest.Step{Unread: true, Fault: transporttest.Reset}},
	}
	for proto, opts := range map[string][]transporttest.Option{"HTTP1": nil, "HTTP2": {transporttest.TLS("h2")}} {
		for fault, test := range faults {
			for _, method := range []string{http.MethodPost, http.MethodPatch, http.MethodConnect} {
				t.Run(proto+"/"+fault+"/"+method, func(t *testing.T) {
					t.Parallel()
					o := transporttest.NewOrigin(t, opts...)
					p := retrySocketPolicy()
					p.Timeout.Read = test.limit
					tr := retryTransport(t, o.Base(), p, nil)
					before := 0
					if fault == "stale connection" {
						retryDo(t, tr, retryRequest(t, http.MethodGet, o.URL, nil))
						before = 1
					}
					o.Script(test.step)
					var body io.Reader
					if method != http.MethodConnect {
						body = strings.NewReader("order")
					}
					resp, err := tr.RoundTrip(retryRequest(t, method, o.URL, body))
					if err == nil {
						_, err = io.Copy(io.Discard, resp.Body)
						_ = resp.Body.Close()
					}
					if n := len(o.WaitHits(before+1)) - before; n != 1 {
						t.Errorf("%d hits, want 1 (%v)", n, err)
					}
					if n := tr.Snapshot()[0].Counts.Retries; n != 0 {
						t.Errorf("%d retries, want none", n)
					}
					if (err == nil) != (fault == "503") {
						t.Errorf("error %v", err)
					}
				})
			}
		}
	}
}

func TestRetryRepeatsWhatIsIdempotent(t *testing.T) {
	t.Parallel()
	call := func(r *http.Request) *http.Request {
		return r.WithContext(transport.WithCall(r.Context(), transport.Call{Idempotent: true}))
	}
	header := func(h http.Header) func(*http.Request) *http.Request {
		return func(r *http.Request) *http.Request { r.Header = h; return r }
	}
	tests := []struct {
		method string
		with   func(*http.Request) *http.Request
		safe   bool
	}{
		{http.MethodGet, nil, true},
		{"", nil, true},
		{http.MethodHead, nil, true},
		{http.MethodOptions, nil, true},
		{http.MethodTrace, nil, true},
		{http.MethodPut, nil, true},
		{http.MethodDelete, nil, true},
		{http.MethodPost, nil, false},
		{http.MethodPatch, nil, false},
		{http.MethodConnect, nil, false},
		{"PROPFIND", nil, false},
		{"get", nil, false}, // methods are case-sensitive
		{http.MethodPost, header(http.Header{"Idempotency-Key": {"k"}}), true},
		{http.MethodPost, header(http.Header{"X-Idempotency-Key": {"k"}}), true},
		{http.MethodPost, header(http.Header{"Idempotency-Key": {""}}), true},
		{http.MethodPost, header(http.Header{"Idempotency-Key": {}}), true}, // not even sent
		{http.MethodPost, header(http.Header{"X-Idempotency-Key": nil}), true},
		{http.MethodPost, header(http.Header{"idempotency-key": {"k"}}), false}, // as net/http has it
		{http.MethodPatch, call, true},
	}
	for _, fault := range []transporttest.Step{
		{Status: 503}, {Fault: transporttest.Reset}, {Fault: transporttest.Hang}, {Err: io.EOF},
		{Err: &url.Error{Op: "Get", Err: &net.OpError{Op: "read", Err: syscall.ECONNRESET}}},
		{Err: context.DeadlineExceeded}, // of the base's own, such as an http.Client's
	} {
		for _, test := range tests {
			synctest.Test(t, func(t *testing.T) {
				base := transporttest.NewBase(fault, fault, transporttest.Step{})
				p := retryPolicy()
				p.Timeout.Read = time.Second
				tr := retryTransport(t, base, p, nil)
				req := retryRequest(t, test.method, "http://x.test/", nil)
				req.Method = test.method
				if test.with != nil {
					req = test.with(req)
				}
				resp, err := tr.RoundTrip(req)
				if err == nil {
					_ = resp.Body.Close()
				}
				want := 1
				if test.safe {
					want = 3
				}
				if n := len(base.Hits()); n != want {
					t.Errorf("%+v, %q %v: %d hits, want %d", fault, test.method, req.Header, n, want)
				}
			})
		}
	}
}

// retryAbort is a connection whose peer says something that is no TLS, and hangs
// up.
type retryAbort struct {
	net.Conn
	says string
}

func (c retryAbort) Write(p []byte) (int, error) { return len(p), nil }
func (c retryAbort) Read(p []byte) (int, error) {
	if c.says == "" {
		return 0, io.EOF
	}
	return copy(p, c.says), nil
}

// retrySilent is a connection whose peer says nothing.
type retrySilent struct{ net.Conn }

func (c retrySilent) Write(p []byte) (int, error) { return len(p), nil }

// Any method may be repeated when its request surely never left, and its body, of
// which there is only one, must not be closed before.
func TestRetryRepeatsAnyMethodWhoseRequestNeverLeft(t *testing.T) {
	transporttest.CheckLeaks(t)
	type dial = func(context.Context, string, string) (net.Conn, error)
	through := func(d dial, wrap func(net.Conn) net.Conn) dial {
		return func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := d(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return wrap(c), nil
		}
	}
	failures := map[string]struct {
		dial func(real dial) dial
		tls  bool
	}{
		"refused": {dial: func(real dial) dial {
			return func(ctx context.Context, network, _ string) (net.Conn, error) {
				l, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					return nil, err
				}
				_ = l.Close()
				return (&net.Dialer{}).DialContext(ctx, network, l.Addr().String())
			}
		}},
		"no such host": {dial: func(dial) dial {
			return func(context.Context, string, string) (net.Conn, error) {
				return nil, &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", IsNotFound: true}}
			}
		}},
		"connect timeout": {dial: func(dial) dial {
			return func(ctx context.Context, _, _ string) (net.Conn, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}
		}},
		"closed in the TLS handshake": {tls: true, dial: func(real dial) dial {
			return through(real, func(c net.Conn) net.Conn { return retryAbort{c, ""} })
		}},
		"nonsense in the TLS handshake": {tls: true, dial: func(real dial) dial {
			return through(real, func(c net.Conn) net.Conn { return retryAbort{c, "nonsense"} })
		}},
		"TLS timeout": {tls: true, dial: func(real dial) dial {
			return through(real, func(c net.Conn) net.Conn { return retrySilent{c} })
		}},
	}
	for name, failure := range failures {
		for _, method := range []string{http.MethodPost, http.MethodPatch} {
			t.Run(name+"/"+method, func(t *testing.T) {
				t.Parallel()
				var opts []transporttest.Option
				if failure.tls {
					opts = append(opts, transporttest.TLS())
				}
				o := transporttest.NewOrigin(t, opts...)
				body := newReplayBody(strings.Repeat("x", 1000))
				base := o.Base()
				real := base.DialContext
				var dials, early atomic.Int32
				base.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
					if n := dials.Add(1); n <= 2 {
						return failure.dial(real)(ctx, network, addr)
					}
					early.Store(body.closes.Load())
					return real(ctx, network, addr)
				}
				p := retrySocketPolicy()
				switch name {
				case "connect timeout":
					p.Timeout.Connect = 200 * time.Millisecond
				case "TLS timeout":
					p.Timeout.TLSHandshake = 200 * time.Millisecond
				}
				tr := retryTransport(t, base, p, nil)
				req := retryRequest(t, method, o.URL, body)
				req.ContentLength = 1000
				if status, _ := retryDo(t, tr, req); status != 200 {
					t.Fatalf("status %d, want 200 (%d dials)", status, dials.Load())
				}
				hits := o.Hits()
				if len(hits) != 1 || hits[0].BodySize != 1000 {
					t.Errorf("%d hits, want 1 with 1000 bytes", len(hits))
				}
				if early.Load() != 0 {
					t.Error("body closed before it could be sent")
				}
				replayEventually(t, func() bool { return body.closes.Load() > 0 }, "body closed")
			})
		}
	}
}

// A base that is not an *http.Transport tells by its error that it could not dial.
func TestRetryRepeatsAnyMethodThatAForeignBaseCouldNotDial(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err  error
		hits int
	}{
		{&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, 3},
		{&net.OpError{Op: "proxyconnect", Err: &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}}, 3},
		{fmt.Errorf("wrapped: %w", &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}), 3},
		{&net.OpError{Op: "read", Err: syscall.ECONNRESET}, 1},
		{io.EOF, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			base := transporttest.NewBase(transporttest.Step{Unread: true, Err: test.err})
			tr := retryTransport(t, base, retryPolicy(), nil)
			body := newReplayBody("x")
			if _, err := tr.RoundTrip(retryRequest(t, http.MethodPost, "http://x.test/", body)); !errors.Is(err, test.err) {
				t.Errorf("%v, want %v", err, test.err)
			}
			if n := len(base.Hits()); n != test.hits {
				t.Errorf("%v: %d hits, want %d", test.err, n, test.hits)
			}
			if body.closes.Load() == 0 {
				t.Errorf("%v: body never closed", test.err)
			}
		})
	}
}

// What will be the same next time is not tried again.
func TestRetryNeverRepeatsWhatIsHopeless(t *testing.T) {
	tests := map[string]struct {
		url    string // instead of the origin's
		opts   []transporttest.Option
		client func(*tls.Config)
		dials  int
	}{
		"untrusted authority": {opts: []transporttest.Option{transporttest.TLS()}, client: func(c *tls.Config) { c.RootCAs = nil }, dials: 1},
		"wrong name":          {url: "https://other.example/", opts: []transporttest.Option{transporttest.TLS()}, dials: 1},
		"expired": {opts: []transporttest.Option{transporttest.TLS()}, client: func(c *tls.Config) {
			c.Time = func() time.Time { return time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC) }
		}, dials: 1},
		"no TLS spoken": {url: "https", dials: 1},
		"scheme":        {url: "ftp://x.test/"},
		"no host":       {url: "http:///path"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			transporttest.CheckLeaks(t)
			o := transporttest.NewOrigin(t, test.opts...)
			base := o.Base()
			if test.client != nil {
				test.client(base.TLSClientConfig)
			}
			tr := retryTransport(t, base, retrySocketPolicy(), nil)
			req := retryRequest(t, http.MethodGet, o.URL, nil)
			switch {
			case test.url == "https":
				req.URL.Scheme = "https"
			case test.url != "":
				scheme, rest, _ := strings.Cut(test.url, "://")
				req.URL.Scheme = scheme
				req.URL.Host, req.URL.Path, _ = strings.Cut(rest, "/")
			}
			resp, err := tr.RoundTrip(req)
			if err == nil {
				_ = resp.Body.Close()
				t.Fatal("answered")
			}
			if n, _, _ := o.Dials(); n != test.dials {
				t.Errorf("%d dials, want %d: %v", n, test.dials, err)
			}
			var e *transport.Error
			if errors.As(err, &e) {
				t.Errorf("error of one attempt was wrapped: %v", err)
			}
			if name == "no TLS spoken" { // http.Client looks at the bare error
				_, err := tr.Client().Get(req.URL.String())
				if !errors.Is(err, http.ErrSchemeMismatch) {
					t.Errorf("%v, want http.ErrSchemeMismatch", err)
				}
			}
		})
	}
}

// What an error is about does not depend on what it is wrapped in.
func TestRetryLooksAtTheCauseOfAnError(t *testing.T) {
	t.Parallel()
	for _, cause := range []error{
		x509.UnknownAuthorityError{},
		x509.HostnameError{},
		x509.CertificateInvalidError{Reason: x509.Expired},
		&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}},
	} {
		for _, err := range []error{cause, &url.Error{Op: "Get", Err: cause}, fmt.Errorf("outer: %w", &url.Error{Op: "Get", Err: cause})} {
			synctest.Test(t, func(t *testing.T) {
				base := transporttest.NewBase(transporttest.Step{Err: err})
				tr := retryTransport(t, base, retryPolicy(), nil)
				_, got := tr.RoundTrip(retryRequest(t, http.MethodGet, "http://x.test/", nil))
				if reflect.TypeOf(got) == reflect.TypeFor[*transport.Error]() || len(base.Hits()) != 1 {
					t.Errorf("%v: %v after %d hits, want no word of attempts after 1", err, got, len(base.Hits()))
				}
			})
		}
	}
}

// A peer that does not accept the client's certificate will not do so next time.
func TestRetryNeverRepeatsARejectedClientCertificate(t *testing.T) {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		t.Run(tls.VersionName(version), func(t *testing.T) {
			transporttest.CheckLeaks(t)
			s := httptest.NewUnstartedServer(nil)
			s.TLS = &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, MaxVersion: version}
			s.Config.ErrorLog = log.New(io.Discard, "", 0)
			s.Listener = lingeringListener{s.Listener}
			s.StartTLS()
			defer s.Close()
			base := s.Client().Transport.(*http.Transport)
			base.TLSClientConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				return &s.TLS.Certificates[0], nil // which nobody has signed
			}
			var dials atomic.Int32
			base.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
				dials.Add(1)
				return (&net.Dialer{}).DialContext(ctx, network, addr)
			}
			tr := retryTransport(t, base, retrySocketPolicy(), nil)
			resp, err := tr.RoundTrip(retryRequest(t, http.MethodGet, s.URL, nil))
			if err == nil {
				_ = resp.Body.Close()
			}
			if n := dials.Load(); n != 1 || err == nil {
				t.Errorf("%d dials, want 1: %v", n, err)
			}
		})
	}
}

// lingeringListener gives connections that are closed once their peer has closed
// them. Else the request, which TLS 1.3 sends before it is rejected, is answered with
// a reset, which may destroy the alert on its way.
type lingeringListener struct{ net.Listener }

func (l lingeringListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return lingeringConn{c.(*net.TCPConn)}, nil
}

type lingeringConn struct{ *net.TCPConn }

func (c lingeringConn) Close() error {
	_ = c.CloseWrite()
	_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
	_, _ = io.Copy(io.Discard, c.TCPConn)
	return c.TCPConn.Close()
}

// A fault of the request itself is neither repeated nor held against the host.
func TestRetryNeverRepeatsABadRequest(t *testing.T) {
	retryOrigins(t, func(t *testing.T, o *transporttest.Origin) {
		tests := map[string]func(*http.Request){
			"invalid header": func(r *http.Request) { r.Header["X"] = []string{"a\nb"} },
			"invalid name":   func(r *http.Request) { r.Header["a b"] = []string{"x"} },
			"invalid method": func(r *http.Request) { r.Method = "PU T" },
			"failing body": func(r *http.Request) {
				r.Body = io.NopCloser(io.MultiReader(strings.NewReader("x"), retryBroken{}))
			},
			"body too short":                nil,
			"body too long":                 nil,
			"body too long by a byte":       nil,
			"body in memory too short":      nil,
			"body in memory too long":       nil,
			"body in memory, long and fast": nil,
		}
		sizes := map[string][2]int{ // said, sent
			"body too short": {20, 10}, "body too long": {10, 20}, "body too long by a byte": {10, 11},
			"body in memory too short": {20, 10}, "body in memory too long": {10, 20}, "body in memory, long and fast": {10, 11},
		}
		for name, change := range tests {
			t.Run(name, func(t *testing.T) {
				p := retrySocketPolicy()
				p.Breaker.ConsecutiveFailures = 1
				tr := retryTransport(t, o.Base(), p, nil)
				req := retryRequest(t, http.MethodPut, o.URL, nil)
				if size, ok := sizes[name]; ok {
					var body io.Reader = strings.NewReader(strings.Repeat("x", size[1]))
					if !strings.Contains(name, "memory") {
						body = io.MultiReader(body)
					}
					req = retryRequest(t, http.MethodPut, o.URL, body)
					req.ContentLength = int64(size[0])
				} else {
					change(req)
				}
				resp, err := tr.RoundTrip(req)
				if err == nil {
					_ = resp.Body.Close()
				}
				s := tr.Snapshot()[0]
				if s.Counts.Retries != 0 || s.State != transport.Closed {
					t.Errorf("%d retries, breaker %v, want none and closed (%v)", s.Counts.Retries, s.State, err)
				}
			})
		}
	})
}

type retryBroken struct{}

func (retryBroken) Read([]byte) (int, error) { return 0, errors.New("disk on fire") }

func TestRetryNeverRepeatsACallItsCallerEnded(t *testing.T) {
	t.Parallel()
	tests := map[string]func(*http.Request) (*http.Request, func()){
		"cancelled": func(r *http.Request) (*http.Request, func()) {
			ctx, cancel := context.WithCancel(r.Context())
			return r.WithContext(ctx), cancel
		},
		"Request.Cancel": func(r *http.Request) (*http.Request, func()) {
			c := make(chan struct{})
			r.Cancel = c
			return r, func() { close(c) }
		},
	}
	for name, test := range tests {
		for _, step := range []transporttest.Step{{Fault: transporttest.Hang}, {Delay: time.Second, Status: 503}} {
			synctest.Test(t, func(t *testing.T) {
				base := transporttest.NewBase(step)
				p := retryPolicy()
				p.Timeout.Attempt = 2 * time.Second
				rec := &transporttest.Recorder{}
				tr := retryTransport(t, base, p, rec)
				req, cancel := test(retryRequest(t, http.MethodGet, "http://x.test/", nil))
				time.AfterFunc(500*time.Millisecond, cancel)
				resp, err := tr.RoundTrip(req)
				if err == nil {
					_ = resp.Body.Close()
				}
				if n := len(base.Hits()); n != 1 || rec.Count(transport.EventRetry) != 0 {
					t.Errorf("%s, %+v: %d hits, %d retries told, want 1 and none (%v)", name, step, n, rec.Count(transport.EventRetry), err)
				}
			})
		}
	}
	synctest.Test(t, func(t *testing.T) { // by its deadline
		base := transporttest.NewBase(transporttest.Step{Fault: transporttest.Hang})
		tr := retryTransport(t, base, retryPolicy(), nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := tr.RoundTrip(retryRequest(t, http.MethodGet, "http://x.test/", nil).WithContext(ctx))
		if err != context.DeadlineExceeded || len(base.Hits()) != 1 {
			t.Errorf("%v, %d hits, want the deadline and 1", err, len(base.Hits()))
		}
	})
}

func TestRetryNeverOutlivesTheTotalTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := transporttest.NewBase(transporttest.Step{Fault: transporttest.Hang})
		p := retryPolicy()
		p.Timeout.Attempt, p.Timeout.Total = time.Second, 1500*time.Millisecond
		tr := retryTransport(t, base, p, nil)
		start := time.Now()
		_, err := tr.RoundTrip(retryRequest(t, http.MethodGet, "http://x.test/", nil))
		var e *transport.Error
		if !errors.Is(err, transport.ErrTotalTimeout) || !errors.As(err, &e) || e.Attempts != 2 || len(base.Hits()) != 2 {
			t.Errorf("%v after %d hits, want the total timeout after 2", err, len(base.Hits()))
		}
		if d := time.Since(start); d != 1500*time.Millisecond {
			t.Errorf("after %v, want 1.5s", d)
		}
	})
}

// The breaker sees every attempt; when one of them trips it, the sequence ends with
// what the host said.
func TestRetryEndsWhenItsOwnAttemptTripsTheBreaker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base, rec := transporttest.NewBase(transporttest.Step{Status: 503, Body: "sorry"}), &transporttest.Recorder{}
		p := retryPolicy()
		p.Breaker.ConsecutiveFailures = 2
		p.Breaker.OpenFor = time.Minute
		tr := retryTransport(t, base, p, rec)
		start := time.Now()
		status, body := retryDo(t, tr, retryRequest(t, http.MethodGet, "http://x.test/", nil))
		if d := time.Since(start); status != 503 || body != "sorry" || len(base.Hits()) != 2 || d > 200*time.Millisecond {
			t.Errorf("%d %q, %d hits after %v; want the second 503 without a further wait", status, body, len(base.Hits()), d)
		}
		if e := rec.Events(transport.EventRetrySuppressed); len(e) != 1 || e[0].Reason != "breaker_open" {
			t.Errorf("%+v, want one suppressed by the breaker", e)
		}
		base.Script(transporttest.Step{Fault: transporttest.Reset})
		tr.Host("x.test").Reset()
		_, err := tr.RoundTrip(retryRequest(t, http.MethodGet, "http://x.test/", nil))
		var e *transport.Error
		if !errors.Is(err, syscall.ECONNRESET) || !errors.As(err, &e) || e.Attempts != 2 {
			t.Errorf("%v, want the second reset", err)
		}
	})
}

func TestRetryNeverRepeatsARefusal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := transporttest.NewBase(transporttest.Step{Size: 10, Fault: transporttest.Hang, At: transporttest.HeadersOnly})
		p := retryPolicy()
		p.Bulkhead.MaxConcurrent = 1
		tr := retryTransport(t, base, p, nil)
		get := func() (*http.Response, error) {
			return tr.RoundTrip(retryRequest(t, http.MethodGet, "http://x.test/", nil))
		}
		held, err := get()
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if _, err := get(); !errors.Is(err, transport.ErrBulkheadFull) {
			t.Errorf("%v, want a full bulkhead", err)
		}
		tr.Host("x.test").ForceOpen()
		if _, err := get(); !errors.Is(err, transport.ErrBreakerOpen) {
			t.Errorf("%v, want an open breaker", err)
		}
		if n := len(base.Hits()); n != 1 || time.Since(start) != 0 {
			t.Errorf("%d hits after %v, want 1 and no wait", n, time.Since(start))
		}
		_ = held.Body.Close()
	})
}

func TestRetryStatuses(t *testing.T) {
	t.Parallel()
	def := map[int]bool{408: true, 429: true, 500: true, 502: true, 503: true, 504: true}
	for name, test := range map[string]struct {
		statuses []int
		retried  map[int]bool
	}{
		"default": {nil, def},
		"own":     {[]int{409, 501}, map[int]bool{409: true, 501: true}},
		"none":    {[]int{}, nil},
	} {
		for _, status := range []int{200, 204, 301, 304, 400, 401, 404, 408, 409, 425, 429, 500, 501, 502, 503, 504, 505, 599} {
			synctest.Test(t, func(t *testing.T) {
				base := transporttest.NewBase(transporttest.Step{Status: status})
				p := retryPolicy()
				p.Retry.Statuses = test.statuses
				tr := retryTransport(t, base, p, nil)
				got, _ := retryDo(t, tr, retryRequest(t, http.MethodGet, "http://x.test/", nil))
				want := 1
				if test.retried[status] {
					want = 3
				}
				if n := len(base.Hits()); n != want || got != status {
					t.Errorf("%s, %d: %d hits and status %d, want %d hits", name, status, n, got, want)
				}
			})
		}
	}
}

// Each wait is uniform in [Base/2, min(Max, Base x 2^n)].
func TestRetryWaitsWithinItsBounds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := transporttest.NewBase(transporttest.Step{Status: 503})
		p := retryPolicy()
		p.Retry.MaxAttempts, p.Retry.Base, p.Retry.Max = 6, 100*time.Millisecond, time.Second
		tr := retryTransport(t, base, p, nil)
		const rounds = 500
		for range rounds {
			retryDo(t, tr, retryRequest(t, http.MethodGet, "http://x.test/", nil))
		}
		hits := base.Hits()
		if len(hits) != rounds*6 {
			t.Fatalf("%d hits, want %d", len(hits), rounds*6)
		}
		for n, most := range []time.Duration{100, 200, 400, 800, 1000} {
			least, most := 50*time.Millisecond, most*time.Millisecond
			low, high := time.Hour, time.Duration(0)
			for i := range rounds {
				wait := hits[i*6+n+1].Time.Sub(hits[i*6+n].Time)
				low, high = min(low, wait), max(high, wait)
			}
			if low < least || high > most {
				t.Errorf("retry %d: waits from %v to %v, want them in [%v, %v]", n, low, high, least, most)
			}
			if tenth := (most - least) / 10; low > least+tenth || high < most-tenth {
				t.Errorf("retry %d: waits from %v to %v do not fill [%v, %v]", n, low, high, least, most)
			}
		}
	})
}

// A bubble of synctest begins at midnight, UTC, of 2000-01-01.
func TestRetryAfterRaisesTheWait(t *testing.T) {
	t.Parallel()
	const backoff = -1
	tests := map[string]struct {
		header []string
		after  time.Duration
	}{
		"seconds":                 {[]string{"3"}, 3 * time.Second},
		"the longest":             {[]string{"10"}, 10 * time.Second},
		"twice the same":          {[]string{"3", "3"}, 3 * time.Second},
		"IMF-fixdate":             {[]string{"Sat, 01 Jan 2000 00:00:03 GMT"}, 3 * time.Second},
		"RFC 850":                 {[]string{"Saturday, 01-Jan-00 00:00:03 GMT"}, 3 * time.Second},
		"asctime":                 {[]string{"Sat Jan  1 00:00:03 2000"}, 3 * time.Second},
		"none":                    {nil, backoff},
		"zero":                    {[]string{"0"}, backoff},
		"negative":                {[]string{"-5"}, backoff},
		"nonsense":                {[]string{"abc"}, backoff},
		"empty":                   {[]string{""}, backoff},
		"contradictory":           {[]string{"3", "4"}, backoff},
		"a date that is past":     {[]string{"Fri, 31 Dec 1999 23:59:00 GMT"}, backoff},
		"a date that is now":      {[]string{"Sat, 01 Jan 2000 00:00:00 GMT"}, backoff},
		"less than the backoff":   {[]string{"1"}, backoff},
		"fraction":                {[]string{"3.5"}, backoff},
		"a date without a zone":   {[]string{"Sat, 01 Jan 2000 00:00:03"}, backoff},
		"seconds, with spaces":    {[]string{" 3 "}, 3 * time.Second},
		"a sign":                  {[]string{"+3"}, backoff},
		"a date in another zone":  {[]string{"Sat, 01 Jan 2000 01:00:03 CET"}, backoff},
		"seconds and a unit":      {[]string{"3s"}, backoff},
		"hexadecimal":             {[]string{"0x3"}, backoff},
		"a date, and it is a lie": {[]string{"Sat, 99 Jan 2000 00:00:03 GMT"}, backoff},
	}
	for name, test := range tests {
		for _, status := range []int{408, 429, 503} {
			synctest.Test(t, func(t *testing.T) {
				base := transporttest.NewBase(
					transporttest.Step{Status: status, Header: http.Header{"Retry-After": test.header}},
					transporttest.Step{})
				p := retryPolicy()
				p.Retry.Base, p.Retry.Max = 2*time.Second, 2*time.Second // so that waits are 1 to 2 s
				tr := retryTransport(t, base, p, nil)
				if got, _ := retryDo(t, tr, retryRequest(t, http.MethodGet, "http://x.test/", nil)); got != 200 {
					t.Errorf("%s: status %d, want 200", name, got)
				}
				least, most := time.Second, 2*time.Second
				if test.after != backoff {
					least, most = test.after, test.after+p.Retry.Base
				}
				hits := base.Hits()
				if wait := hits[1].Time.Sub(hits[0].Time); wait < least || wait > most {
					t.Errorf("%s, %d: waited %v, want %v to %v", name, status, wait, least, most)
				}
			})
		}
	}
}

// A wait that is too long for the policy or for the caller is not begun: the
// response is returned as it came.
func TestRetryAfterTooLongGivesTheResponseBack(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		after    string
		deadline time.Duration
		total    time.Duration
		limit    time.Duration // MaxRetryAfter
	}{
		"above MaxRetryAfter":           {after: "11", limit: 10 * time.Second},
		"an hour":                       {after: "3600", limit: 10 * time.Second},
		"overflowing":                   {after: strings.Repeat("9", 40), limit: 10 * time.Second},
		"a date in a hundred years":     {after: "Wed, 01 Jan 2099 00:00:00 GMT", limit: 10 * time.Second},
		"above Max, no MaxRetryAfter":   {after: "3"},
		"beyond the caller's deadline":  {after: "5", limit: 10 * time.Second, deadline: time.Second},
		"at the caller's very deadline": {after: "5", limit: 10 * time.Second, deadline: 5 * time.Second},
		"beyond Total":                  {after: "5", limit: 10 * time.Second, total: 5 * time.Second},
	}
	for name, test := range tests {
		synctest.Test(t, func(t *testing.T) {
			base := transporttest.NewBase(transporttest.Step{
				Status: 503, Header: http.Header{"Retry-After": {test.after}}, Body: "busy", Trailer: http.Header{"X-T": {"1"}},
			})
			p := retryPolicy()
			p.Retry.MaxRetryAfter, p.Timeout.Total = test.limit, test.total
			tr := retryTransport(t, base, p, nil)
			req := retryRequest(t, http.MethodGet, "http://x.test/", nil)
			if test.deadline > 0 {
				ctx, cancel := context.WithTimeout(t.Context(), test.deadline)
				defer cancel()
				req = req.WithContext(ctx)
			}
			start := time.Now()
			status, body := retryDo(t, tr, req)
			if n := len(base.Hits()); status != 503 || body != "busy" || n != 1 || time.Since(start) != 0 {
				t.Errorf("%s: %d %q, %d hits, after %v; want the 503 with its body at once", name, status, body, n, time.Since(start))
			}
		})
	}
}

// Whatever a server says, a call is over in time.
func TestRetryAfterCannotParkTheCaller(t *testing.T) {
	t.Parallel()
	for _, after := range []string{"0", "1", "2", "3", "3600", "99999999999999999999", "-1", "x", "Sat, 01 Jan 2000 00:00:02 GMT", "Sat, 01 Jan 2050 00:00:00 GMT"} {
		synctest.Test(t, func(t *testing.T) {
			base := transporttest.NewBase(transporttest.Step{Status: 429, Header: http.Header{"Retry-After": {after}}})
			p := retryPolicy()
			p.Retry.MaxRetryAfter = 0 // Max takes its place
			tr := retryTransport(t, base, p, nil)
			start := time.Now()
			retryDo(t, tr, retryRequest(t, http.MethodGet, "http://x.test/", nil))
			if d := time.Since(start); d > 2*(p.Retry.Max+p.Retry.Base) {
				t.Errorf("Retry-After %q held the caller for %v", after, d)
			}
		})
	}
}

// The wait is not begun when it would outlive the deadline.
func TestRetryStopsAtTheDeadline(t *testing.T) {
	t.Parallel()
	fails := map[string]transporttest.Step{
		"status": {Status: 503, Body: "sorry", Delay: 901 * time.Millisecond},
		"error":  {Err: io.ErrUnexpectedEOF, Delay: 901 * time.Millisecond},
	}
	for name, step := range fails {
		for _, bound := range []string{"context", "Total"} {
			synctest.Test(t, func(t *testing.T) {
				base := transporttest.NewBase(step)
				p := retryPolicy() // waits at least 100 ms
				req := retryRequest(t, http.MethodGet, "http://x.test/", nil)
				if bound == "Total" {
					p.Timeout.Total = time.Second
				} else {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					req = req.WithContext(ctx)
				}
				rec := &transporttest.Recorder{}
				tr := retryTransport(t, base, p, rec)
				start := time.Now()
				resp, err := tr.RoundTrip(req)
				if d := time.Since(start); d != 901*time.Millisecond || len(base.Hits()) != 1 {
					t.Errorf("%s, %s: %d hits after %v, want 1 after 901ms", name, bound, len(base.Hits()), d)
				}
				if (err == nil) != (name == "status") || err != nil && err != io.ErrUnexpectedEOF {
					t.Errorf("%s, %s: %v", name, bound, err)
				}
				if err == nil {
					if b, err := io.ReadAll(resp.Body); string(b) != "sorry" || err != nil {
						t.Errorf("body %q, %v", b, err)
					}
					_ = resp.Body.Close()
				}
				if e := rec.Events(transport.EventRetrySuppressed); len(e) != 1 || e[0].Reason != "deadline" {
					t.Errorf("%s, %s: %+v, want one suppressed for the deadline", name, bound, e)
				}
			})
		}
	}
}

// The per-attempt limits and the total are clocks of their own: one attempt that
// hangs leaves time for another.
func TestRetryAfterATimeoutOfOneAttempt(t *testing.T) {
	t.Parallel()
	hang := transporttest.Step{Fault: transporttest.Hang}
	for _, steps := range [][]transporttest.Step{{hang, {}}, {hang}} {
		synctest.Test(t, func(t *testing.T) {
			base := transporttest.NewBase(steps...)
			p := retryPolicy()
			p.Retry.MaxAttempts = 4
			p.Timeout.Read = 300 * time.Millisecond
			tr := retryTransport(t, base, p, nil)
			client := &http.Client{Transport: tr, Timeout: time.Second}
			start := time.Now()
			resp, err := client.Get("http://x.test/")
			d := time.Since(start)
			if len(steps) == 2 {
				if err != nil || d < 400*time.Millisecond || d > 500*time.Millisecond {
					t.Errorf("%v after %v, want an answer after 300 ms and a wait of 100 to 200 ms", err, d)
				} else {
					_ = resp.Body.Close()
				}
				return
			}
			var timeout net.Error
			if !errors.As(err, &timeout) || !timeout.Timeout() || d > time.Second {
				t.Errorf("%v after %v, want a timeout within 1 s", err, d)
			}
			time.Sleep(time.Minute)
			for _, hit := range base.Hits() {
				if at := hit.Time.Sub(start); at >= time.Second {
					t.Errorf("attempt begun after %v", at)
				}
			}
		})
	}
}

func TestRetryWaitEndsWithTheCaller(t *testing.T) {
	t.Parallel()
	cause := errors.New("the user has left")
	for name, test := range map[string]struct {
		with func(*http.Request) (*http.Request, func())
		is   error
	}{
		"context": {func(r *http.Request) (*http.Request, func()) {
			ctx, cancel := context.WithCancel(r.Context())
			return r.WithContext(ctx), cancel
		}, context.Canceled},
		"cause": {func(r *http.Request) (*http.Request, func()) {
			ctx, cancel := context.WithCancelCause(r.Context())
			return r.WithContext(ctx), func() { cancel(cause) }
		}, cause},
		"Request.Cancel": {func(r *http.Request) (*http.Request, func()) {
			c := make(chan struct{})
			r.Cancel = c
			return r, func() { close(c) }
		}, nil},
	} {
		for _, step := range []transporttest.Step{{Status: 503, Body: "sorry"}, {Err: io.ErrUnexpectedEOF}} {
			synctest.Test(t, func(t *testing.T) {
				base := transporttest.NewBase(step)
				p := retryPolicy()
				p.Retry.Base, p.Retry.Max = 10*time.Second, 10*time.Second
				tr := retryTransport(t, base, p, nil)
				req, leave := test.with(retryRequest(t, http.MethodGet, "http://x.test/", nil))
				time.AfterFunc(50*time.Millisecond, leave)
				start := time.Now()
				resp, err := tr.RoundTrip(req)
				if err == nil {
					_ = resp.Body.Close()
					t.Fatalf("%s: answered", name)
				}
				if test.is != nil && !errors.Is(err, test.is) {
					t.Errorf("%s: %v, want %v", name, err, test.is)
				}
				if d := time.Since(start); d != 50*time.Millisecond || len(base.Hits()) != 1 {
					t.Errorf("%s: %d hits after %v, want 1 after 50ms", name, len(base.Hits()), d)
				}
			})
		}
	}
}

func TestRetryExhaustedReturnsTheLastResponse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := transporttest.NewBase(
			transporttest.Step{Status: 500, Body: "first"},
			transporttest.Step{Status: 502, Body: "second"},
			transporttest.Step{Status: 503, Body: `{"error":"third"}`, Framing: transporttest.Chunked, Trailer: http.Header{"X-Sum": {"7"}}},
			transporttest.Step{Status: 200},
		)
		tr := retryTransport(t, base, retryPolicy(), nil)
		req := retryRequest(t, http.MethodGet, "http://x.test/", nil)
		resp, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		if resp.StatusCode != 503 || string(b) != `{"error":"third"}` || err != nil || len(base.Hits()) != 3 {
			t.Errorf("%d %q %v after %d hits, want the third 503", resp.StatusCode, b, err, len(base.Hits()))
		}
		if resp.Trailer.Get("X-Sum") != "7" || resp.Request != req {
			t.Errorf("trailer %v, request %p, want them as without retries", resp.Trailer, resp.Request)
		}
		_ = resp.Body.Close()
	})
}

func TestRetryExhaustedReturnsTheLastErrorWithItsAttempts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := transporttest.NewBase(transporttest.Step{Err: io.EOF}, transporttest.Step{Status: 503}, transporttest.Step{Fault: transporttest.Reset})
		p := retryPolicy()
		p.Timeout.Read = time.Second
		tr := retryTransport(t, base, p, nil)
		get := func() error {
			_, err := tr.RoundTrip(retryRequest(t, http.MethodGet, "http://x.test/", nil))
			return err
		}
		err := get()
		var e *transport.Error
		if !errors.As(err, &e) || e.Attempts != 3 || e.Host != "x.test:80" || e.Layer != transport.LayerRetry || !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%#v, want the reset and three attempts", err)
		}
		base.Script(transporttest.Step{Fault: transporttest.Hang})
		err = get()
		if !errors.As(err, &e) || e.Attempts != 3 || !errors.Is(err, transport.ErrReadTimeout) || !e.Timeout() {
			t.Errorf("%#v, want a timeout and three attempts", err)
		}
	})
}

// A breaker that opens, or a bulkhead that fills up, while a retry waits ends the
// sequence: what the host said last is the answer.
func TestRetryRefusedReturnsWhatTheHostSaidLast(t *testing.T) {
	t.Parallel()
	open := func(_ *testing.T, tr *transport.Transport) { tr.Host("x.test").ForceOpen() }
	fill := func(t *testing.T, tr *transport.Transport) {
		resp, err := tr.RoundTrip(retryRequest(t, http.MethodGet, "http://x.test/held", nil))
		if err != nil {
			t.Error(err)
			return
		}
		time.AfterFunc(time.Minute, func() { _ = resp.Body.Close() })
	}
	held := transporttest.Step{Size: 10, Fault: transporttest.Hang, At: transporttest.HeadersOnly}
	answer := transporttest.Step{Status: 503, Body: `{"why":"maintenance"}`, Header: http.Header{"X-Id": {"7"}}}
	for name, test := range map[string]struct {
		refuse func(*testing.T, *transport.Transport)
		at     time.Duration
		steps  []transporttest.Step // not those of held
		hits   int
		reason string
	}{
		"breaker, after an answer":        {open, 50 * time.Millisecond, []transporttest.Step{answer}, 1, "breaker_open"},
		"breaker, after an error":         {open, 50 * time.Millisecond, []transporttest.Step{{Fault: transporttest.Reset}}, 1, "breaker_open"},
		"breaker, after two answers":      {open, 250 * time.Millisecond, []transporttest.Step{{Err: io.EOF}, answer}, 2, "breaker_open"},
		"breaker, after two errors":       {open, 250 * time.Millisecond, []transporttest.Step{{Status: 500}, {Fault: transporttest.Reset}}, 2, "breaker_open"},
		"bulkhead, after an answer":       {fill, 50 * time.Millisecond, []transporttest.Step{answer}, 1, "bulkhead_full"},
		"bulkhead, after an error":        {fill, 50 * time.Millisecond, []transporttest.Step{{Fault: transporttest.Reset}}, 1, "bulkhead_full"},
		"bulkhead, after two errors":      {fill, 250 * time.Millisecond, []transporttest.Step{{Status: 500}, {Fault: transporttest.Reset}}, 2, "bulkhead_full"},
		"breaker, after an empty answer":  {open, 50 * time.Millisecond, []transporttest.Step{{Status: 503}}, 1, "breaker_open"},
		"breaker, after a chunked answer": {open, 50 * time.Millisecond, []transporttest.Step{{Status: 503, Body: "x", Framing: transporttest.Chunked}}, 1, "breaker_open"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base, rec := transporttest.NewBase(), &transporttest.Recorder{}
				var n atomic.Int32
				base.ScriptFunc(func(h transporttest.Hit) transporttest.Step {
					if h.Path == "/held" {
						return held
					}
					return test.steps[n.Add(1)-1]
				})
				p := retryPolicy()
				p.Bulkhead.MaxConcurrent = 1
				p.Retry.Max = p.Retry.Base // 100 to 200 ms
				if test.at > 200*time.Millisecond {
					p.Retry.Base, p.Retry.Max = 200*time.Millisecond, 200*time.Millisecond
				}
				tr := retryTransport(t, base, p, rec)
				go func() {
					for int(n.Load()) < len(test.steps) || tr.Snapshot()[0].InFlight > 0 {
						time.Sleep(time.Millisecond)
					}
					test.refuse(t, tr)
				}()
				resp, err := tr.RoundTrip(retryRequest(t, http.MethodGet, "http://x.test/", nil))
				if int(n.Load()) != test.hits {
					t.Fatalf("%d hits, want %d", n.Load(), test.hits)
				}
				last := test.steps[len(test.steps)-1]
				if last.Status != 0 {
					if err != nil {
						t.Fatalf("%v, want the last answer", err)
					}
					b, err := io.ReadAll(resp.Body)
					_ = resp.Body.Close()
					if resp.StatusCode != last.Status || string(b) != last.Body || err != nil {
						t.Errorf("%d %q %v, want the last answer intact", resp.StatusCode, b, err)
					}
					if resp.Header.Get("X-Id") != last.Header.Get("X-Id") {
						t.Errorf("header %v", resp.Header)
					}
				} else {
					var e *transport.Error
					if !errors.Is(err, syscall.ECONNRESET) || errors.Is(err, transport.ErrBreakerOpen) {
						t.Errorf("%v, want the last error", err)
					}
					if errors.As(err, &e); test.hits > 1 && (e == nil || e.Attempts != test.hits) {
						t.Errorf("%#v, want %d attempts in it", err, test.hits)
					}
				}
				if e := rec.Events(transport.EventRetrySuppressed); len(e) != 1 || e[0].Reason != test.reason {
					t.Errorf("%+v, want one suppressed: %s", e, test.reason)
				}
				time.Sleep(2 * time.Minute)
				transporttest.CheckPermits(t, tr)
			})
		})
	}
}

func TestRetryNeverRepeatsAfterAnAnswerWasHandedOver(t *testing.T) {
	retryOrigins(t, func(t *testing.T, o *transporttest.Origin) {
		for _, fault := range []transporttest.Fault{transporttest.Cut, transporttest.Reset} {
			before := len(o.Hits())
			o.Script(transporttest.Step{Size: 100, Fault: fault, At: 50})
			tr := retryTransport(t, o.Base(), retrySocketPolicy(), nil)
			resp, err := tr.RoundTrip(retryRequest(t, http.MethodGet, o.URL, nil))
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if err == nil || len(b) > 50 || len(o.Hits())-before != 1 {
				t.Errorf("%d bytes, %v, %d hits; want an error and 1", len(b), err, len(o.Hits())-before)
			}
			if fault == transporttest.Cut && resp.ProtoMajor == 1 && (len(b) != 50 || err != io.ErrUnexpectedEOF) {
				t.Errorf("%d bytes, %v; want 50 and io.ErrUnexpectedEOF", len(b), err)
			}
		}
	})
}

// retryBodies counts the response bodies that a base hands out, and their ends.
type retryBodies struct {
	next           http.RoundTripper
	opened, closed atomic.Int32
}

func (b *retryBodies) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.next.RoundTrip(r)
	if err == nil {
		b.opened.Add(1)
		resp.Body = &retryClosing{resp.Body, sync.OnceFunc(func() { b.closed.Add(1) })}
	}
	return resp, err
}

type retryClosing struct {
	io.ReadCloser
	close func()
}

func (c *retryClosing) Close() error {
	c.close()
	return c.ReadCloser.Close()
}

// A discarded answer gives its connection back, and its body is closed.
func TestRetryReusesTheConnectionOfADiscardedAnswer(t *testing.T) {
	for _, framing := range []transporttest.Framing{transporttest.Fixed, transporttest.Chunked} {
		synctest.Test(t, func(t *testing.T) {
			o := transporttest.NewNet(t, nil)
			fail := transporttest.Step{Status: 503, Size: 4 << 10, Framing: framing}
			largest := transporttest.Step{Status: 503, Size: 64 << 10, Framing: framing}
			o.Script(fail, largest, transporttest.Step{Size: 4 << 10})
			tr := retryTransport(t, o.Base(), retrySocketPolicy(), nil)
			if status, body := retryDo(t, tr, retryRequest(t, http.MethodGet, o.URL, nil)); status != 200 || len(body) != 4<<10 {
				t.Errorf("%d with %d bytes", status, len(body))
			}
			if n, _ := o.Connections(); n != 1 || len(o.Hits()) != 3 {
				t.Errorf("%d connections for %d requests, want 1 for 3", n, len(o.Hits()))
			}
			_ = tr.Close()
		})
	}
	synctest.Test(t, func(t *testing.T) {
		fail := transporttest.Step{Status: 503, Size: 4 << 10}
		base := &retryBodies{next: transporttest.NewBase(fail, fail, transporttest.Step{Size: 10})}
		tr := retryTransport(t, base, retryPolicy(), nil)
		retryDo(t, tr, retryRequest(t, http.MethodGet, "http://x.test/", nil))
		if o, c := base.opened.Load(), base.closed.Load(); o != 3 || c != 3 {
			t.Errorf("%d bodies closed of %d, want all 3", c, o)
		}
	})
}

// What is read of a discarded answer is bounded in bytes and in time.
func TestRetryDrainsOnlySoMuch(t *testing.T) {
	t.Parallel()
	const least, most = 100 * time.Millisecond, 200 * time.Millisecond
	for name, test := range map[string]struct {
		step transporttest.Step
		took time.Duration // to drain
	}{
		"short":            {transporttest.Step{Status: 503, Body: "x"}, 0},
		"endless":          {transporttest.Step{Status: 503, Size: 1 << 40}, 0},
		"endless, chunked": {transporttest.Step{Status: 503, Size: 1 << 40, Framing: transporttest.Chunked}, 0},
		"slow, then ends":  {transporttest.Step{Status: 503, Size: 4, Chunk: 1, Pause: 10 * time.Millisecond}, 40 * time.Millisecond},
		"drips":            {transporttest.Step{Status: 503, Size: 1 << 40, Chunk: 1, Pause: 20 * time.Millisecond}, 50 * time.Millisecond},
		"silent":           {transporttest.Step{Status: 503, Size: 10, Fault: transporttest.Hang, At: transporttest.HeadersOnly}, 50 * time.Millisecond},
		"cut":              {transporttest.Step{Status: 503, Size: 10, Fault: transporttest.Cut, At: 5}, 0},
		"stream of events": {transporttest.Step{Status: 503, Size: 1 << 40, Chunk: 1, Pause: time.Second, Header: http.Header{"Content-Type": {"text/event-stream"}}}, 50 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			inner := transporttest.NewBase(test.step, transporttest.Step{})
			base := &retryBodies{next: inner}
			tr := retryTransport(t, base, retryPolicy(), nil)
			if status, _ := retryDo(t, tr, retryRequest(t, http.MethodGet, "http://x.test/", nil)); status != 200 {
				t.Errorf("%s: status %d, want 200", name, status)
			}
			hits := inner.Hits()
			if d := hits[1].Time.Sub(hits[0].Time) - test.took; d < least || d > most {
				t.Errorf("%s: %v between the attempts, want %v and a wait of %v to %v", name, d+test.took, test.took, least, most)
			}
			if o, c := base.opened.Load(), base.closed.Load(); o != 2 || c != 2 {
				t.Errorf("%s: %d bodies closed of %d", name, c, o)
			}
			if n, _ := inner.InFlight(); n != 0 {
				t.Errorf("%s: %d bodies open", name, n)
			}
		})
	}
}

// The same over sockets, where a body that is given up costs its connection.
func TestRetryGivesUpAnEndlessAnswer(t *testing.T) {
	retryOrigins(t, func(t *testing.T, o *transporttest.Origin) {
		for _, step := range []transporttest.Step{
			{Status: 503, Size: 1 << 40, Framing: transporttest.Chunked},
			{Status: 503, Size: 1 << 40, Chunk: 1, Pause: 5 * time.Millisecond},
		} {
			o.Script(step, transporttest.Step{})
			tr := retryTransport(t, o.Base(), retrySocketPolicy(), nil)
			if status, _ := retryDo(t, tr, retryRequest(t, http.MethodGet, o.URL, nil)); status != 200 {
				t.Errorf("status %d, want 200", status)
			}
		}
	})
}

// Nothing is held while a retry waits: not the body of the discarded answer, and
// not the permit of the bulkhead.
func TestRetryHoldsNothingWhileItWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := transporttest.NewBase()
		base.ScriptFunc(func(h transporttest.Hit) transporttest.Step {
			switch {
			case h.Path == "/a" && h.Number == 1:
				return transporttest.Step{Status: 503, Size: 1 << 40}
			case h.Path == "/a" && h.Number == 3:
				return transporttest.Step{Fault: transporttest.Reset}
			}
			return transporttest.Step{}
		})
		p := retryPolicy()
		p.Retry.Base, p.Retry.Max = 2*time.Second, 2*time.Second
		p.Bulkhead.MaxConcurrent = 1
		tr := retryTransport(t, base, p, nil)
		done := make(chan int)
		go func() {
			status, _ := retryDo(t, tr, retryRequest(t, http.MethodGet, "http://x.test/a", nil))
			done <- status
		}()
		start := time.Now()
		for i := range 2 {
			time.Sleep(500*time.Millisecond + time.Duration(i)*0)
			for len(base.Hits()) != 1+2*i {
				time.Sleep(time.Millisecond)
			}
			synctest.Wait()
			if n := tr.Snapshot()[0].InFlight; n != 0 {
				t.Errorf("wait %d: %d permits held", i, n)
			}
			if n, _ := base.InFlight(); n != 0 {
				t.Errorf("wait %d: %d exchanges open", i, n)
			}
			before := time.Now()
			if status, _ := retryDo(t, tr, retryRequest(t, http.MethodGet, "http://x.test/b", nil)); status != 200 || time.Since(before) != 0 {
				t.Errorf("wait %d: another call got %d after %v", i, status, time.Since(before))
			}
		}
		if status := <-done; status != 200 || time.Since(start) < 2*time.Second {
			t.Errorf("status %d after %v", status, time.Since(start))
		}
	})
}

// retryMarker sets a header on each attempt, as a tracer does.
type retryMarker struct{ transporttest.Recorder }

func (m *retryMarker) Start(ctx context.Context, s transport.Start) context.Context {
	if s.Header != nil {
		s.Header.Set("Traceparent", fmt.Sprint(s.Attempt))
	}
	return m.Recorder.Start(ctx, s)
}

func TestRetryNeverChangesTheRequest(t *testing.T) {
	for _, obs := range []transport.Observer{nil, &retryMarker{}} {
		base := transporttest.NewBase()
		base.ScriptFunc(func(h transporttest.Hit) transporttest.Step {
			if h.Number%3 != 0 {
				return transporttest.Step{Status: 503, Body: "x"}
			}
			return transporttest.Step{}
		})
		p := retryPolicy()
		p.Retry.Base = 0
		tr := retryTransport(t, base, p, obs)
		req := retryRequest(t, http.MethodPut, "http://x.test/path?q=1", strings.NewReader("body"))
		req.Header = http.Header{"Accept": {"a", "b"}, "X-Empty": {}, "X-Nil": nil}
		req.Trailer = http.Header{"X-T": nil}
		before := *req
		header, trailer, url := req.Header.Clone(), req.Trailer.Clone(), *req.URL

		stop, reading := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(reading)
			for {
				select {
				case <-stop:
					return
				default:
					_ = req.Header.Clone()
					runtime.Gosched()
				}
			}
		}()
		for range 1000 {
			req.Body, _ = req.GetBody()
			before.Body = req.Body
			if status, _ := retryDo(t, tr, req); status != 200 {
				t.Fatal(status)
			}
			if req.Body != before.Body {
				t.Fatal("Body was replaced")
			}
		}
		close(stop)
		<-reading
		if len(base.Hits()) != 3000 {
			t.Errorf("%d hits, want 3000", len(base.Hits()))
		}
		if !reflect.DeepEqual(req.Header, header) || !reflect.DeepEqual(req.Trailer, trailer) || !reflect.DeepEqual(*req.URL, url) {
			t.Errorf("request changed: %v %v %v", req.Header, req.Trailer, req.URL)
		}
		if req.Method != before.Method || req.ContentLength != before.ContentLength || req.Host != before.Host || req.Close != before.Close {
			t.Error("request changed")
		}
		if obs != nil && (base.Hits()[1].Header.Get("Traceparent") != "2" || base.Hits()[3].Header.Get("Traceparent") != "1") {
			t.Errorf("each attempt must have a header of its own: %v", base.Hits()[1].Header)
		}
	}
}

func TestRetryTakesARequestWithoutHeader(t *testing.T) {
	t.Parallel()
	for _, obs := range []transport.Observer{nil, &retryMarker{}} {
		synctest.Test(t, func(t *testing.T) {
			base := transporttest.NewBase(transporttest.Step{Status: 503}, transporttest.Step{})
			tr := retryTransport(t, base, retryPolicy(), obs)
			req := retryRequest(t, "", "http://x.test/", nil)
			req.Method, req.Header = "", nil
			if status, _ := retryDo(t, tr, req); status != 200 || req.Header != nil || req.Method != "" {
				t.Errorf("status %d, header %v", status, req.Header)
			}
		})
	}
}

// Each attempt's request is framed as it would be without retries.
func TestRetryKeepsTheFramingOfTheRequest(t *testing.T) {
	type framed struct {
		length   int64
		encoding []string
		body     string
	}
	for name, test := range map[string]struct {
		body func() io.Reader
		set  int64 // ContentLength
		want framed
	}{
		"NoBody":          {func() io.Reader { return http.NoBody }, 0, framed{0, nil, ""}},
		"nil":             {func() io.Reader { return nil }, 0, framed{0, nil, ""}},
		"known":           {func() io.Reader { return strings.NewReader("abc") }, 3, framed{3, nil, "abc"}},
		"known, one shot": {func() io.Reader { return retryOneShot("abc") }, 3, framed{3, nil, "abc"}},
		"unknown":         {func() io.Reader { return retryOneShot("abc") }, -1, framed{-1, []string{"chunked"}, "abc"}},
		"not told":        {func() io.Reader { return retryOneShot("abc") }, 0, framed{-1, []string{"chunked"}, "abc"}},
		"not told, empty": {func() io.Reader { return retryOneShot("") }, 0, framed{-1, []string{"chunked"}, ""}},
	} {
		t.Run(name, func(t *testing.T) {
			transporttest.CheckLeaks(t)
			o := transporttest.NewOrigin(t)
			var mu sync.Mutex
			var got []framed
			o.Script(transporttest.Step{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				b, _ := io.ReadAll(r.Body)
				mu.Lock()
				defer mu.Unlock()
				got = append(got, framed{r.ContentLength, r.TransferEncoding, string(b)})
				if len(got) < 3 {
					w.WriteHeader(503)
				}
			})})
			base := o.Base()
			tr := retryTransport(t, base, retrySocketPolicy(), nil)
			for _, rt := range []http.RoundTripper{base, tr} { // the first call is without retries
				req := retryRequest(t, http.MethodPost, o.URL, test.body())
				req.Header.Set("Idempotency-Key", "k")
				req.ContentLength = test.set
				retryDo(t, rt, req)
			}
			if want := []framed{test.want, test.want, test.want}; !reflect.DeepEqual(got, want) {
				t.Errorf("%+v, want %+v", got, want)
			}
		})
	}
}

// The caller's hooks see attempt after attempt.
func TestRetryRunsTraceHooksInOrder(t *testing.T) {
	retryOrigins(t, func(t *testing.T, o *transporttest.Origin) {
		one := []string{"GetConn", "GotConn", "WroteHeaders", "WroteRequest", "GotFirstResponseByte"}
		for name, test := range map[string]struct {
			fault transporttest.Step
			hooks []string
		}{
			"status":  {transporttest.Step{Status: 503, Body: "x"}, slices.Concat(one, one)},
			"timeout": {transporttest.Step{Fault: transporttest.Hang}, slices.Concat(one[:4], one)},
		} {
			p := retrySocketPolicy()
			p.Timeout.Read = 300 * time.Millisecond
			tr := retryTransport(t, o.Base(), p, nil)
			o.Script(transporttest.Step{})
			retryDo(t, tr, retryRequest(t, http.MethodGet, o.URL, nil)) // for a connection
			o.Script(test.fault, transporttest.Step{})

			var mu sync.Mutex // guards hooks: net/http writes on a goroutine of its own
			var hooks []string
			var reused []bool // without a lock, so that the race detector sees a hook that runs late
			add := func(s string) {
				mu.Lock()
				hooks = append(hooks, s)
				mu.Unlock()
			}
			req := retryRequest(t, http.MethodGet, o.URL, nil)
			req = req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
				GetConn: func(string) { add("GetConn") },
				GotConn: func(i httptrace.GotConnInfo) {
					add("GotConn")
					reused = append(reused, i.Reused)
				},
				WroteHeaders:         func() { add("WroteHeaders") },
				WroteRequest:         func(httptrace.WroteRequestInfo) { add("WroteRequest") },
				GotFirstResponseByte: func() { add("GotFirstResponseByte") },
			}))
			if status, _ := retryDo(t, tr, req); status != 200 {
				t.Errorf("%s: status %d", name, status)
			}
			mu.Lock()
			if strings.HasPrefix(o.URL, "https:") { // HTTP/2 may be answered before it says what it wrote
				second := slices.Index(hooks[1:], "GetConn") + 1
				for _, attempt := range [][]string{hooks[:second], hooks[second:]} {
					slices.SortFunc(attempt, func(a, b string) int {
						return slices.Index(one, a) - slices.Index(one, b)
					})
				}
			}
			if !slices.Equal(hooks, test.hooks) {
				t.Errorf("%s: hooks %v, want %v", name, hooks, test.hooks)
			}
			mu.Unlock()
			// After a timeout the pool is not trusted.
			if want := []bool{true, name == "status"}; !slices.Equal(reused, want) {
				t.Errorf("%s: reused %v, want %v", name, reused, want)
			}
		}
	})
}

func TestRetryShadowOnlyReports(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := transporttest.NewBase(transporttest.Step{Status: 503, Body: "sorry"})
		rec := &transporttest.Recorder{}
		p := retryPolicy()
		p.Retry.Shadow = true
		p.Retry.Budget = policy.Budget{Ratio: 0.2}
		tr := retryTransport(t, base, p, rec)
		start := time.Now()
		const calls = policy.BudgetBurst + 2
		for range calls {
			if status, body := retryDo(t, tr, retryRequest(t, http.MethodGet, "http://x.test/", nil)); status != 503 || body != "sorry" {
				t.Errorf("%d %q, want the answer as it is", status, body)
			}
		}
		if n := len(base.Hits()); n != calls || time.Since(start) != 0 {
			t.Errorf("%d hits after %v, want %d at once", n, time.Since(start), calls)
		}
		for _, e := range rec.Events(transport.EventRetry) {
			if !e.Shadow || e.Reason != "status" || e.Delay < 100*time.Millisecond || e.Delay > 200*time.Millisecond {
				t.Errorf("%+v, want the retry that would have been", e)
			}
		}
		// It reports what it would have done, within its budget.
		if n := rec.Count(transport.EventRetry); n != policy.BudgetBurst {
			t.Errorf("%d retries reported, want %d", n, policy.BudgetBurst)
		}
		if e := rec.Events(transport.EventRetrySuppressed); len(e) != 2 || e[0].Reason != "budget" || !e[0].Shadow {
			t.Errorf("%+v, want two suppressed by the budget", e)
		}
		if c := tr.Snapshot()[0].Counts; c.Retries != 0 {
			t.Errorf("%d retries, want none", c.Retries)
		}
	})
}

// A retry in shadow mode costs nothing: not even a look whether a body has been
// let go.
func TestRetryShadowNeverWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := &replayKeeper{keep: time.Second, err: io.ErrUnexpectedEOF}
		p := retryPolicy()
		p.Retry.Shadow = true
		tr := retryTransport(t, base, p, nil)
		start := time.Now()
		_, err := tr.RoundTrip(retryRequest(t, http.MethodPut, "http://x.test/", newReplayBody("x")))
		if err != io.ErrUnexpectedEOF || time.Since(start) != 0 {
			t.Errorf("%v after %v, want the error at once", err, time.Since(start))
		}
		time.Sleep(time.Minute)
	})
}

func TestRetryTellsWhatItDoes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := transporttest.NewBase(transporttest.Step{Status: 503, Body: "x"}, transporttest.Step{Fault: transporttest.Hang}, transporttest.Step{Err: io.EOF})
		rec := &transporttest.Recorder{}
		p := retryPolicy()
		p.Timeout.Read = time.Second
		tr := retryTransport(t, base, p, rec)
		if _, err := tr.RoundTrip(retryRequest(t, http.MethodGet, "http://x.test/", nil)); err == nil {
			t.Fatal("answered")
		}
		var got []string
		for _, e := range rec.Events() {
			switch e.Kind {
			case transport.EventAttemptEnd:
				got = append(got, fmt.Sprintf("end %d", e.Attempt))
			case transport.EventRetry:
				got = append(got, fmt.Sprintf("retry %d %s", e.Attempt, e.Reason))
			case transport.EventRetrySuppressed:
				got = append(got, fmt.Sprintf("suppressed %d %s", e.Attempt, e.Reason))
			case transport.EventTimeout:
				got = append(got, "timeout "+e.Phase)
			case transport.EventCallEnd:
				got = append(got, fmt.Sprintf("call %d %s", e.Attempt, e.Outcome))
			}
		}
		want := []string{"end 1", "retry 1 status", "timeout response_header", "end 2", "retry 2 timeout", "end 3", "suppressed 3 max_attempts", "call 3 error"}
		if !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		if c := tr.Snapshot()[0].Counts; c.Calls != 1 || c.Attempts != 3 || c.Retries != 2 || c.RetriesSuppressed != 1 {
			t.Errorf("%+v", c)
		}
	})
}

// The time that is spent on discarding an answer is part of Total too.
func TestRetryTotalBoundsDiscardingToo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := transporttest.NewBase(
			transporttest.Step{Delay: 870 * time.Millisecond, Status: 503, Size: 1 << 40, Chunk: 1, Pause: 10 * time.Millisecond},
			transporttest.Step{Fault: transporttest.Hang})
		p := retryPolicy()
		p.Retry.Base, p.Retry.Max = 100*time.Millisecond, 100*time.Millisecond
		p.Timeout.Total = time.Second
		p.Timeout.Read = 900 * time.Millisecond
		tr := retryTransport(t, base, p, nil)
		for range 20 {
			start := time.Now()
			resp, err := tr.RoundTrip(retryRequest(t, http.MethodGet, "http://x.test/", nil))
			if err == nil {
				_ = resp.Body.Close()
			}
			if d := time.Since(start); d > time.Second {
				t.Fatalf("the call took %v, want 1s at most (%v)", d, err)
			}
			base.Script(
				transporttest.Step{Delay: 870 * time.Millisecond, Status: 503, Size: 1 << 40, Chunk: 1, Pause: 10 * time.Millisecond},
				transporttest.Step{Fault: transporttest.Hang})
		}
	})
}

// Bytes extend Total, those of an answer that is about to be discarded too.
func TestRetryTotalIsExtendedByWhatWasSent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slow := transporttest.Step{Delay: 950 * time.Millisecond, Status: 503, Body: "busy"}
		base := transporttest.NewBase(slow, transporttest.Step{})
		p := retryPolicy()
		p.Timeout.Total = time.Second
		p.Timeout.MinThroughput = 100 << 10
		tr := retryTransport(t, base, p, nil)
		req := retryRequest(t, http.MethodPut, "http://x.test/", strings.NewReader(strings.Repeat("x", 100<<10))) // 1 s
		if status, _ := retryDo(t, tr, req); status != 200 {
			t.Errorf("status %d, want the 200 of the retry", status)
		}
	})
}

// A server that closes idle connections as they are used: what may be sent again
// is, over a new one.
func TestRetryOutlivesAStaleConnection(t *testing.T) {
	transporttest.CheckLeaks(t)
	for _, getBody := range []bool{true, false} {
		o := transporttest.NewOrigin(t)
		o.ScriptFunc(func(h transporttest.Hit) transporttest.Step {
			if h.OnConn == 2 {
				return transporttest.Step{Fault: transporttest.Cut}
			}
			return transporttest.Step{}
		})
		tr := retryTransport(t, o.Base(), retrySocketPolicy(), nil)
		post := func(key string) (*http.Response, error) {
			var body io.Reader = strings.NewReader("order")
			if !getBody {
				body = retryOneShot("order")
			}
			req := retryRequest(t, http.MethodPost, o.URL, body)
			req.ContentLength = 5
			if key != "" {
				req.Header.Set("Idempotency-Key", key)
			}
			return tr.RoundTrip(req)
		}
		resp, err := post("")
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp, err := post(""); err == nil {
			_ = resp.Body.Close()
			t.Error("a POST that may have been carried out was answered")
		}
		if n := len(o.Hits()); n != 2 {
			t.Errorf("%d hits, want 2", n)
		}
		if resp, err = post("a"); err != nil { // on a new connection
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp, err = post("b"); err != nil { // the second on it
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		hits := o.Hits()
		if len(hits) != 5 || string(hits[4].Body) != "order" || hits[4].Conn != 3 {
			t.Errorf("%d hits, the last %+v; want 5, the last over a third connection", len(hits), hits[len(hits)-1])
		}
	}
}

// A response is never turned into an error, whatever became of its body.
func TestRetryRefusedReturnsAnAnswerThatWasNotReadToItsEnd(t *testing.T) {
	t.Parallel()
	const most = 64 << 10
	for name, test := range map[string]struct {
		step transporttest.Step
		read int
		cut  bool
	}{
		"as much as is read": {transporttest.Step{Status: 503, Size: most}, most, false},
		"more":               {transporttest.Step{Status: 503, Size: 10 * most}, most + 1, true},
		"slow":               {transporttest.Step{Status: 503, Size: 3, Chunk: 1, Pause: 20 * time.Millisecond}, 2, true},
		"hanging":            {transporttest.Step{Status: 503, Size: 3, Fault: transporttest.Hang, At: 2}, 2, true},
		"broken":             {transporttest.Step{Status: 503, Size: 3, Fault: transporttest.Reset, At: 2}, 2, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := transporttest.NewBase(test.step)
				p := retryPolicy()
				p.Bulkhead.MaxConcurrent = 1
				tr := retryTransport(t, base, p, nil)
				time.AfterFunc(80*time.Millisecond, tr.Host("x.test").ForceOpen) // in the wait, which is longer
				resp, err := tr.RoundTrip(retryRequest(t, http.MethodGet, "http://x.test/", nil))
				if err != nil {
					t.Fatalf("%v, want the answer", err)
				}
				bulkheadInFlight(t, tr, 0)
				b, err := io.ReadAll(resp.Body)
				if resp.StatusCode != 503 || len(b) != test.read || !strings.HasPrefix(string(b), "ab") {
					t.Errorf("%d and %d bytes, want 503 and %d", resp.StatusCode, len(b), test.read)
				}
				if want := map[bool]error{true: io.ErrUnexpectedEOF}[test.cut]; err != want {
					t.Errorf("the body ends with %v, want %v", err, want)
				}
				if err := resp.Body.Close(); err != nil {
					t.Error(err)
				}
				if s := tr.Snapshot()[0].Counts; len(base.Hits()) != 1 || s.RefusedOpen != 1 {
					t.Errorf("%d requests, %+v", len(base.Hits()), s)
				}
			})
		})
	}
}
