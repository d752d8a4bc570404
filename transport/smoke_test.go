package transport_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watertight-go/watertight/cache"
	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
)

type rt func(*http.Request) (*http.Response, error)

func (f rt) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func ok(r *http.Request, body string) *http.Response {
	return &http.Response{StatusCode: 200, Status: "200 OK", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"text/plain"}}, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)), Request: r}
}

func TestSmokeReal(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		w.Write(append([]byte("hello "), b...))
	}))
	defer s.Close()
	tr := transport.Must(transport.New(transport.Config{}))
	defer tr.Close()
	c := tr.Client()
	for range 3 {
		resp, err := c.Post(s.URL, "text/plain", strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || string(b) != "hello x" {
			t.Fatal(string(b), err)
		}
	}
	for _, h := range tr.Snapshot() {
		t.Logf("%+v", h.Counts)
		if h.InFlight != 0 {
			t.Fatal("permit held")
		}
	}
}

func TestSmokeHangOpensBreakerAndServesStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := false
		base := rt(func(r *http.Request) (*http.Response, error) {
			if hang {
				<-r.Context().Done()
				return nil, r.Context().Err()
			}
			return ok(r, "good"), nil
		})
		p := policy.Service()
		p.Fallback.MaxStale = 10 * time.Minute
		tr := transport.Must(transport.New(transport.Config{Base: base, Default: p}))
		c := tr.Client()
		get := func() (*http.Response, string, error) {
			resp, err := c.Get("http://x.test/a")
			if err != nil {
				return nil, "", err
			}
			b, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			return resp, string(b), err
		}
		for range 100 {
			if _, b, err := get(); err != nil || b != "good" {
				t.Fatal(b, err)
			}
		}
		hang = true
		start := time.Now()
		for range 30 {
			go func() { get() }()
		}
		time.Sleep(1999 * time.Millisecond)
		s := tr.Snapshot()[0]
		if s.State != transport.Closed || s.InFlight != 20 {
			t.Fatal(s.State, s.InFlight)
		}
		time.Sleep(2 * time.Millisecond)
		s = tr.Snapshot()[0]
		if s.State != transport.Open {
			t.Fatalf("%v after %v %+v", s.State, time.Since(start), s.Window)
		}
		t.Log(s.Trip)
		resp, b, err := get()
		if err != nil || b != "good" {
			t.Fatal(err)
		}
		info, ok := cache.FromResponse(resp)
		t.Logf("%+v %v %v", info, ok, resp.Header)
		if !ok || !info.Stale || !errors.Is(info.Cause, transport.ErrBreakerOpen) {
			t.Fatal(info)
		}
		time.Sleep(5 * time.Second)
		hang = false
		time.Sleep(15 * time.Second)
		for range 3 {
			if _, b, err := get(); err != nil || b != "good" {
				t.Fatal(b, err)
			}
		}
		if s := tr.Snapshot()[0]; s.State != transport.Closed || s.InFlight != 0 {
			t.Fatal(s.State, s.InFlight)
		}
	})
}

func TestSmokeTimeout(t *testing.T) {
	stop := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		<-stop
	}))
	defer s.Close()
	defer close(stop)
	p := policy.Service()
	p.Timeout.Read = 100 * time.Millisecond
	p.Retry = policy.Retry{}
	tr := transport.Must(transport.New(transport.Config{Default: p}))
	_, err := tr.Client().Get(s.URL)
	if !errors.Is(err, transport.ErrReadTimeout) || !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	t.Log(err)
}
