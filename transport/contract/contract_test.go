package contract_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/http/httptrace"
	"net/http/httputil"
	"net/textproto"
	"net/url"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/transporttest"
)

func TestContractRequestIsNotChanged(t *testing.T) {
	transporttest.CheckLeaks(t)
	o := transporttest.NewOrigin(t)
	o.ScriptFunc(func(h transporttest.Hit) transporttest.Step {
		if h.Number%3 == 1 {
			return transporttest.Step{Status: 503, Body: "busy"}
		}
		return transporttest.Step{Body: "ok", Header: http.Header{"Cache-Control": {"max-age=60"}}}
	})
	var rec transporttest.Recorder
	p := policy.Service()
	p.Retry.Base, p.Retry.Max, p.Retry.Budget = time.Millisecond, time.Millisecond, policy.Budget{}
	p.Breaker = policy.Breaker{}
	tr := stackNew(t, transport.Config{Base: o.Base(), Default: p, Observer: &rec})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, o.URL+"/a?b=c#d", strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{"X-A": {"1", "2"}, "Cookie": {"a=b"}}
	before, header := *req, req.Header.Clone()
	stop := make(chan struct{})
	var reader sync.WaitGroup
	reader.Go(func() { // as a logger might
		for {
			select {
			case <-stop:
				return
			default:
				_ = fmt.Sprint(req.Header, req.URL)
				runtime.Gosched()
			}
		}
	})
	for i := range 100 {
		if i > 0 { // http.NewRequest gave it the first one
			if req.Body, err = req.GetBody(); err != nil {
				t.Fatal(err)
			}
		}
		before.Body = req.Body
		resp, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(resp.Body); string(b) != "ok" || err != nil {
			t.Fatalf("%q, %v", b, err)
		}
		if resp.Request != req || !reflect.DeepEqual(req.Header, header) || *req.URL != *before.URL || req.Body != before.Body ||
			req.Method != before.Method || req.Host != before.Host || req.ContentLength != before.ContentLength || req.Context() != before.Context() {
			t.Fatalf("round %d: %+v", i, req)
		}
	}
	close(stop)
	reader.Wait()
	hits := o.Hits()
	for _, h := range hits {
		if string(h.Body) != "hello" || !reflect.DeepEqual(h.Header, hits[0].Header) {
			t.Fatalf("request %d: %q %v", h.Number, h.Body, h.Header)
		}
	}
	if len(hits) != 150 {
		t.Errorf("%d requests", len(hits))
	}
	transporttest.CheckPermits(t, tr)
}

func TestContractRequestBodyIsAlwaysClosed(t *testing.T) {
	full := stackOnly(1, 0)
	for name, row := range map[string]struct {
		policy policy.Policy
		base   stackBase
		setUp  func(*transport.Transport, *http.Request) *http.Request
	}{
		"answered": {},
		"nil URL":  {setUp: func(_ *transport.Transport, r *http.Request) *http.Request { r.URL = nil; return r }, base: contractNetHTTP},
		"no host":  {setUp: func(_ *transport.Transport, r *http.Request) *http.Request { r.URL.Host = ""; return r }, base: contractNetHTTP},
		"a bad host": {setUp: func(_ *transport.Transport, r *http.Request) *http.Request {
			r.URL.Host = "a:b:c"
			return r
		}},
		"an unknown scheme": {setUp: func(_ *transport.Transport, r *http.Request) *http.Request {
			r.URL.Scheme = "gopher"
			return r
		}, base: contractNetHTTP},
		"the caller has gone": {setUp: func(_ *transport.Transport, r *http.Request) *http.Request {
			ctx, cancel := context.WithCancel(r.Context())
			cancel()
			return r.WithContext(ctx)
		}},
		"Cancel is closed": {setUp: func(_ *transport.Transport, r *http.Request) *http.Request {
			c := make(chan struct{})
			close(c)
			r.Cancel = c
			return r
		}},
		"closed": {setUp: func(tr *transport.Transport, r *http.Request) *http.Request { _ = tr.Close(); return r }},
		"breaker open": {policy: policy.Service(), setUp: func(tr *transport.Transport, r *http.Request) *http.Request {
			tr.Host(r.URL.Host).ForceOpen()
			return r
		}},
		"bulkhead full": {policy: full, setUp: func(tr *transport.Transport, r *http.Request) *http.Request {
			resp, _ := tr.RoundTrip(r.Clone(r.Context()))
			_ = resp // is still open
			return r
		}},
		"the base fails": {policy: policy.Service(), base: func(r *http.Request) (*http.Response, error) {
			_ = r.Body.Close()
			return nil, errors.New("failed")
		}},
		"the base fails, with retries": {policy: contractRetries(), base: func(r *http.Request) (*http.Response, error) {
			_, _ = io.Copy(io.Discard, r.Body)
			_ = r.Body.Close()
			return nil, errors.New("failed")
		}},
		"it hangs": {policy: policy.Service(), base: func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			_ = r.Body.Close()
			return nil, r.Context().Err()
		}},
	} {
		for kind, getBody := range map[string]bool{"": false, " with GetBody": true} {
			t.Run(name+kind, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					base := row.base
					if base == nil {
						base = func(r *http.Request) (*http.Response, error) {
							if r.Body != nil {
								_ = r.Body.Close()
							}
							return stackHello(r)
						}
					}
					tr := stackNew(t, transport.Config{Default: row.policy, Base: base})
					var bodies []*contractBody
					fresh := func() (io.ReadCloser, error) {
						b := &contractBody{Reader: strings.NewReader("hello")}
						bodies = append(bodies, b)
						return b, nil
					}
					req := stackRequest(t, t.Context(), http.MethodPut, "http://x.test/")
					if row.setUp != nil {
						req = row.setUp(tr, req)
					}
					req.Body, _ = fresh()
					req.ContentLength = 5
					if getBody {
						req.GetBody = fresh
					}
					resp, err := tr.RoundTrip(req)
					if err == nil {
						_ = resp.Body.Close()
					}
					synctest.Wait()
					for i, b := range bodies {
						if b.Closed.Load() == 0 {
							t.Errorf("body %d of %d was not closed (%v)", i+1, len(bodies), err)
						}
					}
				})
			})
		}
	}
}

func contractRetries() policy.Policy {
	p := policy.Service()
	p.Retry.Base, p.Retry.Max = time.Millisecond, time.Millisecond
	return p
}

// contractNetHTTP is a base that has no dialer to speak of.
func contractNetHTTP(r *http.Request) (*http.Response, error) {
	t := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("dialled") }}
	return t.RoundTrip(r)
}

func TestContractNilHeaderIsTolerated(t *testing.T) {
	for name, base := range map[string]http.RoundTripper{"": stackBase(func(r *http.Request) (*http.Response, error) {
		if r.Header == nil {
			return nil, errors.New("nil header")
		}
		return stackHello(r)
	})} {
		t.Run(name, func(t *testing.T) {
			var rec transporttest.Recorder
			for _, observer := range []transport.Observer{nil, &rec} {
				tr := stackNew(t, transport.Config{Base: base, Observer: observer})
				req := stackRequest(t, t.Context(), http.MethodGet, "http://x.test/")
				req.Header = nil
				resp, err := tr.RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				_ = resp.Body.Close()
				if req.Header != nil {
					t.Error("the caller's request was changed")
				}
			}
		})
	}
}

func TestContractReturnsEitherAResponseOrAnError(t *testing.T) {
	failed := errors.New("failed")
	body := &contractBody{Reader: strings.NewReader("hello")}
	for name, row := range map[string]struct {
		base stackBase
		want error
	}{
		"a base that returns both": {func(r *http.Request) (*http.Response, error) {
			return stackAnswer(r, 200, body), failed
		}, failed},
		"a base that returns neither": {func(*http.Request) (*http.Response, error) { return nil, nil }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			p := policy.Policy{Bulkhead: policy.Bulkhead{MaxConcurrent: 1}}
			tr := stackNew(t, transport.Config{Default: p, Base: row.base})
			resp, err := tr.RoundTrip(stackRequest(t, t.Context(), http.MethodPost, "http://x.test/"))
			if resp != nil || err == nil || row.want != nil && err != row.want {
				t.Errorf("%v, %v", resp, err)
			}
			stackInFlight(t, tr, 0)
		})
	}
	if body.Closed.Load() != 1 {
		t.Error("the response that came with an error was not closed")
	}
}

// A bare base may leave out what net/http always sets.
func TestContractAnswerOfABareBaseIsCompleted(t *testing.T) {
	tr := stackNew(t, transport.Config{Base: stackBase(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200}, nil
	})})
	req := stackRequest(t, t.Context(), http.MethodGet, "http://x.test/")
	resp, err := tr.RoundTrip(req)
	if err != nil || resp.Body == nil || resp.Request != req {
		t.Fatalf("%+v, %v", resp, err)
	}
	if b, err := io.ReadAll(resp.Body); len(b) != 0 || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	stackInFlight(t, tr, 0)
}

func TestContractInterimAnswersAreToldAndJudgedByNobody(t *testing.T) {
	for name, opts := range stackProtocols {
		t.Run(name, func(t *testing.T) {
			transporttest.CheckLeaks(t)
			o := transporttest.NewOrigin(t, opts...)
			hints := transporttest.Step{Status: 103, Header: http.Header{"Link": {"</a>"}}}
			o.Script(transporttest.Step{Interim: []transporttest.Step{hints, hints, hints}, Body: "ok"})
			var rec transporttest.Recorder
			tr := stackNew(t, transport.Config{Base: o.Base(), Observer: &rec})
			var codes []int
			ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
				Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
					codes = append(codes, code)
					if h.Get("Link") == "" {
						t.Error(h)
					}
					return nil
				},
			})
			resp, err := tr.RoundTrip(stackRequest(t, ctx, http.MethodGet, o.URL))
			if err != nil {
				t.Fatal(err)
			}
			if b, err := io.ReadAll(resp.Body); string(b) != "ok" || err != nil {
				t.Errorf("%q, %v", b, err)
			}
			if resp.StatusCode != 200 || resp.Header["Link"] != nil || !reflect.DeepEqual(codes, []int{103, 103, 103}) {
				t.Errorf("%v %v %v", resp.Status, resp.Header, codes)
			}
			if c := tr.Snapshot()[0].Counts; c.Success != 1 || c.Failure != 0 || c.Neutral != 0 || c.Attempts != 1 {
				t.Errorf("%+v", c)
			}
			if name == "HTTP/2" { // whose server's handlers cannot change a header safely once the client is gone
				return
			}
			// A hook that returns an error ends the call with it.
			refused := errors.New("refused by the hook")
			ctx = httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
				Got1xxResponse: func(int, textproto.MIMEHeader) error { return refused },
			})
			req := stackRequest(t, ctx, http.MethodPost, o.URL)
			if _, err := tr.RoundTrip(req); err == nil || !strings.Contains(err.Error(), refused.Error()) {
				t.Errorf("%v", err)
			}
			transporttest.CheckPermits(t, tr)
		})
	}
}

// The hooks of each attempt run in order, and none runs once RoundTrip has
// returned.
func TestContractTraceHooksRunPerAttempt(t *testing.T) {
	transporttest.CheckLeaks(t)
	o := transporttest.NewOrigin(t)
	p := policy.Service()
	p.Retry.Base, p.Retry.Max = time.Millisecond, time.Millisecond
	p.Timeout.Read = 50 * time.Millisecond
	var mu sync.Mutex
	var told []string
	returned := false
	tell := func(what string) {
		mu.Lock()
		defer mu.Unlock()
		if returned {
			t.Errorf("%s after the return", what)
		}
		told = append(told, what)
	}
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		GetConn:              func(string) { tell("get") },
		GotConn:              func(i httptrace.GotConnInfo) { tell(fmt.Sprint("got reused=", i.Reused)) },
		WroteHeaders:         func() { tell("headers") },
		WroteRequest:         func(httptrace.WroteRequestInfo) { tell("wrote") },
		GotFirstResponseByte: func() { tell("byte") },
	})
	for _, row := range []struct {
		name  string
		steps []transporttest.Step
		want  string
	}{
		{"503, 200", []transporttest.Step{{Status: 503, Body: "busy"}, {Body: "ok"}},
			"get, got reused=false, headers, wrote, byte, get, got reused=true, headers, wrote, byte"},
		{"hang, 200", []transporttest.Step{{Fault: transporttest.Hang}, {Body: "ok"}},
			"get, got reused=true, headers, wrote, get, got reused=false, headers, wrote, byte"},
	} {
		tr := stackNew(t, transport.Config{Base: o.Base(), Default: p})
		if strings.Contains(row.want[:25], "reused=true") {
			o.Script(transporttest.Step{Body: "warm"})
			_, _ = io.Copy(io.Discard, stackGet(t, tr, o.URL).Body)
		}
		o.Script(row.steps...)
		mu.Lock()
		told, returned = nil, false
		mu.Unlock()
		resp, err := tr.RoundTrip(stackRequest(t, ctx, http.MethodGet, o.URL))
		mu.Lock()
		returned = true
		got := strings.Join(told, ", ")
		mu.Unlock()
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		if got != row.want {
			t.Errorf("%s:\ngot  %s\nwant %s", row.name, got, row.want)
		}
		transporttest.CheckPermits(t, tr)
	}
}

func TestContractCloseIdleConnectionsReachesAllHosts(t *testing.T) {
	for name, opts := range stackProtocols {
		t.Run(name, func(t *testing.T) {
			transporttest.CheckLeaks(t)
			a, b := transporttest.NewOrigin(t, opts...), transporttest.NewOrigin(t, opts...)
			base := a.Base()
			base.DialContext = nil
			base.TLSClientConfig = a.TLSClientConfig()
			if base.TLSClientConfig != nil {
				base.TLSClientConfig.InsecureSkipVerify = true //nolint:gosec // of two origins of ours
			}
			tr := stackNew(t, transport.Config{Base: base})
			client := tr.Client()
			for _, o := range []*transporttest.Origin{a, b} {
				resp, err := client.Get(o.URL)
				if err != nil {
					t.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
				o.WaitOpen(1)
			}
			stackWait(t, "all connections to close", func() bool {
				client.CloseIdleConnections()
				_, openA := a.Connections()
				_, openB := b.Connections()
				return openA+openB == 0
			})
		})
	}
	t.Run("of a base that has none", func(t *testing.T) {
		stackNew(t, transport.Config{Base: stackBase(stackHello)}).Client().CloseIdleConnections()
	})
	t.Run("of a base that has its own", func(t *testing.T) {
		base := &contractCloser{}
		stackNew(t, transport.Config{Base: base}).Client().CloseIdleConnections()
		if !base.closed {
			t.Error("not forwarded")
		}
	})
}

type contractCloser struct {
	stackBase
	closed bool
}

func (c *contractCloser) CloseIdleConnections() { c.closed = true }

func TestContractNilBaseIsTheDefaultOneAndATypedNilIsRefused(t *testing.T) {
	transporttest.CheckLeaks(t)
	o := transporttest.NewOrigin(t)
	o.Script(transporttest.Step{Body: "ok"})
	tr := stackNew(t, transport.Config{})
	resp, err := tr.Client().Get(o.URL)
	if err != nil {
		t.Fatal(err)
	}
	if b, _ := io.ReadAll(resp.Body); string(b) != "ok" {
		t.Errorf("%q", b)
	}
	transporttest.CheckPermits(t, tr)
	if _, err := transport.New(transport.Config{Base: (*http.Transport)(nil)}); err == nil || !strings.Contains(err.Error(), "Base: a nil *http.Transport") {
		t.Errorf("%v", err)
	}
}

func TestContractConnectionsAreReused(t *testing.T) {
	transporttest.CheckLeaks(t)
	o := transporttest.NewOrigin(t)
	o.Script(transporttest.Step{Body: "ok"})
	for range 50 { // made and closed, they leave nothing behind
		tr := stackNew(t, transport.Config{Base: o.Base()})
		for range 5 {
			_, _ = io.Copy(io.Discard, stackGet(t, tr, o.URL).Body)
		}
		_ = tr.Close()
	}
	o.WaitOpen(0)
	used := map[int]bool{}
	for _, h := range o.Hits() { // another program may have connected by mistake
		used[h.Conn] = true
	}
	if len(used) != 50 {
		t.Errorf("%d connections for 50 transports", len(used))
	}
}

// Request.Cancel is deprecated, and works at every stage.
func TestContractRequestCancelEndsACallAtEveryStage(t *testing.T) {
	canceled := func(err error) bool { return err != nil && strings.Contains(err.Error(), "request canceled") }
	hang := func(r *http.Request) (*http.Response, error) {
		select {
		case <-r.Context().Done():
			return nil, r.Context().Err()
		case <-r.Cancel:
			return nil, errors.New("net/http: request canceled")
		}
	}
	for name, row := range map[string]struct {
		base stackBase
		hold bool
		body bool
	}{
		"in the queue":           {base: stackHello, hold: true},
		"in backoff":             {base: func(*http.Request) (*http.Response, error) { return nil, errors.New("failed") }},
		"awaiting the headers":   {base: hang},
		"reading on in the body": {base: contractStalled, body: true},
		"in a backoff after 503s": {base: func(r *http.Request) (*http.Response, error) {
			return stackAnswer(r, 503, strings.NewReader("")), nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := policy.Policy{
					Bulkhead: policy.Bulkhead{MaxConcurrent: 1, MaxWait: time.Hour},
					Retry:    policy.Retry{MaxAttempts: 10, Base: time.Hour, Max: time.Hour, Statuses: []int{503}},
				}
				tr := stackNew(t, transport.Config{Default: p, Base: row.base})
				var held *http.Response
				if row.hold {
					held = stackGet(t, tr, "http://x.test/")
				}
				req := stackRequest(t, t.Context(), http.MethodGet, "http://x.test/")
				c := make(chan struct{})
				req.Cancel = c
				time.AfterFunc(time.Second, func() { close(c) })
				start := time.Now()
				resp, err := tr.RoundTrip(req)
				if row.body && err == nil {
					_, err = resp.Body.Read(make([]byte, 1))
					_ = resp.Body.Close()
				}
				if took := time.Since(start); took != time.Second || !canceled(err) {
					t.Errorf("%v after %v", err, took)
				}
				if held != nil {
					_ = held.Body.Close()
				}
				stackInFlight(t, tr, 0)
			})
		})
	}
}

// contractStalled answers with a body that stalls, and heeds Request.Cancel.
func contractStalled(r *http.Request) (*http.Response, error) {
	return stackAnswer(r, 200, &stackFuncs{
		OnRead: func([]byte) (int, error) {
			<-r.Cancel
			return 0, errors.New("net/http: request canceled")
		},
		OnClose: func() error { return nil },
	}), nil
}

// A reverse proxy over the stack does all that one over net/http does.
func TestContractReverseProxy(t *testing.T) {
	transporttest.CheckLeaks(t)
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/upgrade":
			contractUpgrade(w, r)
		case "/events":
			w.Header().Set("Content-Type", "text/event-stream")
			for i := range 20 {
				fmt.Fprintf(w, "data: %d\n\n", i)
				w.(http.Flusher).Flush()
				time.Sleep(10 * time.Millisecond) // the peer's own time
			}
		case "/trailers":
			w.Header().Set("Trailer", "X-Sum")
			_, _ = io.Copy(w, r.Body)
			w.Header().Set("X-Sum", "1")
			w.Header().Set(http.TrailerPrefix+"X-Late", "2")
		}
	}))
	defer origin.Close()
	p := policy.Service()
	p.Timeout = policy.Timeout{Connect: 5 * time.Second, Read: 100 * time.Millisecond, Attempt: 100 * time.Millisecond, Total: 150 * time.Millisecond}
	p.Breaker.SlowCall = 90 * time.Millisecond
	p.Bulkhead.BodyIdle = 100 * time.Millisecond
	p.Fallback.MaxStale = time.Hour
	tr := stackNew(t, transport.Config{Default: p})
	target, _ := url.Parse(origin.URL)
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport: tr,
	})
	defer proxy.Close()
	client := proxy.Client()
	defer client.CloseIdleConnections()

	t.Run("upgrades, and lets them be silent", func(t *testing.T) {
		req := stackRequest(t, t.Context(), http.MethodGet, proxy.URL+"/upgrade")
		req.Header.Set("Connection", "Upgrade")
		req.Header.Set("Upgrade", "echo")
		resp, err := client.Do(req)
		if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("%v, %v", resp, err)
		}
		stackInFlight(t, tr, 0) // it gave its permit back
		rw := resp.Body.(io.ReadWriteCloser)
		b := make([]byte, 4)
		for range 2 {
			if _, err := io.WriteString(rw, "ping"); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(rw, b); string(b) != "ping" || err != nil {
				t.Fatalf("%q, %v", b, err)
			}
			time.Sleep(200 * time.Millisecond) // of silence: longer than every limit
		}
		_ = rw.Close()
	})
	t.Run("streams events", func(t *testing.T) {
		resp, err := client.Get(proxy.URL + "/events")
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if bytes.Count(b, []byte("data: ")) != 20 || err != nil {
			t.Errorf("%q, %v", b, err)
		}
	})
	t.Run("passes trailers on", func(t *testing.T) {
		resp, err := client.Post(proxy.URL+"/trailers", "text/plain", strings.NewReader("hello"))
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if string(b) != "hello" || err != nil || resp.Trailer.Get("X-Sum") != "1" || resp.Trailer.Get("X-Late") != "2" {
			t.Errorf("%q, %v, %v", b, err, resp.Trailer)
		}
	})
	transporttest.CheckPermits(t, tr)
	if s := tr.Snapshot()[0]; s.Counts.Failure != 0 || s.Counts.Retries != 0 || s.Counts.Leaked != 0 || s.Window.Slow != 0 {
		t.Errorf("%+v %+v", s.Counts, s.Window)
	}
}

// contractUpgrade echoes what comes after a 101.
func contractUpgrade(w http.ResponseWriter, _ *http.Request) {
	c, rw, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer c.Close()
	_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	_, _ = io.Copy(c, rw)
}

// What identifies a caller to one host must not reach another, on any hop, any
// attempt.
func TestContractRedirectsKeepCredentialsAtHome(t *testing.T) {
	transporttest.CheckLeaks(t)
	o := transporttest.NewOrigin(t) // plays both hosts
	o.ScriptFunc(func(h transporttest.Hit) transporttest.Step {
		switch {
		case h.Host == "a.test" && h.Path == "/same":
			return transporttest.Step{Status: 302, Header: http.Header{"Location": {"/start"}, "Set-Cookie": {"s=1"}}}
		case h.Host == "a.test":
			return transporttest.Step{Status: 302, Header: http.Header{"Location": {"http://b.test/1"}, "Cache-Control": {"max-age=60"}}}
		case h.Path == "/1":
			return transporttest.Step{Status: 302, Header: http.Header{"Location": {"http://b.test/2"}}}
		case h.Number%2 == 0:
			return transporttest.Step{Status: 503, Body: "busy"}
		}
		return transporttest.Step{Body: "ok", Header: http.Header{"Cache-Control": {"max-age=1"}}}
	})
	p := policy.Default()
	p.Retry.Base, p.Retry.Max = time.Millisecond, time.Millisecond
	p.Fallback.MaxStale = time.Hour
	tr := stackNew(t, transport.Config{Base: o.Base(), Default: p})
	client := tr.Client()
	client.Jar, _ = cookiejar.New(nil)
	for range 3 {
		req := stackRequest(t, t.Context(), http.MethodGet, "http://a.test/same")
		req.Header.Set("Authorization", "Bearer secret")
		req.Header.Set("Cookie", "mine=1")
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if b, _ := io.ReadAll(resp.Body); string(b) != "ok" {
			t.Fatalf("%v %q", resp.Status, b)
		}
		_ = resp.Body.Close()
	}
	toA, toB := 0, 0
	for _, h := range o.Hits() {
		if h.Host == "a.test" {
			toA++
			if h.Header.Get("Authorization") != "Bearer secret" || !strings.Contains(h.Header.Get("Cookie"), "mine=1") {
				t.Errorf("%s lacks the caller's credentials: %v", h.Path, h.Header)
			}
			continue
		}
		toB++
		if h.Header["Authorization"] != nil || h.Header["Cookie"] != nil {
			t.Errorf("b.test%s got %v", h.Path, h.Header)
		}
	}
	if toA != 6 || toB < 6 {
		t.Errorf("%d requests to a.test, %d to b.test", toA, toB)
	}
	transporttest.CheckPermits(t, tr)
}

// A server that refuses a large upload half-way is heard.
func TestContractEarlyAnswerToALargeUpload(t *testing.T) {
	for name, opts := range stackProtocols {
		for kind, length := range map[string]int64{"of a known length": 10 << 20, "of unknown length": -1} {
			t.Run(name+" "+kind, func(t *testing.T) {
				transporttest.CheckLeaks(t)
				o := transporttest.NewOrigin(t, opts...)
				o.Script(transporttest.Step{Status: 413, Body: "too much", Unread: true})
				tr := stackNew(t, transport.Config{Base: o.Base()})
				for range 3 {
					body := &contractBody{Reader: io.LimitReader(contractZeros{}, 10<<20)}
					req := stackRequest(t, t.Context(), http.MethodPut, o.URL)
					req.Body, req.ContentLength = body, length
					resp, err := tr.RoundTrip(req)
					if err != nil {
						if errors.Is(err, context.Canceled) {
							t.Errorf("our own cancellation: %v", err)
						}
						continue // the reset came first, as it may with net/http
					}
					b, err := io.ReadAll(resp.Body)
					if resp.StatusCode != 413 || string(b) != "too much" || err != nil {
						t.Errorf("%v %q %v", resp.Status, b, err)
					}
					_ = resp.Body.Close()
					stackWait(t, "the request's body to be closed", func() bool { return body.Closed.Load() > 0 })
				}
				transporttest.CheckPermits(t, tr)
				if c := tr.Snapshot()[0].Counts; c.Retries != 0 {
					t.Errorf("%+v", c)
				}
			})
		}
	}
}

type contractZeros struct{}

func (contractZeros) Read(p []byte) (int, error) { return len(p), nil }

// Both directions at once, for longer than every limit, at a healthy rate.
func TestContractFullDuplexIsHealthy(t *testing.T) {
	transporttest.CheckLeaks(t)
	o := transporttest.NewOrigin(t, transporttest.TLS("h2"))
	o.Script(transporttest.Step{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(200)
		w.(http.Flusher).Flush()
		b := make([]byte, 1024)
		for {
			if _, err := io.ReadFull(r.Body, b); err != nil {
				return
			}
			time.Sleep(5 * time.Millisecond) // the peer's own time
			_, _ = w.Write(b)
			w.(http.Flusher).Flush()
		}
	})})
	p := policy.Service()
	p.Timeout = policy.Timeout{Connect: 5 * time.Second, TLSHandshake: 5 * time.Second, Read: 250 * time.Millisecond,
		Attempt: 300 * time.Millisecond, Total: 300 * time.Millisecond, MinThroughput: 16 << 10} // 2 KiB a round earn 125 ms
	p.Breaker.SlowCall = 290 * time.Millisecond
	p.Bulkhead.BodyIdle = 250 * time.Millisecond
	tr := stackNew(t, transport.Config{Base: o.Base(), Default: p})
	pr, pw := io.Pipe()
	req := stackRequest(t, t.Context(), http.MethodPost, o.URL)
	req.Body = pr
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1024)
	for i := range 150 { // 750 ms of the peer's own
		if _, err := pw.Write(b); err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
		if _, err := io.ReadFull(resp.Body, b); err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
	}
	stackInFlight(t, tr, 1)
	_ = pw.Close()
	if rest, err := io.ReadAll(resp.Body); len(rest) != 0 || err != nil {
		t.Errorf("%q, %v", rest, err)
	}
	transporttest.CheckPermits(t, tr)
	if s := tr.Snapshot()[0]; s.Counts.Success != 1 || s.Window.Slow != 0 {
		t.Errorf("%+v %+v", s.Counts, s.Window)
	}
}

// An upload goes on after its answer has ended, as over net/http, and holds
// nothing meanwhile.
func TestContractUploadOutlivesItsAnswer(t *testing.T) {
	t.Run("", func(t *testing.T) { contractUploadOutlivesItsAnswer(t, false) })
	t.Run("from GetBody", func(t *testing.T) { contractUploadOutlivesItsAnswer(t, true) })
}

func contractUploadOutlivesItsAnswer(t *testing.T, refused bool) {
	transporttest.CheckLeaks(t)
	got := make(chan int64, 1)
	o := transporttest.NewOrigin(t, transporttest.H2C(), transporttest.ServeConn(func(c net.Conn) {
		n, err := contractAnswerFirst(c, refused)
		if err != nil {
			t.Error(err)
		}
		got <- n
		_, _ = io.Copy(io.Discard, c)
	}))
	tr := stackNew(t, transport.Config{Base: o.Base(), Default: policy.Service()})
	pr, pw := io.Pipe()
	req := stackRequest(t, t.Context(), http.MethodPost, o.URL)
	req.Body = pr
	if refused {
		first, hold := io.Pipe()
		defer hold.Close()
		req.Body, req.GetBody = first, func() (io.ReadCloser, error) { return pr, nil }
	}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(resp.Body); string(b) != "ok" || err != nil {
		t.Fatalf("%q, %v", b, err)
	}
	stackInFlight(t, tr, 0)
	for range 100 {
		if _, err := pw.Write(make([]byte, 10_000)); err != nil {
			t.Fatal(err)
		}
	}
	_ = pw.Close()
	if n := <-got; n != 1_000_000 {
		t.Errorf("the origin got %d bytes", n)
	}
	_ = resp.Body.Close()
	if c := tr.Snapshot()[0].Counts; c.Success != 1 || c.Failure != 0 {
		t.Errorf("%+v", c)
	}
	transporttest.CheckPermits(t, tr)
}

// contractAnswerFirst speaks HTTP/2: it answers one request in full, and then
// reads its body, whose length it returns. It may refuse one before.
func contractAnswerFirst(c net.Conn, refuse bool) (n int64, err error) {
	if _, err := io.ReadFull(c, make([]byte, len(http2.ClientPreface))); err != nil {
		return 0, err
	}
	f := http2.NewFramer(c, c)
	if err := f.WriteSettings(); err != nil {
		return 0, err
	}
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return n, err
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				err = f.WriteSettingsAck()
			}
		case *http2.HeadersFrame:
			if refuse {
				refuse = false
				err = f.WriteRSTStream(frame.StreamID, http2.ErrCodeRefusedStream)
				break
			}
			err = errors.Join(
				f.WriteHeaders(http2.HeadersFrameParam{StreamID: frame.StreamID, EndHeaders: true, BlockFragment: []byte{0x88}}), // :status 200
				f.WriteData(frame.StreamID, true, []byte("ok")))
		case *http2.DataFrame:
			size := uint32(len(frame.Data()))
			n += int64(size)
			switch {
			case frame.StreamEnded():
				return n, nil
			case size > 0:
				err = errors.Join(f.WriteWindowUpdate(0, size), f.WriteWindowUpdate(frame.StreamID, size))
			}
		case *http2.RSTStreamFrame:
			return n, fmt.Errorf("reset: %v", frame.ErrCode)
		}
		if err != nil {
			return n, err
		}
	}
}

// Requests that cannot be sent are nobody's failure, and are not sent again.
func TestContractFaultsOfTheRequestAreNeutral(t *testing.T) {
	for name, change := range map[string]func(*http.Request){
		"a method that is none":                func(r *http.Request) { r.Method = "BAD METHOD" },
		"a header that is none":                func(r *http.Request) { r.Header = http.Header{"X Y": {"1"}} },
		"a header value that is none":          func(r *http.Request) { r.Header = http.Header{"X-Y": {"a\nb"}} },
		"a length without a body":              func(r *http.Request) { r.ContentLength = 7 },
		"a URL with control characters":        func(r *http.Request) { r.URL.RawQuery = "a=\x01" },
		"a body that fails":                    func(r *http.Request) { r.Body = &contractBody{Err: errors.New("mine")} },
		"a body shorter than it said":          func(r *http.Request) { r.Body, r.ContentLength = io.NopCloser(strings.NewReader("x")), 5 },
		"a body longer than it said":           func(r *http.Request) { r.Body, r.ContentLength = io.NopCloser(strings.NewReader("hello")), 1 },
		"a body longer than it said, streamed": func(r *http.Request) { r.Body, r.ContentLength = &contractBody{Reader: strings.NewReader("hello")}, 1 },
	} {
		t.Run(name, func(t *testing.T) {
			transporttest.CheckLeaks(t)
			o := transporttest.NewOrigin(t)
			o.Script(transporttest.Step{Fault: transporttest.Hang})
			tr := stackNew(t, transport.Config{Base: o.Base(), Default: contractRetries()})
			for range 3 {
				req := stackRequest(t, t.Context(), http.MethodPut, o.URL)
				change(req)
				resp, err := tr.RoundTrip(req)
				if err == nil {
					t.Fatal(resp.Status)
				}
			}
			if c := tr.Snapshot()[0].Counts; c.Failure != 0 || c.Success != 0 || c.Retries != 0 {
				t.Errorf("%+v", c)
			}
			transporttest.CheckPermits(t, tr)
		})
	}
}

// Callers leave at any moment, and the sockets with them.
func TestContractCancellationsLeaveNothingBehind(t *testing.T) {
	for name, opts := range stackProtocols {
		t.Run(name, func(t *testing.T) {
			transporttest.CheckLeaks(t)
			o := transporttest.NewOrigin(t, opts...)
			o.Script(transporttest.Step{Size: 64 << 10, Chunk: 8 << 10, Framing: transporttest.Chunked, Pause: time.Millisecond})
			p := policy.Service()
			p.Bulkhead.MaxConcurrent, p.Breaker.MinCalls = 5, 5
			p.Bulkhead.MaxWait = 20 * time.Millisecond
			tr := stackNew(t, transport.Config{Base: o.Base(), Default: p})
			_ = stackGet(t, tr, o.URL).Body.Close()
			var wg sync.WaitGroup
			var most atomic.Int64
			for g := range 20 {
				wg.Go(func() {
					for i := range 25 {
						ctx, cancel := context.WithTimeout(t.Context(), time.Duration((g*25+i)%40)*time.Millisecond/2)
						resp, err := tr.RoundTrip(stackRequest(t, ctx, http.MethodGet, o.URL))
						most.Store(max(most.Load(), int64(tr.Snapshot()[0].InFlight)))
						if err == nil {
							_, _ = io.Copy(io.Discard, resp.Body)
							_ = resp.Body.Close()
						}
						cancel()
					}
				})
			}
			wg.Wait()
			if most.Load() > 5 {
				t.Errorf("%d in flight", most.Load())
			}
			transporttest.CheckPermits(t, tr)
			tr.Host(strings.TrimPrefix(strings.TrimPrefix(o.URL, "https://"), "http://")).Reset()
			resp := stackGet(t, tr, o.URL)
			if n, err := io.Copy(io.Discard, resp.Body); n != 64<<10 || err != nil {
				t.Errorf("%d, %v", n, err)
			}
		})
	}
}
