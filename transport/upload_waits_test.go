package transport_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/transporttest"
)

// Request bodies that wait for their caller in a Read, as pipes and sockets do.

// waiting is a request whose body gives one piece, and then waits for its caller.
func waiting(t *testing.T, method, url string) (*http.Request, *io.PipeWriter) {
	t.Helper()
	body, say := io.Pipe()
	go func() { _, _ = io.WriteString(say, "begin") }()
	return retryRequest(t, method, url, body), say
}

// An HTTP/2 stream that ends while its request body waits is an error at once, or
// after the moment that a body has which could yet be sent again.
func TestUploadThatWaitsEndsWithItsStream(t *testing.T) {
	t.Parallel()
	const delay = 10 * time.Millisecond
	none, service := policy.Service(), policy.Service()
	none.Retry = policy.Retry{}
	for _, fault := range []transporttest.Fault{transporttest.Reset, transporttest.GoAway, transporttest.Cut} {
		for name, c := range map[string]struct {
			policy policy.Policy
			method string
			most   time.Duration
		}{
			"no retry":       {none, http.MethodPut, 0},
			"not idempotent": {service, http.MethodPost, 0},
			"idempotent":     {service, http.MethodPut, 50 * time.Millisecond},
		} {
			t.Run(fault.String()+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					origin := transporttest.NewNet(t, nil, transporttest.TLS("h2"))
					origin.Script(transporttest.Step{Unread: true, Delay: delay, Fault: fault})
					tr := under(t, transport.Config{Base: origin.Base(), Default: c.policy})
					req, say := waiting(t, c.method, origin.URL)
					unblock := time.AfterFunc(time.Minute, func() { _ = say.Close() })
					defer unblock.Stop()
					start := time.Now()
					resp, err := tr.RoundTrip(req)
					if err == nil {
						_ = resp.Body.Close()
						t.Fatal("no error")
					}
					if d := time.Since(start); d < delay || d > delay+c.most+10*time.Millisecond {
						t.Errorf("took %v, want %v at most", d, delay+c.most)
					}
					if s := tr.Snapshot()[0]; s.InFlight != 0 || s.Counts.Attempts != 1 {
						t.Errorf("%d in flight, %d attempts; want none, and one", s.InFlight, s.Counts.Attempts)
					}
					if _, err := say.Write([]byte("x")); err != io.ErrClosedPipe {
						t.Errorf("the body is open: %v", err)
					}
				})
			})
		}
	}
}

// A read that ends soon after its attempt costs nobody the retry.
func TestUploadThatIsReadWhenItsAttemptFailsIsSentAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		body := &replayBody{}
		body.r = replayFunc(func(p []byte) (int, error) {
			time.Sleep(20 * time.Millisecond)
			if body.closes.Load() > 0 {
				return 0, io.ErrClosedPipe
			}
			return copy(p, "whole"), io.EOF
		})
		hits := 0
		base := replayBase(func(r *http.Request) (*http.Response, error) {
			defer r.Body.Close()
			if hits++; hits == 1 {
				go func() { _, _ = r.Body.Read(make([]byte, 10)) }()
				time.Sleep(time.Millisecond)
				return nil, io.ErrUnexpectedEOF
			}
			b, err := io.ReadAll(r.Body)
			return replayOK(r, 200, string(b)), err
		})
		tr := retryTransport(t, base, retryPolicy(), nil)
		status, got := retryDo(t, tr, retryRequest(t, http.MethodPut, "http://x.test/", body))
		if status != 200 || got != "whole" || hits != 2 {
			t.Errorf("%d %q after %d attempts, want the whole body in the second", status, got, hits)
		}
		time.Sleep(time.Minute)
		if n := body.closes.Load(); n != 1 || body.overlap.Load() {
			t.Errorf("closed %d times, two readers: %v; want once", n, body.overlap.Load())
		}
	})
}

// uploadOrigins runs a test against an origin of each protocol, in a bubble.
func uploadOrigins(t *testing.T, test func(t *testing.T, origin *transporttest.Origin)) {
	for proto, opts := range map[string][]transporttest.Option{"HTTP1": nil, "HTTP2": {transporttest.TLS("h2")}} {
		t.Run(proto, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, transporttest.NewNet(t, nil, opts...)) })
		})
	}
}

// pausing is a pipe that counts how often it is closed.
type pausing struct {
	*io.PipeReader
	counted
}

func (p *pausing) Read(b []byte) (int, error) { return p.PipeReader.Read(b) }
func (p *pausing) Close() error               { _ = p.counted.Close(); return p.PipeReader.Close() }

// A call whose request body waits for its caller ends with the caller's context, and
// gives its permit back, a moment later at most.
func TestUploadThatWaitsEndsWithItsContext(t *testing.T) {
	uploadOrigins(t, func(t *testing.T, origin *transporttest.Origin) {
		origin.Script(transporttest.Step{Unread: true, Fault: transporttest.Hang})
		for _, method := range []string{http.MethodPut, http.MethodPost} {
			for _, attempts := range []int{1, 3} {
				p := policy.Service()
				p.Retry.MaxAttempts = attempts
				tr := under(t, transport.Config{Base: origin.Base(), Default: p})
				body, say := io.Pipe()
				go func() { _, _ = io.WriteString(say, "begin") }()
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				unblock := time.AfterFunc(time.Minute, func() { _ = say.Close() })
				closes := &pausing{PipeReader: body}
				req := retryRequest(t, method, origin.URL, closes).WithContext(ctx)
				start := time.Now()
				_, err := tr.RoundTrip(req)
				if d := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || d < 2*time.Second || d > 2100*time.Millisecond {
					t.Errorf("%s: %v after %v, want the context's error within 100ms", method, err, d)
				}
				if s := tr.Snapshot()[0]; s.InFlight != 0 || s.Counts.Attempts != 1 || s.Counts.Failure != 0 {
					t.Errorf("%s: %+v, %d in flight", method, s.Counts, s.InFlight)
				}
				cancel()
				unblock.Stop()
				time.Sleep(time.Second)
				if n := closes.closed.Load(); n != 1 {
					t.Errorf("%s: closed %d times, want once", method, n)
				}
			}
		}
	})
}

// A body that only takes its time to read is not closed while it is read, and not
// read on.
func TestUploadThatIsSlowToReadIsNotClosedMeanwhile(t *testing.T) {
	t.Parallel()
	for _, real := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			var base http.RoundTripper = replayBase(func(r *http.Request) (*http.Response, error) { // deaf
				_, err := io.Copy(io.Discard, r.Body)
				_ = r.Body.Close()
				return nil, err
			})
			url := "http://x.test/"
			if real {
				origin := transporttest.NewNet(t, nil)
				origin.Script(transporttest.Step{Unread: true, Fault: transporttest.Hang})
				base, url = origin.Base(), origin.URL
			}
			p := policy.Service()
			p.Retry = policy.Retry{}
			tr := under(t, transport.Config{Base: base, Default: p})
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			body := &replayBody{}
			body.r = replayFunc(func([]byte) (int, error) {
				time.Sleep(40 * time.Millisecond)
				if body.closes.Load() > 0 {
					t.Error("closed while it was read")
				}
				return 1, nil
			})
			start := time.Now()
			if _, err := tr.RoundTrip(retryRequest(t, http.MethodPut, url, body).WithContext(ctx)); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			mustTake(t, start, 80*time.Millisecond)
			synctest.Wait()
			if body.closes.Load() == 0 || body.reads.Load() != 2 {
				t.Errorf("closed %d times after %d reads, want once after 2", body.closes.Load(), body.reads.Load())
			}
		})
	}
}

// quits is a body whose second Read ends its goroutine, as t.FailNow does.
type quits struct{ io.Reader }

func (q *quits) Read(p []byte) (int, error) {
	if q.Reader == nil {
		runtime.Goexit()
	}
	n, err := q.Reader.Read(p)
	q.Reader = nil
	return n, err
}

func TestUploadWhoseReadQuitsLeavesTheLimitsOn(t *testing.T) {
	uploadOrigins(t, func(t *testing.T, origin *transporttest.Origin) {
		p := policy.Service()
		p.Breaker.ConsecutiveFailures = 1
		tr := under(t, transport.Config{Base: origin.Base(), Default: p})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		req := retryRequest(t, http.MethodPut, origin.URL, &quits{strings.NewReader("begin")}).WithContext(ctx)
		req.ContentLength = 1000
		start := time.Now()
		_, err := tr.RoundTrip(req)
		if d := time.Since(start); err == nil || d > p.Timeout.Read {
			t.Errorf("%v after %v, want an error after %v at most", err, d, p.Timeout.Read)
		}
		if s := tr.Snapshot()[0]; s.InFlight != 0 || s.Counts.Neutral != 1 || s.State != transport.Closed {
			t.Errorf("%+v, %v, %d in flight: it is the caller's own fault", s.Counts, s.State, s.InFlight)
		}
	})
}

// Callers that stall in their request bodies do not keep the permits for ever, not
// even where closing a body does not make its Read return.
func TestUploadThatStallsIsFoundByBodyIdle(t *testing.T) {
	const limit, permits = time.Second, 3
	for _, stubborn := range []bool{false, true} {
		uploadOrigins(t, func(t *testing.T, origin *transporttest.Origin) {
			rec := &transporttest.Recorder{}
			p := policy.Service()
			p.Bulkhead = policy.Bulkhead{MaxConcurrent: permits, BodyIdle: limit}
			p.Breaker.MinCalls, p.Breaker.ConsecutiveFailures = permits, 1
			tr := under(t, transport.Config{Base: origin.Base(), Default: p, Observer: rec})
			errs := make(chan error, permits)
			var pipes []*io.PipeWriter
			for range permits {
				req, say := waiting(t, http.MethodPut, origin.URL)
				if stubborn {
					req.Body = io.NopCloser(req.Body)
				}
				pipes = append(pipes, say)
				go func() {
					_, err := tr.RoundTrip(req)
					errs <- err
				}()
			}
			time.Sleep(limit - time.Millisecond)
			if _, err := tr.RoundTrip(retryRequest(t, http.MethodGet, origin.URL, nil)); !errors.Is(err, transport.ErrBulkheadFull) {
				t.Errorf("before %v: %v, want a full bulkhead", limit, err)
			}
			time.Sleep(2 * time.Millisecond)
			if s := tr.Snapshot()[0]; s.InFlight != 0 || s.Counts.Leaked != permits {
				t.Errorf("after %v: %d in flight, %d leaked; want none, and all", limit, s.InFlight, s.Counts.Leaked)
			}
			time.Sleep(100 * time.Millisecond)
			if n := len(errs); !stubborn && n != permits {
				t.Errorf("%d of %d calls have returned", n, permits)
			}
			for _, say := range pipes {
				_ = say.Close()
			}
			for range permits {
				var e *transport.Error
				if err := <-errs; !errors.As(err, &e) || e.Knob != "Bulkhead.BodyIdle" || e.Limit != limit || !strings.Contains(err.Error(), "request body gave nothing for 1s") {
					t.Errorf("%v, want one that names the knob", err)
				}
			}
			retryDo(t, tr, retryRequest(t, http.MethodGet, origin.URL, nil))
			s := tr.Snapshot()[0]
			if s.State != transport.Closed || s.Counts.Neutral != permits || s.Counts.Attempts != permits+1 || s.InFlight != 0 {
				t.Errorf("%+v, %v: it is no fault of the host, and not to be sent again", s.Counts, s.State)
			}
			if e := rec.Events(transport.EventLeak); len(e) != permits || e[0].Reason != "idle" {
				t.Errorf("%+v, want %d leaks", e, permits)
			}
			if n := rec.Count(transport.EventCallEnd); n != permits+2 {
				t.Errorf("%d calls have ended, want %d", n, permits+2)
			}
		})
	}
}

// The call ends after its attempt for its listener too, who may take his time.
func TestUploadThatStallsIsToldOfInOrder(t *testing.T) {
	uploadOrigins(t, func(t *testing.T, origin *transporttest.Origin) {
		var mu sync.Mutex
		var told []transport.EventKind
		p := policy.Service()
		tr := under(t, transport.Config{Base: origin.Base(), Default: p, Observer: observerFuncs{observe: func(_ context.Context, e transport.Event) {
			if e.Kind == transport.EventLeak {
				time.Sleep(time.Second)
			}
			mu.Lock()
			defer mu.Unlock()
			told = append(told, e.Kind)
		}}})
		req, say := waiting(t, http.MethodPut, origin.URL)
		defer say.Close()
		if _, err := tr.RoundTrip(req); err == nil {
			t.Error("no error")
		}
		mu.Lock()
		defer mu.Unlock()
		if n := len(told); n < 3 || told[n-3] != transport.EventLeak || told[n-2] != transport.EventAttemptEnd || told[n-1] != transport.EventCallEnd {
			t.Errorf("%v", told)
		}
	})
}

// Who gives something now and then, and streams, may take their time.
func TestUploadThatGivesSomethingIsNotStalled(t *testing.T) {
	for name, c := range map[string]struct {
		pause  time.Duration
		header http.Header
		call   transport.Call
		shadow bool
	}{
		"slow":      {pause: 900 * time.Millisecond},
		"gRPC":      {pause: time.Hour, header: http.Header{"Content-Type": {"application/grpc"}}},
		"Streaming": {pause: time.Hour, call: transport.Call{Streaming: true}},
		"shadow":    {pause: time.Hour, shadow: true},
	} {
		t.Run(name, func(t *testing.T) {
			uploadOrigins(t, func(t *testing.T, origin *transporttest.Origin) {
				p := policy.Service()
				p.Bulkhead = policy.Bulkhead{MaxConcurrent: 1, BodyIdle: time.Second, Shadow: c.shadow}
				p.Breaker.MinCalls = 1
				tr := under(t, transport.Config{Base: origin.Base(), Default: p})
				req, say := waiting(t, http.MethodPost, origin.URL)
				req.Header = c.header
				req = req.WithContext(transport.WithCall(req.Context(), c.call))
				go func() {
					for range 5 {
						time.Sleep(c.pause)
						_, _ = io.WriteString(say, "more")
					}
					_ = say.Close()
				}()
				if status, _ := retryDo(t, tr, req); status != 200 {
					t.Errorf("status %d", status)
				}
				if n := tr.Snapshot()[0].Counts.Leaked; c.shadow != (n == 1) {
					t.Errorf("%d leaks counted", n)
				}
			})
		})
	}
}

// net/http reads once more to know that a body has no more than it was said to have,
// maybe after an early answer was closed: that is no read of a call that is over.
func TestUploadThatWasGivenWholeEndsWhateverItsAttemptDoes(t *testing.T) {
	closed, read := make(chan struct{}), make(chan error, 1)
	base := rt(func(req *http.Request) (*http.Response, error) {
		if _, err := io.ReadFull(req.Body, make([]byte, 5)); err != nil {
			return nil, err
		}
		go func() {
			<-closed
			_, err := req.Body.Read(make([]byte, 1))
			read <- err
			_ = req.Body.Close()
		}()
		return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("early"))}, nil
	})
	tr := transport.Must(transport.New(transport.Config{Base: base, Logger: quiet()}))
	req, err := http.NewRequest(http.MethodPost, "http://a.test", io.MultiReader(strings.NewReader("hello")))
	if err != nil {
		t.Fatal(err)
	}
	req.ContentLength = 5
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	close(closed)
	if err := <-read; err != io.EOF {
		t.Errorf("%v, want EOF", err)
	}
}

// The contract of http.RoundTripper has the body closed by whoever is below, who may
// forget it: net/http too, where a connection ends before it has begun to send.
func TestUploadThatItsBaseForgetsIsClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var bodies []*forgottenBody
		getBody := func() (io.ReadCloser, error) {
			b := &forgottenBody{Reader: strings.NewReader("hello")}
			bodies = append(bodies, b)
			return b, nil
		}
		base := rt(func(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF })
		p := policy.Policy{Retry: policy.Retry{MaxAttempts: 3, Base: time.Millisecond, Max: time.Millisecond}}
		tr := transport.Must(transport.New(transport.Config{Base: base, Default: p, Logger: quiet()}))
		body, _ := getBody()
		req, err := http.NewRequest(http.MethodPut, "http://a.test", body)
		if err != nil {
			t.Fatal(err)
		}
		req.GetBody = getBody
		if _, err := tr.RoundTrip(req); !errors.Is(err, io.ErrUnexpectedEOF) || len(bodies) != 3 {
			t.Errorf("%v with %d bodies", err, len(bodies))
		}
		time.Sleep(time.Second)
		for i, b := range bodies {
			if n := b.closed.Load(); n != 1 {
				t.Errorf("body %d was closed %d times", i+1, n)
			}
		}
	})
}

type forgottenBody struct {
	io.Reader
	closed atomic.Int32
}

func (b *forgottenBody) Close() error { b.closed.Add(1); return nil }

// deafBody is a request body whose Read heeds nothing until it is freed.
type deafBody struct{ freed chan struct{} }

func (b deafBody) Read([]byte) (int, error) { <-b.freed; return 0, io.EOF }
func (b deafBody) Close() error             { return nil }

// A body from GetBody is one that may be read on, as was the first.
func TestUploadThatTookAnothersPlaceEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		origin := transporttest.NewNet(t, nil, transporttest.TLS("h2"))
		origin.Script(transporttest.Step{Unread: true, Fault: transporttest.GoAway},
			transporttest.Step{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			})})
		tr := under(t, transport.Config{Base: origin.Base()})
		req, say := waiting(t, http.MethodPut, origin.URL)
		defer say.Close()
		again := deafBody{make(chan struct{})}
		defer close(again.freed)
		asked := false
		req.GetBody = func() (io.ReadCloser, error) { asked = true; return again, nil }
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		resp, err := tr.RoundTrip(req.WithContext(ctx))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if !asked {
			t.Fatal("GetBody was not asked")
		}
		time.AfterFunc(time.Second, cancel)
		start := time.Now()
		_, err = resp.Body.Read(make([]byte, 1))
		if d := time.Since(start); !errors.Is(err, context.Canceled) || d != time.Second {
			t.Errorf("%v after %v, want the end of the context at once", err, d)
		}
	})
}
