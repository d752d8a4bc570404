package bench_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/watertight-go/watertight/bench/peer"
	"github.com/watertight-go/watertight/policy"
)

// BenchmarkCall is a call that succeeds: 256 bytes of JSON, read to their end. cpu-ns is
// what the whole process used of its processors, the garbage collector included.
func BenchmarkCall(b *testing.B) {
	each(b, everyone, func(b *testing.B, p peer.Peer) { calls(b, p, 1) })
}

// BenchmarkCallParallel2 is BenchmarkCall from two goroutines to one host.
func BenchmarkCallParallel2(b *testing.B) {
	each(b, everyone, func(b *testing.B, p peer.Peer) { calls(b, p, 2) })
}

// BenchmarkCallParallel64 is BenchmarkCall from 64 goroutines to one host.
func BenchmarkCallParallel64(b *testing.B) {
	each(b, everyone, func(b *testing.B, p peer.Peer) { calls(b, p, 64) })
}

// calls makes b.N of them, from a number of goroutines.
func calls(b *testing.B, p peer.Peer, goroutines int) {
	rt := p.New(newStub(256), policy.Default())
	closed(b, rt)
	if err := exchange(rt, request(b, host), make([]byte, 4096)); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	began, known := cpu()
	b.ResetTimer()
	var wg sync.WaitGroup
	for i := range goroutines {
		n := b.N / goroutines
		if i < b.N%goroutines {
			n++
		}
		req, buf := request(b, host), make([]byte, 4096)
		wg.Go(func() {
			for range n {
				if err := exchange(rt, req, buf); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	if ended, _ := cpu(); known {
		b.ReportMetric(float64(ended-began)/float64(b.N), "cpu-ns/op")
	}
}

// BenchmarkCallHosts1000 is BenchmarkCall with 1,000 hosts in turn.
func BenchmarkCallHosts1000(b *testing.B) {
	each(b, func(p peer.Peer) bool { return p.PerHost }, func(b *testing.B, p peer.Peer) {
		rt := p.New(newStub(256), policy.Default())
		closed(b, rt)
		var reqs [1000]*http.Request
		buf := make([]byte, 4096)
		for i := range reqs {
			reqs[i] = request(b, fmt.Sprintf("h%d.bench.test", i))
			if err := exchange(rt, reqs[i], buf); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			if err := exchange(rt, reqs[i%len(reqs)], buf); err != nil {
				b.Fatal(err)
			}
			i++
		}
	})
}
