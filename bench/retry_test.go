package bench_test

import (
	"net/http"
	"testing"

	"github.com/watertight-go/watertight/bench/peer"
	"github.com/watertight-go/watertight/policy"
)

// BenchmarkRetry is a call whose first attempt gets a 503 and whose second is
// answered, with no wait between them. bare is the two exchanges alone.
func BenchmarkRetry(b *testing.B) {
	can := func(p peer.Peer) bool { return p.Retries || p.Name == "bare" }
	each(b, can, func(b *testing.B, p peer.Peer) {
		good := newStub(256)
		flaky := &base{answer: func(req *http.Request, nth int64) (*http.Response, error) {
			if nth%2 == 1 {
				return status(req, http.StatusServiceUnavailable), nil
			}
			return good.RoundTrip(req)
		}}
		conf := policy.Default()
		conf.Retry.Base, conf.Retry.Budget = 0, policy.Budget{}
		conf.Breaker = policy.Breaker{} // half of all attempts fail
		rt := p.New(flaky, conf)
		closed(b, rt)
		req, buf := request(b, host), make([]byte, 4096)
		ops := int64(0)
		b.ReportAllocs()
		for b.Loop() {
			ops++
			if p.Name == "bare" {
				_ = exchange(rt, req, buf)
			}
			if err := exchange(rt, req, buf); err != nil {
				b.Fatal(err)
			}
		}
		if n := flaky.calls.Load(); n != 2*ops {
			b.Fatalf("%d calls in %d attempts", ops, n)
		}
	})
}
