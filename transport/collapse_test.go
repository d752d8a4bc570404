package transport_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
)

// slowly answers after a second, each call with what answer makes of its number from 1,
// and counts them.
type slowly struct {
	mu     sync.Mutex
	calls  int
	answer func(n int, r *http.Request) (*http.Response, error)
}

func (s *slowly) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	s.calls++
	n := s.calls
	s.mu.Unlock()
	select {
	case <-time.After(time.Second):
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	return s.answer(n, r)
}

// keep is an answer that may be reused for a minute.
func keepable(n int, r *http.Request) (*http.Response, error) {
	resp := ok(r, fmt.Sprint("answer ", n))
	resp.Header = cached("60")
	return resp, nil
}

// herd makes n identical calls at once, the first a moment earlier, and returns when the
// last one ended, and what they got.
func herd(t *testing.T, tr http.RoundTripper, n int, change func(i int, r *http.Request)) (took time.Duration, got []string) {
	t.Helper()
	start := time.Now()
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			req := get(t, "http://x.test/")
			if change != nil {
				change(i, req)
			}
			resp, err := tr.RoundTrip(req)
			text := fmt.Sprint(err)
			if err == nil {
				b, err := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				text = string(b)
				if err != nil {
					text += fmt.Sprint(" ", err)
				}
				if label := resp.Header.Get("Cache-Status"); label != "" {
					text += " " + label
				}
			}
			mu.Lock()
			got = append(got, text)
			mu.Unlock()
		})
		if i == 0 {
			synctest.Wait()
		}
	}
	all.Wait()
	slices.Sort(got)
	return time.Since(start), got
}

func TestIdenticalRequestsWaitForOneAnswer(t *testing.T) {
	t.Parallel()
	const others = "answer 1 watertight; fwd=uri-miss; collapsed; ttl=59"
	for name, test := range map[string]struct {
		policy func(*policy.Policy)
		answer func(n int, r *http.Request) (*http.Response, error)
		change func(i int, r *http.Request)
		calls  int
		took   time.Duration
		want   []string // of five
	}{
		"storable": {answer: keepable, calls: 1, took: time.Second, want: []string{"answer 1", others, others, others, others}},
		"of two callers": {answer: keepable, calls: 2, took: time.Second, change: func(i int, r *http.Request) { r.Header.Set("Cookie", fmt.Sprint(i%2)) },
			want: []string{"answer 1", others, others, "answer 2", "answer 2 watertight; fwd=uri-miss; collapsed; ttl=59"}},
		"that accept different things": {answer: keepable, calls: 5, took: time.Second, change: func(i int, r *http.Request) { r.Header.Set("Accept", fmt.Sprint(i)) },
			want: []string{"answer 1", "answer 2", "answer 3", "answer 4", "answer 5"}},
		"that want it new": {answer: keepable, calls: 5, took: time.Second, change: func(_ int, r *http.Request) { r.Header.Set("Cache-Control", "no-cache") },
			want: []string{"answer 1", "answer 2", "answer 3", "answer 4", "answer 5"}},
		"where nothing is reused": {answer: keepable, calls: 5, took: time.Second, policy: func(p *policy.Policy) { p.Cache.Fresh = false },
			want: []string{"answer 1", "answer 2", "answer 3", "answer 4", "answer 5"}},
		"not storable": {calls: 5, took: 2 * time.Second, answer: func(n int, r *http.Request) (*http.Response, error) {
			resp, _ := keepable(n, r)
			resp.Header = http.Header{"Cache-Control": {"no-store"}}
			return resp, nil
		}, want: []string{"answer 1", "answer 2", "answer 3", "answer 4", "answer 5"}},
		"stale from the start": {calls: 5, took: 2 * time.Second, answer: func(n int, r *http.Request) (*http.Response, error) {
			resp, _ := keepable(n, r)
			resp.Header = cached("0", "Etag", fmt.Sprintf("%q", fmt.Sprint(n)))
			return resp, nil
		}, want: []string{"answer 1", "answer 2", "answer 3", "answer 4", "answer 5"}},
		"a stream": {calls: 5, took: 2 * time.Second, answer: func(n int, r *http.Request) (*http.Response, error) {
			resp, _ := keepable(n, r)
			resp.Header.Set("Content-Type", "text/event-stream")
			return resp, nil
		}, want: []string{"answer 1", "answer 2", "answer 3", "answer 4", "answer 5"}},
		"too long": {calls: 5, took: 2 * time.Second, answer: func(n int, r *http.Request) (*http.Response, error) {
			resp := ok(r, strings.Repeat("x", 2<<20))
			resp.Header, resp.ContentLength = cached("60"), -1
			resp.TransferEncoding = []string{"chunked"}
			return resp, nil
		}, want: slices.Repeat([]string{strings.Repeat("x", 2<<20)}, 5)},
		"the first fails": {calls: 5, took: 2 * time.Second, answer: func(n int, r *http.Request) (*http.Response, error) {
			if n == 1 {
				return nil, errors.New("reset")
			}
			return keepable(n, r)
		}, want: []string{"answer 2", "answer 3", "answer 4", "answer 5", "reset"}},
		"the first is cut": {calls: 5, took: 2 * time.Second, answer: func(n int, r *http.Request) (*http.Response, error) {
			resp, _ := keepable(n, r)
			if n == 1 {
				resp.Body, resp.ContentLength = io.NopCloser(io.MultiReader(strings.NewReader("answer"), cut{})), 20
			}
			return resp, nil
		}, want: []string{"answer 2", "answer 3", "answer 4", "answer 5", "answer unexpected EOF"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				base := &slowly{answer: test.answer}
				p := freshPolicy()
				p.Breaker = policy.Breaker{}
				if test.policy != nil {
					test.policy(&p)
				}
				tr := under(t, transport.Config{Base: base, Default: p})
				took, got := herd(t, tr, 5, test.change)
				for i := range got { // what differs
					got[i] = strings.TrimSuffix(got[i], " watertight; hit; ttl=60")
				}
				if took != test.took || base.calls != test.calls || !slices.Equal(got, test.want) {
					t.Errorf("%d calls, %v; want %d, %v", base.calls, took, test.calls, test.took)
					if len(got[0]) < 1000 {
						t.Errorf("%q\nwant %q", got, test.want)
					}
				}
			})
		})
	}
}

// cut fails to be read.
type cut struct{}

func (cut) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestRequestsDoNotWaitInVainTwice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := &slowly{answer: func(n int, r *http.Request) (*http.Response, error) { return ok(r, "x"), nil }}
		tr := under(t, transport.Config{Base: base, Default: freshPolicy()})
		for _, want := range []time.Duration{2 * time.Second, time.Second, time.Second} {
			if took, _ := herd(t, tr, 5, nil); took != want {
				t.Errorf("took %v, want %v", took, want)
			}
		}
		time.Sleep(11 * time.Second)
		if took, _ := herd(t, tr, 5, nil); took != 2*time.Second {
			t.Errorf("after ten seconds: took %v", took)
		}
	})
}

func TestWhoWaitsForAnotherKeepsHisOwnLimits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := &slowly{answer: keepable}
		p := freshPolicy()
		p.Timeout.Total = 600 * time.Millisecond
		tr := under(t, transport.Config{Base: base, Default: p})
		took, got := herd(t, tr, 3, func(i int, r *http.Request) {
			if i == 2 {
				ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
				time.AfterFunc(time.Minute, cancel)
				*r = *r.WithContext(ctx)
			}
		})
		want := []string{"context deadline exceeded", "watertight: x.test:80: total timeout in phase total after 600ms", "watertight: x.test:80: total timeout in phase total after 600ms"}
		for i := range want {
			if !strings.HasPrefix(got[i], want[i]) {
				t.Errorf("%q, want %q", got, want)
			}
		}
		if took != 600*time.Millisecond || base.calls != 1 {
			t.Errorf("%d calls, took %v", base.calls, took)
		}
	})
}

func TestWhenTheFirstLeavesTheOthersGo(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(t *testing.T, tr http.RoundTripper){
		"before the answer": func(t *testing.T, tr http.RoundTripper) {
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			if _, err := tr.RoundTrip(get(t, "http://x.test/").WithContext(ctx)); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		},
		"in the middle of the body": func(t *testing.T, tr http.RoundTripper) {
			resp, err := tr.RoundTrip(get(t, "http://x.test/"))
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
		},
		"by a panic": func(t *testing.T, tr http.RoundTripper) {
			defer func() { _ = recover() }()
			req := get(t, "http://x.test/")
			req.Header.Set("X-Panic", "1")
			_, _ = tr.RoundTrip(req)
			t.Error("no panic")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				base := &slowly{answer: func(n int, r *http.Request) (*http.Response, error) {
					if r.Header.Get("X-Panic") != "" {
						panic("planned")
					}
					resp, err := keepable(n, r)
					if n == 1 {
						resp.Body = io.NopCloser(io.MultiReader(strings.NewReader("ans"), stalled{r.Context()}))
					}
					return resp, err
				}}
				tr := under(t, transport.Config{Base: base, Default: freshPolicy()})
				var all sync.WaitGroup
				all.Go(func() { leave(t, tr) })
				synctest.Wait()
				_, got := herd(t, tr, 4, nil)
				all.Wait()
				if base.calls != 5 || !strings.HasPrefix(got[0], "answer 2") {
					t.Errorf("%d calls: %q", base.calls, got)
				}
				if s := tr.Snapshot()[0]; s.InFlight != 0 {
					t.Errorf("%d in flight", s.InFlight)
				}
			})
		})
	}
}

// stalled is a body that gives nothing until its context ends.
type stalled struct{ ctx context.Context }

func (s stalled) Read([]byte) (int, error) {
	<-s.ctx.Done()
	return 0, context.Cause(s.ctx)
}

func TestNobodyWaitsForASlowReader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := &slowly{answer: keepable}
		tr := under(t, transport.Config{Base: base, Default: freshPolicy()})
		resp, err := tr.RoundTrip(get(t, "http://x.test/"))
		if err != nil {
			t.Fatal(err)
		}
		if took, got := herd(t, tr, 3, nil); took != 2*time.Second || base.calls != 4 {
			t.Errorf("%d calls, took %v: %q", base.calls, took, got)
		}
		_ = resp.Body.Close()
	})
}

// Nobody waits behind one after the other for answers that nobody gets.
func TestCallersAreNotSerialised(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		answer func(n int, r *http.Request) (*http.Response, error)
		unread bool
	}{
		"who close their answers unread": {answer: keepable, unread: true},
		"of answers that are cut": {answer: func(n int, r *http.Request) (*http.Response, error) {
			resp, _ := keepable(n, r)
			resp.Body, resp.ContentLength = io.NopCloser(io.MultiReader(strings.NewReader("answer"), cut{})), 100
			return resp, nil
		}},
		"of failures":                    {answer: func(int, *http.Request) (*http.Response, error) { return nil, errors.New("reset") }},
		"of failures that have a status": {answer: func(_ int, r *http.Request) (*http.Response, error) { return status(r, 503, "down"), nil }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				base := &slowly{answer: test.answer}
				p := freshPolicy()
				p.Breaker = policy.Breaker{}
				tr := under(t, transport.Config{Base: base, Default: p})
				start := time.Now()
				var all sync.WaitGroup
				for range 50 {
					all.Go(func() {
						resp, err := tr.RoundTrip(get(t, "http://x.test/"))
						if err != nil {
							return
						}
						if !test.unread {
							_, _ = io.Copy(io.Discard, resp.Body)
						}
						_ = resp.Body.Close()
					})
				}
				all.Wait()
				if d := time.Since(start); d != 2*time.Second || base.calls != 50 {
					t.Errorf("took %v, %d calls", d, base.calls)
				}
			})
		})
	}
}

func TestAPatientCallerIsNotStarvedByImpatientOnes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := &slowly{answer: keepable}
		tr := under(t, transport.Config{Base: base, Default: freshPolicy()})
		over := make(chan struct{})
		var all sync.WaitGroup
		all.Go(func() {
			for {
				select {
				case <-over:
					return
				case <-time.After(10 * time.Millisecond):
				}
				all.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
					defer cancel()
					_, _ = fetch(tr.Client(), get(t, "http://x.test/").WithContext(ctx))
				})
			}
		})
		time.Sleep(time.Second)
		start := time.Now()
		if text, err := fetch(tr.Client(), get(t, "http://x.test/")); !strings.HasPrefix(text, "answer ") || err != nil {
			t.Errorf("%q, %v", text, err)
		}
		if d := time.Since(start); d > 1500*time.Millisecond { // one impatient one, and its own
			t.Errorf("took %v", d)
		}
		close(over)
		all.Wait()
	})
}

// The first one's may be longer.
func TestAFollowerWaitsNoLongerThanItsOwnLimits(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		policy func(*policy.Policy)
		call   transport.Call
	}{
		"Timeout.Read":    {policy: func(p *policy.Policy) { p.Timeout.Read = time.Second }},
		"Timeout.Attempt": {policy: func(p *policy.Policy) { p.Timeout.Attempt = time.Second }},
		"Breaker.SlowCall": {policy: func(p *policy.Policy) {
			p.Breaker.SlowCall, p.Breaker.SlowRate, p.Breaker.MinCalls = time.Second, 1, 100
		}},
		"of the call":  {call: transport.Call{Timeout: policy.Timeout{Read: time.Second}}},
		"its SlowCall": {call: transport.Call{SlowCall: time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				o := &moody{}
				o.does = func(n int, r *http.Request) (*http.Response, error) {
					if n == 1 {
						<-r.Context().Done()
						return nil, r.Context().Err()
					}
					return keepable(n, r)
				}
				p := freshPolicy()
				p.Breaker = policy.Breaker{Window: 10 * time.Second}
				p.Timeout = policy.Timeout{}
				if test.policy != nil {
					test.policy(&p)
				}
				if p.Breaker.SlowCall == 0 {
					p.Breaker = policy.Breaker{}
				}
				tr := under(t, transport.Config{Base: o, Default: p})
				var all sync.WaitGroup
				all.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
					defer cancel()
					ctx = transport.WithCall(ctx, transport.Call{SlowCall: time.Hour, Timeout: policy.Timeout{Read: time.Hour, Attempt: time.Hour}})
					_, _ = fetch(tr.Client(), get(t, "http://x.test/").WithContext(ctx))
				})
				synctest.Wait()
				start := time.Now()
				text, err := fetch(tr.Client(), get(t, "http://x.test/").WithContext(transport.WithCall(t.Context(), test.call)))
				if d := time.Since(start); text != "answer 2" || err != nil || d != time.Second {
					t.Errorf("%q, %v after %v", text, err, d)
				}
				all.Wait()
			})
		})
	}
}

// Whoever has it may not read it for as long as he likes.
func TestAnOpenBodyDelaysLaterCallersOnce(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		after time.Duration
		once  time.Duration
	}{"at once": {0, time.Second}, "after a while": {300 * time.Millisecond, 700 * time.Millisecond}, "after a minute": {time.Minute, 0}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				tr := under(t, transport.Config{Base: &moody{does: keepable}, Default: freshPolicy()})
				first, err := tr.RoundTrip(get(t, "http://x.test/"))
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(test.after)
				want := test.once
				for i := range 30 {
					start := time.Now()
					resp, err := tr.RoundTrip(get(t, "http://x.test/"))
					if err != nil {
						t.Fatal(err)
					}
					_ = resp.Body.Close() // unread too
					if d := time.Since(start); d != want {
						t.Errorf("call %d took %v, want %v", i, d, want)
					}
					want = 0
					time.Sleep(time.Second)
				}
				_ = first.Body.Close()
			})
		})
	}
}

// No answer of such a kind is for another caller before it has been asked about.
func TestWhatMustBeValidatedIsNotWaitedForTwice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := &slowly{answer: func(n int, r *http.Request) (*http.Response, error) {
			resp, _ := keepable(n, r)
			if r.Header.Get("If-None-Match") == `"1"` {
				resp = status(r, 304, "")
			}
			resp.Header = http.Header{"Cache-Control": {"no-cache"}, "Etag": {`"1"`}}
			return resp, nil
		}}
		tr := under(t, transport.Config{Base: base, Default: freshPolicy()})
		herd(t, tr, 1, nil)
		time.Sleep(time.Minute)
		for i, want := range []time.Duration{2 * time.Second, time.Second, time.Second, time.Second} {
			before := base.calls
			if took, got := herd(t, tr, 5, nil); took != want || base.calls != before+5 {
				t.Errorf("%d: took %v, want %v: %d calls, %q", i, took, want, base.calls-before, got)
			}
		}
	})
}

func TestACallThatWantsNothingStoredFollowsNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := &slowly{answer: lingering}
		p := freshPolicy()
		p.Fallback.After = 100 * time.Millisecond
		tr := under(t, transport.Config{Base: base, Default: p})
		noStale := func(want string) {
			t.Helper()
			start := time.Now()
			text, err := fetch(tr.Client(), get(t, "http://x.test/").WithContext(transport.WithCall(t.Context(), transport.Call{NoStale: true})))
			if text != want || err != nil || time.Since(start) != time.Second {
				t.Errorf("%q, %v after %v; want %q", text, err, time.Since(start), want)
			}
		}
		var all sync.WaitGroup
		all.Go(func() { _, _ = fetch(tr.Client(), get(t, "http://x.test/")) })
		synctest.Wait()
		time.Sleep(500 * time.Millisecond)
		noStale("answer 2") // while another is under way
		all.Wait()
		noStale("answer 3") // what is stored is fresh
		time.Sleep(time.Minute)
		noStale("answer 4") // it may be served while it is asked for again
	})
}

func TestACallThatWantsNothingStoredGetsNothingStoredInHalfOpen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tr := probed(t, &moody{does: func(n int, r *http.Request) (*http.Response, error) {
			resp, _ := keepable(n, r)
			resp.Header = cached("3600")
			return resp, nil
		}})
		text, err := fetch(tr.Client(), get(t, "http://x.test/").WithContext(transport.WithCall(t.Context(), transport.Call{NoStale: true})))
		if text != "answer 2" || err != nil {
			t.Errorf("%q, %v; want the probe's", text, err)
		}
	})
}

// What is remembered of requests that are not worth waiting for is not their URLs. Not parallel: it looks at the heap.
func TestMarksAreBoundedInMemory(t *testing.T) {
	tr := under(t, transport.Config{Default: policy.Policy{Cache: policy.Cache{Fresh: true}}, Base: rt(func(r *http.Request) (*http.Response, error) {
		resp := ok(r, "")
		resp.Body, resp.Header = http.NoBody, http.Header{"Cache-Control": {"no-store"}}
		return resp, nil
	})})
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	long := strings.Repeat("x", 7000)
	before := heap()
	for i := range 4000 {
		resp, err := tr.RoundTrip(get(t, fmt.Sprintf("http://x.test/?q=%d%s", i, long)))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
	}
	if held := heap() - before; held > 8<<20 {
		t.Errorf("%d MiB are held", held>>20)
	}
	runtime.KeepAlive(tr)
}
