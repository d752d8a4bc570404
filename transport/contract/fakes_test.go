package contract_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/transporttest"
)

// stackBase answers from memory, with a body that is open until it is read or
// closed.
type stackBase func(*http.Request) (*http.Response, error)

func (f stackBase) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// stackAnswer is an answer with a body.
func stackAnswer(r *http.Request, status int, body io.Reader) *http.Response {
	rc, ok := body.(io.ReadCloser)
	if !ok {
		rc = io.NopCloser(body)
	}
	return &http.Response{StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{},
		Body: rc, ContentLength: -1, Request: r}
}

// stackHello answers every request with a short body.
func stackHello(r *http.Request) (*http.Response, error) {
	return stackAnswer(r, http.StatusOK, strings.NewReader("hello")), nil
}

// stackOnly is a policy of nothing but n permits.
func stackOnly(n int, wait time.Duration) policy.Policy {
	return policy.Policy{Bulkhead: policy.Bulkhead{MaxConcurrent: n, MaxWait: wait}}
}

// stackNew makes a Transport that is closed when the test ends.
func stackNew(t *testing.T, c transport.Config) *transport.Transport {
	t.Helper()
	c.Logger = quiet()
	tr, err := transport.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tr.Close() })
	return tr
}

func stackRequest(t *testing.T, ctx context.Context, method, url string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// stackGet does a GET that must be answered, and leaves the body open.
func stackGet(t *testing.T, tr *transport.Transport, url string) *http.Response {
	t.Helper()
	resp, err := tr.RoundTrip(stackRequest(t, t.Context(), http.MethodGet, url))
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

func stackInFlight(t *testing.T, tr *transport.Transport, want int) {
	t.Helper()
	for _, s := range tr.Snapshot() {
		if s.InFlight != want {
			t.Fatalf("%d in flight to %s, want %d", s.InFlight, s.Host, want)
		}
	}
}

// stackProtocols are the ways to speak to an Origin.
var stackProtocols = map[string][]transporttest.Option{
	"HTTP/1.1": nil,
	"HTTP/2":   {transporttest.TLS("h2")},
}

// stackWait waits for what another goroutine will bring about.
func stackWait(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// contractBody is a body that counts how often it is closed.
type contractBody struct {
	io.Reader
	err    error // instead of reading
	mu     sync.Mutex
	closed atomic.Int64
}

func (b *contractBody) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Reader.Read(p)
}

func (b *contractBody) Close() error { b.closed.Add(1); return nil }

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// stackFuncs is a body made of functions.
type stackFuncs struct {
	read  func([]byte) (int, error)
	close func() error
}

func (b *stackFuncs) Read(p []byte) (int, error) { return b.read(p) }
func (b *stackFuncs) Close() error               { return b.close() }
