package transport_test

import (
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

	"github.com/watertight-go/watertight/cache"
	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/transporttest"
)

// freshPolicy reuses answers as RFC 9111 has it.
func freshPolicy() policy.Policy {
	return policy.Policy{
		Cache:    policy.Cache{Fresh: true},
		Breaker:  policy.Breaker{ConsecutiveFailures: 1, OpenFor: time.Minute},
		Timeout:  policy.Timeout{Read: 10 * time.Second},
		Fallback: policy.Fallback{MaxStale: time.Hour},
	}
}

func cached(seconds string, fields ...string) http.Header {
	h := http.Header{"Cache-Control": {"max-age=" + seconds}}
	for i := 0; i < len(fields); i += 2 {
		h[fields[i]] = []string{fields[i+1]}
	}
	return h
}

func TestFreshAnswersNeedNoContact(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := transporttest.NewNet(t, nil)
		o.Script(transporttest.Step{Body: "first", Header: cached("60", "Etag", `"1"`)},
			transporttest.Step{Status: 304, Header: cached("30", "Etag", `"1"`)},
			transporttest.Step{Body: "second", Header: cached("60", "Etag", `"2"`)})
		tr := under(t, transport.Config{Base: o.Base(), Default: freshPolicy()})
		ask := func(want string, hits int) *http.Response {
			t.Helper()
			req := get(t, o.URL)
			resp, err := tr.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if err != nil || string(text) != want || len(o.Hits()) != hits || resp.Request != req || len(req.Header) > 0 {
				t.Errorf("%q, %v after %d requests; want %q after %d; of %v", text, err, len(o.Hits()), want, hits, resp.Request)
			}
			return resp
		}
		ask("first", 1)
		time.Sleep(59 * time.Second)
		if resp := ask("first", 1); resp.Header.Get("Cache-Status") != "watertight; hit; ttl=1" {
			t.Error(resp.Header)
		}
		time.Sleep(time.Second)
		if resp := ask("first", 2); resp.Header.Get("Cache-Status") != "watertight; fwd=stale; fwd-status=304; ttl=30" || resp.StatusCode != 200 {
			t.Error(resp.Header)
		}
		if h := o.Hits()[1].Header; h.Get("If-None-Match") != `"1"` {
			t.Errorf("asked with %v", h)
		}
		time.Sleep(29 * time.Second)
		ask("first", 2)
		time.Sleep(time.Second)
		ask("second", 3)
		if s := tr.Snapshot()[0]; s.InFlight != 0 || s.Counts.Attempts != 3 || s.Counts.Calls != 5 {
			t.Errorf("%+v", s.Counts)
		}
	})
}

func TestFreshAnswersAreServedWhileTheBreakerIsOpen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := transporttest.NewNet(t, nil)
		o.Script(transporttest.Step{Body: "kept", Header: cached("10", "Etag", `"1"`)}, transporttest.Step{Status: 503})
		tr := under(t, transport.Config{Base: o.Base(), Default: freshPolicy()})
		if text, err := fetch(tr.Client(), get(t, o.URL)); text != "kept" || err != nil {
			t.Fatal(text, err)
		}
		_, _ = fetch(tr.Client(), get(t, o.URL+"/other")) // opens the breaker
		for after, label := range map[time.Duration]string{0: "watertight; hit; ttl=", 20 * time.Second: "watertight; hit; ttl=-"} {
			time.Sleep(after)
			resp, err := tr.RoundTrip(get(t, o.URL))
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if info, _ := cache.FromResponse(resp); !strings.HasPrefix(resp.Header.Get("Cache-Status"), label) || errors.Is(info.Cause, transport.ErrBreakerOpen) != info.Stale {
				t.Errorf("after %v: %v, %v", after, resp.Header, info)
			}
		}
		if n := len(o.Hits()); n != 2 {
			t.Errorf("%d requests were made", n)
		}
	})
}

func TestStaleAnswersAreRefreshedOnceInTheBackground(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := transporttest.NewNet(t, nil)
		h := cached("10, stale-while-revalidate=60", "Etag", `"1"`)
		o.Script(transporttest.Step{Body: "first", Header: h}, transporttest.Step{Delay: 2 * time.Second, Body: "second", Header: h})
		tr := under(t, transport.Config{Base: o.Base(), Default: freshPolicy()})
		_, _ = fetch(tr.Client(), get(t, o.URL))
		time.Sleep(11 * time.Second)
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				start := time.Now()
				if text, err := fetch(tr.Client(), get(t, o.URL)); text != "first" || err != nil || time.Since(start) != 0 {
					t.Errorf("%q, %v after %v", text, err, time.Since(start))
				}
			})
		}
		all.Wait()
		time.Sleep(3 * time.Second)
		if text, _ := fetch(tr.Client(), get(t, o.URL)); text != "second" || len(o.Hits()) != 2 {
			t.Errorf("%q after %d requests", text, len(o.Hits()))
		}
	})
}

func TestRefreshesEndWithTheirTransport(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := transporttest.NewNet(t, nil)
		o.Script(transporttest.Step{Body: "first", Header: cached("10, stale-while-revalidate=60")}, transporttest.Step{Fault: transporttest.Hang})
		tr := under(t, transport.Config{Base: o.Base(), Default: freshPolicy()})
		_, _ = fetch(tr.Client(), get(t, o.URL))
		time.Sleep(11 * time.Second)
		if text, _ := fetch(tr.Client(), get(t, o.URL)); text != "first" {
			t.Fatal(text)
		}
		synctest.Wait()
		mustCloseAtOnce(t, tr)
	})
}

func TestPurgeForgetsWhatWasStored(t *testing.T) {
	t.Parallel()
	answers := 0
	tr := under(t, transport.Config{Default: freshPolicy(), Base: rt(func(r *http.Request) (*http.Response, error) {
		answers++
		resp := ok(r, "x")
		resp.Header = cached("60")
		return resp, nil
	})})
	for name, purge := range map[string]func() int{
		"prefix": func() int {
			n, err := tr.Purge("http://b\u00fccher.test/a")
			return n + len(fmt.Sprint(err)) - len("<nil>")
		},
		"caller":                func() int { return tr.PurgeCaller(&http.Request{Header: http.Header{"Cookie": {"x"}}}) },
		"no partition but that": func() int { return 1 - tr.PurgePartition("") },
	} {
		req := get(t, "http://b\u00fccher.test/a")
		req.Header.Set("Cookie", "x")
		for range 2 {
			if _, err := fetch(tr.Client(), req); err != nil {
				t.Fatal(err)
			}
		}
		before := answers
		if n := purge(); n != 1 {
			t.Errorf("%s: removed %d", name, n)
		}
		if _, err := fetch(tr.Client(), req); err != nil || (answers == before) != (name == "no partition but that") {
			t.Errorf("%s: %d answers after %d, %v", name, answers, before, err)
		}
	}
	if _, err := tr.Purge("nonsense"); err == nil {
		t.Error("no error for nonsense")
	}
}

func TestObserverIsToldWhatComesFromTheStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := &slowly{answer: func(n int, r *http.Request) (*http.Response, error) {
			if r.Header.Get("If-None-Match") != "" {
				resp := status(r, 304, "")
				resp.Header = cached("10", "Etag", `"1"`)
				return resp, nil
			}
			resp, _ := keepable(n, r)
			resp.Header = cached("10", "Etag", `"1"`)
			return resp, nil
		}}
		var seen transporttest.Recorder
		tr := under(t, transport.Config{Base: base, Default: freshPolicy(), Observer: &seen})
		herd(t, tr, 3, nil)              // one is sent
		herd(t, tr, 1, nil)              // fresh
		time.Sleep(11 * time.Second)     //
		herd(t, tr, 1, nil)              // validated
		only := get(t, "http://x.test/") // and here is none
		only.URL.Path = "/other"
		only.Header.Set("Cache-Control", "only-if-cached")
		if resp, err := tr.RoundTrip(only); err != nil || resp.StatusCode != 504 {
			t.Error(resp, err)
		}
		var got []string
		for _, e := range seen.Events(transport.EventReuse) {
			got = append(got, e.Reason)
		}
		if want := []string{"collapsed", "collapsed", "hit", "validated"}; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		if c := tr.Snapshot()[0].Counts; c.Collapsed != 2 || c.Hits != 1 || c.Validated != 1 || c.Calls != 6 || c.Attempts != 2 {
			t.Errorf("%+v", c)
		}
	})
}

func TestWhoseARequestIsDecidesItsOwner(t *testing.T) {
	t.Parallel()
	p := freshPolicy()
	p.Cache.Partition = func(r *http.Request) (string, bool) {
		switch who := r.Header.Get("X-Who"); who {
		case "panics":
			panic("planned")
		case "":
			return "", false
		default:
			return who, true
		}
	}
	n := 0
	tr := under(t, transport.Config{Default: p, Logger: quiet(), Base: rt(func(r *http.Request) (*http.Response, error) {
		n++
		return keepable(n, r)
	})})
	for i, test := range []struct{ who, want string }{
		{"ann", "answer 1"}, {"ben", "answer 2"}, {"ann", "answer 1"}, {"", "answer 3"}, {"", "answer 4"}, {"panics", "answer 5"}, {"panics", "answer 6"}, {"ben", "answer 2"},
	} {
		req := get(t, "http://x.test/")
		req.Header.Set("X-Who", test.who)
		req.Header.Set("Authorization", fmt.Sprint(i)) // other each time, as signatures are
		if text, err := fetch(tr.Client(), req); text != test.want || err != nil {
			t.Errorf("%d, %q: %q, %v; want %q", i, test.who, text, err, test.want)
		}
	}
}

// mustCloseAtOnce fails the test if Close takes any time, or leaves anything under way.
func mustCloseAtOnce(t *testing.T, tr *transport.Transport) {
	t.Helper()
	start := time.Now()
	_ = tr.Close()
	if d := time.Since(start); d != 0 {
		t.Errorf("Close took %v", d)
	}
	if s := tr.Snapshot()[0]; s.InFlight != 0 {
		t.Errorf("%d in flight after Close", s.InFlight)
	}
}
