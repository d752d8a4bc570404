package pools_test

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

func under(t *testing.T, c transport.Config) *transport.Transport {
	t.Helper()
	c.Logger = quiet()
	tr := transport.Must(transport.New(c))
	t.Cleanup(func() {
		_ = tr.Close()
		transporttest.CheckPermits(t, tr)
	})
	return tr
}

// fetch does a call through an http.Client, and reads its answer to the end.
func fetch(client *http.Client, req *http.Request) (string, error) {
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	b, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	return string(b), err
}

func get(t *testing.T, url string) *http.Request {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// mustTimeOut checks everything that is promised of a limit that fires.
func mustTimeOut(t *testing.T, err error, kind error, phase, knob string, limit time.Duration) {
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

func mustTake(t *testing.T, start time.Time, want time.Duration) {
	t.Helper()
	if d := time.Since(start); d != want {
		t.Errorf("took %v, want %v", d, want)
	}
}

// silent takes everything and says nothing.
func silent(c net.Conn) { _, _ = io.Copy(io.Discard, c) }

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }
