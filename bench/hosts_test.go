package bench_test

import (
	"fmt"
	"net/http"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watertight-go/watertight/bench/peer"
	"github.com/watertight-go/watertight/policy"
)

// BenchmarkHosts10000 is a call of which each goes to another of 10,000 hosts, as many
// as the stack keeps by default.
func BenchmarkHosts10000(b *testing.B) { manyHosts(b, 10_000) }

// BenchmarkHosts100000 is the same with ten times as many.
func BenchmarkHosts100000(b *testing.B) { manyHosts(b, 100_000) }

func manyHosts(b *testing.B, n int) {
	reqs := requests(b, n)
	each(b, func(p peer.Peer) bool { return p.PerHost }, func(b *testing.B, p peer.Peer) {
		before := heap()
		rt := p.New(newStub(256), policy.Default())
		closed(b, rt)
		buf := make([]byte, 4096)
		call := func(reqs []*http.Request) {
			for _, req := range reqs {
				if err := exchange(rt, req, buf); err != nil {
					b.Fatal(err)
				}
			}
		}
		call(reqs[:10_000])
		first := heap() - before
		call(reqs[10_000:])
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			if err := exchange(rt, reqs[i%n], buf); err != nil {
				b.Fatal(err)
			}
			i++
		}
		last := heap() - before
		b.ReportMetric(last/(1<<20), "heap-MiB")
		if first > 1<<20 { // or it keeps nothing
			b.ReportMetric(last/first, "heap-growth")
		}
		runtime.KeepAlive(rt)
	})
	runtime.KeepAlive(reqs)
}

// BenchmarkIdleHosts is what 10,000 hosts hold that were called once, and then not for
// two minutes: what is given back after a while has been. The time is that of a bubble.
func BenchmarkIdleHosts(b *testing.B) {
	const n = 10_000
	reqs := requests(b, n)
	each(b, func(p peer.Peer) bool { return p.PerHost }, func(b *testing.B, p peer.Peer) {
		var held float64
		for b.Loop() {
			bubble(b, func() { held = idleHosts(b, p, reqs) })
		}
		b.ReportMetric(held/n, "heap-B/host")
		b.ReportMetric(0, "ns/op") // of no meaning
	})
	runtime.KeepAlive(reqs)
}

func idleHosts(b *testing.B, p peer.Peer, reqs []*http.Request) float64 {
	before := heap()
	rt := p.New(newStub(256), policy.Default())
	defer end(rt)
	buf := make([]byte, 4096)
	for _, req := range reqs {
		if err := exchange(rt, req, buf); err != nil {
			b.Error(err)
			return 0
		}
	}
	for range 120 { // what sweeps does so on a call
		time.Sleep(2 * time.Second)
		if err := exchange(rt, reqs[0], buf); err != nil {
			b.Error(err)
			return 0
		}
	}
	held := heap() - before
	runtime.KeepAlive(rt)
	return held
}

// bubble runs f in one of testing/synctest, which wants a test.
func bubble(b *testing.B, f func()) {
	ok := testing.RunTests(func(string, string) (bool, error) { return true, nil }, []testing.InternalTest{
		{Name: b.Name(), F: func(t *testing.T) { synctest.Test(t, func(*testing.T) { f() }) }},
	})
	if !ok {
		b.Fatal("failed in its bubble")
	}
}

func requests(b *testing.B, n int) []*http.Request {
	reqs := make([]*http.Request, n)
	for i := range reqs {
		reqs[i] = request(b, fmt.Sprintf("h%d.bench.test", i))
	}
	return reqs
}

// heap is how many bytes are reachable.
func heap() float64 {
	var m runtime.MemStats
	for range 3 { // finalizers, and what they leave
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}
