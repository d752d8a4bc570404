package bench_test

import (
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/watertight-go/watertight/bench/peer"
	"github.com/watertight-go/watertight/policy"
)

// BenchmarkStale1KiB is a stored answer of 1 KiB, served while the origin fails.
// Where there is a breaker it is open, else the origin is asked and fails each time.
func BenchmarkStale1KiB(b *testing.B) { stale(b, 1<<10) }

// BenchmarkStale256KiB is the same with 256 KiB.
func BenchmarkStale256KiB(b *testing.B) { stale(b, 256<<10) }

func stale(b *testing.B, size int) {
	each(b, func(p peer.Peer) bool { return p.Stale }, func(b *testing.B, p peer.Peer) {
		good := newStub(size)
		good.header = http.Header{
			"Date": {time.Now().UTC().Format(http.TimeFormat)}, "Content-Type": {"application/json"},
			"Cache-Control": {"max-age=0, stale-if-error=86400"},
		}
		failing := &base{answer: func(req *http.Request, nth int64) (*http.Response, error) {
			if nth == 1 {
				return good.RoundTrip(req)
			}
			return nil, io.ErrUnexpectedEOF
		}}
		conf := unlimited()
		conf.Fallback.MaxStale = time.Hour
		conf.Retry.Base = 0 // until the breaker is open
		rt := p.New(failing, conf)
		closed(b, rt)
		req, buf := request(b, host), make([]byte, 32<<10)
		if err := exchange(rt, req, buf); err != nil {
			b.Fatal(err)
		}
		if p.Breaks() {
			trip(b, rt, failing, req, nil) // it serves what is stored
		}
		b.SetBytes(int64(size))
		b.ReportAllocs()
		for b.Loop() {
			if err := exchange(rt, req, buf); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkFresh1KiB is an answer that is fresh, served without contact.
func BenchmarkFresh1KiB(b *testing.B) {
	each(b, func(p peer.Peer) bool { return p.Fresh }, func(b *testing.B, p peer.Peer) {
		good := newStub(1 << 10)
		good.header = http.Header{
			"Date": {time.Now().UTC().Format(http.TimeFormat)}, "Content-Type": {"application/json"},
			"Cache-Control": {"max-age=86400"},
		}
		origin := &base{answer: func(req *http.Request, _ int64) (*http.Response, error) { return good.RoundTrip(req) }}
		conf := policy.Default()
		conf.Cache.Fresh = true
		rt := p.New(origin, conf)
		closed(b, rt)
		req, buf := request(b, host), make([]byte, 4096)
		if err := exchange(rt, req, buf); err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			if err := exchange(rt, req, buf); err != nil {
				b.Fatal(err)
			}
		}
		if n := origin.calls.Load(); n != 1 {
			b.Fatalf("%d calls reached the origin", n)
		}
	})
}
