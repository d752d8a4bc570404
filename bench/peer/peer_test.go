package peer

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watertight-go/watertight/policy"
)

// base answers as a function does.
type base func(*http.Request) (*http.Response, error)

func (f base) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func respond(req *http.Request, code int, body io.Reader) (*http.Response, error) {
	return &http.Response{
		StatusCode: code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{},
		Body: io.NopCloser(body), ContentLength: -1, Request: req,
	}, nil
}

func hello(req *http.Request) (*http.Response, error) {
	return respond(req, http.StatusOK, strings.NewReader("hello"))
}

func request(t *testing.T, method, url string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// call reads an answer to its end.
func call(rt http.RoundTripper, req *http.Request) (string, error) {
	resp, err := rt.RoundTrip(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	all, err := io.ReadAll(resp.Body)
	return string(all), err
}

func TestEveryPeerAnswers(t *testing.T) {
	for _, p := range All() {
		rt := p.New(base(hello), policy.Default())
		for range 2 {
			if got, err := call(rt, request(t, http.MethodGet, "http://one.test/")); got != "hello" || err != nil {
				t.Errorf("%s: %q, %v", p.Name, got, err)
			}
		}
		end(rt)
	}
}

// end closes what can be.
func end(rt http.RoundTripper) {
	if c, ok := rt.(io.Closer); ok {
		_ = c.Close()
	}
}

func TestPerHostKeepsHostsApart(t *testing.T) {
	p := policy.Default()
	p.Bulkhead.MaxConcurrent = 1
	rt := perHost(newFloor)(base(hello), p)
	for _, host := range []string{"one", "two"} {
		resp, err := rt.RoundTrip(request(t, http.MethodGet, "http://"+host+".test/"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
	}
	if _, err := rt.RoundTrip(request(t, http.MethodGet, "http://one.test/")); !errors.Is(err, errFull) {
		t.Errorf("a second call to one host: %v", err)
	}
}

func TestFloorHoldsItsPermitUntilTheBodyHasEnded(t *testing.T) {
	p := policy.Default()
	p.Bulkhead.MaxConcurrent = 1
	rt := newFloor(base(hello), p)
	resp, err := rt.RoundTrip(request(t, http.MethodGet, "http://one.test/"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rt.RoundTrip(request(t, http.MethodGet, "http://one.test/")); !errors.Is(err, errFull) {
		t.Errorf("with a body open: %v", err)
	}
	_ = resp.Body.Close()
	_ = resp.Body.Close() // which gives nothing back again
	if _, err := call(rt, request(t, http.MethodGet, "http://one.test/")); err != nil {
		t.Errorf("after it was closed: %v", err)
	}
}

// stalled is a body that ends with its request.
type stalled struct{ ctx context.Context }

func (s stalled) Read([]byte) (int, error) {
	<-s.ctx.Done()
	return 0, s.ctx.Err()
}

func TestFloorLimitsTheBodyToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := newFloor(base(func(req *http.Request) (*http.Response, error) {
			return respond(req, http.StatusOK, stalled{req.Context()})
		}), policy.Default())
		began := time.Now()
		if _, err := call(rt, request(t, http.MethodGet, "http://one.test/")); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if d := time.Since(began); d != policy.Default().Timeout.Attempt {
			t.Errorf("after %v", d)
		}
	})
}

func TestFloorOpensAndProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, up := policy.Default(), false
		p.Retry = policy.Retry{}
		rt := newFloor(base(func(req *http.Request) (*http.Response, error) {
			if up {
				return hello(req)
			}
			return nil, io.ErrUnexpectedEOF
		}), p)
		get := func() error { _, err := call(rt, request(t, http.MethodGet, "http://one.test/")); return err }
		for range p.Breaker.MinCalls {
			if err := get(); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("too early: %v", err)
			}
		}
		if err := get(); !errors.Is(err, errOpen) {
			t.Errorf("after %d failures: %v", p.Breaker.MinCalls, err)
		}
		time.Sleep(p.Breaker.OpenFor)
		up = true
		for range 2 {
			if err := get(); err != nil {
				t.Errorf("after the wait: %v", err)
			}
		}
	})
}

func TestFloorRepeatsWhatMayBeRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for method, want := range map[string]int{http.MethodGet: 3, http.MethodPost: 1} {
			n := 0
			rt := newFloor(base(func(req *http.Request) (*http.Response, error) {
				n++
				return respond(req, http.StatusServiceUnavailable, strings.NewReader("busy"))
			}), policy.Default())
			if got, err := call(rt, request(t, method, "http://one.test/")); got != "busy" || err != nil || n != want {
				t.Errorf("%s: %q, %v after %d attempts, want %d", method, got, err, n, want)
			}
		}
	})
}

// A peer must refuse by the layer that it is said to have: another would be measured
// in its place. Each is asked more than once, for a refusal that were taken for a
// failure of the host would open the breaker.
func TestEveryPeerBoundsAsItSays(t *testing.T) {
	for _, p := range All() {
		if !p.Bounds() {
			continue
		}
		conf := policy.Default()
		conf.Retry = policy.Retry{}
		conf.Bulkhead.MaxConcurrent, conf.Breaker.MinCalls = 1, 1
		if p.Tangled {
			conf.Breaker = policy.Breaker{}
		}
		entered, leave, gone := make(chan struct{}), make(chan struct{}), make(chan struct{})
		rt := p.New(base(func(req *http.Request) (*http.Response, error) {
			close(entered)
			<-leave
			return hello(req)
		}), conf)
		held, req := request(t, http.MethodGet, "http://one.test/"), request(t, http.MethodGet, "http://one.test/")
		go func() {
			defer close(gone)
			if _, err := call(rt, held); err != nil {
				t.Errorf("%s: the call that is let in: %v", p.Name, err)
			}
		}()
		<-entered
		for range 3 {
			if _, err := call(rt, req); !errors.Is(err, p.Full) {
				t.Errorf("%s: %v, want %v", p.Name, err, p.Full)
			}
		}
		close(leave)
		<-gone
		end(rt)
	}
}

func TestEveryPeerBreaksAsItSays(t *testing.T) {
	for _, p := range All() {
		if !p.Breaks() {
			continue
		}
		conf := policy.Default()
		conf.Retry = policy.Retry{}
		rt := p.New(base(func(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF }), conf)
		req := request(t, http.MethodGet, "http://one.test/")
		_, err := call(rt, req)
		if err == nil || errors.Is(err, p.Open) {
			t.Errorf("%s: the first call: %v", p.Name, err)
		}
		for limit := time.Now().Add(30 * time.Second); !errors.Is(err, p.Open) && time.Now().Before(limit); {
			_, err = call(rt, req)
			time.Sleep(time.Millisecond) // hystrix-go counts a moment later
		}
		if !errors.Is(err, p.Open) {
			t.Errorf("%s: %v, want %v", p.Name, err, p.Open)
		}
		end(rt)
	}
}
