package bench_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/watertight-go/watertight/bench/peer"
	"github.com/watertight-go/watertight/policy"
)

// stub answers at once, from memory: what a call costs over it is the peer's.
type stub struct {
	header http.Header
	body   string
}

func newStub(size int) *stub {
	return &stub{header: http.Header{"Content-Type": {"application/json"}}, body: strings.Repeat("x", size)}
}

func (s *stub) RoundTrip(req *http.Request) (*http.Response, error) {
	return &http.Response{
		Status: "200 OK", StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: s.header, Body: io.NopCloser(strings.NewReader(s.body)), ContentLength: int64(len(s.body)), Request: req,
	}, nil
}

// status answers with nothing but that.
func status(req *http.Request, code int) *http.Response {
	return &http.Response{
		Status: fmt.Sprint(code, " ", http.StatusText(code)), StatusCode: code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{}, Body: http.NoBody, Request: req,
	}
}

// base is a RoundTripper that counts what reaches it.
type base struct {
	calls  atomic.Int64
	answer func(req *http.Request, nth int64) (*http.Response, error)
}

func (b *base) RoundTrip(req *http.Request) (*http.Response, error) {
	return b.answer(req, b.calls.Add(1))
}

const host = "one.bench.test"

func request(tb testing.TB, host string) *http.Request {
	tb.Helper()
	req, err := http.NewRequest(http.MethodGet, "http://"+host+"/path", nil)
	if err != nil {
		tb.Fatal(err)
	}
	return req
}

// exchange does one call and reads its body to the end.
func exchange(rt http.RoundTripper, req *http.Request, buf []byte) error {
	resp, err := rt.RoundTrip(req)
	if err != nil {
		return err
	}
	for err == nil {
		_, err = resp.Body.Read(buf)
	}
	_ = resp.Body.Close()
	if err != io.EOF {
		return err
	}
	return nil
}

// each runs a work for every peer that can do it.
func each(b *testing.B, can func(peer.Peer) bool, work func(b *testing.B, p peer.Peer)) {
	for _, p := range peer.All() {
		if can(p) {
			b.Run(p.Name, func(b *testing.B) { work(b, p) })
		}
	}
}

func everyone(peer.Peer) bool { return true }

// closed ends what a peer may keep, when a test has ended.
func closed(tb testing.TB, rt http.RoundTripper) { tb.Cleanup(func() { end(rt) }) }

func end(rt http.RoundTripper) {
	if c, ok := rt.(io.Closer); ok {
		_ = c.Close()
	}
}

// unlimited is the default policy with limits that no work meets.
func unlimited() policy.Policy {
	p := policy.Default()
	p.Timeout = policy.Timeout{Read: time.Hour, Attempt: time.Hour, Total: time.Hour}
	p.Breaker.SlowCall, p.Breaker.SlowRate = 0, 0
	p.Breaker.OpenFor, p.Breaker.OpenForMax = time.Hour, 0
	return p
}
