package transport_test

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"testing"
	"time"

	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
)

// stub answers at once, from memory: what a call costs over it is the stack's.
type stub struct {
	header http.Header
	body   string
}

func (s *stub) RoundTrip(req *http.Request) (*http.Response, error) {
	return &http.Response{
		Status: "200 OK", StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: s.header, Body: io.NopCloser(strings.NewReader(s.body)), ContentLength: int64(len(s.body)), Request: req,
	}, nil
}

func newStub(size int) *stub {
	return &stub{header: http.Header{"Content-Type": {"application/json"}}, body: strings.Repeat("x", size)}
}

func benchRequest(b testing.TB) *http.Request {
	b.Helper()
	req, err := http.NewRequest(http.MethodGet, "http://bench.test/path", nil)
	if err != nil {
		b.Fatal(err)
	}
	return req
}

// exchange does one call and reads its body to the end.
func exchange(b testing.TB, rt http.RoundTripper, req *http.Request, buf []byte) {
	resp, err := rt.RoundTrip(req)
	if err != nil {
		b.Fatal(err)
	}
	for err == nil {
		_, err = resp.Body.Read(buf)
	}
	_ = resp.Body.Close()
}

// BenchmarkStub is what BenchmarkCall costs without the stack.
func BenchmarkStub(b *testing.B) {
	base, req, buf := newStub(256), benchRequest(b), make([]byte, 4096)
	b.ReportAllocs()
	for b.Loop() {
		exchange(b, base, req, buf)
	}
}

// BenchmarkCall is a successful call through the full default stack.
func BenchmarkCall(b *testing.B) {
	rt := transport.Must(transport.New(transport.Config{Base: newStub(256), Logger: quiet()}))
	req, buf := benchRequest(b), make([]byte, 4096)
	b.ReportAllocs()
	for b.Loop() {
		exchange(b, rt, req, buf)
	}
}

// BenchmarkCallParallel is BenchmarkCall from 64 goroutines to one host.
func BenchmarkCallParallel(b *testing.B) {
	rt := transport.Must(transport.New(transport.Config{Base: newStub(256), Logger: quiet()}))
	b.SetParallelism(32)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		req, buf := benchRequest(b), make([]byte, 4096)
		for pb.Next() {
			exchange(b, rt, req, buf)
		}
	})
}

// BenchmarkTracedCall is a call over a loopback socket, what net/http and the server
// allocate included, without httptrace hooks and with all of them.
func BenchmarkTracedCall(b *testing.B) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("x")) }))
	b.Cleanup(server.Close)
	trace := &httptrace.ClientTrace{
		GetConn:              func(string) {},
		GotConn:              func(httptrace.GotConnInfo) {},
		PutIdleConn:          func(error) {},
		GotFirstResponseByte: func() {},
		Got100Continue:       func() {},
		Got1xxResponse:       func(int, textproto.MIMEHeader) error { return nil },
		DNSStart:             func(httptrace.DNSStartInfo) {},
		DNSDone:              func(httptrace.DNSDoneInfo) {},
		ConnectStart:         func(string, string) {},
		ConnectDone:          func(string, string, error) {},
		TLSHandshakeStart:    func() {},
		TLSHandshakeDone:     func(tls.ConnectionState, error) {},
		WroteHeaderField:     func(string, []string) {},
		WroteHeaders:         func() {},
		Wait100Continue:      func() {},
		WroteRequest:         func(httptrace.WroteRequestInfo) {},
	}
	for name, ctx := range map[string]context.Context{
		"untraced": b.Context(),
		"traced":   httptrace.WithClientTrace(b.Context(), trace),
	} {
		b.Run(name, func(b *testing.B) {
			rt := transport.Must(transport.New(transport.Config{Base: &http.Transport{}, Logger: quiet()}))
			b.Cleanup(func() { _ = rt.Close() })
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
			if err != nil {
				b.Fatal(err)
			}
			buf := make([]byte, 4096)
			b.ReportAllocs()
			for b.Loop() {
				exchange(b, rt, req, buf)
			}
		})
	}
}

// BenchmarkRefusal is a call that a breaker refuses that was forced open.
func BenchmarkRefusal(b *testing.B) {
	rt := transport.Must(transport.New(transport.Config{Base: newStub(256), Logger: quiet()}))
	rt.Host("bench.test").ForceOpen()
	req := benchRequest(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := rt.RoundTrip(req); err == nil {
			b.Fatal("not refused")
		}
	}
}

// BenchmarkRefusalOpen is a call that a breaker refuses that has tripped.
func BenchmarkRefusalOpen(b *testing.B) {
	p := policy.Default()
	p.Breaker.ConsecutiveFailures, p.Breaker.OpenFor, p.Breaker.OpenForMax = 1, 24*time.Hour, 0
	failing := rt(func(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF })
	tr := transport.Must(transport.New(transport.Config{Base: failing, Default: p, Logger: quiet()}))
	req := benchRequest(b)
	_, _ = tr.RoundTrip(req)
	if s := tr.Snapshot()[0].State; s != transport.Open {
		b.Fatalf("the breaker is %v", s)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := tr.RoundTrip(req); err == nil {
			b.Fatal("not refused")
		}
	}
}

// BenchmarkStale is a stored answer of 1 KiB, served while the breaker is open.
func BenchmarkStale(b *testing.B) {
	p := policy.Default()
	p.Fallback.MaxStale = time.Hour
	rt := transport.Must(transport.New(transport.Config{Base: newStub(1024), Default: p, Logger: quiet()}))
	req, buf := benchRequest(b), make([]byte, 4096)
	exchange(b, rt, req, buf)
	rt.Host("bench.test").ForceOpen()
	b.ReportAllocs()
	for b.Loop() {
		exchange(b, rt, req, buf)
	}
}

// BenchmarkCapture is a successful call whose answer is stored.
func BenchmarkCapture(b *testing.B) {
	p := policy.Default()
	p.Fallback.MaxStale = time.Hour
	rt := transport.Must(transport.New(transport.Config{Base: newStub(4096), Default: p, Logger: quiet()}))
	req, buf := benchRequest(b), make([]byte, 8192)
	b.ReportAllocs()
	for b.Loop() {
		exchange(b, rt, req, buf)
	}
}

// freshStub answers with what may be reused: 4 KiB of JSON and twelve fields.
func freshStub() *stub {
	s := newStub(4 << 10)
	s.header = http.Header{
		"Date": {time.Now().UTC().Format(http.TimeFormat)}, "Content-Type": {"application/json"}, "Cache-Control": {"private, max-age=3600"},
		"Etag": {`"33a64df551425fcc55e4d42a148795d9f25f89d4"`}, "Vary": {"Accept-Encoding"}, "Server": {"nginx"}, "X-Request-Id": {"7f0c2c6e"},
		"Strict-Transport-Security": {"max-age=31536000"}, "X-Content-Type-Options": {"nosniff"}, "X-Frame-Options": {"DENY"},
		"Via": {"1.1 proxy"}, "Content-Length": {"4096"},
	}
	return s
}

// BenchmarkFreshHit is a call that is answered without contact.
func BenchmarkFreshHit(b *testing.B) {
	p := policy.Default()
	p.Cache.Fresh = true
	tr := transport.Must(transport.New(transport.Config{Base: freshStub(), Default: p, Logger: quiet()}))
	defer tr.Close()
	req, buf := benchRequest(b), make([]byte, 8<<10)
	exchange(b, tr, req, buf)
	b.ReportAllocs()
	for b.Loop() {
		exchange(b, tr, req, buf)
	}
	if s := tr.Snapshot()[0]; s.Counts.Attempts != 1 {
		b.Errorf("%d attempts", s.Counts.Attempts)
	}
}

// BenchmarkFreshHitParallel is many of them at once.
func BenchmarkFreshHitParallel(b *testing.B) {
	p := policy.Default()
	p.Cache.Fresh = true
	tr := transport.Must(transport.New(transport.Config{Base: freshStub(), Default: p, Logger: quiet()}))
	defer tr.Close()
	exchange(b, tr, benchRequest(b), make([]byte, 8<<10))
	b.ReportAllocs()
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		req, buf := benchRequest(b), make([]byte, 8<<10)
		for pb.Next() {
			exchange(b, tr, req, buf)
		}
	})
}

// BenchmarkRefusalFull is a call that a full bulkhead refuses.
func BenchmarkRefusalFull(b *testing.B) {
	p := policy.Default()
	p.Bulkhead.MaxConcurrent, p.Breaker.MinCalls = 1, 1
	tr := transport.Must(transport.New(transport.Config{Base: newStub(256), Default: p, Logger: quiet()}))
	req := benchRequest(b)
	held, err := tr.RoundTrip(req)
	if err != nil {
		b.Fatal(err)
	}
	defer held.Body.Close()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := tr.RoundTrip(req); err == nil {
			b.Fatal("not refused")
		}
	}
}
