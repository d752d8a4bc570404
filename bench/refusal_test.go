package bench_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/watertight-go/watertight/bench/peer"
	"github.com/watertight-go/watertight/policy"
)

// BenchmarkRefusalOpen is a call that an open breaker refuses.
func BenchmarkRefusalOpen(b *testing.B) {
	each(b, func(p peer.Peer) bool { return p.Breaks }, func(b *testing.B, p peer.Peer) {
		failing := &base{answer: func(*http.Request, int64) (*http.Response, error) { return nil, io.ErrUnexpectedEOF }}
		conf := unlimited()
		conf.Retry.Base = 0 // until the breaker is open
		if p.Tangled {
			conf.Retry = policy.Retry{}
		}
		rt := p.New(failing, conf)
		closed(b, rt)
		req := request(b, host)
		trip(b, rt, failing, req)
		refused(b, rt, failing, req)
	})
}

// BenchmarkRefusalFull is a call that a full bulkhead refuses.
func BenchmarkRefusalFull(b *testing.B) {
	each(b, func(p peer.Peer) bool { return p.Bounds }, func(b *testing.B, p peer.Peer) {
		entered, leave := make(chan struct{}), make(chan struct{})
		held := &base{answer: func(*http.Request, int64) (*http.Response, error) {
			close(entered)
			<-leave
			return nil, io.ErrUnexpectedEOF
		}}
		conf := unlimited()
		conf.Bulkhead.MaxConcurrent, conf.Breaker.MinCalls = 1, 1
		if p.Tangled {
			conf.Retry, conf.Breaker = policy.Retry{}, policy.Breaker{}
		}
		rt := p.New(held, conf)
		closed(b, rt)
		req := request(b, host)
		gone := make(chan struct{})
		go func() {
			_, _ = rt.RoundTrip(req.Clone(req.Context()))
			close(gone)
		}()
		<-entered
		refused(b, rt, held, req)
		close(leave)
		<-gone
	})
}

// trip calls until nothing reaches the base any more.
func trip(b *testing.B, rt http.RoundTripper, failing *base, req *http.Request) {
	for range 10_000 {
		before := failing.calls.Load()
		_ = exchange(rt, req, make([]byte, 4096))
		if failing.calls.Load() == before {
			return
		}
	}
	b.Fatal("never refused")
}

// refused measures calls that do not reach the base.
func refused(b *testing.B, rt http.RoundTripper, failing *base, req *http.Request) {
	before := failing.calls.Load()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := rt.RoundTrip(req); err == nil {
			b.Fatal("not refused")
		}
	}
	if after := failing.calls.Load(); after != before {
		b.Fatalf("%d calls were not refused", after-before)
	}
}
