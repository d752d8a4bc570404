package transport_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"runtime"
	"slices"
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

// listenerLog is a slog.Handler made of a function.
type listenerLog func(context.Context, slog.Record)

func (listenerLog) Enabled(context.Context, slog.Level) bool { return true }
func (l listenerLog) Handle(ctx context.Context, r slog.Record) error {
	l(ctx, r)
	return nil
}
func (l listenerLog) WithAttrs([]slog.Attr) slog.Handler { return l }
func (l listenerLog) WithGroup(string) slog.Handler      { return l }

// listenerIdle fails the test if a call holds a permit, or has left a connection.
func listenerIdle(t *testing.T, tr *transport.Transport, origin *transporttest.Origin) {
	t.Helper()
	synctest.Wait()
	bulkheadInFlight(t, tr, 0)
	if _, open := origin.Connections(); open != 0 {
		t.Errorf("%d connections are open", open)
	}
}

func TestListenerThatBlocksOnATimeoutHoldsNothing(t *testing.T) {
	t.Parallel()
	for name, step := range map[string]transporttest.Step{
		"headers": {Fault: transporttest.Hang},
		"body":    {Body: "abc", Fault: transporttest.Hang, At: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				origin := transporttest.NewNet(t, nil)
				origin.Script(step)
				var told atomic.Int32
				tr := bulkheadNew(t, transport.Config{Base: origin.Base(),
					Default: policy.Policy{Timeout: policy.Timeout{Read: time.Second}, Bulkhead: policy.Bulkhead{MaxConcurrent: 1}},
					Observer: observerFuncs{observe: func(_ context.Context, e transport.Event) {
						if e.Kind == transport.EventTimeout {
							told.Add(1)
							time.Sleep(time.Hour)
						}
					}}})
				errs := make(chan error, 1)
				go func() { errs <- hostCall(tr, "http://a.test") }()
				time.Sleep(time.Second)
				listenerIdle(t, tr, origin)
				if told.Load() != 1 || tr.Snapshot()[0].Counts.Timeouts["response_header"]+tr.Snapshot()[0].Counts.Timeouts["body"] != 1 {
					t.Errorf("told %d times, %v counted", told.Load(), tr.Snapshot()[0].Counts.Timeouts)
				}
				origin.Script(transporttest.Step{Body: "x"})
				start := time.Now()
				if err := hostCall(tr, "http://a.test"); err != nil {
					t.Error("another call:", err)
				}
				mustTake(t, start, 0)
				if err := <-errs; !errors.Is(err, transport.ErrReadTimeout) {
					t.Error(err)
				}
			})
		})
	}
}

func TestListenerThatBlocksOnATimeoutInShadowModeDelaysNoAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var told atomic.Bool
		base := transporttest.NewBase(transporttest.Step{Delay: 3 * time.Second, Body: "x"})
		tr := bulkheadNew(t, transport.Config{Base: base, Default: policy.Policy{Timeout: policy.Timeout{Read: time.Second, Shadow: true}},
			Observer: observerFuncs{observe: func(_ context.Context, e transport.Event) {
				if e.Kind == transport.EventTimeout {
					told.Store(true)
					time.Sleep(time.Hour)
				}
			}}})
		start := time.Now()
		if err := hostCall(tr, "http://a.test"); err != nil {
			t.Error(err)
		}
		mustTake(t, start, 3*time.Second)
		if !told.Load() {
			t.Error("not told")
		}
		time.Sleep(time.Hour)
	})
}

func TestListenerThatBlocksOnATransitionDelaysNoLimit(t *testing.T) {
	t.Parallel()
	for _, logger := range []bool{false, true} {
		for name, limit := range map[string]time.Duration{"after SlowCall": 3 * time.Second, "with SlowCall": 2 * time.Second} {
			t.Run(fmt.Sprintf("%s, logger %v", name, logger), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					origin := transporttest.NewNet(t, nil)
					origin.Script(transporttest.Step{Fault: transporttest.Hang})
					var told atomic.Int32
					block := func() {
						told.Add(1)
						time.Sleep(time.Hour)
					}
					c := transport.Config{Base: origin.Base(), Logger: quiet(), Default: policy.Policy{
						Timeout:  policy.Timeout{Read: limit, Attempt: 4 * time.Second},
						Bulkhead: policy.Bulkhead{MaxConcurrent: 1},
						Breaker:  policy.Breaker{SlowCall: 2 * time.Second, SlowRate: 0.5, MinCalls: 1},
					}}
					if logger {
						c.Logger = slog.New(listenerLog(func(context.Context, slog.Record) { block() }))
					} else {
						c.Observer = observerFuncs{observe: func(_ context.Context, e transport.Event) {
							if e.Kind == transport.EventTransition {
								block()
							}
						}}
					}
					tr := transport.Must(transport.New(c))
					start := time.Now()
					type end struct {
						err   error
						after time.Duration
					}
					ends := make(chan end, 1)
					go func() {
						err := hostCall(tr, "http://a.test")
						ends <- end{err, time.Since(start)}
					}()
					time.Sleep(limit)
					listenerIdle(t, tr, origin)
					if told.Load() != 1 || tr.Snapshot()[0].Counts.Timeouts["response_header"] != 1 {
						t.Errorf("told %d times, %v counted", told.Load(), tr.Snapshot()[0].Counts.Timeouts)
					}
					if err := hostCall(tr, "http://a.test"); !errors.Is(err, transport.ErrBreakerOpen) {
						t.Errorf("another call: %v", err)
					}
					if took := time.Since(start); took != limit && !(logger && took <= limit+100*time.Millisecond) { // a Logger is waited for that long
						t.Errorf("took %v, want %v", took, limit)
					}
					e := <-ends
					if !errors.Is(e.err, transport.ErrReadTimeout) || limit > 2*time.Second && e.after != limit { // the listener may have been the call's to wait for
						t.Errorf("%v after %v", e.err, e.after)
					}
					time.Sleep(2 * time.Hour)
				})
			})
		}
	}
}

func TestListenerThatBlocksOnALeakHoldsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		origin := transporttest.NewNet(t, nil)
		origin.Script(transporttest.Step{Body: "abc", Fault: transporttest.Hang, At: 1})
		told := false
		tr := bulkheadNew(t, transport.Config{Base: origin.Base(), Default: policy.Policy{Bulkhead: policy.Bulkhead{MaxConcurrent: 1, BodyIdle: time.Minute}},
			Observer: observerFuncs{observe: func(_ context.Context, e transport.Event) {
				if e.Kind == transport.EventLeak {
					told = true
					time.Sleep(time.Hour)
				}
			}}})
		body := hostHold(t, tr, "http://a.test")
		time.Sleep(time.Minute)
		listenerIdle(t, tr, origin)
		if n := tr.Snapshot()[0].Counts.Leaked; n != 1 || !told {
			t.Errorf("%d leaks, told %v", n, told)
		}
		origin.Script(transporttest.Step{Body: "x"})
		if err := hostCall(tr, "http://a.test"); err != nil {
			t.Error("another call:", err)
		}
		_ = body.Close()
		time.Sleep(time.Hour)
	})
}

// A fallback stands in for an answer that is not wanted any more.
func TestListenerThatBlocksOnAFallbackHoldsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := transporttest.NewBase(transporttest.Step{Status: 503, Body: "down"})
		told := false
		tr := bulkheadNew(t, transport.Config{Base: base, Default: policy.Policy{Bulkhead: policy.Bulkhead{MaxConcurrent: 1},
			Fallback: policy.Fallback{Degraded: func(*http.Request, error) *http.Response { return &http.Response{} }}},
			Observer: observerFuncs{observe: func(_ context.Context, e transport.Event) {
				if e.Kind == transport.EventFallback {
					told = true
					time.Sleep(time.Hour)
				}
			}}})
		done := make(chan error, 1)
		go func() { done <- hostCall(tr, "http://a.test") }()
		synctest.Wait()
		bulkheadInFlight(t, tr, 0)
		if now, _ := base.InFlight(); now != 0 || !told {
			t.Errorf("%d answers are open, told %v", now, told)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// What a host was given up for must not wait in its pool until a listener has time.
func TestListenerThatBlocksOnATransitionKeepsNoDeadPool(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		origin := transporttest.NewNet(t, nil)
		origin.Script(transporttest.Step{Body: "x"})
		var told atomic.Int32
		tr := bulkheadNew(t, transport.Config{Base: origin.Base(), Default: policy.Policy{Breaker: policy.Breaker{ConsecutiveFailures: 1}},
			Observer: observerFuncs{observe: func(_ context.Context, e transport.Event) {
				if e.Kind == transport.EventTransition {
					told.Add(1)
					time.Sleep(time.Hour)
				}
			}}})
		if err := hostCall(tr, "http://a.test"); err != nil {
			t.Fatal(err)
		}
		go tr.Host("a.test").ForceClosed() // which the listener takes an hour to hear
		synctest.Wait()
		tr.Host("a.test").Reset()
		if _, open := origin.Connections(); open != 1 {
			t.Fatalf("%d connections are open", open)
		}
		origin.Script(transporttest.Step{Status: 503})
		if err := hostCall(tr, "http://a.test"); err != nil {
			t.Fatal(err)
		}
		if s := tr.Snapshot()[0].State; s != transport.Open || told.Load() != 1 {
			t.Fatalf("%v, told %d times", s, told.Load())
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if _, open := origin.Connections(); open != 0 {
			t.Errorf("%d connections are open", open)
		}
		time.Sleep(24 * time.Hour)
	})
}

// listenerWhole fails the test unless n calls may be out at once.
func listenerWhole(t *testing.T, tr *transport.Transport, base *transporttest.Base, target string, n int) {
	t.Helper()
	bulkheadInFlight(t, tr, 0)
	for range n {
		defer func(c io.Closer) { _ = c.Close() }(hostHold(t, tr, target))
	}
	if now, _ := base.InFlight(); now != n {
		t.Errorf("%d of %d calls were let out", now, n)
	}
}

// listenerApart does something on a goroutine of its own, which may end in it.
func listenerApart(do func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	<-done
}

// listenerEnds makes every kind of event happen but for leaks.
func listenerEnds(tr *transport.Transport) {
	get := func(target string) { listenerApart(func() { _ = hostCall(tr, target) }) }
	reset := func() { listenerApart(tr.Host("a.test").Reset) }
	for _, path := range []string{"/good", "/good", "/hang", "/cut", "/none"} {
		get("http://a.test" + path)
	}
	reset()
	var held []*http.Response
	for range 2 {
		listenerApart(func() {
			if resp, err := tr.RoundTrip(fallbackRequest("GET", "http://b.test/good")); err == nil {
				held = append(held, resp)
			}
		})
	}
	get("http://a.test/good") // the process is full
	get("http://b.test/good") // so is the host
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		time.Sleep(time.Millisecond)
		for _, resp := range held {
			listenerApart(func() { _ = resp.Body.Close() })
		}
	}()
	get("http://b.test/good") // waits for its permit
	<-closed
	for range 3 { // the last is refused
		get("http://a.test/down")
	}
	for _, path := range []string{"/good", "/good", "/hang", "/good", "/good"} {
		time.Sleep(10 * time.Second)
		get("http://a.test" + path)
	}
	listenerApart(tr.Host("a.test").ForceClosed)
	reset()
}

func TestListenerThatEndsItsGoroutineLosesNothing(t *testing.T) {
	type where struct {
		kind  transport.EventKind // or
		start int                 // of a call, 1, or of an attempt, 2; or
		log   bool
	}
	all := []where{{start: 1}, {start: 2}, {log: true}}
	for k := transport.EventCallEnd; k <= transport.EventFallback; k++ {
		all = append(all, where{kind: k})
	}
	for _, w := range all {
		for name, end := range map[string]func(){"Goexit": runtime.Goexit, "panic": func() { panic("listener") }} {
			t.Run(fmt.Sprintf("%+v %s", w, name), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					base := transporttest.NewBase()
					base.ScriptFunc(func(h transporttest.Hit) transporttest.Step {
						switch h.Path {
						case "/down":
							return transporttest.Step{Status: 503, Body: "down"}
						case "/hang":
							return transporttest.Step{Fault: transporttest.Hang}
						case "/cut":
							return transporttest.Step{Body: "abc", Fault: transporttest.Cut, At: 1}
						case "/none":
							return transporttest.Step{Status: 404, Body: "none"}
						}
						return transporttest.Step{Body: "good"}
					})
					var on, told atomic.Bool
					on.Store(true)
					stop := func(here bool) {
						if here && on.Load() {
							told.Store(true)
							end()
						}
					}
					p := policy.Policy{
						Timeout:  policy.Timeout{Read: time.Second},
						Bulkhead: policy.Bulkhead{MaxConcurrent: 2, MaxWait: 10 * time.Millisecond},
						Breaker:  policy.Breaker{ConsecutiveFailures: 2, OpenFor: time.Second, HalfOpenProbes: 1},
						Retry:    policy.Retry{MaxAttempts: 2, Base: time.Millisecond, Max: time.Millisecond},
						Fallback: policy.Fallback{MaxStale: time.Hour, Degraded: func(r *http.Request, _ error) *http.Response {
							if r.URL.Path != "/down" {
								return nil
							}
							return &http.Response{}
						}},
					}
					tr := transport.Must(transport.New(transport.Config{Base: base, Default: p, MaxConcurrent: 2, MaxHosts: 2,
						Logger: slog.New(listenerLog(func(context.Context, slog.Record) { stop(w.log) })),
						Observer: observerFuncs{
							start: func(ctx context.Context, s transport.Start) context.Context {
								stop(w.start == 1 && s.Attempt == 0 || w.start == 2 && s.Attempt > 0)
								return ctx
							},
							observe: func(_ context.Context, e transport.Event) { stop(e.Kind == w.kind) },
						}}))
					for range 3 {
						listenerEnds(tr)
						if now, _ := base.InFlight(); now != 0 {
							t.Fatalf("%d answers are open", now)
						}
					}
					if !told.Load() {
						t.Fatal("the listener was not called")
					}
					on.Store(false)
					tr.Host("a.test").Reset()
					tr.Host("b.test").Reset()
					listenerWhole(t, tr, base, "http://a.test/good", 2)
					listenerWhole(t, tr, base, "http://b.test/good", 2)
					time.Sleep(10 * time.Second)
					for _, host := range []string{"c", "d", "e", "f", "g"} { // hosts that are not in use make room
						if err := hostCall(tr, "http://"+host+".test/good"); err != nil {
							t.Error(err)
						}
					}
					if got := hostNames(tr); strings.Contains(got, "a.test") || strings.Contains(got, "b.test") || strings.Contains(got, "overflow") {
						t.Errorf("states %s", got)
					}
				})
			})
		}
	}
}

// A probe's slot is as much a permit as any.
func TestListenerThatEndsItsGoroutineLosesNoProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newBreakerDep(t, breakerPolicy(policy.Breaker{ConsecutiveFailures: 1, HalfOpenProbes: 1}))
		d.listens(func(e transport.Event) {
			if e.Kind == transport.EventTransition && e.Transition.To == transport.HalfOpen {
				runtime.Goexit()
			}
		})
		d.gets("f", 0)
		time.Sleep(d.snap().RetryIn)
		done := make(chan struct{})
		go func() {
			defer close(done)
			d.gets(".", 0)
		}()
		<-done
		d.wantState(transport.HalfOpen)
		d.gets(".", 0)
		d.wantState(transport.Closed)
	})
}

// listenerStore is a Store whose methods do something first.
type listenerStore struct {
	cache.Store
	put, lookup func()
}

func newListenerStore(t *testing.T) *listenerStore {
	t.Helper()
	m, err := cache.NewMemory(cache.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return &listenerStore{m, func() {}, func() {}}
}

func (s *listenerStore) Put(e *cache.Entry) bool {
	s.put()
	return s.Store.Put(e)
}

func (s *listenerStore) Lookup(k cache.Key, p cache.Partition) []*cache.Entry {
	s.lookup()
	return s.Store.Lookup(k, p)
}

// listenerStoring is a policy that stores, and lets one call out at a time.
func listenerStoring() policy.Policy {
	return policy.Policy{Bulkhead: policy.Bulkhead{MaxConcurrent: 1}, Fallback: policy.Fallback{MaxStale: time.Hour}}
}

func TestStoreWhosePutPanicsLeavesNothingHeld(t *testing.T) {
	t.Parallel()
	for name, use := range map[string]func(io.ReadCloser){
		"at EOF":          func(b io.ReadCloser) { _, _ = io.ReadAll(b) },
		"at Close":        func(b io.ReadCloser) { _, _ = b.Read(make([]byte, 3)); _ = b.Close() },
		"at Close, drain": func(b io.ReadCloser) { _, _ = b.Read(make([]byte, 1)); _ = b.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newListenerStore(t)
				store.put = func() { panic("put") }
				step := transporttest.Step{Body: "abc"}
				if strings.HasSuffix(name, "drain") {
					step.Framing = transporttest.Chunked
				}
				base := transporttest.NewBase(step)
				chunked := rt(func(r *http.Request) (*http.Response, error) {
					resp, err := base.RoundTrip(r)
					if err == nil && resp.ContentLength < 0 {
						resp.TransferEncoding = []string{"chunked"}
					}
					return resp, err
				})
				tr := bulkheadNew(t, transport.Config{Base: chunked, Store: store, Default: listenerStoring()})
				body := hostHold(t, tr, "http://a.test").(io.ReadCloser)
				panicked := func() (v any) {
					defer func() { v = recover() }()
					use(body)
					return nil
				}()
				if panicked != "put" {
					t.Errorf("the panic of the Store became %v", panicked)
				}
				bulkheadInFlight(t, tr, 0)
				again := make(chan error, 1)
				go func() {
					_, err := body.Read(make([]byte, 1))
					again <- errors.Join(err, body.Close())
				}()
				synctest.Wait()
				select {
				case err := <-again:
					if !errors.Is(err, io.EOF) && !errors.Is(err, http.ErrBodyReadAfterClose) {
						t.Error(err)
					}
				default:
					t.Fatal("Read or Close waits for a lock")
				}
				store.put = func() {}
				if err := hostCall(tr, "http://a.test"); err != nil {
					t.Error("another call:", err)
				}
				listenerWhole(t, tr, base, "http://a.test", 1)
			})
		})
	}
}

func TestStoreWhosePutBlocksHoldsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newListenerStore(t)
		blocked := false
		store.put = func() {
			if !blocked {
				blocked = true
				time.Sleep(time.Hour)
			}
		}
		base := transporttest.NewBase(transporttest.Step{Body: "abc"})
		tr := bulkheadNew(t, transport.Config{Base: base, Store: store, Default: listenerStoring()})
		body := hostHold(t, tr, "http://a.test").(io.ReadCloser)
		read := make(chan error, 1)
		go func() {
			_, err := io.ReadAll(body)
			read <- err
		}()
		synctest.Wait()
		bulkheadInFlight(t, tr, 0)
		start := time.Now()
		if _, err := body.Read(make([]byte, 1)); err != io.EOF {
			t.Error(err)
		}
		if err := body.Close(); err != nil {
			t.Error(err)
		}
		if err := hostCall(tr, "http://a.test"); err != nil {
			t.Error("another call:", err)
		}
		mustTake(t, start, 0)
		if !blocked {
			t.Error("nothing was put")
		}
		if err := <-read; err != nil {
			t.Error(err)
		}
	})
}

func TestStoreWhoseLookupPanicsLeavesNothingHeld(t *testing.T) {
	t.Parallel()
	for name, step := range map[string]transporttest.Step{
		"for an answer":         {Body: "abc"},
		"for a failed answer":   {Status: 503, Body: "down"},
		"for an error":          {Err: io.EOF},
		"for an open breaker":   {},
		"for an endless answer": {Body: "abc", Fault: transporttest.Hang, At: 1},
	} {
		for _, observed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, observed %v", name, observed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := newListenerStore(t)
					base := transporttest.NewBase(transporttest.Step{Body: "abc"})
					c := transport.Config{Base: base, Store: store, Default: listenerStoring()}
					seen := &transporttest.Recorder{}
					if observed {
						c.Observer = seen
					}
					tr := bulkheadNew(t, c)
					if err := hostCall(tr, "http://a.test"); err != nil {
						t.Fatal(err)
					}
					base.Script(step)
					if strings.HasSuffix(name, "breaker") {
						tr.Host("a.test").ForceOpen()
					}
					store.lookup = func() { panic("lookup") }
					panicked := func() (v any) {
						defer func() { v = recover() }()
						_ = hostCall(tr, "http://a.test")
						return nil
					}()
					if panicked != "lookup" {
						t.Errorf("the panic of the Store became %v", panicked)
					}
					bulkheadInFlight(t, tr, 0)
					if now, _ := base.InFlight(); now != 0 {
						t.Errorf("%d answers are open", now)
					}
					store.lookup = func() {}
					tr.Host("a.test").Reset()
					base.Script(transporttest.Step{Body: "abc"})
					listenerWhole(t, tr, base, "http://a.test", 1)
					observerBalance(t, seen)
				})
			})
		}
	}
}

func TestStoreWhoseLookupBlocksDelaysNoOtherCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newListenerStore(t)
		base := transporttest.NewBase(transporttest.Step{Body: "abc"})
		tr := bulkheadNew(t, transport.Config{Base: base, Store: store, Default: listenerStoring()})
		if err := hostCall(tr, "http://a.test"); err != nil {
			t.Fatal(err)
		}
		base.Script(transporttest.Step{Err: io.EOF})
		blocked := false
		store.lookup = func() {
			if !blocked {
				blocked = true
				time.Sleep(time.Hour)
			}
		}
		done := make(chan error, 1)
		go func() { done <- hostCall(tr, "http://a.test") }()
		synctest.Wait()
		if !blocked {
			t.Fatal("nothing was looked up")
		}
		bulkheadInFlight(t, tr, 0)
		start := time.Now()
		if err := hostCall(tr, "http://a.test"); err != nil {
			t.Error("another call, which has a stored answer:", err)
		}
		mustTake(t, start, 0)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// The race detector sees a write to what was handed out.
func TestListenerMayKeepTheErrorsThatItIsTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := transporttest.NewBase(transporttest.Step{Fault: transporttest.Hang})
		kept := make(chan *transport.Error, 100)
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			for e := range kept {
				_ = fmt.Sprintf("%+v %v", *e, e)
			}
		}()
		var n atomic.Int32
		p := policy.Policy{
			Timeout:  policy.Timeout{Read: time.Second, Total: 10 * time.Second},
			Bulkhead: policy.Bulkhead{MaxConcurrent: 1},
			Breaker:  policy.Breaker{ConsecutiveFailures: 6},
			Retry:    policy.Retry{MaxAttempts: 3, Base: time.Second, Max: time.Second},
			Fallback: policy.Fallback{MaxStale: time.Hour},
		}
		tr := bulkheadNew(t, transport.Config{Base: base, Default: p, Observer: observerFuncs{observe: func(_ context.Context, e transport.Event) {
			var ours *transport.Error
			if errors.As(e.Err, &ours) {
				n.Add(1)
				kept <- ours
			}
		}}})
		for range 4 { // timeouts, and then refusals
			_ = hostCall(tr, "http://a.test")
		}
		tr.Host("a.test").Reset()
		held := make(chan struct{})
		go func() {
			defer close(held)
			_ = hostCall(tr, "http://a.test")
		}()
		synctest.Wait()
		_ = hostCall(tr, "http://a.test") // the bulkhead is full
		<-held
		if n.Load() < 10 {
			t.Errorf("%d errors were told", n.Load())
		}
		close(kept)
		<-stopped
	})
}

// A panic in what was configured is an owner's to know of, but not once for each
// call.
func TestListenersThatPanicAreLoggedOnceEachByName(t *testing.T) {
	logs := &transporttest.Logs{}
	p := policy.Policy{
		Breaker:  policy.Breaker{ConsecutiveFailures: 100, Classify: func(*http.Response, error) policy.Verdict { panic("classify") }},
		Fallback: policy.Fallback{Degraded: func(*http.Request, error) *http.Response { panic("degraded") }},
	}
	tr := transport.Must(transport.New(transport.Config{Base: transporttest.NewBase(transporttest.Step{Status: 503}), Default: p, Logger: slog.New(logs),
		Observer: observerFuncs{
			start:   func(context.Context, transport.Start) context.Context { panic("start") },
			observe: func(context.Context, transport.Event) { panic("observe") },
		}}))
	for range 5 {
		if err := hostCall(tr, "http://a.test"); err != nil {
			t.Error(err)
		}
	}
	var got []string
	for _, r := range logs.Records() {
		attrs := map[string]string{}
		r.Attrs(func(a slog.Attr) bool { attrs[a.Key] = a.Value.String(); return true })
		got = append(got, fmt.Sprint(r.Level, " ", attrs["in"], ": ", attrs["panic"]))
	}
	slices.Sort(got)
	want := []string{"ERROR Breaker.Classify: classify", "ERROR Fallback.Degraded: degraded", "ERROR Observer.Observe: observe", "ERROR Observer.Start: start"}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if s := tr.Snapshot()[0]; s.Counts.Failure != 5 {
		t.Errorf("%+v", s.Counts)
	}
}

func TestLogFollowsADefaultThatIsSetLater(t *testing.T) {
	before, w, flags := slog.Default(), log.Writer(), log.Flags()
	t.Cleanup(func() {
		slog.SetDefault(before)
		log.SetOutput(w)
		log.SetFlags(flags)
	})
	slog.SetDefault(quiet())
	tr := transport.Must(transport.New(transport.Config{Base: newStub(1)}))
	if err := hostCall(tr, "http://a.test"); err != nil {
		t.Fatal(err)
	}
	logs := &transporttest.Logs{}
	slog.SetDefault(slog.New(logs))
	tr.Host("a.test").ForceOpen()
	if n := len(logs.Records()); n != 1 {
		t.Errorf("%d records: %v", n, logs)
	}
}

func TestListenersAreToldOfATransitionInTheContextOfItsCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		var told, logged []string
		note := func(all *[]string, ctx context.Context, what string) {
			*all = append(*all, fmt.Sprintf("%s in %v", what, ctx.Value(key{})))
		}
		base := transporttest.NewBase(transporttest.Step{Status: 503}, transporttest.Step{})
		tr := transport.Must(transport.New(transport.Config{Base: base,
			Default: policy.Policy{Breaker: policy.Breaker{ConsecutiveFailures: 1, OpenFor: time.Second, HalfOpenProbes: 1}},
			Logger: slog.New(listenerLog(func(ctx context.Context, r slog.Record) {
				r.Attrs(func(a slog.Attr) bool {
					if a.Key == "state" {
						note(&logged, ctx, a.Value.String())
					}
					return true
				})
			})),
			Observer: observerFuncs{observe: func(ctx context.Context, e transport.Event) {
				if e.Kind != transport.EventTransition {
					return
				}
				note(&told, ctx, e.Transition.To.String())
				if len(told) == 1 {
					time.Sleep(time.Minute) // what follows is told by the goroutine of the first call
				}
			}}}))
		do := func(name string) {
			ctx := context.WithValue(context.Background(), key{}, name)
			if _, err := tr.RoundTrip(fallbackRequest("GET", "http://a.test").WithContext(ctx)); err != nil {
				t.Error(err)
			}
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			do("the first call")
		}()
		time.Sleep(2 * time.Second)
		do("the second")
		tr.Host("a.test").ForceOpen()
		<-done
		want := []string{"open in the first call", "half_open in the second", "closed in the second", "forced_open in <nil>"}
		if !slices.Equal(told, want) {
			t.Errorf("told %q, want %q", told, want)
		}
		if !slices.Equal(logged, want) {
			t.Errorf("logged %q, want %q", logged, want)
		}
	})
}
