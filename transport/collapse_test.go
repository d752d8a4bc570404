package transport_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
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
