package bench_test

import (
	"errors"
	"io"
	"net/http"
	"testing"

	"github.com/watertight-go/watertight/bench/peer"
	"github.com/watertight-go/watertight/policy"
)

// BenchmarkRefusalOpen is a call that an open breaker refuses.
func BenchmarkRefusalOpen(b *testing.B) {
	each(b, peer.Peer.Breaks, func(b *testing.B, p peer.Peer) {
		failing := &base{answer: func(*http.Request, int64) (*http.Response, error) { return nil, io.ErrUnexpectedEOF }}
		conf := unlimited()
		conf.Retry.Base = 0 // until the breaker is open
		if p.Tangled {
			conf.Retry = policy.Retry{}
		}
		rt := p.New(failing, conf)
		closed(b, rt)
		req := request(b, host)
		trip(b, rt, failing, req, p.Open)
		refused(b, rt, failing, req, p.Open)
	})
}

// BenchmarkRefusalFull is a call that a full bulkhead refuses. go-resiliency is left
// out: its semaphore is of use with a wait only, and the figure would be that wait.
func BenchmarkRefusalFull(b *testing.B) {
	each(b, func(p peer.Peer) bool { return p.Bounds() && !p.Waits }, func(b *testing.B, p peer.Peer) {
		entered, leave := make(chan struct{}), make(chan struct{})
		held := &base{answer: func(req *http.Request, _ int64) (*http.Response, error) {
			close(entered)
			<-leave
			return status(req, http.StatusOK), nil
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
			_ = exchange(rt, req.Clone(req.Context()), make([]byte, 4096))
			close(gone)
		}()
		<-entered
		refused(b, rt, held, req, p.Full)
		close(leave)
		<-gone
	})
}

// trip calls until nothing reaches the base any more, and open is what is returned.
func trip(b *testing.B, rt http.RoundTripper, failing *base, req *http.Request, open error) {
	for range 10_000 {
		before := failing.calls.Load()
		err := exchange(rt, req, make([]byte, 4096))
		if failing.calls.Load() == before && errors.Is(err, open) {
			return
		}
	}
	b.Fatal("never refused")
}

// refused measures calls that do not reach the base. Of what kind the refusals are is
// looked at in the first and in the last, which costs the others nothing: a layer that
// took over would not give back.
func refused(b *testing.B, rt http.RoundTripper, failing *base, req *http.Request, kind error) {
	before := failing.calls.Load()
	_, err := rt.RoundTrip(req)
	if !errors.Is(err, kind) {
		b.Fatalf("refused with %v, want %v", err, kind)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err = rt.RoundTrip(req); err == nil {
			b.Fatal("not refused")
		}
	}
	if !errors.Is(err, kind) {
		b.Fatalf("refused with %v in the end, want %v", err, kind)
	}
	if after := failing.calls.Load(); after != before {
		b.Fatalf("%d calls were not refused", after-before)
	}
}
