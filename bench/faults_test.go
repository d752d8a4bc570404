package bench_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
)

// The tests in the files beside this one show what peers get wrong, each used as its
// documentation has it, and that watertight does right on the same input. Their
// comments are quoted by the report: a peer, a colon, and the fault.

// answer is a base in a few lines.
type answer func(*http.Request) (*http.Response, error)

func (f answer) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// stack is watertight, for the second half of a test.
func stack(t *testing.T, base http.RoundTripper, p policy.Policy) *transport.Transport {
	t.Helper()
	tr, err := transport.New(transport.Config{Base: base, Default: p, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tr.Close() })
	return tr
}

// respond is a response with a body.
func respond(req *http.Request, code int, b io.ReadCloser) *http.Response {
	resp := status(req, code)
	resp.Body, resp.ContentLength = b, -1
	if b, ok := b.(*body); ok {
		resp.ContentLength = b.size
	}
	return resp
}

// body is one that knows whether it was closed.
type body struct {
	io.Reader
	size   int64
	closed atomic.Bool
}

func text(s string) *body { return &body{Reader: strings.NewReader(s), size: int64(len(s))} }

func (b *body) Close() error {
	b.closed.Store(true)
	return nil
}

// silent is a body that never comes, until its request has ended.
type silent struct{ ctx context.Context }

func (s silent) Read([]byte) (int, error) {
	<-s.ctx.Done()
	return 0, context.Cause(s.ctx)
}

func (silent) Close() error { return nil }

// source is a request body that counts what was read of it.
type source struct {
	left int
	read atomic.Int64
}

func (s *source) Read(p []byte) (int, error) {
	if s.left == 0 {
		return 0, io.EOF
	}
	n := min(len(p), s.left)
	s.left -= n
	s.read.Add(int64(n))
	return n, nil
}

// buffered is how much of an upload of 8 MiB is read before anything could be sent.
func buffered(t *testing.T, over func(http.RoundTripper) http.RoundTripper) int64 {
	t.Helper()
	upload, before := &source{left: 8 << 20}, int64(-1)
	base := answer(func(req *http.Request) (*http.Response, error) {
		before = upload.read.Load()
		_, err := io.Copy(io.Discard, req.Body)
		_ = req.Body.Close()
		return status(req, http.StatusOK), err
	})
	req, err := http.NewRequest(http.MethodPut, "http://"+host, upload)
	if err != nil {
		t.Fatal(err)
	}
	if err := exchange(over(base), req, make([]byte, 512)); err != nil {
		t.Fatal(err)
	}
	return before
}

// streams fails when watertight buffers an upload.
func streams(t *testing.T) {
	t.Helper()
	if n := buffered(t, func(base http.RoundTripper) http.RoundTripper { return stack(t, base, policy.Default()) }); n != 0 {
		t.Errorf("watertight read %d bytes before it sent any", n)
	}
}

// posts is how often a POST is sent that ends without an answer.
func posts(t *testing.T, over func(http.RoundTripper) http.RoundTripper) int {
	t.Helper()
	n := 0
	base := answer(func(req *http.Request) (*http.Response, error) {
		n++
		_ = req.Body.Close()
		return nil, io.ErrUnexpectedEOF
	})
	req, err := http.NewRequest(http.MethodPost, "http://"+host, strings.NewReader("42 EUR"))
	if err != nil {
		t.Fatal(err)
	}
	if err := exchange(over(base), req, make([]byte, 512)); err == nil {
		t.Error("answered")
	}
	return n
}

// postsOnce fails when watertight repeats a POST.
func postsOnce(t *testing.T) {
	t.Helper()
	if n := posts(t, func(base http.RoundTripper) http.RoundTripper { return stack(t, base, policy.Default()) }); n != 1 {
		t.Errorf("watertight sent the POST %d times", n)
	}
}

// leave makes calls that their callers end, and returns the error of one that comes
// after them and would be answered.
func leave(t *testing.T, rt http.RoundTripper, callers int) error {
	t.Helper()
	for range callers {
		ctx, cancel := context.WithCancel(t.Context())
		req := request(t, host).WithContext(context.WithValue(ctx, leaving{}, cancel))
		if err := exchange(rt, req, make([]byte, 512)); err == nil {
			t.Error("answered")
		}
	}
	return exchange(rt, request(t, host), make([]byte, 512))
}

// leaving is the key of the cancel function of a caller who does not stay.
type leaving struct{}

// patient waits until its caller leaves, and answers who does not.
var patient = answer(func(req *http.Request) (*http.Response, error) {
	if cancel, ok := req.Context().Value(leaving{}).(context.CancelFunc); ok {
		cancel()
		<-req.Context().Done()
		return nil, req.Context().Err()
	}
	return status(req, http.StatusOK), nil
})

// forgives fails when watertight holds callers who leave against the host.
func forgives(t *testing.T) {
	t.Helper()
	p := policy.Default()
	p.Breaker.ConsecutiveFailures = 1
	if err := leave(t, stack(t, patient, p), 100); err != nil {
		t.Errorf("watertight, after callers who left: %v", err)
	}
}

// learns fails when watertight takes longer than SlowCall to know of calls that hang.
// It must be called in a bubble.
func learns(t *testing.T) {
	t.Helper()
	p := policy.Default()
	tr := stack(t, &hanging{}, p)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range p.Breaker.MinCalls {
		req := request(t, host).WithContext(ctx)
		go func() { _, _ = tr.RoundTrip(req) }()
	}
	time.Sleep(p.Breaker.SlowCall + time.Millisecond)
	if _, err := tr.RoundTrip(request(t, host)); !errors.Is(err, transport.ErrBreakerOpen) {
		t.Errorf("watertight, of calls that hang for %v: %v", p.Breaker.SlowCall, err)
	}
}

// waits is how long a call takes that gets a 503 with a Retry-After first.
func waits(t *testing.T, rt func(http.RoundTripper) http.RoundTripper, after string) time.Duration {
	t.Helper()
	n := 0
	base := answer(func(req *http.Request) (*http.Response, error) {
		if n++; n > 1 {
			return status(req, http.StatusOK), nil
		}
		resp := status(req, http.StatusServiceUnavailable)
		resp.Header.Set("Retry-After", after)
		return resp, nil
	})
	began := time.Now()
	if err := exchange(rt(base), request(t, host), make([]byte, 512)); err != nil {
		t.Error(err)
	}
	return time.Since(began)
}

// heeds fails when watertight does not wait for what Retry-After asks for, or waits
// for whatever it asks for. It must be called in a bubble.
func heeds(t *testing.T, after string, least, most time.Duration) {
	t.Helper()
	over := func(base http.RoundTripper) http.RoundTripper { return stack(t, base, policy.Default()) }
	if d := waits(t, over, after); d < least || d > most {
		t.Errorf("watertight waited %v for a Retry-After of %s", d, after)
	}
}
