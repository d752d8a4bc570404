// Package stacktest holds what the tests of package transport and of the packages
// below transport/contract share.
package stacktest

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/transporttest"
)

// Under makes a Transport that is closed, and found without permits held, when the
// test ends.
func Under(t *testing.T, c transport.Config) *transport.Transport {
	t.Helper()
	c.Logger = Quiet()
	tr := transport.Must(transport.New(c))
	t.Cleanup(func() {
		_ = tr.Close()
		transporttest.CheckPermits(t, tr)
	})
	return tr
}

// Fetch does a call through an http.Client, and reads its answer to the end.
func Fetch(client *http.Client, req *http.Request) (string, error) {
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	b, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	return string(b), err
}

// GetRequest is a GET.
func GetRequest(t *testing.T, url string) *http.Request {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// MustTimeOut checks everything that is promised of a limit that fires.
func MustTimeOut(t *testing.T, err error, kind error, phase, knob string, limit time.Duration) {
	t.Helper()
	var e *transport.Error
	if !errors.As(err, &e) {
		t.Fatalf("got %T %v, want an *Error", err, err)
	}
	if kind != nil && (e.Kind != kind || !errors.Is(err, kind)) {
		t.Errorf("kind: got %v, want %v", e.Kind, kind)
	}
	if e.Phase != phase || e.Knob != knob || e.Limit != limit || e.Layer != transport.LayerTimeout || e.Host == "" {
		t.Errorf("got phase %q, knob %q, limit %v, layer %q of host %q; want %q, %q, %v, timeout", e.Phase, e.Knob, e.Limit, e.Layer, e.Host, phase, knob, limit)
	}
	var n net.Error
	if !errors.As(err, &n) || !n.Timeout() {
		t.Errorf("%v: is no timeout to net.Error", err)
	}
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		t.Errorf("%v: must be DeadlineExceeded and never Canceled", err)
	}
	for _, part := range []string{e.Host, knob, limit.String()} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
}

// MustTake checks how long something took, in a bubble of testing/synctest.
func MustTake(t *testing.T, start time.Time, want time.Duration) {
	t.Helper()
	if d := time.Since(start); d != want {
		t.Errorf("took %v, want %v", d, want)
	}
}

// Silent takes everything and says nothing.
func Silent(c net.Conn) { _, _ = io.Copy(io.Discard, c) }

// Quiet is a Logger that nobody hears.
func Quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// Answer is an answer with a body.
func Answer(r *http.Request, status int, body io.Reader) *http.Response {
	rc, ok := body.(io.ReadCloser)
	if !ok {
		rc = io.NopCloser(body)
	}
	return &http.Response{StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{},
		Body: rc, ContentLength: -1, Request: r}
}

// New makes a Transport that is closed when the test ends.
func New(t *testing.T, c transport.Config) *transport.Transport {
	t.Helper()
	c.Logger = Quiet()
	tr, err := transport.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tr.Close() })
	return tr
}

// Request is a request without a body.
func Request(t *testing.T, ctx context.Context, method, url string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// Get does a GET that must be answered, and leaves the body open.
func Get(t *testing.T, tr *transport.Transport, url string) *http.Response {
	t.Helper()
	resp, err := tr.RoundTrip(Request(t, t.Context(), http.MethodGet, url))
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// InFlight checks how many attempts each host has under way.
func InFlight(t *testing.T, tr *transport.Transport, want int) {
	t.Helper()
	for _, s := range tr.Snapshot() {
		if s.InFlight != want {
			t.Fatalf("%d in flight to %s, want %d", s.InFlight, s.Host, want)
		}
	}
}

// Wait waits for what another goroutine will bring about.
func Wait(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}
