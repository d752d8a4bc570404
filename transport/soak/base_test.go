package soak

import (
	"bytes"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
)

// meter is around a base, and counts what is under way there: the independent
// account of permits. An attempt is counted for no longer than it holds its
// permit.
type meter struct {
	http.RoundTripper
	m *meters
}

type meters struct {
	run   *run
	limit int64 // of all together; zero: none
	all   atomic.Int64
	hosts [hosts]atomic.Int64
}

// aroundMeter is a meter that the stack can put around its pools.
type aroundMeter struct{ meter }

func (a aroundMeter) Unwrap() http.RoundTripper { return a.RoundTripper }

func (a aroundMeter) Around(next http.RoundTripper) http.RoundTripper { return meter{next, a.m} }

func (a meter) CloseIdleConnections() {
	if c, ok := a.RoundTripper.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

func (a meter) RoundTrip(req *http.Request) (*http.Response, error) {
	host := hostOf(req.URL.Host)
	left := a.m.enter(host)
	open := false
	defer func() {
		if !open {
			left()
		}
	}()
	resp, err := a.RoundTripper.RoundTrip(req)
	if err != nil || resp.Body == http.NoBody || resp.StatusCode == http.StatusSwitchingProtocols ||
		req.Method == http.MethodHead || resp.StatusCode == http.StatusNoContent || resp.StatusCode == http.StatusNotModified {
		return resp, err
	}
	open = true
	resp.Body = &meteredBody{resp.Body, left}
	return resp, nil
}

// enter counts an attempt, until what it returns is called.
func (m *meters) enter(host int) (left func()) {
	if n, most := m.hosts[host].Add(1), int64(policyOf(host).Bulkhead.MaxConcurrent); n > most {
		m.run.fail("permits are never above the cap", "%s: %d attempts at the base, cap %d", nameOf(host), n, most)
	}
	if n := m.all.Add(1); m.limit > 0 && n > m.limit {
		m.run.fail("permits are never above the cap", "all hosts: %d attempts at the base, cap %d", n, m.limit)
	}
	return sync.OnceFunc(func() {
		m.hosts[host].Add(-1)
		m.all.Add(-1)
	})
}

type meteredBody struct {
	io.ReadCloser
	left func()
}

func (b *meteredBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.left()
	}
	return n, err
}

func (b *meteredBody) Close() error {
	b.left()
	return b.ReadCloser.Close()
}

// reading is a RoundTripper that is no *http.Transport: it reads the request body
// before it sends anything, on its caller's goroutine, where a panic can be
// survived.
type reading struct{ *http.Transport }

func (b reading) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body == nil || req.Body == http.NoBody {
		return b.Transport.RoundTrip(req)
	}
	defer func() { _ = req.Body.Close() }()
	text, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	out := req.Clone(req.Context())
	out.ContentLength = int64(len(text))
	out.Body, out.GetBody = io.NopCloser(bytes.NewReader(text)), nil
	return b.Transport.RoundTrip(out)
}
