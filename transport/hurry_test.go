package transport_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watertight-go/watertight/cache"
	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/transporttest"
)

// moody is an origin that answers after a while, by n, from 1.
type moody struct {
	mu    sync.Mutex
	calls int
	takes time.Duration
	does  func(n int, r *http.Request) (*http.Response, error)
}

func (m *moody) set(takes time.Duration) {
	m.mu.Lock()
	m.takes = takes
	m.mu.Unlock()
}

func (m *moody) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.calls
}

func (m *moody) RoundTrip(r *http.Request) (*http.Response, error) {
	m.mu.Lock()
	m.calls++
	n, takes, does := m.calls, m.takes, m.does
	m.mu.Unlock()
	select {
	case <-time.After(takes):
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	return does(n, r)
}

// hurried is a policy of which calls wait 200 ms, where there is something stored.
func hurried(fresh bool) policy.Policy {
	return policy.Policy{
		Cache:    policy.Cache{Fresh: fresh},
		Fallback: policy.Fallback{MaxStale: time.Hour, After: 200 * time.Millisecond},
		Bulkhead: policy.Bulkhead{MaxConcurrent: 10},
		Breaker:  policy.Breaker{ConsecutiveFailures: 3, OpenFor: time.Minute},
		Timeout:  policy.Timeout{Read: 10 * time.Second},
	}
}

func TestASlowOriginIsNotWaitedForWhereThereIsSomethingStored(t *testing.T) {
	t.Parallel()
	for _, fresh := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			o := &moody{does: func(n int, r *http.Request) (*http.Response, error) {
				resp, _ := keepable(n, r)
				resp.Header = cached("1")
				return resp, nil
			}}
			var seen transporttest.Recorder
			tr := under(t, transport.Config{Base: o, Default: hurried(fresh), Observer: &seen})
			call := func(want string, took time.Duration) *http.Response {
				t.Helper()
				start := time.Now()
				req := get(t, "http://x.test/")
				resp, err := tr.RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				text, _ := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if d := time.Since(start); string(text) != want || d != took || resp.Request != req {
					t.Errorf("fresh=%v: %q after %v, want %q after %v", fresh, text, d, want, took)
				}
				return resp
			}
			o.set(time.Second)
			call("answer 1", time.Second) // nothing is stored yet
			time.Sleep(2 * time.Second)

			o.set(100 * time.Millisecond)
			call("answer 2", 100*time.Millisecond)
			time.Sleep(2 * time.Second)

			o.set(5 * time.Second)
			resp := call("answer 2", 200*time.Millisecond)
			info, _ := cache.FromResponse(resp)
			if !info.Stale || !strings.Contains(info.Cause.Error(), "Fallback.After") || !strings.HasSuffix(resp.Header.Get("Cache-Status"), "; detail=timeout") {
				t.Errorf("%+v, %q", info, resp.Header["Cache-Status"])
			}
			for range 5 {
				call("answer 2", 0) // it is known to be slow
			}
			if n := o.count(); n != 3 {
				t.Errorf("%d requests, want 3", n)
			}
			time.Sleep(5 * time.Second) // by when it has answered
			o.set(20 * time.Second)
			call("answer 3", 200*time.Millisecond)
			s := tr.Snapshot()[0]
			if s.Counts.Calls != 9 || s.Counts.Attempts != 4 || s.Counts.Stale != 7 || s.InFlight != 1 || s.Counts.Success != 3 {
				t.Errorf("%+v, %d in flight", s.Counts, s.InFlight)
			}
			starts, ends := 0, 0
			for _, e := range seen.Events() {
				if e.Kind == transport.EventCallEnd {
					ends++
				}
			}
			for _, s := range seen.Starts() {
				if s.Attempt == 0 {
					starts++
				}
			}
			if starts != 9 || ends != 9 {
				t.Errorf("%d calls were begun, %d have ended", starts, ends)
			}
			time.Sleep(time.Minute) // the last has run into Timeout.Read
			if s := tr.Snapshot()[0]; s.InFlight != 0 || s.Counts.Failure != 1 {
				t.Errorf("%+v, %d in flight", s.Counts, s.InFlight)
			}
		})
	}
}

func TestACallThatMayBeLeftBehindIsACallLikeOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := &moody{}
		o.does = keepable
		p := hurried(false)
		tr := under(t, transport.Config{Base: o, Default: p})
		fill := func() {
			t.Helper()
			if _, err := fetch(tr.Client(), get(t, "http://x.test/")); err != nil {
				t.Fatal(err)
			}
		}
		fill()
		o.set(100 * time.Millisecond)

		for name, does := range map[string]func(int, *http.Request) (*http.Response, error){
			"panics":             func(int, *http.Request) (*http.Response, error) { panic("planned") },
			"ends its goroutine": func(int, *http.Request) (*http.Response, error) { runtime.Goexit(); return nil, nil },
		} {
			o.does = does
			done := make(chan any, 1)
			go func() {
				defer func() { done <- recover() }()
				_, _ = tr.RoundTrip(get(t, "http://x.test/"))
				t.Errorf("a base that %s: returned", name)
			}()
			if v := <-done; (v == "planned") != (name == "panics") {
				t.Errorf("a base that %s: %v", name, v)
			}
		}

		o.does = keepable
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if _, err := tr.RoundTrip(get(t, "http://x.test/").WithContext(ctx)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("its caller left: %v", err)
		}

		o.does = func(n int, r *http.Request) (*http.Response, error) {
			resp, _ := keepable(n, r)
			resp.Body, resp.ContentLength, resp.TransferEncoding = io.NopCloser(stalled{r.Context()}), -1, []string{"chunked"}
			return resp, nil
		}
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		resp, err := tr.RoundTrip(get(t, "http://x.test/").WithContext(ctx))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(resp.Body); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a body whose caller left: %v", err)
		}
		_ = resp.Body.Close()

		o.does = func(n int, r *http.Request) (*http.Response, error) { return nil, errors.New("reset") }
		resp, err = tr.RoundTrip(get(t, "http://x.test/"))
		if err != nil || resp.Header.Get("Cache-Status") == "" {
			t.Errorf("%v, %v; want the stored answer", resp, err)
		}
		transporttest.CheckPermits(t, tr)
		if s := tr.Snapshot()[0]; s.Counts.Calls != 6 {
			t.Errorf("%d calls", s.Counts.Calls)
		}
	})
}

func TestHooksDoNotOutliveTheirCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := transporttest.NewNet(t, nil)
		o.Script(transporttest.Step{Body: "x", Header: cached("1")}, transporttest.Step{Body: "y", Delay: time.Second, Header: cached("1")})
		tr := under(t, transport.Config{Base: o.Base(), Default: hurried(false)})
		if _, err := fetch(tr.Client(), get(t, o.URL)); err != nil {
			t.Fatal(err)
		}
		var over atomic.Bool
		trace, _ := everyHook(func(hook string) {
			if over.Load() {
				t.Errorf("%s after the call", hook)
			}
		})
		text, err := fetch(tr.Client(), get(t, o.URL).WithContext(httptrace.WithClientTrace(t.Context(), trace)))
		over.Store(true)
		if text != "x" || err != nil {
			t.Error(text, err)
		}
		time.Sleep(time.Minute)
	})
}

func TestCloseEndsWhatWasLeftBehind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := &moody{does: keepable}
		tr := under(t, transport.Config{Base: o, Default: hurried(false)})
		_, _ = fetch(tr.Client(), get(t, "http://x.test/"))
		o.set(time.Hour)
		_, _ = fetch(tr.Client(), get(t, "http://x.test/"))
		mustCloseAtOnce(t, tr)
	})
}

func TestNoCallerIsTheProbeWhereThereIsSomethingStored(t *testing.T) {
	t.Parallel()
	for name, healed := range map[string]bool{"it is well again": true, "it is not": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := &moody{does: keepable}
				p := freshPolicy()
				p.Breaker = policy.Breaker{ConsecutiveFailures: 1, OpenFor: time.Minute, HalfOpenProbes: 3}
				tr := under(t, transport.Config{Base: o, Default: p})
				call := func(path string, want bool) {
					t.Helper()
					start := time.Now()
					resp, err := tr.RoundTrip(get(t, "http://x.test"+path))
					if err == nil {
						_, _ = io.Copy(io.Discard, resp.Body)
						_ = resp.Body.Close()
					}
					if ok := err == nil && time.Since(start) == 0; ok != want {
						t.Errorf("%s: %v after %v, want an answer at once: %v", path, err, time.Since(start), want)
					}
				}
				call("/a", true)
				o.set(time.Hour)
				call("/b", false) // opens the breaker
				time.Sleep(2 * time.Minute)
				before := o.count()
				if healed {
					o.set(time.Second)
				}
				call("/a", true)
				synctest.Wait()
				if n := o.count(); n != before+1 {
					t.Errorf("%d probes", n-before)
				}
				for range 20 {
					time.Sleep(2 * time.Second)
					call("/a", true)
				}
				if s := tr.Snapshot()[0]; (s.State == transport.Closed) != healed {
					t.Errorf("the breaker is %v after %d requests", s.State, o.count())
				}
			})
		})
	}
}

// Refreshes that hang keep no breaker from being probed.
func TestACallerIsTheProbeWhereNoRefreshCanBe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		answers, hangs := 0, false
		p := freshPolicy()
		p.Timeout = policy.Timeout{}
		p.Breaker = policy.Breaker{ConsecutiveFailures: 1, OpenFor: 5 * time.Second, HalfOpenProbes: 1}
		tr := under(t, transport.Config{Base: rt(func(r *http.Request) (*http.Response, error) {
			if strings.HasPrefix(r.URL.Path, "/hangs") && hangs {
				<-r.Context().Done()
				return nil, r.Context().Err()
			}
			if r.URL.Path == "/fails" {
				return nil, errors.New("reset")
			}
			answers++
			resp, _ := keepable(answers, r)
			resp.Header = cached("1, stale-while-revalidate=3600")
			return resp, nil
		}), Default: p})
		others := func() {
			for i := range 16 {
				_, _ = fetch(tr.Client(), get(t, "http://x.test/hangs/"+string(rune('a'+i))))
			}
		}
		others()
		if text, err := fetch(tr.Client(), get(t, "http://x.test/")); text != "answer 17" || err != nil {
			t.Fatal(text, err)
		}
		time.Sleep(2 * time.Second)
		hangs = true
		others()
		synctest.Wait()
		_, _ = fetch(tr.Client(), get(t, "http://x.test/fails"))
		time.Sleep(10 * time.Second)
		req := get(t, "http://x.test/")
		req.Header.Set("Cache-Control", "max-age=5, stale-if-error=3600") // what is stale it takes only in place of a failure
		if text, err := fetch(tr.Client(), req); text != "answer 18" || err != nil {
			t.Errorf("%q, %v: want the probe's", text, err)
		}
		if s := tr.Snapshot()[0]; s.State != transport.Closed {
			t.Errorf("%v", s.State)
		}
		_ = tr.Close()
	})
}

// A body that is forgotten is found, also that of a call which would not have waited for
// long.
func TestForgottenBodyOfACallThatHurriesIsFound(t *testing.T) {
	transporttest.CheckLeaks(t)
	o := transporttest.NewOrigin(t)
	lasting := http.Header{"Cache-Control": {"max-age=0, stale-if-error=1000"}}
	o.Script(transporttest.Step{Body: "first", Header: lasting}, transporttest.Step{Size: 4 << 20, Header: lasting})
	p := policy.Service()
	p.Bulkhead.BodyIdle = 0
	p.Fallback.After = 5 * time.Second
	var rec transporttest.Recorder
	tr := bulkheadNew(t, transport.Config{Base: o.Base(), Default: p, Observer: &rec})
	resp, err := tr.Client().Get(o.URL)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	func() {
		if resp := bulkheadGet(t, tr, o.URL); resp.ContentLength != 4<<20 {
			t.Errorf("%d bytes", resp.ContentLength)
		}
	}()
	bodyCollect(t, "the permit", bodyLeaked(tr))
	if e := rec.WaitFor(t, transport.EventLeak); e[0].Reason != "unreachable" {
		t.Errorf("%+v", e)
	}
}
