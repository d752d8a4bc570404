package transport_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/transporttest"
)

// strict has every limit at one second.
func strict() policy.Timeout {
	return policy.Timeout{Connect: time.Second, TLSHandshake: time.Second, Read: time.Second, Attempt: time.Second, Total: time.Second, MinThroughput: 1000}
}

// judged is strict with a breaker that counts, and a bulkhead that looks for
// forgotten bodies.
func judged() policy.Policy {
	return policy.Policy{
		Timeout:  strict(),
		Bulkhead: policy.Bulkhead{MaxConcurrent: 1, BodyIdle: time.Second},
		Breaker:  policy.Breaker{FailureRate: 1, MinCalls: 1, SlowCall: 500 * time.Millisecond, SlowRate: 1},
	}
}

func TestStreamIsExemptOnceItsHeadersAreIn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		contentType string
		policy      bool
		call        bool
	}{
		"events":        {contentType: "text/event-stream"},
		"events, utf-8": {contentType: "Text/Event-Stream; charset=utf-8"},
		"ndjson":        {contentType: "application/x-ndjson"},
		"jsonl":         {contentType: "application/jsonl"},
		"json-seq":      {contentType: "application/json-seq"},
		"stream+json":   {contentType: "application/stream+json ; v=1"},
		"mixed-replace": {contentType: "multipart/x-mixed-replace; boundary=x"},
		"watch":         {contentType: "application/json;stream=watch"},
		"audio":         {contentType: "audio/mpeg"},
		"video":         {contentType: "video/mp4"},
		"by policy":     {contentType: "application/json", policy: true},
		"by call":       {contentType: "application/json", call: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := transporttest.NewBase(transporttest.Step{Delay: 400 * time.Millisecond,
					Header: http.Header{"Content-Type": {c.contentType}}, Size: 3, Chunk: 1, Pause: time.Hour})
				p := judged()
				p.Streaming = c.policy
				tr := under(t, transport.Config{Base: base, Default: p})
				req := get(t, "http://a.test")
				if c.call {
					req = req.WithContext(transport.WithCall(req.Context(), transport.Call{Streaming: true}))
				}
				resp, err := tr.RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				if s := tr.Snapshot()[0]; s.Counts.Success != 1 || s.InFlight != 1 {
					t.Errorf("at the headers: %+v, %d in flight", s.Counts, s.InFlight)
				}
				time.Sleep(time.Hour) // nor is it forgotten
				b, err := io.ReadAll(resp.Body)
				if err != nil || string(b) != "abc" {
					t.Errorf("%q, %v", b, err)
				}
				_ = resp.Body.Close()
				if s := tr.Snapshot()[0]; s.Window.Slow != 0 || s.Counts.Success != 1 || s.State != transport.Closed {
					t.Errorf("at the end: %+v", s.Window)
				}
			})
		})
	}
}

func TestStreamHasItsLimitsUntilItsHeaders(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := judged()
		p.Streaming = true
		tr := under(t, transport.Config{Base: transporttest.NewBase(transporttest.Step{Fault: transporttest.Hang}), Default: p})
		start := time.Now()
		_, err := fetch(tr.Client(), get(t, "http://a.test"))
		mustTimeOut(t, err, transport.ErrReadTimeout, "response_header", "Timeout.Read", time.Second)
		mustTake(t, start, time.Second)
	})
}

func TestStreamIsNotWhatOnlyLooksLikeOne(t *testing.T) {
	t.Parallel()
	for _, contentType := range []string{"", "application/json", "text/event-streams", "application/jsonlines", "audio", "video",
		"multipart/mixed", "application/json;stream=watching", "text/plain; x=video/mp4"} {
		synctest.Test(t, func(t *testing.T) {
			base := transporttest.NewBase(transporttest.Step{Header: http.Header{"Content-Type": {contentType}}, Size: 3, Chunk: 1, Pause: time.Hour})
			tr := bounded(t, base, strict())
			_, err := fetch(tr.Client(), get(t, "http://a.test"))
			mustTimeOut(t, err, transport.ErrReadTimeout, "body", "Timeout.Read", time.Second)
		})
	}
}

func TestStreamMayBeBoundInItsSilence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		recorder := &transporttest.Recorder{}
		origin := transporttest.NewNet(t, nil)
		origin.Script(transporttest.Step{Header: http.Header{"Content-Type": {"text/event-stream"}},
			Size: 10, Chunk: 1, Pause: 4 * time.Second, Fault: transporttest.Hang, At: 3})
		p := policy.Policy{Timeout: strict()}
		p.Timeout.StreamIdle = 5 * time.Second
		tr := under(t, transport.Config{Base: origin.Base(), Default: p, Observer: recorder})
		start := time.Now()
		got, err := fetch(tr.Client(), get(t, origin.URL))
		mustTimeOut(t, err, transport.ErrStreamIdle, "body", "Timeout.StreamIdle", 5*time.Second)
		mustTake(t, start, 17*time.Second)
		if len(got) != 3 {
			t.Errorf("%d bytes", len(got))
		}
		if c := tr.Snapshot()[0].Counts; c.Timeouts["stream"] != 1 || recorder.Count(transport.EventTimeout) != 1 {
			t.Errorf("%v", c.Timeouts)
		}
	})
}

func TestStreamIdleLeavesTheReadersPausesOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := transporttest.NewBase(transporttest.Step{Header: http.Header{"Content-Type": {"text/event-stream"}}, Size: 3, Chunk: 1, Pause: time.Second})
		tr := bounded(t, base, policy.Timeout{StreamIdle: 2 * time.Second})
		resp, err := tr.RoundTrip(get(t, "http://a.test"))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		for range 3 {
			time.Sleep(time.Minute)
			if _, err := resp.Body.Read(make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestStreamIdleEndsACallWhoseOwnSideIsOpen: the request body of a bidirectional
// stream waits for its caller nearly all of the time, which must not make the
// peer's silence free.
func TestStreamIdleEndsACallWhoseOwnSideIsOpen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		origin := transporttest.NewNet(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/grpc")
			_ = http.NewResponseController(w).Flush()
			buf := make([]byte, 4)
			for {
				if _, err := io.ReadFull(r.Body, buf); err != nil {
					return
				}
				_, _ = w.Write(buf)
				_ = http.NewResponseController(w).Flush()
			}
		}), transporttest.TLS())
		limits := strict()
		limits.StreamIdle = 5 * time.Second
		tr := bounded(t, origin.Base(), limits)
		body, say := io.Pipe()
		req := get(t, origin.URL)
		req.Method, req.Body, req.Header = http.MethodPost, body, http.Header{"Content-Type": {"application/grpc"}}
		resp, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		for range 3 {
			go func() {
				time.Sleep(4 * time.Second)
				_, _ = say.Write([]byte("ping"))
			}()
			if _, err := io.ReadFull(resp.Body, make([]byte, 4)); err != nil {
				t.Fatal(err)
			}
		}
		_, err = resp.Body.Read(make([]byte, 4))
		mustTimeOut(t, err, transport.ErrStreamIdle, "body", "Timeout.StreamIdle", 5*time.Second)
		mustTake(t, start, 17*time.Second)
		_ = resp.Body.Close()
		_ = say.Close()
	})
}

func TestStreamIdleInShadowModeOnlySaysWhatItWouldHaveDone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		recorder := &transporttest.Recorder{}
		base := transporttest.NewBase(transporttest.Step{Header: http.Header{"Content-Type": {"text/event-stream"}}, Size: 3, Chunk: 1, Pause: time.Minute})
		p := policy.Policy{Timeout: policy.Timeout{StreamIdle: time.Second, Shadow: true}}
		tr := under(t, transport.Config{Base: base, Default: p, Observer: recorder})
		if got, err := fetch(tr.Client(), get(t, "http://a.test")); got != "abc" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		if e := recorder.Events(transport.EventTimeout); len(e) != 1 || !e[0].Shadow {
			t.Errorf("%+v", e)
		}
	})
}

func TestStreamOfARequestIsExemptFromItsStart(t *testing.T) {
	t.Parallel()
	for _, contentType := range []string{"application/grpc", "application/grpc+proto", "application/grpc-web+json", "application/connect+proto", "Application/GRPC"} {
		synctest.Test(t, func(t *testing.T) {
			p := judged()
			p.Timeout.StreamIdle = time.Second // counts from the headers on
			tr := under(t, transport.Config{Base: transporttest.NewBase(transporttest.Step{Delay: time.Hour, Body: "x"}), Default: p})
			req, err := http.NewRequest(http.MethodPost, "http://a.test", &halting{3, 1, time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", contentType)
			start := time.Now()
			if _, err := fetch(tr.Client(), req); err != nil {
				t.Fatal(err)
			}
			mustTake(t, start, 4*time.Hour)
			if s := tr.Snapshot()[0]; s.State != transport.Closed || s.Window.Slow != 0 || s.Counts.Success != 1 {
				t.Errorf("%v %+v", s.State, s.Window)
			}
		})
	}
}

func TestStreamOfARequestHasItsLimitsOnConnecting(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		options []transporttest.Option
		dial    transporttest.DialHook
		kind    error
		phase   string
		knob    string
	}{
		"connect": {nil, transporttest.BlackHole, transport.ErrConnectTimeout, "connect", "Timeout.Connect"},
		"TLS":     {[]transporttest.Option{transporttest.ServeConn(silent)}, nil, transport.ErrTLSTimeout, "tls", "Timeout.TLSHandshake"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				origin := transporttest.NewNet(t, nil, c.options...)
				origin.OnDial(c.dial)
				tr := bounded(t, origin.Base(), policy.Timeout{Connect: time.Second, TLSHandshake: time.Second})
				req := get(t, "https://a.test")
				req.Header.Set("Content-Type", "application/grpc")
				start := time.Now()
				_, err := fetch(tr.Client(), req)
				mustTimeOut(t, err, c.kind, c.phase, c.knob, time.Second)
				mustTake(t, start, time.Second)
			})
		})
	}
}

// upgrade switches protocols, and answers each line with it, until it is told to
// be silent.
func upgrade(t *testing.T) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = c.Close() }()
		fmt.Fprintf(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_ = rw.Flush()
		for {
			line, err := rw.ReadString('\n')
			if err != nil {
				return
			}
			if line != "silence\n" {
				_, _ = rw.WriteString(line)
				_ = rw.Flush()
			}
		}
	})
}

func dialUpgrade(t *testing.T, rt http.RoundTripper, url string) io.ReadWriteCloser {
	t.Helper()
	req := get(t, url)
	req.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"echo"}}
	resp, err := rt.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	rw, ok := resp.Body.(io.ReadWriteCloser)
	if !ok || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("status %d, body %T", resp.StatusCode, resp.Body)
	}
	return rw
}

func echo(t *testing.T, rw io.ReadWriter) {
	t.Helper()
	if _, err := io.WriteString(rw, "hello\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(rw).ReadString('\n'); line != "hello\n" || err != nil {
		t.Fatalf("%q, %v", line, err)
	}
}

func TestStreamOfAnUpgradeIsTheCallers(t *testing.T) {
	t.Parallel()
	for _, idle := range []time.Duration{0, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			origin := transporttest.NewNet(t, upgrade(t))
			p := judged()
			p.Timeout.StreamIdle = idle
			p.Retry, p.Fallback = policy.Service().Retry, policy.Service().Fallback
			tr := under(t, transport.Config{Base: origin.Base(), Default: p})
			rw := dialUpgrade(t, tr, origin.URL)
			if s := tr.Snapshot()[0]; s.InFlight != 0 || s.Counts.Success != 1 {
				t.Errorf("%d in flight, %+v", s.InFlight, s.Counts)
			}
			for range 3 {
				time.Sleep(50 * time.Minute)
				echo(t, rw)
			}
			_ = rw.Close()
			_ = rw.Close()
			if n := len(origin.Hits()); n != 1 {
				t.Errorf("%d hits", n)
			}
		})
	}
}

func TestStreamOfAnUpgradeOutlivesTheContextOfItsRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		origin := transporttest.NewNet(t, upgrade(t))
		tr := bounded(t, origin.Base(), strict())
		ctx, cancel := context.WithCancel(context.Background())
		rw := dialUpgrade(t, rt(func(r *http.Request) (*http.Response, error) { return tr.RoundTrip(r.WithContext(ctx)) }), origin.URL)
		cancel()
		synctest.Wait()
		echo(t, rw)
		_ = rw.Close()
	})
}

func TestStreamOfAnUpgradeMayBeBoundInItsSilence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		recorder := &transporttest.Recorder{}
		origin := transporttest.NewNet(t, upgrade(t))
		p := judged()
		p.Timeout.StreamIdle = 5 * time.Second
		tr := under(t, transport.Config{Base: origin.Base(), Default: p, Observer: recorder})
		rw := dialUpgrade(t, tr, origin.URL)
		start := time.Now()
		for range 2 {
			time.Sleep(4 * time.Second)
			echo(t, rw)
		}
		_, err := rw.Read(make([]byte, 1))
		mustTimeOut(t, err, transport.ErrStreamIdle, "body", "Timeout.StreamIdle", 5*time.Second)
		mustTake(t, start, 13*time.Second)
		if _, err := rw.Write([]byte("x")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("write: %v", err)
		}
		_ = rw.Close()
		synctest.Wait()
		if _, open := origin.Connections(); open != 0 {
			t.Error("the connection is open")
		}
		if c := tr.Snapshot()[0].Counts; c.Timeouts["stream"] != 1 || recorder.Count(transport.EventTimeout) != 1 {
			t.Errorf("%v", c.Timeouts)
		}
	})
}

func TestStreamOfAnUpgradeInShadowModeOnlySaysWhatItWouldHaveDone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		recorder := &transporttest.Recorder{}
		origin := transporttest.NewNet(t, upgrade(t))
		p := policy.Policy{Timeout: policy.Timeout{StreamIdle: time.Second, Shadow: true}}
		tr := under(t, transport.Config{Base: origin.Base(), Default: p, Observer: recorder})
		rw := dialUpgrade(t, tr, origin.URL)
		for range 3 {
			time.Sleep(time.Minute)
			echo(t, rw)
		}
		_ = rw.Close()
		if e := recorder.Events(transport.EventTimeout); len(e) != 1 || !e[0].Shadow {
			t.Errorf("%+v", e)
		}
	})
}

func TestStreamOfAnUpgradePassesAReverseProxy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		origin := transporttest.NewNet(t, upgrade(t))
		tr := bounded(t, origin.Base(), strict())
		target, err := url.Parse(origin.URL)
		if err != nil {
			t.Fatal(err)
		}
		proxy := transporttest.NewNet(t, &httputil.ReverseProxy{Transport: tr, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }})
		base := proxy.Base()
		rw := dialUpgrade(t, base, proxy.URL)
		time.Sleep(time.Minute)
		echo(t, rw)
		_ = rw.Close()
		time.Sleep(time.Second)
	})
}

func TestStreamOfAnUpgradeOverAForeignBaseLeavesNothingWithItsContext(t *testing.T) {
	o := transporttest.NewOrigin(t)
	o.Script(transporttest.Step{Handler: upgrade(t)})
	base := o.Base()
	ended := make(chan struct{}, 20)
	tr := bulkheadNew(t, transport.Config{Default: policy.Service(), Base: rt(func(r *http.Request) (*http.Response, error) {
		context.AfterFunc(r.Context(), func() { ended <- struct{}{} })
		return base.RoundTrip(r)
	})})
	rw := dialUpgrade(t, tr, o.URL)
	echo(t, rw)
	select {
	case <-ended:
		t.Error("the base's context has ended before its connection")
	default:
	}
	_ = rw.Close()
	<-ended
}
