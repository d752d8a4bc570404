package status_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// world is what all dependencies do, by host: a Base that can be changed while calls
// are under way.
type world struct {
	mu    sync.Mutex // guards hosts
	hosts map[string]does
}

// does is how a dependency answers.
type does struct {
	after  time.Duration
	status int // 0: 200
	hang   bool
	header http.Header
	err    error
}

func (w *world) set(host string, d does) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.hosts == nil {
		w.hosts = map[string]does{}
	}
	w.hosts[host] = d
}

func (w *world) RoundTrip(req *http.Request) (*http.Response, error) {
	w.mu.Lock()
	d := w.hosts[req.URL.Hostname()]
	w.mu.Unlock()
	if d.hang {
		<-req.Context().Done()
		return nil, context.Cause(req.Context())
	}
	if d.after > 0 {
		wait := time.NewTimer(d.after)
		defer wait.Stop()
		select {
		case <-wait.C:
		case <-req.Context().Done():
			return nil, context.Cause(req.Context())
		}
	}
	if d.err != nil {
		return nil, d.err
	}
	if d.status == 0 {
		d.status = http.StatusOK
	}
	header := http.Header{"Content-Type": {"application/json"}}
	for k, v := range d.header {
		header[k] = v
	}
	return &http.Response{StatusCode: d.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: header,
		Body: io.NopCloser(strings.NewReader("{}")), ContentLength: 2, Request: req}, nil
}

// over is a Transport over the world, closed with the test.
func (w *world) over(t testing.TB, c transport.Config) *transport.Transport {
	t.Helper()
	c.Base, c.Logger = w, quiet()
	tr := transport.Must(transport.New(c))
	t.Cleanup(func() { _ = tr.Close() })
	return tr
}

// call makes one call, and reads its answer.
func call(tr http.RoundTripper, url string) error {
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.Body.Close()
}

// brittle opens at the first failure.
func brittle() policy.Policy {
	return policy.Policy{Breaker: policy.Breaker{ConsecutiveFailures: 1, OpenFor: time.Hour, HalfOpenProbes: 1}}
}
