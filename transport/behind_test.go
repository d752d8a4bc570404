package transport_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/transporttest"
)

// brief is an answer that is stale after a second.
func brief(n int, r *http.Request) (*http.Response, error) {
	resp, _ := keepable(n, r)
	resp.Header = cached("1")
	return resp, nil
}

// lingering is one that may be served for a day after that, while it is asked for again.
func lingering(n int, r *http.Request) (*http.Response, error) {
	resp, _ := keepable(n, r)
	resp.Header = cached("1, stale-while-revalidate=86400")
	return resp, nil
}

// hanging is a RoundTripper that hangs until its request ends, and then tells for how long.
func hanging(r *http.Request, ended func(time.Duration)) (*http.Response, error) {
	start := time.Now()
	<-r.Context().Done()
	ended(time.Since(start))
	return nil, r.Context().Err()
}

// probed is a Transport whose breaker lets a probe through, with an answer of
// http://x.test/ in its store that is two minutes old.
func probed(t *testing.T, base http.RoundTripper) *transport.Transport {
	t.Helper()
	tr := under(t, transport.Config{Default: freshPolicy(), Base: rt(func(r *http.Request) (*http.Response, error) {
		if r.URL.Path == "/fails" {
			return nil, errors.New("reset")
		}
		return base.RoundTrip(r)
	})})
	if _, err := fetch(tr.Client(), get(t, "http://x.test/")); err != nil {
		t.Fatal(err)
	}
	_, _ = fetch(tr.Client(), get(t, "http://x.test/fails")) // opens the breaker
	time.Sleep(2 * time.Minute)
	return tr
}

// What goes on behind a call has a copy of its request. With the race detector.
func TestACallersRequestIsHisAgainWhenHisCallIsOver(t *testing.T) {
	t.Parallel()
	for name, make := range map[string]func(t *testing.T, o *moody) *transport.Transport{
		"stale-while-revalidate": func(t *testing.T, o *moody) *transport.Transport {
			o.does = lingering
			tr := under(t, transport.Config{Base: o, Default: freshPolicy()})
			_, _ = fetch(tr.Client(), get(t, "http://x.test/"))
			time.Sleep(2 * time.Second)
			return tr
		},
		"a probe": func(t *testing.T, o *moody) *transport.Transport { return probed(t, o) },
		"Fallback.After": func(t *testing.T, o *moody) *transport.Transport {
			tr := under(t, transport.Config{Base: o, Default: hurried(true)})
			_, _ = fetch(tr.Client(), get(t, "http://x.test/"))
			time.Sleep(2 * time.Minute)
			o.set(time.Second)
			return tr
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 20 {
				synctest.Test(t, func(t *testing.T) {
					var asked []string
					o := &moody{does: keepable}
					tr := make(t, o)
					does := o.does
					o.does = func(n int, r *http.Request) (*http.Response, error) {
						asked = append(asked, fmt.Sprint(r.Method, " ", r.URL, " ", r.Header))
						return does(n, r)
					}
					req := get(t, "http://x.test/")
					req.Header.Set("Accept", "a")
					resp, err := tr.RoundTrip(req)
					if err != nil {
						t.Fatal(err)
					}
					_ = resp.Body.Close()
					req.Header.Set("Accept", "changed")
					req.Header.Set("X-New", "changed")
					req.URL.Path, req.Method = "/changed", http.MethodPost
					time.Sleep(5 * time.Second)
					synctest.Wait()
					if len(asked) != 1 || asked[0] != "GET http://x.test/ map[Accept:[a]]" {
						t.Errorf("asked %q", asked)
					}
				})
			}
		})
	}
}

func TestHooksDoNotRunInARefresh(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		steps []transporttest.Step
		path  string
	}{
		"stale-while-revalidate": {steps: []transporttest.Step{{Body: "x", Header: cached("1, stale-while-revalidate=3600")}}},
		"a probe":                {steps: []transporttest.Step{{Body: "x", Header: cached("1")}, {Status: 503}}, path: "/fails"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				o := transporttest.NewNet(t, nil)
				o.Script(append(test.steps, transporttest.Step{Body: "y", Delay: time.Second, Header: cached("1")})...)
				tr := under(t, transport.Config{Base: o.Base(), Default: freshPolicy()})
				_, _ = fetch(tr.Client(), get(t, o.URL))
				if test.path != "" {
					_, _ = fetch(tr.Client(), get(t, o.URL+test.path))
				}
				time.Sleep(2 * time.Minute)
				before := len(o.Hits())
				trace, _ := everyHook(func(hook string) { t.Errorf("%s, of a call that is answered from the store", hook) })
				text, err := fetch(tr.Client(), get(t, o.URL).WithContext(httptrace.WithClientTrace(t.Context(), trace)))
				if text != "x" || err != nil {
					t.Error(text, err)
				}
				time.Sleep(time.Minute)
				if n := len(o.Hits()) - before; n != 1 {
					t.Errorf("%d requests in the background", n)
				}
			})
		})
	}
}

// A base may ask others on the context of its request, for a token say.
func TestACallThatTheBaseMakesIsOneOfItsOwn(t *testing.T) {
	t.Parallel()
	for name, does := range map[string]func(int, *http.Request) (*http.Response, error){"Fallback.After": brief, "stale-while-revalidate": lingering} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var tr *transport.Transport
				tokens, asked := 0, 0
				var seen transporttest.Recorder
				tr = under(t, transport.Config{Default: hurried(true), Observer: &seen, Base: rt(func(r *http.Request) (*http.Response, error) {
					if r.URL.Host == "token.test" {
						tokens++
						resp, err := keepable(tokens, r)
						resp.Header = cached("3600")
						return resp, err
					}
					asked++
					req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, "http://token.test/", nil)
					if err != nil {
						return nil, err
					}
					if text, err := fetch(tr.Client(), req); text != "answer 1" || err != nil {
						t.Errorf("%q, %v", text, err)
					}
					return does(asked, r)
				})})
				const calls = 6
				for range calls {
					if _, err := fetch(tr.Client(), get(t, "http://x.test/")); err != nil {
						t.Fatal(err)
					}
					time.Sleep(5 * time.Second)
					synctest.Wait()
				}
				if tokens != 1 || asked != calls {
					t.Errorf("%d requests, and %d for a token that is fresh", asked, tokens)
				}
				for _, s := range tr.Snapshot() {
					if s.Counts.Calls != calls || strings.HasPrefix(s.Host, "token") && s.Counts.Hits != calls-1 {
						t.Errorf("%s: %+v", s.Host, s.Counts)
					}
				}
				starts := 0
				for _, s := range seen.Starts() {
					if s.Attempt == 0 {
						starts++
					}
				}
				if n := seen.Count(transport.EventCallEnd); starts != 2*calls || n != 2*calls {
					t.Errorf("%d calls were begun and %d have ended, want %d", starts, n, 2*calls)
				}
			})
		})
	}
}

// Who counts calls, or the failures of calls, counts what callers got.
func TestRefreshesAreNoCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := &moody{does: func(n int, r *http.Request) (*http.Response, error) {
			if n > 1 {
				return nil, errors.New("reset")
			}
			return lingering(n, r)
		}}
		var seen transporttest.Recorder
		p := freshPolicy()
		p.Breaker = policy.Breaker{}
		tr := under(t, transport.Config{Base: o, Default: p, Observer: &seen})
		for range 5 {
			if text, err := fetch(tr.Client(), get(t, "http://x.test/")); text != "answer 1" || err != nil {
				t.Fatal(text, err)
			}
			time.Sleep(10 * time.Second)
			synctest.Wait()
		}
		if c := tr.Snapshot()[0].Counts; c.Calls != 5 || c.Attempts != 5 || c.Refreshes != 4 || c.Hits != 4 || c.Stale != 0 {
			t.Errorf("%+v", c)
		}
		starts := 0
		for _, s := range seen.Starts() {
			if s.Attempt == 0 {
				starts++
			}
		}
		ends := seen.Events(transport.EventCallEnd)
		for _, e := range ends {
			if e.Err != nil {
				t.Errorf("a call has ended with %v", e.Err)
			}
		}
		if starts != 5 || len(ends) != 5 {
			t.Errorf("%d calls were begun, %d have ended", starts, len(ends))
		}
	})
}

// One that hangs would keep the answer as it is for good, where nothing else is limited.
func TestWhatGoesOnBehindACallEndsAfterHalfAMinute(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		does func(int, *http.Request) (*http.Response, error)
		took time.Duration
		want []string
	}{
		"Fallback.After":         {brief, 30*time.Second + 200*time.Millisecond, []string{"answer 1", "answer 1", "answer 3"}},
		"stale-while-revalidate": {lingering, 30 * time.Second, []string{"answer 1", "answer 1", "answer 1", "answer 3"}},
	} {
		for _, fresh := range []bool{true, false} {
			if !fresh && name != "Fallback.After" {
				continue
			}
			synctest.Test(t, func(t *testing.T) {
				var took time.Duration
				o := &moody{}
				o.does = func(n int, r *http.Request) (*http.Response, error) {
					if n == 2 {
						return hanging(r, func(d time.Duration) { took = d })
					}
					return test.does(n, r)
				}
				p := hurried(fresh)
				p.Timeout = policy.Timeout{}
				tr := under(t, transport.Config{Base: o, Default: p})
				for i, want := range test.want {
					if text, err := fetch(tr.Client(), get(t, "http://x.test/")); text != want || err != nil {
						t.Errorf("%s, fresh=%v, %d: %q, %v; want %q", name, fresh, i, text, err, want)
					}
					time.Sleep(time.Minute)
					synctest.Wait()
				}
				if took != test.took {
					t.Errorf("%s, fresh=%v: ended after %v, want %v", name, fresh, took, test.took)
				}
				if s := tr.Snapshot()[0]; s.InFlight != 0 {
					t.Errorf("%s, fresh=%v: %d in flight", name, fresh, s.InFlight)
				}
			})
		}
	}
}

func TestRefreshesAreBoundedForEachHost(t *testing.T) {
	t.Parallel()
	for name, does := range map[string]func(int, *http.Request) (*http.Response, error){"Fallback.After": brief, "stale-while-revalidate": lingering} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var hangs, hung, good atomic.Int64
				p := hurried(true)
				p.Bulkhead, p.Breaker, p.Timeout = policy.Bulkhead{}, policy.Breaker{}, policy.Timeout{}
				tr := under(t, transport.Config{Default: p, Base: rt(func(r *http.Request) (*http.Response, error) {
					if hangs.Load() > 0 && r.URL.Host == "hung.test" {
						hung.Add(1)
						return hanging(r, func(time.Duration) { hung.Add(-1) })
					}
					if r.URL.Host == "good.test" {
						good.Add(1)
						if hangs.Load() > 0 {
							time.Sleep(time.Second)
						}
					}
					return does(int(good.Load()), r)
				})})
				const answers = 20
				ask := func(i int) error {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					_, err := fetch(tr.Client(), get(t, fmt.Sprint("http://hung.test/", i)).WithContext(ctx))
					return err
				}
				for i := range answers {
					if err := ask(i); err != nil {
						t.Fatal(err)
					}
				}
				_, _ = fetch(tr.Client(), get(t, "http://good.test/"))
				time.Sleep(2 * time.Second)
				hangs.Store(1)
				served := 0
				for i := range answers {
					if ask(i) == nil {
						served++
					}
				}
				if n := hung.Load(); n != 16 || served != 16 { // the others' callers waited for their own
					t.Errorf("%d go on, %d callers were served", n, served)
				}
				start := time.Now()
				if text, err := fetch(tr.Client(), get(t, "http://good.test/")); text != "answer 1" || err != nil || time.Since(start) > 200*time.Millisecond {
					t.Errorf("another host: %q, %v after %v", text, err, time.Since(start))
				}
				time.Sleep(1900 * time.Millisecond)
				if n := good.Load(); n != 2 {
					t.Errorf("another host's was not refreshed: %d requests", n)
				}
				time.Sleep(time.Minute)
				if n := hung.Load(); n != 0 {
					t.Errorf("%d go on after a minute", n)
				}
			})
		})
	}
}

// It would be served stale for as long as others hang.
func TestACallWhoseRefreshCannotBeginValidatesItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hangs := false
		p := freshPolicy()
		p.Breaker, p.Timeout = policy.Breaker{}, policy.Timeout{}
		tr := under(t, transport.Config{Default: p, Base: rt(func(r *http.Request) (*http.Response, error) {
			if hangs && r.URL.Path != "/" {
				return hanging(r, func(time.Duration) {})
			}
			resp, _ := lingering(1, r)
			if r.Header.Get("If-None-Match") != "" {
				resp = status(r, 304, "")
			}
			resp.Header = cached("1, stale-while-revalidate=86400", "Etag", `"1"`)
			return resp, nil
		})})
		others := func() {
			for i := range 16 {
				_, _ = fetch(tr.Client(), get(t, fmt.Sprint("http://x.test/hangs/", i)))
			}
		}
		ask := func(label string) {
			t.Helper()
			resp, err := tr.RoundTrip(get(t, "http://x.test/"))
			if err != nil {
				t.Fatal(err)
			}
			if text, _ := io.ReadAll(resp.Body); string(text) != "answer 1" || resp.Header.Get("Cache-Status") != label {
				t.Errorf("%q %q, want %q", text, resp.Header["Cache-Status"], label)
			}
			_ = resp.Body.Close()
		}
		others()
		ask("")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		hangs = true
		others()
		ask("watertight; fwd=stale; fwd-status=304; ttl=1")
		time.Sleep(time.Minute)
		ask("watertight; hit; ttl=-59")
	})
}

func TestOnlyIfCachedSendsNothingInHalfOpen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := &moody{does: keepable}
		tr := probed(t, o)
		before := o.count()
		for path, want := range map[string]int{"/never": http.StatusGatewayTimeout, "/": http.StatusGatewayTimeout} {
			req := get(t, "http://x.test"+path)
			req.Header.Set("Cache-Control", "only-if-cached")
			resp, err := tr.RoundTrip(req)
			if err != nil || resp.StatusCode != want {
				t.Errorf("%s: %v, %v", path, resp, err)
			}
			synctest.Wait()
		}
		if n := o.count() - before; n != 0 {
			t.Errorf("%d requests were sent", n)
		}
	})
}

func TestCancelAfterTheCallEndsNoRequestBehindIt(t *testing.T) {
	t.Parallel()
	for name, does := range map[string]func(int, *http.Request) (*http.Response, error){"Fallback.After": brief, "stale-while-revalidate": lingering} {
		synctest.Test(t, func(t *testing.T) {
			n := 0
			o := rt(func(r *http.Request) (*http.Response, error) {
				n++
				if n > 1 {
					select {
					case <-time.After(time.Second):
					case <-r.Cancel:
						return nil, errors.New("cancelled")
					case <-r.Context().Done():
						return nil, r.Context().Err()
					}
				}
				return does(n, r)
			})
			tr := under(t, transport.Config{Base: o, Default: hurried(true)})
			for i, want := range []string{"answer 1", "answer 1", "answer 2"} {
				legacy := make(chan struct{})
				req := get(t, "http://x.test/")
				req.Cancel = legacy //nolint:staticcheck // callers have it still
				text, err := fetch(tr.Client(), req)
				close(legacy)
				if text != want || err != nil {
					t.Errorf("%s, %d: %q, %v; want %q", name, i, text, err, want)
				}
				time.Sleep(5 * time.Second)
				synctest.Wait()
			}
		})
	}
}

// Nobody else would hear of it.
func TestAPanicBehindACallIsLogged(t *testing.T) {
	t.Parallel()
	for name, does := range map[string]func(int, *http.Request) (*http.Response, error){"Fallback.After": brief, "stale-while-revalidate": lingering} {
		synctest.Test(t, func(t *testing.T) {
			o := &moody{}
			o.does = func(n int, r *http.Request) (*http.Response, error) {
				if n > 1 {
					panic("planned")
				}
				return does(n, r)
			}
			logs := &transporttest.Logs{}
			tr := transport.Must(transport.New(transport.Config{Base: o, Default: hurried(true), Logger: slog.New(logs)}))
			defer tr.Close()
			_, _ = fetch(tr.Client(), get(t, "http://x.test/"))
			time.Sleep(2 * time.Second)
			o.set(time.Second)
			if text, err := fetch(tr.Client(), get(t, "http://x.test/")); text != "answer 1" || err != nil {
				t.Errorf("%s: %q, %v", name, text, err)
			}
			time.Sleep(5 * time.Second)
			synctest.Wait()
			if !strings.Contains(logs.String(), "panic=planned") {
				t.Errorf("%s: in the log:\n%s", name, logs.String())
			}
			transporttest.CheckPermits(t, tr)
		})
	}
}

func TestCloseFromWithinARefreshReturns(t *testing.T) {
	t.Parallel()
	for name, does := range map[string]func(int, *http.Request) (*http.Response, error){"Fallback.After": brief, "stale-while-revalidate": lingering} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var tr *transport.Transport
				took := time.Duration(-1)
				o := &moody{}
				o.does = func(n int, r *http.Request) (*http.Response, error) {
					if n == 2 {
						start := time.Now()
						_ = tr.Close()
						took = time.Since(start)
					}
					return does(n, r)
				}
				tr = under(t, transport.Config{Base: o, Default: hurried(true)})
				_, _ = fetch(tr.Client(), get(t, "http://x.test/"))
				time.Sleep(2 * time.Second)
				o.set(time.Second)
				_, _ = fetch(tr.Client(), get(t, "http://x.test/"))
				time.Sleep(5 * time.Second)
				synctest.Wait()
				if took < 0 || took > time.Second {
					t.Errorf("Close took %v", took)
				}
			})
		})
	}
}

// Its request has been sent, whatever came of it.
func TestTheLabelOfAnAnswerAfterAWaitSaysThatTheRequestWasSent(t *testing.T) {
	t.Parallel()
	for _, fresh := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			o := &moody{does: brief}
			tr := under(t, transport.Config{Base: o, Default: hurried(fresh)})
			_, _ = fetch(tr.Client(), get(t, "http://x.test/"))
			time.Sleep(2 * time.Second)
			o.set(5 * time.Second)
			for _, want := range []string{"watertight; fwd=stale; ttl=-2; detail=timeout", "watertight; hit; ttl=-2; detail=timeout"} {
				resp, err := tr.RoundTrip(get(t, "http://x.test/"))
				if err != nil {
					t.Fatal(err)
				}
				_ = resp.Body.Close()
				if got := resp.Header.Get("Cache-Status"); got != want {
					t.Errorf("fresh=%v: %q, want %q", fresh, got, want)
				}
			}
			time.Sleep(time.Minute)
		})
	}
}
