package transport_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/transporttest"
)

// bounded is a Transport over base with these limits and no other layer; it is
// closed when the test ends.
func bounded(t *testing.T, base http.RoundTripper, limits policy.Timeout) *transport.Transport {
	t.Helper()
	return under(t, transport.Config{Base: base, Default: policy.Policy{Timeout: limits}})
}

func TestTimeoutFiresExactlyAtItsLimit(t *testing.T) {
	t.Parallel()
	const limit = 700 * time.Millisecond
	big := func(r *http.Request) {
		r.Method, r.Body = http.MethodPut, io.NopCloser(bytes.NewReader(make([]byte, 4<<20)))
	}
	for name, c := range map[string]struct {
		limits  policy.Timeout
		options []transporttest.Option
		shared  bool // the connection outlives the attempt
		scheme  string
		dial    transporttest.DialHook
		proxy   string
		step    transporttest.Step
		request func(*http.Request)
		kind    error
		phase   string
		knob    string
	}{
		"connect": {
			limits: policy.Timeout{Connect: limit}, dial: transporttest.BlackHole,
			kind: transport.ErrConnectTimeout, phase: "connect", knob: "Timeout.Connect",
		},
		"connect to a silent proxy": {
			limits: policy.Timeout{Connect: limit}, scheme: "https", proxy: "http://proxy.test",
			options: []transporttest.Option{transporttest.ServeConn(silent)},
			kind:    transport.ErrConnectTimeout, phase: "connect", knob: "Timeout.Connect",
		},
		"connect to a silent SOCKS proxy": {
			limits: policy.Timeout{Connect: limit}, proxy: "socks5://proxy.test",
			options: []transporttest.Option{transporttest.ServeConn(silent)},
			kind:    transport.ErrConnectTimeout, phase: "connect", knob: "Timeout.Connect",
		},
		"TLS": {
			limits: policy.Timeout{TLSHandshake: limit}, scheme: "https",
			options: []transporttest.Option{transporttest.ServeConn(silent)},
			kind:    transport.ErrTLSTimeout, phase: "tls", knob: "Timeout.TLSHandshake",
		},
		"TLS to the proxy": {
			limits: policy.Timeout{TLSHandshake: limit}, scheme: "https", proxy: "https://proxy.test",
			options: []transporttest.Option{transporttest.ServeConn(silent)},
			kind:    transport.ErrTLSTimeout, phase: "tls", knob: "Timeout.TLSHandshake",
		},
		"HTTP/2 without its first frame": {
			limits:  policy.Timeout{Read: limit},
			options: []transporttest.Option{transporttest.TLS("h2"), transporttest.ServeConn(silent)}, shared: true,
			kind: transport.ErrReadTimeout, phase: "response_header", knob: "Timeout.Read",
		},
		"headers": {
			limits: policy.Timeout{Read: limit}, step: transporttest.Step{Fault: transporttest.Hang},
			kind: transport.ErrReadTimeout, phase: "response_header", knob: "Timeout.Read",
		},
		"headers over HTTP/2": {
			limits: policy.Timeout{Read: limit}, step: transporttest.Step{Fault: transporttest.Hang},
			options: []transporttest.Option{transporttest.TLS()}, shared: true,
			kind: transport.ErrReadTimeout, phase: "response_header", knob: "Timeout.Read",
		},
		"body": {
			limits: policy.Timeout{Read: limit}, step: transporttest.Step{Size: 1 << 20, Fault: transporttest.Hang, At: 64 << 10},
			kind: transport.ErrReadTimeout, phase: "body", knob: "Timeout.Read",
		},
		"body over HTTP/2": {
			limits: policy.Timeout{Read: limit}, step: transporttest.Step{Size: 1 << 20, Fault: transporttest.Hang, At: 64 << 10},
			options: []transporttest.Option{transporttest.TLS()}, shared: true,
			kind: transport.ErrReadTimeout, phase: "body", knob: "Timeout.Read",
		},
		"request body": {
			limits: policy.Timeout{Read: limit}, step: transporttest.Step{Unread: true, Fault: transporttest.Hang}, request: big,
			kind: transport.ErrReadTimeout, phase: "write", knob: "Timeout.Read",
		},
		"request body over HTTP/2": {
			limits: policy.Timeout{Read: limit}, step: transporttest.Step{Unread: true, Fault: transporttest.Hang}, request: big,
			options: []transporttest.Option{transporttest.TLS()}, shared: true,
			kind: transport.ErrReadTimeout, phase: "write", knob: "Timeout.Read",
		},
		"attempt": {
			limits: policy.Timeout{Connect: 2 * limit, Read: 2 * limit, Attempt: limit}, step: transporttest.Step{Fault: transporttest.Hang},
			kind: transport.ErrAttemptTimeout, phase: "attempt", knob: "Timeout.Attempt",
		},
		"attempt in the body": {
			limits: policy.Timeout{Read: 2 * limit, Attempt: limit}, step: transporttest.Step{Size: 100, Chunk: 1, Pause: 30 * time.Millisecond},
			kind: transport.ErrAttemptTimeout, phase: "attempt", knob: "Timeout.Attempt",
		},
		"total": {
			limits: policy.Timeout{Connect: 2 * limit, Read: 2 * limit, Total: limit}, step: transporttest.Step{Fault: transporttest.Hang},
			kind: transport.ErrTotalTimeout, phase: "total", knob: "Timeout.Total",
		},
		"the most specific of several": {
			limits: policy.Timeout{Read: limit, Attempt: limit, Total: limit}, step: transporttest.Step{Fault: transporttest.Hang},
			kind: transport.ErrReadTimeout, phase: "response_header", knob: "Timeout.Read",
		},
		"after phases of their own": {
			limits: policy.Timeout{Connect: limit, TLSHandshake: limit, Read: limit / 2, Attempt: limit}, dial: transporttest.DialDelay(limit / 2),
			step: transporttest.Step{Fault: transporttest.Hang}, options: []transporttest.Option{transporttest.TLS()}, shared: true,
			kind: transport.ErrReadTimeout, phase: "response_header", knob: "Timeout.Read",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				origin := transporttest.NewNet(t, nil, c.options...)
				origin.Script(c.step)
				origin.OnDial(c.dial)
				base := origin.Base()
				if c.proxy != "" {
					u, err := url.Parse(c.proxy)
					if err != nil {
						t.Fatal(err)
					}
					base.Proxy = http.ProxyURL(u)
				}
				recorder := &transporttest.Recorder{}
				tr := under(t, transport.Config{Base: base, Default: policy.Policy{Timeout: c.limits}, Observer: recorder})
				req := get(t, origin.URL)
				if c.scheme != "" {
					req.URL.Scheme = c.scheme
				}
				if c.request != nil {
					c.request(req)
				}
				start := time.Now()
				_, err := fetch(tr.Client(), req)
				mustTimeOut(t, err, c.kind, c.phase, c.knob, limitOf(c.limits, c.knob))
				mustTake(t, start, limit)
				if e := recorder.Events(transport.EventTimeout); len(e) != 1 || e[0].Phase != c.phase || e[0].Limit != limitOf(c.limits, c.knob) || e[0].Attempt != 1 {
					t.Errorf("events: %+v", e)
				}
				if n := tr.Snapshot()[0].Counts.Timeouts; n[c.phase] != 1 {
					t.Errorf("%v counted", n)
				}
				time.Sleep(time.Second) // less than any other limit on a handshake
				// A stream that ended leaves its HTTP/2 connection, and an origin that
				// does not read does not see the end.
				if opened, open := origin.Connections(); open != 0 && !c.shared && c.phase != "write" {
					t.Errorf("%d of %d connections are left open", open, opened)
				}
				if _, now, _ := origin.Dials(); now != 0 {
					t.Errorf("%d dials go on", now)
				}
			})
		})
	}
}

func limitOf(t policy.Timeout, knob string) time.Duration {
	return map[string]time.Duration{
		"Timeout.Connect": t.Connect, "Timeout.TLSHandshake": t.TLSHandshake, "Timeout.Read": t.Read,
		"Timeout.Attempt": t.Attempt, "Timeout.Total": t.Total, "Timeout.StreamIdle": t.StreamIdle,
	}[knob]
}

func TestTimeoutOfABaseOfAnyKindFiresExactlyAtItsLimit(t *testing.T) {
	t.Parallel()
	const limit = 700 * time.Millisecond
	for name, c := range map[string]struct {
		limits policy.Timeout
		step   transporttest.Step
		kind   error
		phase  string
		knob   string
	}{
		"headers": {policy.Timeout{Read: limit}, transporttest.Step{Fault: transporttest.Hang}, transport.ErrReadTimeout, "response_header", "Timeout.Read"},
		"body":    {policy.Timeout{Read: limit}, transporttest.Step{Size: 10, Fault: transporttest.Hang, At: 5}, transport.ErrReadTimeout, "body", "Timeout.Read"},
		"attempt": {policy.Timeout{Attempt: limit}, transporttest.Step{Fault: transporttest.Hang}, transport.ErrAttemptTimeout, "attempt", "Timeout.Attempt"},
		"total":   {policy.Timeout{Total: limit}, transporttest.Step{Size: 10, Fault: transporttest.Hang, At: 5}, transport.ErrTotalTimeout, "total", "Timeout.Total"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tr := bounded(t, transporttest.NewBase(c.step), c.limits)
				start := time.Now()
				_, err := fetch(tr.Client(), get(t, "http://a.test/"))
				mustTimeOut(t, err, c.kind, c.phase, c.knob, limit)
				mustTake(t, start, limit)
			})
		})
	}
}

// deaf is a base whose body does not heed the context of its request.
type deaf struct{ closed chan struct{} }

func (d *deaf) Read([]byte) (int, error) { <-d.closed; return 0, net.ErrClosed }
func (d *deaf) Close() error {
	select {
	case <-d.closed:
	default:
		close(d.closed)
	}
	return nil
}

func TestTimeoutOfABaseOfAnyKindTellsWritingFromWaiting(t *testing.T) {
	t.Parallel()
	unread := transporttest.Step{Unread: true, Fault: transporttest.Hang}
	for name, c := range map[string]struct {
		body  io.Reader
		step  transporttest.Step
		phase string
	}{
		"no body":               {nil, unread, "response_header"},
		"http.NoBody":           {http.NoBody, unread, "response_header"},
		"a small one":           {strings.NewReader("small"), unread, "response_header"},
		"a stream":              {struct{ io.Reader }{strings.NewReader("small")}, unread, "write"},
		"a stream that is read": {struct{ io.Reader }{strings.NewReader("small")}, transporttest.Step{Fault: transporttest.Hang}, "response_header"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tr := bounded(t, transporttest.NewBase(c.step), policy.Timeout{Read: time.Second})
				req, err := http.NewRequest(http.MethodPost, "http://a.test", c.body)
				if err != nil {
					t.Fatal(err)
				}
				_, err = fetch(tr.Client(), req)
				mustTimeOut(t, err, transport.ErrReadTimeout, c.phase, "Timeout.Read", time.Second)
			})
		})
	}
}

// TestTimeoutOfAnAttemptLeavesTimeForARetry: the limit on an attempt and the limit
// on the call are not the same clock.
func TestTimeoutOfAnAttemptLeavesTimeForARetry(t *testing.T) {
	t.Parallel()
	hang := transporttest.Step{Fault: transporttest.Hang}
	for name, c := range map[string]struct {
		steps []transporttest.Step
		ok    bool
	}{
		"one hang":   {[]transporttest.Step{hang, {Body: "x"}}, true},
		"only hangs": {[]transporttest.Step{hang}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				origin := transporttest.NewNet(t, nil)
				origin.Script(c.steps...)
				p := policy.Policy{Timeout: policy.Timeout{Read: 300 * time.Millisecond}}
				p.Retry = policy.Retry{MaxAttempts: 4, Base: 100 * time.Millisecond, Max: 100 * time.Millisecond}
				client := under(t, transport.Config{Base: origin.Base(), Default: p}).Client()
				client.Timeout = time.Second
				start := time.Now()
				_, err := fetch(client, get(t, origin.URL))
				if d := time.Since(start); c.ok && (err != nil || d < 350*time.Millisecond || d > 400*time.Millisecond) || d > time.Second {
					t.Errorf("%v after %v", err, d)
				}
				var n net.Error
				if !c.ok && (!errors.As(err, &n) || !n.Timeout()) {
					t.Errorf("%v: is no timeout to net.Error", err)
				}
				time.Sleep(time.Minute)
				for _, h := range origin.Hits() {
					if at := h.Time.Sub(start); at > time.Second {
						t.Errorf("an attempt at %v", at)
					}
				}
			})
		})
	}
}

func TestTimeoutEndsABodyThatDoesNotHeedItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := rt(func(r *http.Request) (*http.Response, error) {
			resp := ok(r, "")
			resp.Body = &deaf{make(chan struct{})}
			return resp, nil
		})
		tr := bounded(t, base, policy.Timeout{Read: time.Second})
		start := time.Now()
		_, err := fetch(tr.Client(), get(t, "http://a.test/"))
		mustTimeOut(t, err, transport.ErrReadTimeout, "body", "Timeout.Read", time.Second)
		mustTake(t, start, time.Second)
	})
}

func TestTimeoutOfHeadersIsNotResetByEachByte(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		origin := transporttest.NewNet(t, nil)
		origin.Script(transporttest.Step{Raw: "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", Chunk: 1, Pause: 100 * time.Millisecond})
		tr := bounded(t, origin.Base(), policy.Timeout{Read: 500 * time.Millisecond})
		start := time.Now()
		_, err := fetch(tr.Client(), get(t, origin.URL))
		mustTimeOut(t, err, transport.ErrReadTimeout, "response_header", "Timeout.Read", 500*time.Millisecond)
		mustTake(t, start, 500*time.Millisecond)
	})
}

func TestTimeoutOfHeadersIsNotResetByInterimResponses(t *testing.T) {
	t.Parallel()
	for _, opts := range [][]transporttest.Option{nil, {transporttest.TLS()}} {
		synctest.Test(t, func(t *testing.T) {
			origin := transporttest.NewNet(t, nil, opts...)
			hints := make([]transporttest.Step, 4) // net/http itself allows five
			for i := range hints {
				hints[i] = transporttest.Step{Status: http.StatusEarlyHints, Delay: 200 * time.Millisecond}
			}
			origin.Script(transporttest.Step{Interim: hints})
			tr := bounded(t, origin.Base(), policy.Timeout{Read: 500 * time.Millisecond})
			start := time.Now()
			_, err := fetch(tr.Client(), get(t, origin.URL))
			mustTimeOut(t, err, transport.ErrReadTimeout, "response_header", "Timeout.Read", 500*time.Millisecond)
			mustTake(t, start, 500*time.Millisecond)
		})
	}
}

func TestTimeoutLetsInterimResponsesPass(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		origin := transporttest.NewNet(t, nil)
		hint := transporttest.Step{Status: http.StatusEarlyHints, Delay: 100 * time.Millisecond, Header: http.Header{"Link": {"</a.css>"}}}
		origin.Script(transporttest.Step{Interim: []transporttest.Step{hint, hint, hint}, Delay: 100 * time.Millisecond})
		p := policy.Default()
		p.Timeout.Read = 500 * time.Millisecond
		tr := under(t, transport.Config{Base: origin.Base(), Default: p})
		hints := 0
		trace := &httptrace.ClientTrace{Got1xxResponse: func(int, textproto.MIMEHeader) error { hints++; return nil }}
		req := get(t, origin.URL)
		resp, err := tr.Client().Do(req.WithContext(httptrace.WithClientTrace(req.Context(), trace)))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK || hints != 3 || resp.Header["Link"] != nil {
			t.Errorf("status %d, %d hints, header %v", resp.StatusCode, hints, resp.Header)
		}
		if c := tr.Snapshot()[0].Counts; c.Success != 1 || c.Attempts != 1 || c.Failure+c.Neutral != 0 {
			t.Errorf("%+v", c)
		}
	})
}

// halting is a body whose every piece its reader has to wait for.
type halting struct {
	pieces int
	size   int
	pause  time.Duration
}

func (h *halting) Read(p []byte) (int, error) {
	if h.pieces == 0 {
		return 0, io.EOF
	}
	time.Sleep(h.pause)
	h.pieces--
	return min(h.size, len(p)), nil
}

func TestTimeoutLeavesTheCallersPausesOut(t *testing.T) {
	t.Parallel()
	for _, real := range []bool{true, false} {
		for _, length := range []int64{10, -1} {
			synctest.Test(t, func(t *testing.T) {
				step := transporttest.Step{Size: 10, Chunk: 1, Pause: 100 * time.Millisecond}
				var base http.RoundTripper = transporttest.NewBase(step)
				url := "http://a.test"
				if real {
					origin := transporttest.NewNet(t, nil)
					origin.Script(step)
					base, url = origin.Base(), origin.URL
				}
				recorder := &transporttest.Recorder{}
				p := policy.Policy{Timeout: policy.Timeout{Read: time.Second, Attempt: 2 * time.Second, Total: 2 * time.Second}}
				p.Breaker = policy.Breaker{SlowCall: 1100 * time.Millisecond, SlowRate: 1}
				tr := under(t, transport.Config{Base: base, Default: p, Observer: recorder})
				req, err := http.NewRequest(http.MethodPut, url, &halting{10, 1, time.Minute})
				if err != nil {
					t.Fatal(err)
				}
				req.ContentLength = length
				start := time.Now()
				resp, err := tr.RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				for range 10 {
					time.Sleep(time.Minute)
					if _, err := io.ReadFull(resp.Body, make([]byte, 1)); err != nil {
						t.Fatal(err)
					}
				}
				if _, err := resp.Body.Read(make([]byte, 1)); err != io.EOF {
					t.Fatal(err)
				}
				if real {
					mustTake(t, start, 20*time.Minute) // the origin sends on in the pauses
				} else {
					mustTake(t, start, 20*time.Minute+time.Second)
				}
				if e := recorder.Events(transport.EventAttemptEnd); len(e) != 1 || e[0].Slow || e[0].Verdict != policy.Success {
					t.Errorf("%+v", e)
				}
			})
		}
	}
}

func TestTimeoutOfABodyBeginsAnewWithEachPiece(t *testing.T) {
	t.Parallel()
	for _, opts := range [][]transporttest.Option{nil, {transporttest.TLS()}} {
		synctest.Test(t, func(t *testing.T) {
			origin := transporttest.NewNet(t, nil, opts...)
			origin.Script(transporttest.Step{Size: 40, Chunk: 1, Pause: 150 * time.Millisecond})
			tr := bounded(t, origin.Base(), policy.Timeout{Connect: 100 * time.Millisecond, Read: 300 * time.Millisecond})
			start := time.Now()
			got, err := fetch(tr.Client(), get(t, origin.URL))
			if err != nil || len(got) != 40 {
				t.Errorf("%d bytes, %v", len(got), err)
			}
			mustTake(t, start, 40*150*time.Millisecond)
		})
	}
}

// transfers are limits that a transfer of 2,000 bytes a second is to outlive.
func transfers() policy.Policy {
	return policy.Policy{
		Timeout: policy.Timeout{Read: 500 * time.Millisecond, Attempt: time.Second, Total: time.Second, MinThroughput: 1000},
		Breaker: policy.Breaker{SlowCall: 600 * time.Millisecond, SlowRate: 1, MinCalls: 100},
	}
}

// taking is a base that takes the request in pieces, with a pause before each.
func taking(size int, pause time.Duration) http.RoundTripper {
	return rt(func(r *http.Request) (*http.Response, error) {
		defer func() { _ = r.Body.Close() }()
		for {
			select {
			case <-r.Context().Done():
				return nil, r.Context().Err()
			case <-time.After(pause):
			}
			switch _, err := r.Body.Read(make([]byte, size)); err {
			case nil:
			case io.EOF:
				return ok(r, ""), nil
			default:
				return nil, err
			}
		}
	})
}

// put is an upload from a reader that net/http does not know.
func put(t *testing.T, url, body string) *http.Request {
	t.Helper()
	req, err := http.NewRequest(http.MethodPut, url, struct{ io.Reader }{strings.NewReader(body)})
	if err != nil {
		t.Fatal(err)
	}
	return req
}

func TestTimeoutSparesAHealthyTransfer(t *testing.T) {
	t.Parallel()
	const pause = 100 * time.Millisecond
	for name, c := range map[string]struct {
		base   http.RoundTripper
		upload string
		origin bool
	}{
		"download":                 {transporttest.NewBase(transporttest.Step{Size: 10_000, Chunk: 200, Pause: pause}), "", false},
		"download on a connection": {nil, "", true},
		"upload":                   {taking(200, pause), strings.Repeat("x", 10_000), false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				recorder := &transporttest.Recorder{}
				base, url := c.base, "http://a.test"
				if c.origin {
					origin := transporttest.NewNet(t, nil)
					origin.Script(transporttest.Step{Size: 10_000, Chunk: 200, Pause: pause})
					base, url = origin.Base(), origin.URL
				}
				tr := under(t, transport.Config{Base: base, Default: transfers(), Observer: recorder})
				req := get(t, url)
				if c.upload != "" {
					req = put(t, url, c.upload)
				}
				start := time.Now()
				if _, err := fetch(tr.Client(), req); err != nil {
					t.Fatal(err)
				}
				if d := time.Since(start); d < 5*time.Second {
					t.Errorf("took %v: no long transfer", d)
				}
				if e := recorder.Events(transport.EventAttemptEnd); len(e) != 1 || e[0].Slow || e[0].Verdict != policy.Success {
					t.Errorf("%+v", e)
				}
			})
		})
	}
}

func TestTimeoutCutsADrip(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		recorder := &transporttest.Recorder{}
		base := transporttest.NewBase(transporttest.Step{Size: 1000, Chunk: 1, Pause: 100 * time.Millisecond})
		tr := under(t, transport.Config{Base: base, Default: transfers(), Observer: recorder})
		start := time.Now()
		got, err := fetch(tr.Client(), get(t, "http://a.test"))
		mustTimeOut(t, err, transport.ErrAttemptTimeout, "attempt", "Timeout.Attempt", time.Second)
		mustTake(t, start, time.Second+10*time.Millisecond) // ten bytes at 1,000 a second
		if len(got) != 10 {
			t.Errorf("%d bytes", len(got))
		}
		if e := recorder.Events(transport.EventAttemptEnd); len(e) != 1 || !e[0].Slow || e[0].Verdict != policy.Failure {
			t.Errorf("%+v", e)
		}
	})
}

func TestTimeoutCutsAPeerThatTakesItsRequestInDrips(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tr := under(t, transport.Config{Base: taking(1, 100*time.Millisecond), Default: transfers()})
		req := put(t, "http://a.test", strings.Repeat("x", 1000))
		start := time.Now()
		_, err := fetch(tr.Client(), req)
		mustTimeOut(t, err, transport.ErrAttemptTimeout, "attempt", "Timeout.Attempt", time.Second)
		mustTake(t, start, time.Second+10*time.Millisecond)
	})
}

func TestTimeoutCountsACallAsSlowWhileItHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := policy.Policy{Timeout: policy.Timeout{Read: 3 * time.Second, Attempt: 3 * time.Second}}
		p.Breaker = policy.Breaker{SlowCall: 2 * time.Second, SlowRate: 0.5, MinCalls: 2}
		tr := under(t, transport.Config{Base: transporttest.NewBase(transporttest.Step{Fault: transporttest.Hang}), Default: p})
		for range 2 {
			go func() { _, _ = fetch(tr.Client(), get(t, "http://a.test")) }()
		}
		time.Sleep(2*time.Second - 1)
		synctest.Wait()
		if s := tr.Snapshot()[0]; s.State != transport.Closed || s.Window.Slow != 0 {
			t.Errorf("just before: %v, %+v", s.State, s.Window)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if s := tr.Snapshot()[0]; s.State != transport.Open || s.Window.Slow != 2 {
			t.Errorf("at SlowCall: %v, %+v", s.State, s.Window)
		}
		time.Sleep(time.Second)
	})
}

func TestTotalBoundsAttemptsAndWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := transporttest.NewBase(transporttest.Step{Fault: transporttest.Hang})
		p := policy.Policy{Timeout: policy.Timeout{Attempt: 2 * time.Second, Total: 3 * time.Second}}
		p.Retry = policy.Retry{MaxAttempts: 10, Base: 100 * time.Millisecond, Max: 100 * time.Millisecond}
		tr := under(t, transport.Config{Base: base, Default: p})
		start := time.Now()
		_, err := fetch(tr.Client(), get(t, "http://a.test"))
		mustTimeOut(t, err, transport.ErrTotalTimeout, "total", "Timeout.Total", 3*time.Second)
		mustTake(t, start, 3*time.Second)
		var e *transport.Error
		if errors.As(err, &e); e.Attempts != 2 || len(base.Hits()) != 2 {
			t.Errorf("%d attempts, %d hits", e.Attempts, len(base.Hits()))
		}
	})
}

func TestTotalBoundsRedirectHopsTogether(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		body    string
		timeout time.Duration
		real    bool
	}{
		"with a body":                       {"moved", 0, false},
		"with a body and Client.Timeout":    {"moved", time.Minute, false},
		"without a body":                    {"", 0, false},
		"without a body, Client.Timeout":    {"", time.Minute, false},
		"on a connection":                   {"moved", 0, true},
		"on a connection, Client.Timeout":   {"moved", time.Minute, true},
		"on a connection, without a body":   {"", 0, true},
		"on a connection, without, Timeout": {"", time.Minute, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				step := transporttest.Step{Delay: 400 * time.Millisecond, Status: http.StatusFound,
					Header: http.Header{"Location": {"/on"}}, Body: c.body}
				fake := transporttest.NewBase(step)
				base, url, hits := http.RoundTripper(fake), "http://a.test", fake.Hits
				if c.real {
					origin := transporttest.NewNet(t, nil)
					origin.Script(step)
					base, url, hits = origin.Base(), origin.URL, origin.Hits
				}
				client := bounded(t, base, policy.Timeout{Read: time.Second, Attempt: time.Second, Total: time.Second}).Client()
				client.Timeout = c.timeout
				start := time.Now()
				_, err := fetch(client, get(t, url))
				mustTimeOut(t, err, transport.ErrTotalTimeout, "total", "Timeout.Total", time.Second)
				mustTake(t, start, time.Second)
				if n := len(hits()); n != 3 {
					t.Errorf("%d hops", n)
				}
			})
		})
	}
}

func TestTotalOfARedirectedUploadKeepsWhatItsBytesEarnedAndItsPauses(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"", "moved"} {
		synctest.Test(t, func(t *testing.T) {
			base := rt(func(r *http.Request) (*http.Response, error) {
				defer r.Body.Close()
				if n, err := io.Copy(io.Discard, r.Body); n != 10_000 || err != nil {
					return nil, errors.New("short")
				}
				if r.URL.Path == "/end" {
					return ok(r, "taken"), nil
				}
				select {
				case <-time.After(5 * time.Second): // half of what 10,000 bytes earn
				case <-r.Context().Done():
					return nil, r.Context().Err()
				}
				resp := ok(r, body)
				if body == "" {
					resp.Body = http.NoBody
				}
				resp.StatusCode, resp.Header["Location"] = http.StatusTemporaryRedirect, []string{"/end"}
				return resp, nil
			})
			tr := bounded(t, base, policy.Timeout{Attempt: time.Second, Total: time.Second, MinThroughput: 1000})
			upload := func() (io.ReadCloser, error) { return io.NopCloser(&halting{10, 1000, time.Minute}), nil }
			req := get(t, "http://a.test/")
			req.Method, req.ContentLength, req.GetBody = http.MethodPut, 10_000, upload
			req.Body, _ = upload()
			if got, err := fetch(tr.Client(), req); got != "taken" || err != nil {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

func TestTotalRefusesAHopForWhichNothingIsLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := transporttest.NewBase(transporttest.Step{Delay: 3 * time.Second, Status: http.StatusFound,
			Header: http.Header{"Location": {"http://b.test/"}}})
		recorder := &transporttest.Recorder{}
		quick := policy.Policy{Timeout: policy.Timeout{Total: 2 * time.Second}}
		quick.Breaker.ConsecutiveFailures = 1
		tr := under(t, transport.Config{Base: base, Observer: recorder, Default: policy.Policy{Timeout: policy.Timeout{Total: time.Minute}},
			Hosts: map[string]policy.Policy{"b.test": quick}})
		start := time.Now()
		_, err := fetch(tr.Client(), get(t, "http://a.test/"))
		mustTimeOut(t, err, transport.ErrTotalTimeout, "total", "Timeout.Total", 2*time.Second)
		mustTake(t, start, 3*time.Second)
		if n := len(base.Hits()); n != 1 {
			t.Errorf("%d hits", n)
		}
		if s := tr.Host("http://b.test").Snapshot()[0]; s.State != transport.Closed || s.Counts.Attempts != 0 || s.Counts.Timeouts["total"] != 1 {
			t.Errorf("%v %+v", s.State, s.Counts)
		}
	})
}

func TestTotalLeavesTheHopsOfAnotherCallAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := transporttest.NewBase(transporttest.Step{Delay: 900 * time.Millisecond})
		tr := bounded(t, base, policy.Timeout{Total: time.Second})
		for range 3 {
			if _, err := fetch(tr.Client(), get(t, "http://a.test/")); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestTimeoutOfOneCallDiffersFromItsHost(t *testing.T) {
	t.Parallel()
	const host = 2 * time.Second
	limits := policy.Timeout{Read: host, Attempt: 2 * host, Total: 3 * host}
	for name, c := range map[string]struct {
		call transport.Call
		step transporttest.Step
		kind error
		knob string
		at   time.Duration
	}{
		"shorter":            {transport.Call{Timeout: policy.Timeout{Read: time.Second}}, transporttest.Step{Fault: transporttest.Hang}, transport.ErrReadTimeout, "Timeout.Read", time.Second},
		"longer":             {transport.Call{Timeout: policy.Timeout{Read: 3 * host, Attempt: 2500 * time.Millisecond}}, transporttest.Step{Fault: transporttest.Hang}, transport.ErrAttemptTimeout, "Timeout.Attempt", 2500 * time.Millisecond},
		"the rest is kept":   {transport.Call{Timeout: policy.Timeout{Read: time.Minute, Attempt: time.Minute}}, transporttest.Step{Fault: transporttest.Hang}, transport.ErrTotalTimeout, "Timeout.Total", 3 * host},
		"nothing":            {transport.Call{NoStale: true}, transporttest.Step{Fault: transporttest.Hang}, transport.ErrReadTimeout, "Timeout.Read", host},
		"shadow":             {transport.Call{Timeout: policy.Timeout{Shadow: true}}, transporttest.Step{Delay: time.Minute}, nil, "", time.Minute},
		"streaming":          {transport.Call{Streaming: true}, transporttest.Step{Size: 2, Chunk: 1, Pause: time.Minute}, nil, "", 2 * time.Minute},
		"streaming, idle":    {transport.Call{Streaming: true, Timeout: policy.Timeout{StreamIdle: 5 * time.Second}}, transporttest.Step{Size: 2, Chunk: 1, Pause: time.Minute}, errAny, "Timeout.StreamIdle", 5 * time.Second},
		"streaming, headers": {transport.Call{Streaming: true}, transporttest.Step{Fault: transporttest.Hang}, transport.ErrReadTimeout, "Timeout.Read", host},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tr := bounded(t, transporttest.NewBase(c.step), limits)
				req := get(t, "http://a.test/")
				start := time.Now()
				_, err := fetch(tr.Client(), req.WithContext(transport.WithCall(req.Context(), c.call)))
				mustTake(t, start, c.at)
				var e *transport.Error
				switch {
				case c.kind == nil && err != nil:
					t.Error(err)
				case c.kind != nil && (!errors.As(err, &e) || e.Knob != c.knob || c.kind != errAny && e.Kind != c.kind):
					t.Error(err)
				}
			})
		})
	}
}

// errAny stands for a kind that is not exported.
var errAny = errors.New("any")

func TestTimeoutOfOneCallMayAllowALongerHandshake(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		origin := transporttest.NewNet(t, nil, transporttest.ServeConn(silent))
		tr := bounded(t, origin.Base(), policy.Timeout{Connect: time.Second, TLSHandshake: time.Second})
		req := get(t, "https://a.test/")
		start := time.Now()
		_, err := fetch(tr.Client(), req.WithContext(transport.WithCall(req.Context(), transport.Call{Timeout: policy.Timeout{TLSHandshake: 20 * time.Second}})))
		mustTimeOut(t, err, transport.ErrTLSTimeout, "tls", "Timeout.TLSHandshake", 20*time.Second)
		mustTake(t, start, 20*time.Second)
	})
}

func TestTimeoutOfOneCallSetsItsSlowCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		recorder := &transporttest.Recorder{}
		p := policy.Policy{Breaker: policy.Breaker{SlowCall: time.Second, SlowRate: 1, MinCalls: 10}}
		tr := under(t, transport.Config{Base: transporttest.NewBase(transporttest.Step{Delay: 2 * time.Second}), Default: p, Observer: recorder})
		for _, slow := range []time.Duration{0, 3 * time.Second} {
			req := get(t, "http://a.test/")
			if _, err := fetch(tr.Client(), req.WithContext(transport.WithCall(req.Context(), transport.Call{SlowCall: slow}))); err != nil {
				t.Fatal(err)
			}
		}
		if e := recorder.Events(transport.EventAttemptEnd); len(e) != 2 || !e[0].Slow || e[1].Slow {
			t.Errorf("%+v", e)
		}
	})
}

func TestTimeoutInShadowModeOnlySaysWhatItWouldHaveDone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		origin := transporttest.NewNet(t, nil, transporttest.TLS())
		origin.OnDial(transporttest.DialDelay(10 * time.Second))
		origin.Script(transporttest.Step{Delay: 10 * time.Second, Size: 3, Chunk: 1, Pause: 10 * time.Second})
		recorder := &transporttest.Recorder{}
		limits := policy.Timeout{Connect: time.Second, TLSHandshake: time.Second, Read: time.Second, Attempt: time.Second, Total: time.Second, Shadow: true}
		tr := under(t, transport.Config{Base: origin.Base(), Default: policy.Policy{Timeout: limits}, Observer: recorder})
		got, err := fetch(tr.Client(), get(t, origin.URL))
		if got != "abc" || err != nil {
			t.Fatalf("%q, %v", got, err)
		}
		if e := recorder.Events(transport.EventTimeout); len(e) != 1 || !e[0].Shadow || e[0].Phase != "connect" {
			t.Errorf("%+v", e)
		}
		if c := tr.Snapshot()[0].Counts; c.Timeouts["connect"] != 1 {
			t.Errorf("%v", c.Timeouts)
		}
	})
}

// TestTimeoutOfTheCallerIsTheBaselines: what the caller's own deadline and
// Client.Timeout come to is what they come to without the stack.
func TestTimeoutOfTheCallerIsTheBaselines(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		step     transporttest.Step
		deadline time.Duration
		timeout  time.Duration
	}{
		"deadline, headers": {transporttest.Step{Fault: transporttest.Hang}, time.Second, 0},
		"deadline, body":    {transporttest.Step{Size: 10, Fault: transporttest.Hang, At: 5}, time.Second, 0},
		"timeout, headers":  {transporttest.Step{Fault: transporttest.Hang}, 0, time.Second},
		"timeout, body":     {transporttest.Step{Size: 10, Fault: transporttest.Hang, At: 5}, 0, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				origin := transporttest.NewNet(t, nil)
				origin.Script(c.step)
				base := origin.Base()
				tr := under(t, transport.Config{Base: base, Default: policy.Default()})
				errs := map[http.RoundTripper]error{}
				for _, rt := range []http.RoundTripper{base, tr} {
					client := &http.Client{Transport: rt, Timeout: c.timeout}
					ctx := context.Background()
					if c.deadline > 0 {
						var cancel context.CancelFunc
						ctx, cancel = context.WithTimeout(ctx, c.deadline)
						defer cancel()
					}
					start := time.Now()
					_, err := fetch(client, get(t, origin.URL).WithContext(ctx))
					mustTake(t, start, time.Second)
					errs[rt] = err
				}
				want, got := errs[base], errs[tr]
				// Which of the two ways that an http.Client has to end a request comes
				// first decides on the words of its own timeout.
				if c.timeout == 0 && got.Error() != want.Error() {
					t.Errorf("got %v, want %v", got, want)
				}
				var ours *transport.Error
				if errors.As(got, &ours) {
					t.Errorf("%v is an error of the stack's", got)
				}
				var n net.Error
				if !errors.As(got, &n) || !n.Timeout() {
					t.Errorf("%v: is no timeout to net.Error", got)
				}
				for _, is := range []error{context.DeadlineExceeded, context.Canceled} {
					if errors.Is(got, is) != errors.Is(want, is) {
						t.Errorf("Is(%v): got %v, want %v", is, errors.Is(got, is), errors.Is(want, is))
					}
				}
			})
		})
	}
}

func TestTimeoutLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // fails if a goroutine is left in it
		origin := transporttest.NewNet(t, nil)
		n := 0
		origin.ScriptFunc(func(h transporttest.Hit) transporttest.Step {
			n++
			return [...]transporttest.Step{
				{Size: 100},
				{Fault: transporttest.Hang},
				{Size: 100, Fault: transporttest.Hang, At: 50},
				{Status: http.StatusNoContent},
			}[n%4]
		})
		p := policy.Service()
		p.Breaker, p.Retry = policy.Breaker{}, policy.Retry{}
		p.Timeout.Read = 100 * time.Millisecond
		tr := under(t, transport.Config{Base: origin.Base(), Default: p})
		each := fewer(250)
		for range 4 * each {
			_, _ = fetch(tr.Client(), get(t, origin.URL))
		}
		_ = tr.Close()
		time.Sleep(time.Second)
		if opened, open := origin.Connections(); open != 0 {
			t.Errorf("%d of %d connections are open", open, opened)
		}
		if s := tr.Snapshot()[0]; s.InFlight != 0 || s.Counts.Timeouts["response_header"] != int64(each) || s.Counts.Timeouts["body"] != int64(each) {
			t.Errorf("%+v", s.Counts)
		}
	})
}

// With Read equal to Attempt, as in both presets, what took the time is to blame.
func TestTimeoutOfAHangIsThatOfItsWaitWhereAttemptIsAsLong(t *testing.T) {
	t.Parallel()
	const limit = 3 * time.Second
	for name, c := range map[string]struct {
		dial  time.Duration
		step  transporttest.Step
		kind  error
		phase string
		knob  string
	}{
		"headers":                      {0, transporttest.Step{Fault: transporttest.Hang}, transport.ErrReadTimeout, "response_header", "Timeout.Read"},
		"headers, after a quick dial":  {100 * time.Millisecond, transporttest.Step{Fault: transporttest.Hang}, transport.ErrReadTimeout, "response_header", "Timeout.Read"},
		"headers, after a slow dial":   {time.Second, transporttest.Step{Fault: transporttest.Hang}, transport.ErrAttemptTimeout, "attempt", "Timeout.Attempt"},
		"body":                         {0, transporttest.Step{Size: 9, Fault: transporttest.Hang, At: 1}, transport.ErrReadTimeout, "body", "Timeout.Read"},
		"body, after quick headers":    {0, transporttest.Step{Delay: 100 * time.Millisecond, Size: 9, Fault: transporttest.Hang, At: 1}, transport.ErrReadTimeout, "body", "Timeout.Read"},
		"body, after slow headers":     {0, transporttest.Step{Delay: time.Second, Size: 9, Fault: transporttest.Hang, At: 1}, transport.ErrAttemptTimeout, "attempt", "Timeout.Attempt"},
		"body, after pieces of it":     {0, transporttest.Step{Size: 9, Chunk: 1, Pause: 400 * time.Millisecond, Fault: transporttest.Hang, At: 2}, transport.ErrAttemptTimeout, "attempt", "Timeout.Attempt"},
		"headers, after both are slow": {time.Second, transporttest.Step{Delay: 10 * time.Second}, transport.ErrAttemptTimeout, "attempt", "Timeout.Attempt"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				origin := transporttest.NewNet(t, nil)
				origin.Script(c.step)
				origin.OnDial(transporttest.DialDelay(c.dial))
				tr := bounded(t, origin.Base(), policy.Timeout{Connect: 2 * time.Second, Read: limit, Attempt: limit})
				start := time.Now()
				_, err := fetch(tr.Client(), get(t, "http://a.test"))
				mustTimeOut(t, err, c.kind, c.phase, c.knob, limit)
				mustTake(t, start, limit)
				if n := tr.Snapshot()[0].Counts.Timeouts[c.phase]; n != 1 {
					t.Errorf("%v counted", tr.Snapshot()[0].Counts.Timeouts)
				}
				tr.CloseIdleConnections()
			})
		})
	}
}

// A proxy that speaks TLS has a handshake of its own, also before a request in the clear.
func TestTimeoutOfTheHandshakeWithAProxyIsThatOfTLS(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }() // which nobody has accepted from: the kernel has, and says nothing
	base := &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "https", Host: l.Addr().String()})}
	tr := transport.Must(transport.New(transport.Config{Base: base, Logger: quiet(),
		Default: policy.Policy{Timeout: policy.Timeout{Connect: 10 * time.Second, TLSHandshake: 50 * time.Millisecond}}}))
	defer func() { _ = tr.Close() }()
	req, err := http.NewRequest(http.MethodGet, "http://a.test/", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tr.RoundTrip(req); !errors.Is(err, transport.ErrTLSTimeout) {
		t.Errorf("%v", err)
	}
}
