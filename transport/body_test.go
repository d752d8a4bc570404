package transport_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watertight-go/watertight/cache"
	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/transporttest"
)

// bodyProtocols are the ways to speak to an Origin.
var bodyProtocols = map[string][]transporttest.Option{
	"HTTP/1.1": nil,
	"HTTP/2":   {transporttest.TLS("h2")},
}

// bodyCollect waits for what garbage collection will bring about.
func bodyCollect(t *testing.T, what string, done func() bool) {
	t.Helper()
	bodyWait(t, what, func() bool {
		runtime.GC()
		return done()
	})
}

func bodyLeaked(tr *transport.Transport) func() bool {
	return func() bool {
		s := tr.Snapshot()
		return len(s) > 0 && s[0].InFlight == 0 && s[0].Counts.Leaked == 1
	}
}

func TestBodyOutlivesRoundTrip(t *testing.T) {
	for name, opts := range bodyProtocols {
		t.Run(name, func(t *testing.T) {
			transporttest.CheckLeaks(t)
			o := transporttest.NewOrigin(t, opts...)
			o.Script(transporttest.Step{Size: 512 << 10, Chunk: 256 << 10, Pause: 100 * time.Millisecond})
			p := policy.Default()
			p.Timeout.Attempt, p.Timeout.Read, p.Breaker.SlowCall = 5*time.Second, 5*time.Second, time.Second
			tr := bulkheadNew(t, transport.Config{Base: o.Base(), Default: p})
			resp, err := tr.Client().Get(o.URL)
			if err != nil {
				t.Fatal(err)
			}
			n, err := io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			if n != 512<<10 || err != nil {
				t.Fatalf("%d bytes, %v", n, err)
			}
			transporttest.CheckPermits(t, tr)
		})
	}
}

func TestBodyLeavesNothingBehind(t *testing.T) {
	for name, opts := range bodyProtocols {
		t.Run(name, func(t *testing.T) {
			transporttest.CheckLeaks(t)
			o := transporttest.NewOrigin(t, opts...)
			o.Script(transporttest.Step{Body: "hello", Framing: transporttest.Chunked})
			tr := bulkheadNew(t, transport.Config{Base: o.Base()})
			read := func() {
				resp := bulkheadGet(t, tr, o.URL)
				if b, err := io.ReadAll(resp.Body); string(b) != "hello" || err != nil {
					t.Fatalf("%q, %v", b, err)
				}
			}
			read()
			before := runtime.NumGoroutine()
			for range 500 {
				read()
			}
			bodyWait(t, "goroutines to end", func() bool { return runtime.NumGoroutine() <= before })
			if opened, _ := o.Connections(); opened != 1 {
				t.Errorf("%d connections", opened)
			}
			transporttest.CheckPermits(t, tr)
		})
	}
}

// The context of a server lives as long as the process: what calls hang onto it
// must go with them.
func TestBodyLeavesNothingWithItsContext(t *testing.T) {
	for name, status := range map[string]int{"a body": 200, "no body": 204, "a stream": 206} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			tr := bulkheadNew(t, transport.Config{Base: bulkheadBase(func(r *http.Request) (*http.Response, error) {
				r.Context().Done()
				resp := bulkheadAnswer(r, status, strings.NewReader("hello"))
				if status == 206 {
					resp.Header.Set("Content-Type", "audio/ogg")
				}
				return resp, nil
			})})
			var before, after runtime.MemStats
			for i := range fewer(5100) {
				if i == 100 {
					runtime.GC()
					runtime.ReadMemStats(&before)
				}
				resp, err := tr.RoundTrip(bulkheadRequest(t, ctx, http.MethodGet, "http://x.test/"))
				if err != nil {
					t.Fatal(err)
				}
				_ = resp.Body.Close()
			}
			bodyCollect(t, "memory", func() bool {
				runtime.ReadMemStats(&after)
				return int64(after.HeapObjects)-int64(before.HeapObjects) < 1000
			})
		})
	}
}

func TestBodyCostsNoGoroutineOfItsOwn(t *testing.T) {
	for name, opts := range bodyProtocols {
		t.Run(name, func(t *testing.T) {
			transporttest.CheckLeaks(t)
			o := transporttest.NewOrigin(t, opts...)
			o.Script(transporttest.Step{Size: 1000, Fault: transporttest.Hang, At: 10})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			running := func(rt http.RoundTripper) (n int) {
				before := runtime.NumGoroutine()
				var open []*http.Response
				for range 20 {
					resp, err := rt.RoundTrip(bulkheadRequest(t, ctx, http.MethodGet, o.URL))
					if err != nil {
						t.Fatal(err)
					}
					if _, err := io.ReadFull(resp.Body, make([]byte, 10)); err != nil {
						t.Fatal(err)
					}
					open = append(open, resp)
				}
				n = runtime.NumGoroutine() - before
				for begun := time.Now(); time.Since(begun) < 20*time.Millisecond; runtime.Gosched() { // those that are just ending do
					n = min(n, runtime.NumGoroutine()-before)
				}
				for _, resp := range open {
					_ = resp.Body.Close()
				}
				bodyWait(t, "all to end", func() bool {
					rt.(interface{ CloseIdleConnections() }).CloseIdleConnections()
					_, left := o.Connections()
					return left == 0 && runtime.NumGoroutine() <= before
				})
				return n
			}
			tr := bulkheadNew(t, transport.Config{Base: o.Base()})
			bare, stack := running(o.Base()), running(tr)
			if stack > bare+2 { // what is just ending
				t.Errorf("%d goroutines for 20 calls, %d without the stack", stack, bare)
			}
			transporttest.CheckPermits(t, tr)
		})
	}
}

// A caller who drops the response, in whatever way, is found.
func TestBodyForgottenIsFoundByGarbageCollection(t *testing.T) {
	forget := map[string]func(*testing.T, *transport.Transport, string){
		"never read": func(t *testing.T, tr *transport.Transport, url string) {
			bulkheadGet(t, tr, url)
		},
		"read in part": func(t *testing.T, tr *transport.Transport, url string) {
			if _, err := bulkheadGet(t, tr, url).Body.Read(make([]byte, 10)); err != nil {
				t.Error(err)
			}
		},
		"by a client with a timeout": func(t *testing.T, tr *transport.Transport, url string) {
			if _, err := (&http.Client{Transport: tr, Timeout: 300 * time.Millisecond}).Get(url); err != nil {
				t.Error(err)
			}
		},
		"with a context of its own": func(t *testing.T, tr *transport.Transport, url string) {
			ctx, cancel := context.WithCancel(t.Context())
			t.Cleanup(cancel)
			if _, err := tr.RoundTrip(bulkheadRequest(t, ctx, http.MethodGet, url)); err != nil {
				t.Error(err)
			}
		},
		"with a Cancel channel": func(t *testing.T, tr *transport.Transport, url string) {
			req := bulkheadRequest(t, t.Context(), http.MethodGet, url)
			c := make(chan struct{})
			t.Cleanup(func() { close(c) })
			req.Cancel = c
			if _, err := tr.RoundTrip(req); err != nil {
				t.Error(err)
			}
		},
		"by a goroutine that panics": func(t *testing.T, tr *transport.Transport, url string) {
			defer func() { _ = recover() }()
			if resp := bulkheadGet(t, tr, url); resp.StatusCode == 200 {
				panic("careless")
			}
		},
		"by a goroutine that ends itself": func(t *testing.T, tr *transport.Transport, url string) {
			done := make(chan struct{})
			go func() {
				defer close(done)
				if resp := bulkheadGet(t, tr, url); resp.StatusCode == 200 {
					runtime.Goexit()
				}
			}()
			<-done
		},
	}
	for protocol, opts := range bodyProtocols {
		for name, forget := range forget {
			t.Run(protocol+" "+name, func(t *testing.T) {
				transporttest.CheckLeaks(t)
				o := transporttest.NewOrigin(t, opts...)
				o.Script(transporttest.Step{Size: 4 << 20, Framing: transporttest.Chunked,
					Header: http.Header{"Cache-Control": {"max-age=60"}}}, transporttest.Step{Body: "next"})
				var rec transporttest.Recorder
				p := policy.Service()
				p.Bulkhead.BodyIdle = 0
				p.Fallback.MaxStale = time.Hour // it is being copied, too
				tr := bulkheadNew(t, transport.Config{Base: o.Base(), Default: p, Observer: &rec})
				forget(t, tr, o.URL)
				bodyCollect(t, "the permit", bodyLeaked(tr))
				if e := rec.WaitFor(t, transport.EventLeak); e[0].Reason != "unreachable" || e[0].Layer != transport.LayerBulkhead {
					t.Errorf("%+v", e)
				}
				rec.WaitFor(t, transport.EventAttemptEnd, transport.EventCallEnd)
				if protocol == "HTTP/1.1" {
					o.WaitOpen(0)
				}
				resp, err := tr.Client().Get(o.URL)
				if err != nil {
					t.Fatal(err)
				}
				if b, err := io.ReadAll(resp.Body); string(b) != "next" || err != nil {
					t.Errorf("%q, %v", b, err)
				}
				transporttest.CheckPermits(t, tr)
				if s := tr.Snapshot()[0]; s.Counts.Leaked != 1 || s.Counts.Failure != 0 {
					t.Errorf("%+v", s.Counts)
				}
			})
		}
	}
}

func TestBodyStreamForgottenIsFoundByGarbageCollection(t *testing.T) {
	transporttest.CheckLeaks(t)
	o := transporttest.NewOrigin(t)
	o.Script(transporttest.Step{Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: "data: 1\n\n",
		Framing: transporttest.Chunked, Fault: transporttest.Hang, At: 9})
	tr := bulkheadNew(t, transport.Config{Base: o.Base()})
	func() {
		if _, err := bulkheadGet(t, tr, o.URL).Body.Read(make([]byte, 9)); err != nil {
			t.Error(err)
		}
	}()
	bodyCollect(t, "the permit", bodyLeaked(tr))
	o.WaitOpen(0)
}

// A Read of the base's that never returns normally does not keep the permit.
func TestBodyWhoseReadPanicsIsFound(t *testing.T) {
	for name, read := range map[string]func(){"panic": func() { panic("base") }, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			var closed atomic.Bool
			tr := bulkheadNew(t, transport.Config{Base: bulkheadBase(func(r *http.Request) (*http.Response, error) {
				return bulkheadAnswer(r, 200, &bodyFuncs{
					OnRead:  func([]byte) (int, error) { read(); return 0, nil },
					OnClose: func() error { closed.Store(true); return nil },
				}), nil
			})})
			done := make(chan struct{})
			go func() {
				defer close(done)
				defer func() { _ = recover() }()
				_, _ = bulkheadGet(t, tr, "http://x.test/").Body.Read(make([]byte, 1))
			}()
			<-done
			bodyCollect(t, "the permit", bodyLeaked(tr))
			bodyWait(t, "the base's body to be closed", closed.Load)
		})
	}
}

func TestBodyForgottenIsFoundByBodyIdle(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]policy.Policy{
		"Service":      policy.Service(),
		"nothing else": {Bulkhead: policy.Bulkhead{MaxConcurrent: 20}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var rec transporttest.Recorder
				p.Bulkhead.BodyIdle = time.Minute
				inner := &contractBody{Reader: strings.NewReader("hello, hello")}
				tr := bulkheadNew(t, transport.Config{Default: p, Observer: &rec, Base: bulkheadBase(func(r *http.Request) (*http.Response, error) {
					time.Sleep(100 * time.Millisecond)
					return bulkheadAnswer(r, 200, inner), nil
				})})
				resp := bulkheadGet(t, tr, "http://x.test/")
				time.Sleep(59 * time.Second)
				if _, err := resp.Body.Read(make([]byte, 5)); err != nil { // puts it off
					t.Fatal(err)
				}
				time.Sleep(time.Minute - time.Nanosecond)
				synctest.Wait()
				bulkheadInFlight(t, tr, 1)
				time.Sleep(time.Nanosecond)
				synctest.Wait()
				bulkheadInFlight(t, tr, 0)
				if n := inner.Closed.Load(); n != 1 {
					t.Errorf("the base's body was closed %d times", n)
				}
				_, err := resp.Body.Read(make([]byte, 5))
				var e *transport.Error
				if !errors.As(err, &e) || e.Knob != "Bulkhead.BodyIdle" || e.Limit != time.Minute || e.Host != "x.test:80" {
					t.Errorf("a read after that: %v", err)
				}
				if err := resp.Body.Close(); err != nil {
					t.Error(err)
				}
				if got := rec.Events(transport.EventLeak); len(got) != 1 || got[0].Reason != "idle" {
					t.Errorf("%+v", got)
				}
				if c := tr.Snapshot()[0].Counts; c.Leaked != 1 || c.Failure != 0 {
					t.Errorf("%+v", c)
				}
			})
		})
	}
}

func TestBodyIdleClosesTheConnection(t *testing.T) {
	for name, opts := range bodyProtocols {
		t.Run(name, func(t *testing.T) {
			transporttest.CheckLeaks(t)
			o := transporttest.NewOrigin(t, opts...)
			o.Script(transporttest.Step{Size: 64 << 20}, transporttest.Step{Body: "next"})
			p := policy.Service()
			p.Bulkhead.BodyIdle = 50 * time.Millisecond
			tr := bulkheadNew(t, transport.Config{Base: o.Base(), Default: p})
			resp := bulkheadGet(t, tr, o.URL)
			bodyWait(t, "the permit", bodyLeaked(tr))
			if name == "HTTP/1.1" {
				o.WaitOpen(0)
			}
			if _, err := io.Copy(io.Discard, resp.Body); err == nil {
				t.Error("a forgotten body could be read to its end")
			}
			next := bulkheadGet(t, tr, o.URL)
			if b, err := io.ReadAll(next.Body); string(b) != "next" || err != nil {
				t.Errorf("%q, %v", b, err)
			}
			transporttest.CheckPermits(t, tr)
		})
	}
}

// A reader that takes its time, but reads on, is not careless; nor is one that
// waits for a slow peer.
func TestBodyIdleSparesWhoReadsOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := policy.Policy{Bulkhead: policy.Bulkhead{MaxConcurrent: 1, BodyIdle: time.Minute}}
		tr := bulkheadNew(t, transport.Config{Default: p, Base: bulkheadBase(func(r *http.Request) (*http.Response, error) {
			time.Sleep(time.Hour)
			return bulkheadAnswer(r, 200, &bodyFuncs{
				OnRead:  func(p []byte) (int, error) { time.Sleep(time.Hour); return copy(p, "x"), nil },
				OnClose: func() error { return nil },
			}), nil
		})})
		resp := bulkheadGet(t, tr, "http://x.test/")
		for range 10 {
			time.Sleep(59 * time.Second)
			if _, err := resp.Body.Read(make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
		}
		_ = resp.Body.Close()
		if c := tr.Snapshot()[0].Counts; c.Leaked != 0 {
			t.Errorf("%+v", c)
		}
	})
}

// Cleanups run outside of bubbles, whose timers and channels they must not touch.
func TestBodyForgottenInABubbleIsFoundByBodyIdle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := policy.Service()
		tr := bulkheadNew(t, transport.Config{Default: p, Base: bulkheadBase(func(r *http.Request) (*http.Response, error) {
			r.Context().Done()
			return bulkheadHello(r)
		})})
		bulkheadGet(t, tr, "http://x.test/")
		for range 5 {
			runtime.GC()
		}
		bulkheadInFlight(t, tr, 1)
		time.Sleep(p.Bulkhead.BodyIdle)
		synctest.Wait()
		bulkheadInFlight(t, tr, 0)
	})
}

func TestBodyClosedDuringAReadIsNoFailure(t *testing.T) {
	for name, opts := range bodyProtocols {
		t.Run(name, func(t *testing.T) {
			transporttest.CheckLeaks(t)
			o := transporttest.NewOrigin(t, opts...)
			o.Script(transporttest.Step{Size: 100, Fault: transporttest.Hang, At: 50})
			tr := bulkheadNew(t, transport.Config{Base: o.Base()})
			for range 20 {
				resp := bulkheadGet(t, tr, o.URL)
				done := make(chan error)
				if _, err := io.ReadFull(resp.Body, make([]byte, 50)); err != nil {
					t.Fatal(err)
				}
				go func() {
					_, err := resp.Body.Read(make([]byte, 50))
					done <- err
				}()
				runtime.Gosched()
				_ = resp.Body.Close()
				if err := <-done; err == nil || err == io.EOF {
					t.Fatalf("a read that was closed under: %v", err)
				}
			}
			if s := tr.Snapshot()[0]; s.Counts.Failure != 0 || s.Counts.Success != 20 || s.State != transport.Closed {
				t.Errorf("%v %+v", s.State, s.Counts)
			}
			transporttest.CheckPermits(t, tr)
		})
	}
}

func TestBodyReadsAfterItsEndAreHarmless(t *testing.T) {
	cut := transporttest.Step{Size: 100, Fault: transporttest.Cut, At: 50}
	for name, row := range map[string]struct {
		step transporttest.Step
		end  func(io.ReadCloser)
		want func(error) bool
	}{
		"after EOF": {transporttest.Step{Body: "hello"},
			func(b io.ReadCloser) { _, _ = io.ReadAll(b) }, func(err error) bool { return err == io.EOF }},
		"after Close": {transporttest.Step{Body: "hello"},
			func(b io.ReadCloser) { _ = b.Close() }, func(err error) bool { return err != nil && err != io.EOF }},
		"after EOF and Close": {transporttest.Step{Body: "hello"},
			func(b io.ReadCloser) { _, _ = io.ReadAll(b); _ = b.Close() }, func(err error) bool { return err != nil && err != io.EOF }},
		"after an error": {cut,
			func(b io.ReadCloser) { _, _ = io.ReadAll(b) }, func(err error) bool { return errors.Is(err, io.ErrUnexpectedEOF) }},
		"after an error and Close": {cut,
			func(b io.ReadCloser) { _, _ = io.ReadAll(b); _ = b.Close() }, func(err error) bool { return err != nil && err != io.EOF }},
	} {
		t.Run(name, func(t *testing.T) {
			transporttest.CheckLeaks(t)
			o := transporttest.NewOrigin(t)
			o.Script(row.step)
			plain, tr := o.Base(), bulkheadNew(t, transport.Config{Base: o.Base()})
			t.Cleanup(plain.CloseIdleConnections)
			for which, rt := range map[string]http.RoundTripper{"net/http": plain, "the stack": tr} {
				resp, err := rt.RoundTrip(bulkheadRequest(t, t.Context(), http.MethodGet, o.URL))
				if err != nil {
					t.Fatal(err)
				}
				row.end(resp.Body)
				for range 3 {
					if n, err := resp.Body.Read(make([]byte, 10)); n != 0 || !row.want(err) {
						t.Errorf("%s: %d, %v", which, n, err)
					}
				}
				_ = resp.Body.Close()
			}
			transporttest.CheckPermits(t, tr)
		})
	}
}

// A Read after Close has the words of net/http if it is its body, and else the error
// that it documents: a base may not heed Close.
func TestBodyReadsAfterCloseDoNotReachABase(t *testing.T) {
	wait := make(chan struct{})
	t.Cleanup(func() { close(wait) })
	deaf := func(r *http.Request) (*http.Response, error) {
		return bulkheadAnswer(r, 200, &bodyFuncs{
			OnRead:  func([]byte) (int, error) { <-wait; return 0, io.EOF },
			OnClose: func() error { return nil },
		}), nil
	}
	for name, base := range map[string]http.RoundTripper{
		"foreign":             bulkheadBase(deaf),
		"around a *Transport": bodyAround{&http.Transport{}, bulkheadBase(deaf)},
	} {
		t.Run(name, func(t *testing.T) {
			tr := bulkheadNew(t, transport.Config{Base: base})
			resp := bulkheadGet(t, tr, "http://x.test/")
			_ = resp.Body.Close()
			read := make(chan error, 1)
			go func() {
				_, err := resp.Body.Read(make([]byte, 1))
				read <- err
			}()
			select {
			case err := <-read:
				if err != http.ErrBodyReadAfterClose {
					t.Error(err)
				}
			case <-time.After(10 * time.Second):
				t.Error("it waits for the base")
			}
		})
	}
}

// bodyAround is around a transport, but answers in its place.
type bodyAround struct{ inside, instead http.RoundTripper }

func (a bodyAround) Unwrap() http.RoundTripper                         { return a.inside }
func (a bodyAround) Around(http.RoundTripper) http.RoundTripper        { return a.instead }
func (a bodyAround) RoundTrip(r *http.Request) (*http.Response, error) { return a.instead.RoundTrip(r) }

func TestBodyBringsItsTrailers(t *testing.T) {
	for name, opts := range bodyProtocols {
		for _, announced := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s announced %v", name, announced), func(t *testing.T) {
				transporttest.CheckLeaks(t)
				o := transporttest.NewOrigin(t, opts...)
				o.Script(transporttest.Step{Body: "hello", Framing: transporttest.Chunked, Trailer: http.Header{"X-Sum": {"5d41"}}, Unannounced: !announced})
				p := policy.Service()
				p.Fallback.MaxStale = time.Hour
				tr := bulkheadNew(t, transport.Config{Base: o.Base(), Default: p})
				resp := bulkheadGet(t, tr, o.URL)
				if _, ok := resp.Trailer["X-Sum"]; ok != announced {
					t.Errorf("before the body: %v", resp.Trailer)
				}
				if b, err := io.ReadAll(resp.Body); string(b) != "hello" || err != nil {
					t.Errorf("%q, %v", b, err)
				}
				if resp.Trailer.Get("X-Sum") != "5d41" {
					t.Errorf("after it: %v", resp.Trailer)
				}
				_ = resp.Body.Close()
				transporttest.CheckPermits(t, tr)
			})
		}
	}
}

// What a caller does to a response is the caller's: neither the store nor the
// breaker sees it, at whatever time it is done.
func TestBodyHeadersAreTheCallersToChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var seen []string
		p := policy.Service()
		p.Fallback.MaxStale = time.Hour
		p.Breaker.Classify = func(resp *http.Response, err error) policy.Verdict {
			if resp != nil {
				seen = append(seen, resp.Header.Get("X-Kind"))
			}
			return policy.Unclassified
		}
		down := false
		tr := bulkheadNew(t, transport.Config{Default: p, Base: bulkheadBase(func(r *http.Request) (*http.Response, error) {
			if down {
				return nil, errors.New("down")
			}
			resp := bulkheadAnswer(r, 200, strings.NewReader("hello"))
			resp.ContentLength = 5
			resp.Header["X-Kind"] = []string{"theirs"}
			return resp, nil
		})})
		spoil := func(resp *http.Response) {
			if got := resp.Header["X-Kind"]; len(got) != 1 || got[0] != "theirs" {
				t.Fatalf("%q", got)
			}
			resp.Header["X-Kind"][0] = "spoilt"
			resp.Header.Add("X-Kind", "more")
			resp.Header.Set("X-Other", "mine")
			resp.StatusCode = 500
		}
		resp := bulkheadGet(t, tr, "http://x.test/")
		spoil(resp)
		if b, err := io.ReadAll(resp.Body); string(b) != "hello" || err != nil {
			t.Fatalf("%q, %v", b, err)
		}
		for _, kind := range seen {
			if kind != "theirs" {
				t.Errorf("the verdict was on %q", kind)
			}
		}
		if c := tr.Snapshot()[0].Counts; c.Success != 1 || c.Failure != 0 {
			t.Errorf("%+v", c)
		}
		down = true
		p.Retry = policy.Retry{}
		for range 2 {
			resp := bulkheadGet(t, tr, "http://x.test/")
			if info, ok := cache.FromResponse(resp); !ok || !info.Stale || resp.Header.Get("X-Other") != "" {
				t.Fatalf("%+v %v", info, resp.Header)
			}
			spoil(resp)
			if b, err := io.ReadAll(resp.Body); string(b) != "hello" || err != nil {
				t.Fatalf("%q, %v", b, err)
			}
		}
	})
}

// A context that ends after the body has done nothing to whoever has the
// connection by then.
func TestBodyEndedIsOutOfReachOfItsContext(t *testing.T) {
	for name, opts := range bodyProtocols {
		t.Run(name, func(t *testing.T) {
			transporttest.CheckLeaks(t)
			o := transporttest.NewOrigin(t, opts...)
			o.Script(transporttest.Step{Body: "hello"})
			tr := bulkheadNew(t, transport.Config{Base: o.Base()})
			read := func(ctx context.Context) *http.Response {
				resp, err := tr.RoundTrip(bulkheadRequest(t, ctx, http.MethodGet, o.URL))
				if err != nil {
					t.Fatal(err)
				}
				if b, err := io.ReadAll(resp.Body); string(b) != "hello" || err != nil {
					t.Fatalf("%q, %v", b, err)
				}
				return resp
			}
			for range 300 {
				ctx, cancel := context.WithCancel(t.Context())
				a := read(ctx)
				done := make(chan struct{})
				go func() { cancel(); close(done) }()
				_ = read(t.Context()).Body.Close()
				<-done
				_ = a.Body.Close()
			}
			if opened, _ := o.Connections(); opened != 1 {
				t.Errorf("%d connections", opened)
			}
			transporttest.CheckPermits(t, tr)
		})
	}
}

// A base that does not know of contexts is bounded all the same.
func TestBodyOfABaseThatIgnoresContextsIsClosed(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		policy policy.Policy
		want   error
	}{
		"by Read":    {policy.Policy{Timeout: policy.Timeout{Read: time.Second}}, transport.ErrReadTimeout},
		"by Attempt": {policy.Policy{Timeout: policy.Timeout{Attempt: time.Second}}, transport.ErrAttemptTimeout},
		"by Total":   {policy.Policy{Timeout: policy.Timeout{Total: time.Second}}, transport.ErrTotalTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				row.policy.Bulkhead.MaxConcurrent = 1
				tr := bulkheadNew(t, transport.Config{Default: row.policy, Base: bulkheadBase(func(r *http.Request) (*http.Response, error) {
					pr, _ := io.Pipe()
					return bulkheadAnswer(r, 200, pr), nil
				})})
				resp := bulkheadGet(t, tr, "http://x.test/")
				start := time.Now()
				_, err := resp.Body.Read(make([]byte, 1))
				if took := time.Since(start); took != time.Second || !errors.Is(err, row.want) {
					t.Errorf("%v after %v", err, took)
				}
				_ = resp.Body.Close()
				bulkheadWhole(t, tr, "http://x.test/", 1)
			})
		})
	}
}

// A caller who closes a body after one of its limits has fired, and before the
// read that it ends has returned, does not make a success of it.
func TestBodyClosedAfterALimitIsAFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := policy.Service()
		tr := bulkheadNew(t, transport.Config{Default: p, Base: bulkheadBase(func(r *http.Request) (*http.Response, error) {
			return bulkheadAnswer(r, 200, &bodyFuncs{
				OnRead:  func([]byte) (int, error) { time.Sleep(p.Timeout.Read + 2*time.Second); return 0, errors.New("closed") },
				OnClose: func() error { return nil },
			}), nil
		})})
		resp := bulkheadGet(t, tr, "http://x.test/")
		time.AfterFunc(p.Timeout.Read+time.Second, func() { _ = resp.Body.Close() })
		if _, err := resp.Body.Read(make([]byte, 1)); err == nil {
			t.Error("no error")
		}
		if c := tr.Snapshot()[0].Counts; c.Failure != 1 || c.Success != 0 {
			t.Errorf("%+v", c)
		}
		bulkheadInFlight(t, tr, 0)
	})
}

// A body that was read to its end in one Read with its EOF, and one whose EOF
// comes alone, end alike.
func TestBodyEndsWithItsEOF(t *testing.T) {
	t.Parallel()
	for name, r := range map[string]func() io.Reader{
		"with the last byte": func() io.Reader { return bodyDataEOF{bytes.NewReader([]byte("hello"))} },
		"alone":              func() io.Reader { return strings.NewReader("hello") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tr := bulkheadNew(t, transport.Config{Base: bulkheadBase(func(req *http.Request) (*http.Response, error) {
					return bulkheadAnswer(req, 200, r()), nil
				})})
				resp := bulkheadGet(t, tr, "http://x.test/")
				b, err := io.ReadAll(resp.Body)
				if string(b) != "hello" || err != nil {
					t.Fatalf("%q, %v", b, err)
				}
				bulkheadInFlight(t, tr, 0)
				if c := tr.Snapshot()[0].Counts; c.Success != 1 {
					t.Errorf("%+v", c)
				}
			})
		})
	}
}

// bodyDataEOF returns io.EOF with the last data.
type bodyDataEOF struct{ r *bytes.Reader }

func (d bodyDataEOF) Read(p []byte) (int, error) {
	n, err := d.r.Read(p)
	if err == nil && d.r.Len() == 0 {
		err = io.EOF
	}
	return n, err
}

// BenchmarkBody is the throughput of a large body over loopback, and
// BenchmarkBodyBare that of net/http alone.
func BenchmarkBody(b *testing.B) {
	benchmarkBody(b, func(base *http.Transport) http.RoundTripper {
		return transport.Must(transport.New(transport.Config{Base: base, Logger: quiet()}))
	})
}

func BenchmarkBodyBare(b *testing.B) {
	benchmarkBody(b, func(base *http.Transport) http.RoundTripper { return base })
}

func benchmarkBody(b *testing.B, over func(*http.Transport) http.RoundTripper) {
	const size = 1 << 30
	o := transporttest.NewOrigin(b)
	chunk := make([]byte, 256<<10)
	o.Script(transporttest.Step{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(size))
		for sent := 0; sent < size; sent += len(chunk) {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	})})
	client := &http.Client{Transport: over(o.Base())}
	b.SetBytes(size)
	for b.Loop() {
		resp, err := client.Get(o.URL)
		if err != nil {
			b.Fatal(err)
		}
		n, err := io.Copy(io.Discard, resp.Body)
		if n != size || err != nil {
			b.Fatal(n, err)
		}
		_ = resp.Body.Close()
	}
	client.CloseIdleConnections()
}

// The race detector sees whoever reads a header that is its caller's.
func TestBodyHeadersMayBeChangedWhileTheBodyIsRead(t *testing.T) {
	t.Parallel()
	for name, classify := range map[string]func(*http.Response, error) policy.Verdict{
		"Retry-After": nil,
		"Classify": func(resp *http.Response, _ error) policy.Verdict {
			if resp != nil && resp.Header.Get("X-Changed") != "" {
				return policy.Neutral
			}
			return policy.Unclassified
		},
	} {
		for fault, step := range map[string]transporttest.Step{
			"whole":  {Size: 1000, Chunk: 100, Pause: time.Second},
			"broken": {Size: 1000, Chunk: 100, Pause: time.Second, Fault: transporttest.Reset, At: 500},
		} {
			t.Run(name+", "+fault, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					step.Header = http.Header{"Retry-After": {"30"}, "X-Kept": {"1"}}
					p := policy.Policy{Breaker: policy.Breaker{ConsecutiveFailures: 1, OpenFor: time.Second, OpenForMax: time.Minute, Classify: classify}}
					tr := bulkheadNew(t, transport.Config{Base: transporttest.NewBase(step), Default: p})
					resp := bulkheadGet(t, tr, "http://x.test/")
					changed := make(chan struct{})
					go func() {
						defer close(changed)
						for range 20 {
							resp.Header.Set("X-Changed", "yes")
							resp.Header.Del("Retry-After")
							time.Sleep(700 * time.Millisecond)
						}
					}()
					_, err := io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
					s := tr.Snapshot()[0]
					if broken := fault == "broken"; broken != (err != nil) || broken != (s.State == transport.Open) || broken != (s.Counts.Failure == 1) {
						t.Errorf("%v, %v, %+v", err, s.State, s.Counts)
					}
					if s.State == transport.Open && s.RetryIn < 30*time.Second {
						t.Errorf("open for %v, not what the host had asked for", s.RetryIn)
					}
					<-changed
				})
			})
		}
	}
}

// The timer may be late by a moment in a pause, and find the limit only once the body
// is not being read.
func TestBodyOfABaseThatIgnoresContextsEndsByALimitFoundInAPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const limit, pause = 100 * time.Millisecond, 10 * time.Millisecond
		body, peer := io.Pipe()
		tr := bulkheadNew(t, transport.Config{
			Base:    bulkheadBase(func(r *http.Request) (*http.Response, error) { return bulkheadAnswer(r, 200, body), nil }),
			Default: policy.Policy{Timeout: policy.Timeout{Attempt: limit}},
		})
		resp := bulkheadGet(t, tr, "http://x.test/")
		go func() {
			time.Sleep(limit - 100*time.Microsecond)
			_, _ = peer.Write([]byte("x"))
			time.Sleep(pause + 700*time.Microsecond)
			_, _ = peer.Write([]byte("y"))
		}()
		buf := make([]byte, 1)
		_, _ = resp.Body.Read(buf) // ends just before the limit
		time.Sleep(pause + 300*time.Microsecond)
		_, _ = resp.Body.Read(buf) // passes it
		time.Sleep(pause)
		free := time.AfterFunc(time.Hour, func() { _ = peer.Close() })
		defer free.Stop()
		if _, err := resp.Body.Read(buf); !errors.Is(err, transport.ErrAttemptTimeout) {
			t.Errorf("%v, want the limit", err)
		}
		transporttest.CheckPermits(t, tr)
		_ = resp.Body.Close()
	})
}
