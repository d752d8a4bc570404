package cache_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watertight-go/watertight/cache"
)

func TestCacheStatus(t *testing.T) {
	for _, test := range []struct {
		name   string
		stored string
		after  time.Duration
		why    cache.Failure
		want   string
	}{
		{"fresh, not forwarded", "max-age=60", 40 * time.Second, refused, "watertight; hit; ttl=20; detail=breaker-open"},
		{"stale, not forwarded", "max-age=60", 90 * time.Second, refused, "watertight; hit; ttl=-30; detail=breaker-open"},
		{"stale, failed answer", "max-age=60", 90 * time.Second, failed, "watertight; fwd=stale; fwd-status=503; ttl=-30; detail=stale-if-error"},
		{"stale, error", "max-age=60", 90 * time.Second, dialing, "watertight; fwd=stale; ttl=-30; detail=dial-error"},
		{"fresh, failed answer", "max-age=60", 40 * time.Second, failed, "watertight; fwd=bypass; ttl=20; detail=fallback"},
		{"no lifetime known", "", 40 * time.Second, dialing, "watertight; fwd=stale; detail=dial-error"},
		{"no detail", "", 0, cache.Failure{Err: errDial, Forwarded: true}, "watertight; fwd=stale"},
		{"ttl is rounded down", "max-age=60", 60*time.Second + 1, dialing, "watertight; fwd=stale; ttl=-1; detail=dial-error"},
		{"detail that is no token", "", 0, cache.Failure{Err: errDial, Detail: "1 \"b\"\\\x00é"}, `watertight; hit; detail="1 \"b\"\\"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newClient(t)
				resp := answer(200, "hello", "Cache-Status", "edge; hit", "Cache-Status", "shield; fwd=miss")
				if test.stored != "" {
					resp.Header.Set("Cache-Control", test.stored)
				}
				c.do(get(), resp, minutes)
				time.Sleep(test.after)
				got := c.mustFail(t, get(), test.why, minutes).Header["Cache-Status"]
				if want := []string{"edge; hit", "shield; fwd=miss", test.want}; !slices.Equal(got, want) {
					t.Errorf("got  %q\nwant %q", got, want)
				}
			})
		})
	}
}

func TestInfo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t)
		asked := time.Now()
		c.do(get(), answer(200, "hello", "Cache-Control", "max-age=60"), minutes)
		time.Sleep(90 * time.Second)
		resp := c.mustFail(t, get(), dialing, minutes)
		got, ok := cache.FromResponse(resp)
		want := cache.Info{FromCache: true, Stale: true, AsOf: got.AsOf, Age: 90 * time.Second, TTL: -30 * time.Second, Cause: errDial}
		if !ok || got != want || !got.AsOf.Equal(asked) {
			t.Errorf("got %+v, want %+v as of %v", got, want, asked)
		}
		if age := resp.Header["Age"]; !slices.Equal(age, []string{"90"}) {
			t.Errorf("Age: %q", age)
		}
	})
}

func TestFromResponseKnowsNothingOfOthers(t *testing.T) {
	for _, resp := range []*http.Response{nil, {}, answer(200, "hello"), {Request: get(), Body: http.NoBody}} {
		if info, ok := cache.FromResponse(resp); ok || info != (cache.Info{}) {
			t.Errorf("%+v", info)
		}
	}
}

func TestTheRequestIsTheCallersUnlessItCanBeCancelled(t *testing.T) {
	c := newClient(t)
	c.do(get(), answer(200, "hello"), minutes)
	req := get()
	if resp := c.mustFail(t, req, failed, minutes); resp.Request != req {
		t.Error("another request")
	}
	req.Cancel = make(chan struct{})
	resp := c.mustFail(t, req, failed, minutes)
	if resp.Request == req || resp.Request.URL != req.URL {
		t.Error("no copy of the request")
	}
	resp.Body = io.NopCloser(resp.Body)
	if info, ok := cache.FromResponse(resp); !ok || info.Cause == nil {
		t.Errorf("%+v", info)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func TestInfoSurvivesAClientWithATimeout(t *testing.T) {
	c := newClient(t)
	c.do(get(), answer(200, "hello"), minutes)
	for _, timeout := range []time.Duration{0, time.Minute} {
		hc := http.Client{Timeout: timeout, Transport: roundTripper(func(req *http.Request) (*http.Response, error) {
			resp, _ := c.fail(req, failed, minutes)
			return resp, nil
		})}
		resp, err := hc.Get("https://a.test/doc")
		if err != nil {
			t.Fatal(err)
		}
		if info, ok := cache.FromResponse(resp); !ok || !info.Stale {
			t.Errorf("timeout %v: %+v %t", timeout, info, ok)
		}
		resp.Body.Close()
	}
}

func TestAnAnswerIsCompleteInEveryField(t *testing.T) {
	c := newClient(t)
	resp := answer(200, "hello", "X-A", "1", "X-A", "2", "Content-Type", "text/plain")
	resp.Uncompressed = true
	resp.Header.Del("Content-Length")
	resp.ContentLength = -1
	c.do(get(), resp, minutes)
	got := c.mustFail(t, get(), failed, minutes)
	if got.Status != "200 OK" || got.Proto != "HTTP/1.1" || got.ProtoMajor != 1 || got.ProtoMinor != 1 ||
		got.ContentLength != 5 || !got.Uncompressed || got.TLS != nil || got.Trailer != nil {
		t.Errorf("%+v", got)
	}
	if !slices.Equal(got.Header["X-A"], []string{"1", "2"}) || got.Header.Get("Date") == "" {
		t.Errorf("%v", got.Header)
	}
	var b bytes.Buffer
	if err := got.Write(&b); err != nil {
		t.Fatal(err)
	}
	again, err := http.ReadResponse(bufio.NewReader(&b), get())
	if err != nil || text(t, again) != "hello" {
		t.Errorf("written and read: %v", err)
	}
}

func TestAnAnswerWithoutStatusTextOrProtoGetsThem(t *testing.T) {
	c := newClient(t)
	c.do(get(), &http.Response{StatusCode: 200, Body: io.NopCloser(bytes.NewReader([]byte("hello")))}, minutes)
	resp := c.mustFail(t, get(), failed, minutes)
	if resp.Status != "200 OK" || resp.Proto != "HTTP/1.1" || text(t, resp) != "hello" {
		t.Errorf("%+v", resp)
	}
}

func TestWhatMustNotBeStoredIsNotServed(t *testing.T) {
	c := newClient(t)
	c.do(get(), answer(200, "hello", "Set-Cookie", "a=b", "Connection", "X-Hop, close", "X-Hop", "1", "Keep-Alive", "1", "Age", "7",
		"Proxy-Authenticate", "Basic", "Cache-Control", `no-cache="X-Secret, x-other"`, "X-Secret", "1", "X-Other", "1", "X-Kept", "1",
		"Warning", "199 - old"), minutes)
	got := slices.Sorted(maps.Keys(c.mustFail(t, get(), failed, minutes).Header))
	want := []string{"Age", "Cache-Control", "Cache-Status", "Content-Length", "Date", "Warning", "X-Kept"}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestCallersMayChangeHeadersWithoutReachingTheStore(t *testing.T) {
	c := newClient(t)
	first := answer(200, "hello", "X-A", "1", "X-B", "2")
	req := get()
	x := c.Begin(req)
	capture := c.Received(&x, req, first, minutes)
	first.Header["X-A"][0] = "changed"
	first.Header.Set("X-New", "1")
	c.read(capture, first)
	for range 2 {
		resp := c.mustFail(t, get(), failed, minutes)
		if resp.Header.Get("X-A") != "1" || resp.Header.Get("X-B") != "2" || resp.Header.Get("X-New") != "" {
			t.Fatalf("%v", resp.Header)
		}
		for name := range resp.Header {
			resp.Header[name] = append(resp.Header[name], "more")
			resp.Header[name][0] = "changed"
		}
		clear(resp.Header)
	}
}

func TestABodyEndsWithClose(t *testing.T) {
	c := newClient(t)
	c.do(get(), answer(200, "hello"), minutes)
	resp := c.mustFail(t, get(), failed, minutes)
	io.ReadFull(resp.Body, make([]byte, 2))
	var b bytes.Buffer
	if _, err := io.Copy(&b, resp.Body); err != nil || b.String() != "llo" {
		t.Errorf("%q %v", b.String(), err)
	}
	resp.Body.Close()
	if _, err := resp.Body.Read(make([]byte, 1)); !errors.Is(err, http.ErrBodyReadAfterClose) {
		t.Errorf("read: %v", err)
	}
	if _, err := io.Copy(&b, resp.Body); !errors.Is(err, http.ErrBodyReadAfterClose) {
		t.Errorf("copy: %v", err)
	}
}
