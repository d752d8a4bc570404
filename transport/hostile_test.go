package transport_test

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"net/textproto"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/transporttest"
)

// A base that golang.org/x/net/http2 was configured on shares its connections with
// every clone of it; a dead one must not fail probe after probe.
func TestPoolOfABaseWithConfiguredHTTP2LeavesADeadConnection(t *testing.T) {
	transporttest.CheckLeaks(t)
	o := transporttest.NewOrigin(t, transporttest.TLS("h2", "http/1.1"))
	base := o.Base()
	if err := http2.ConfigureTransport(base); err != nil {
		t.Fatal(err)
	}
	p := policy.Policy{
		Timeout: policy.Timeout{Read: 200 * time.Millisecond},
		Breaker: policy.Breaker{ConsecutiveFailures: 1, OpenFor: time.Millisecond, HalfOpenProbes: 1},
	}
	tr := transport.Must(transport.New(transport.Config{Default: p, Base: base, Logger: quiet()}))
	defer tr.Close()
	get := func() error {
		resp, err := tr.Client().Get(o.URL)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.ProtoMajor != 2 {
			t.Errorf("spoke %s", resp.Proto)
		}
		_, err = io.Copy(io.Discard, resp.Body)
		return err
	}
	if err := get(); err != nil {
		t.Fatal(err)
	}
	o.Mute() // dead; new connections work
	if err := get(); !errors.Is(err, transport.ErrReadTimeout) {
		t.Fatalf("a dead connection: %v", err)
	}
	for {
		err := get()
		if errors.Is(err, transport.ErrBreakerOpen) {
			runtime.Gosched() // for a millisecond
			continue
		}
		if err != nil {
			t.Errorf("a probe: %v", err)
		}
		return
	}
}

// Limits of any size are limits: sums with them do not overflow.
func TestTimeoutsOfAnySizeHold(t *testing.T) {
	t.Parallel()
	const huge = time.Duration(math.MaxInt64)
	for name, p := range map[string]policy.Policy{
		"Attempt":  {Timeout: policy.Timeout{Attempt: huge, Read: time.Minute, MinThroughput: 1}},
		"Total":    {Timeout: policy.Timeout{Total: huge, Read: time.Minute, MinThroughput: 1}},
		"SlowCall": {Timeout: policy.Timeout{MinThroughput: 1}, Breaker: policy.Breaker{SlowCall: huge, SlowRate: 0.1, MinCalls: 1}},
		"all": {Timeout: policy.Timeout{Connect: huge, TLSHandshake: huge, Read: huge, Attempt: huge, Total: huge, StreamIdle: huge, MinThroughput: 1},
			Bulkhead: policy.Bulkhead{MaxConcurrent: 1, MaxWait: huge, BodyIdle: huge}},
	} {
		synctest.Test(t, func(t *testing.T) {
			n := transporttest.NewNet(t, nil)
			n.Script(transporttest.Step{Size: 100, Chunk: 1, Pause: 700 * time.Millisecond})
			tr := transport.Must(transport.New(transport.Config{Default: p, Base: n.Base(), Logger: quiet()}))
			defer tr.Close()
			resp, err := tr.Client().Get(n.URL)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				return
			}
			defer resp.Body.Close()
			if b, err := io.ReadAll(resp.Body); err != nil || len(b) != 100 {
				t.Errorf("%s: %d bytes, %v", name, len(b), err)
			}
			if s := tr.Snapshot()[0]; s.State != transport.Closed || s.Window.Slow != 0 {
				t.Errorf("%s: %v, %+v", name, s.State, s.Window)
			}
		})
	}
}

// A pause that begins just below a limit does not make the timer spin.
func TestClockCostsNothingInAPause(t *testing.T) {
	t.Parallel()
	used := func() time.Duration {
		var r syscall.Rusage
		_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r)
		return time.Duration(r.Utime.Nano() + r.Stime.Nano())
	}
	synctest.Test(t, func(t *testing.T) {
		tr := transport.Must(transport.New(transport.Config{
			Default: policy.Policy{Timeout: policy.Timeout{Attempt: time.Second}},
			Base:    transporttest.NewBase(transporttest.Step{Delay: time.Second - time.Microsecond, Body: "x"}),
			Logger:  quiet(),
		}))
		resp, err := tr.Client().Get("http://a.test/")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		before := used()
		time.Sleep(10 * time.Second) // ten million microseconds
		if cpu := used() - before; cpu > 2*time.Second {
			t.Errorf("%v of CPU for a pause of 10 s", cpu)
		}
	})
}

// Over HTTP/2 a read of the response does not heed its context while the request
// body waits for its caller; the stack does.
func TestUploadThatWaitsForItsCallerEndsWithTheContext(t *testing.T) {
	transporttest.CheckLeaks(t)
	o := transporttest.NewOrigin(t, transporttest.H2C())
	o.Script(transporttest.Step{Unread: true, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})})
	tr := transport.Must(transport.New(transport.Config{Base: o.Base(), Logger: quiet()}))
	defer tr.Close()
	pr, pw := io.Pipe()
	defer pw.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, o.URL, pr)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := resp.Body.Read(make([]byte, 1))
		ended <- err
	}()
	cancel()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("read something")
		}
	case <-time.After(10 * time.Second):
		t.Error("a read goes on without its caller")
	}
	_ = pw.Close()
	_ = resp.Body.Close()
	transporttest.CheckPermits(t, tr)
}

// A response whose retry cannot be prepared is closed.
func TestRetryClosesTheResponseWhenGetBodyPanics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := policy.Policy{Bulkhead: policy.Bulkhead{MaxConcurrent: 1}, Retry: policy.Retry{MaxAttempts: 2}}
		tr := transport.Must(transport.New(transport.Config{Default: p, Logger: quiet(),
			Base: transporttest.NewBase(transporttest.Step{Status: http.StatusServiceUnavailable, Body: "x"})}))
		req, err := http.NewRequest(http.MethodPut, "http://a.test/", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Body = io.NopCloser(io.LimitReader(zeros{}, 3))
		req.GetBody = func() (io.ReadCloser, error) { panic("GetBody") }
		func() {
			defer func() {
				if recover() != "GetBody" {
					t.Error("the panic did not reach its caller")
				}
			}()
			_, _ = tr.RoundTrip(req)
		}()
		if n := tr.Snapshot()[0].InFlight; n != 0 {
			t.Errorf("%d permits held", n)
		}
	})
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// net/http quotes a header that it cannot read, and whatever is in it.
func TestErrorsHoldNothingOfAMalformedHeader(t *testing.T) {
	for name, raw := range map[string]string{
		"header":  "HTTP/1.1 200 OK\r\nSet-Cookie sid=s3cret\r\n\r\n",
		"trailer": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nSet-Cookie sid=s3cret\r\n\r\n",
	} {
		o := transporttest.NewOrigin(t)
		o.Script(transporttest.Step{Raw: raw})
		tr := transport.Must(transport.New(transport.Config{Base: o.Base(), Default: policy.Policy{Timeout: policy.Timeout{Read: time.Minute}}, Logger: quiet()}))
		resp, err := tr.Client().Get(o.URL)
		if err == nil {
			_, err = io.ReadAll(resp.Body)
			_ = resp.Body.Close()
		}
		var cause textproto.ProtocolError
		if err == nil || strings.Contains(err.Error(), "s3cret") || !errors.As(err, &cause) {
			t.Errorf("%s: %v", name, err)
		}
		_ = tr.Close()
	}
}

// closer is a body whose Close does something of its own, once: net/http's Close would
// be the caller's to survive, but these are called by timers of the stack.
type closer struct {
	io.Reader
	close func()
	once  sync.Once
}

func (c *closer) Close() error { c.once.Do(c.close); return nil }

// tunnelCloser is one of an upgraded connection.
type tunnelCloser struct {
	*closer
	io.Writer
}

func TestCloseThatATimerCallsMayPanic(t *testing.T) {
	for how, end := range map[string]func(){"panics": func() { panic("planned") }, "ends its goroutine": runtime.Goexit} {
		broken := rt(func(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF })
		hangs := func(status int) rt {
			return func(r *http.Request) (*http.Response, error) {
				pr, _ := io.Pipe()
				body := &closer{Reader: pr, close: func() { _ = pr.Close(); end() }}
				resp := bulkheadAnswer(r, status, body)
				if status == http.StatusSwitchingProtocols {
					resp.Body = tunnelCloser{body, io.Discard}
				}
				return resp, nil
			}
		}
		for name, test := range map[string]struct {
			base    rt
			change  func(*http.Request)
			timeout policy.Timeout
		}{
			"a request body that its base forgets": {base: broken, change: func(r *http.Request) {
				r.Method, r.Body = http.MethodPut, &closer{Reader: strings.NewReader("x"), close: end}
			}},
			"one with a GetBody": {base: broken, change: func(r *http.Request) {
				r.GetBody = func() (io.ReadCloser, error) { return &closer{Reader: strings.NewReader("x"), close: end}, nil }
				r.Method, r.Body = http.MethodPut, &closer{Reader: strings.NewReader("x"), close: end}
			}},
			"a response body at a limit":    {base: hangs(200), timeout: policy.Timeout{Read: time.Second}},
			"a response body that is idle":  {base: hangs(200)},
			"a connection that is upgraded": {base: hangs(101), timeout: policy.Timeout{StreamIdle: time.Second}},
		} {
			t.Run(name+" "+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p := policy.Policy{Timeout: test.timeout, Bulkhead: policy.Bulkhead{MaxConcurrent: 1, BodyIdle: time.Minute},
						Retry: policy.Retry{MaxAttempts: 2, Base: time.Second, Max: time.Second, ReplayBody: 10}}
					tr := transport.Must(transport.New(transport.Config{Base: test.base, Default: p, Logger: quiet()}))
					req := get(t, "http://x.test/")
					if test.change != nil {
						test.change(req)
					}
					resp, err := tr.RoundTrip(req)
					if err == nil && test.timeout.Read > 0 {
						go func() { _, _ = resp.Body.Read(make([]byte, 1)) }()
					}
					time.Sleep(time.Hour)
					if s := tr.Snapshot()[0]; s.InFlight != 0 {
						t.Errorf("%d permits are held", s.InFlight)
					}
				})
			})
		}
	}
}

// A Close that its caller calls panics on the caller's goroutine, which is his to survive.
func TestCloseThatPanicsGivesEverythingBack(t *testing.T) {
	for how, end := range map[string]func(){"panics": func() { panic("planned") }, "ends its goroutine": runtime.Goexit} {
		t.Run(how, func(t *testing.T) {
			tr := bulkheadNew(t, transport.Config{Default: policy.Policy{Bulkhead: policy.Bulkhead{MaxConcurrent: 1}},
				Base: rt(func(r *http.Request) (*http.Response, error) {
					resp := bulkheadAnswer(r, 200, nil)
					resp.Body = &closer{Reader: strings.NewReader("x"), close: end}
					return resp, nil
				})})
			for range 3 {
				resp := bulkheadGet(t, tr, "http://x.test/")
				done := make(chan struct{})
				go func() {
					defer close(done)
					defer func() { _ = recover() }()
					_ = resp.Body.Close()
				}()
				<-done
			}
			transporttest.CheckPermits(t, tr)
		})
	}
}
