package bench_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watertight-go/watertight/bench/peer"
	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
)

// BenchmarkHosts10000 is a call of which each goes to another of 10,000 hosts, as many
// as the stack keeps by default. heap-MiB is what is held at the end, heap-growth how
// many times what it was after 10,000 hosts.
func BenchmarkHosts10000(b *testing.B) { manyHosts(b, 10_000) }

// BenchmarkHosts100000 is the same with ten times as many: watertight forgets those that
// were not used for longest, so that each call makes a host, and the others keep all.
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
// four minutes: what is given back after a while has been. The time is that of a bubble.
func BenchmarkIdleHosts(b *testing.B) {
	idle(b, func() http.RoundTripper { return newStub(256) })
}

// BenchmarkIdleHostsPooled is BenchmarkIdleHosts over an http.Transport, whose
// connections have come and gone.
func BenchmarkIdleHostsPooled(b *testing.B) {
	idle(b, func() http.RoundTripper {
		return &http.Transport{DialContext: dialMemory, IdleConnTimeout: 90 * time.Second}
	})
}

func idle(b *testing.B, base func() http.RoundTripper) {
	const n = 10_000
	reqs := requests(b, n)
	bubble(b, func() { idleHosts(b, peer.All()[0], base(), reqs) }) // goroutines that have ended are kept for the next ones
	each(b, func(p peer.Peer) bool { return p.PerHost }, func(b *testing.B, p peer.Peer) {
		var held float64
		for b.Loop() {
			bubble(b, func() { held = idleHosts(b, p, base(), reqs) })
		}
		b.ReportMetric(held/n, "heap-B/host")
		b.ReportMetric(0, "ns/op") // of no meaning
	})
	runtime.KeepAlive(reqs)
}

func idleHosts(b *testing.B, p peer.Peer, base http.RoundTripper, reqs []*http.Request) float64 {
	before := heap()
	rt := p.New(base, policy.Default())
	defer end(rt)
	buf := make([]byte, 4096)
	call := func(req *http.Request) bool {
		if err := exchange(rt, req, buf); err != nil {
			b.Error(err)
			return false
		}
		return true
	}
	for _, req := range reqs {
		if !call(req) {
			return 0
		}
	}
	for range 120 { // what sweeps does so on a call
		time.Sleep(2 * time.Second)
		if !call(reqs[0]) {
			return 0
		}
	}
	synctest.Wait()
	held := heap() - before
	if tr, ok := rt.(*transport.Transport); ok && len(tr.Snapshot()) != len(reqs) {
		b.Errorf("%d hosts are known", len(tr.Snapshot()))
	}
	if t, ok := base.(*http.Transport); ok {
		t.CloseIdleConnections()
	}
	return held
}

// dialMemory connects to a server in memory that answers every request alike.
func dialMemory(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	go func() {
		defer func() { _ = server.Close() }()
		in := bufio.NewReader(server)
		for {
			req, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			_ = req.Body.Close()
			if _, err := io.WriteString(server, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"); err != nil {
				return
			}
		}
	}()
	return client, nil
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
