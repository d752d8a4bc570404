package transport_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
)

// What a call costs in allocations is the same on every machine, unlike its time; the
// stub's own three are among them.
func TestCallsCostFewAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector has allocations of its own")
	}
	stale := policy.Default()
	stale.Fallback.MaxStale = time.Hour
	fresh := policy.Default()
	fresh.Cache.Fresh = true
	full := policy.Default()
	full.Bulkhead.MaxConcurrent, full.Breaker.MinCalls = 1, 1
	open := func(tr *transport.Transport) { tr.Host("bench.test").ForceOpen() }
	for _, test := range []struct {
		name    string
		policy  policy.Policy
		stub    *stub
		before  func(*transport.Transport)
		refused bool
		most    float64
		bytes   float64
	}{
		{name: "a call", policy: policy.Default(), stub: newStub(256), most: 5, bytes: 1264},
		{name: "a call whose answer is stored", policy: stale, stub: newStub(4 << 10), most: 12, bytes: 2024},
		{name: "a stored answer in place of a refusal", policy: stale, stub: newStub(1 << 10), before: open, most: 4, bytes: 752},
		{name: "a stored answer without contact", policy: fresh, stub: freshStub(), most: 7, bytes: 1400},
		{name: "a refusal by an open breaker", policy: policy.Default(), stub: newStub(256), before: open, refused: true, most: 0},
		{name: "a refusal by a full bulkhead", policy: full, stub: newStub(256), refused: true, most: 0, before: func(tr *transport.Transport) {
			resp, err := tr.RoundTrip(benchRequest(t))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = resp.Body.Close() })
		}},
	} {
		tr := transport.Must(transport.New(transport.Config{Base: test.stub, Default: test.policy, Logger: quiet()}))
		req, buf := benchRequest(t), make([]byte, 8<<10)
		exchange(t, tr, req, buf)
		if test.before != nil {
			test.before(tr)
		}
		n, bytes := costOf(2000, func() {
			if !test.refused {
				exchange(t, tr, req, buf)
			} else if _, err := tr.RoundTrip(req); err == nil {
				t.Fatalf("%s: it is none", test.name)
			}
		})
		if n > test.most+0.1 || bytes > test.bytes+32 { // what the runtime does meanwhile is in it
			t.Errorf("%s: %.2f allocations and %.0f bytes, want %v and %v", test.name, n, bytes, test.most, test.bytes)
		}
		_ = tr.Close()
	}
}

// costOf is what each of n runs of f allocates, and how many bytes.
func costOf(n uint64, f func()) (allocations, bytes float64) {
	f()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range n {
		f()
	}
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs-before.Mallocs) / float64(n), float64(after.TotalAlloc-before.TotalAlloc) / float64(n)
}

// TestACallOverNetHTTPCostsFewAllocations: beyond those of a bare http.Transport to the
// same server.
func TestACallOverNetHTTPCostsFewAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector has allocations of its own")
	}
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello")) })
	plain := httptest.NewServer(handler)
	defer plain.Close()
	both := httptest.NewUnstartedServer(handler)
	both.EnableHTTP2 = true
	both.StartTLS()
	defer both.Close()
	ends, cancel := context.WithCancel(t.Context())
	defer cancel()
	direct := func(*http.Request) (*url.URL, error) { return nil, nil }
	for _, test := range []struct {
		name        string
		ctx         context.Context
		url         string
		base        func() *http.Transport
		most, bytes float64
	}{
		{"HTTP/1.1", context.Background(), plain.URL, func() *http.Transport { return &http.Transport{} }, 4, 1200},
		{"with a context that ends", ends, plain.URL, func() *http.Transport { return &http.Transport{} }, 8, 1600},
		{"with a Proxy function", context.Background(), plain.URL, func() *http.Transport { return &http.Transport{Proxy: direct} }, 14, 1650},
		{"HTTP/2", context.Background(), both.URL, func() *http.Transport { return both.Client().Transport.(*http.Transport).Clone() }, 10, 1550},
	} {
		bare := test.base()
		tr := transport.Must(transport.New(transport.Config{Base: test.base(), Logger: quiet()}))
		buf := make([]byte, 4<<10)
		cost := func(rt http.RoundTripper) (allocations, bytes float64) {
			req, err := http.NewRequestWithContext(test.ctx, http.MethodGet, test.url, nil)
			if err != nil {
				t.Fatal(err)
			}
			exchange(t, rt, req, buf)
			return costOf(500, func() { exchange(t, rt, req, buf) })
		}
		least, fewest := cost(bare)
		n, bytes := cost(tr)
		if n > least+test.most+0.9 || bytes > fewest+test.bytes+100 { // the goroutines of net/http are of different luck with what they share
			t.Errorf("%s: %.1f allocations and %.0f bytes, want %v and %v beyond the %.1f and %.0f of a bare transport",
				test.name, n, bytes, test.most, test.bytes, least, fewest)
		}
		bare.CloseIdleConnections()
		_ = tr.Close()
	}
}

// TestACallThatHangsCostsNoLargerStack: the runtime doubles a stack that does not suffice,
// and net/http leaves some 1.5 KiB of 4 for what is around it. Each is measured in a
// process of its own, where no goroutine has left a stack behind.
func TestACallThatHangsCostsNoLargerStack(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector has stack frames of its own")
	}
	const name = "STACK_OF_A_CALL_OVER"
	switch base := (&http.Transport{}); os.Getenv(name) {
	case "net/http":
		fmt.Printf("stack: %d\n", stackOf(t, base))
		return
	case "the stack":
		tr := transport.Must(transport.New(transport.Config{Base: base, Logger: quiet()}))
		defer tr.Close()
		fmt.Printf("stack: %d\n", stackOf(t, tr))
		return
	}
	measured := func(over string) (bytes int) {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), name+"="+over)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if _, err := fmt.Sscanf(string(out), "stack: %d", &bytes); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return bytes
	}
	var least, each int
	for range 10 { // a stack that was grown for a moment, to set up a connection, is only found to be too large by the collector
		if least, each = measured("net/http"), measured("the stack"); each <= least+2<<10 {
			return
		}
	}
	t.Errorf("a call that hangs has %d bytes of stack in all its goroutines, want at most 2048 more than the %d over a bare transport", each, least)
}

// stackOf is what each of many calls that hang has in use for stacks, the goroutines of
// net/http and of the server included.
func stackOf(t *testing.T, rt http.RoundTripper) uint64 {
	const calls = 100
	var asked, ended sync.WaitGroup
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked.Done()
		<-r.Context().Done()
	}))
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer ended.Wait()
	defer cancel()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	asked.Add(calls)
	for range calls {
		ended.Go(func() {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
			if err != nil {
				t.Error(err)
				return
			}
			if resp, err := rt.RoundTrip(req); err == nil {
				_ = resp.Body.Close()
			}
		})
	}
	asked.Wait()
	runtime.ReadMemStats(&after)
	return (after.StackInuse - before.StackInuse) / calls
}

// TestAnIdleHostCostsLittle: once its latencies are given back, as are its connections
// where there are any.
func TestAnIdleHostCostsLittle(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector has memory of its own")
	}
	const hosts = 10_000
	tr := transport.Must(transport.New(transport.Config{Base: newStub(1), Logger: quiet()}))
	defer tr.Close()
	heap := func() uint64 {
		runtime.GC()
		runtime.GC() // what pools held
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	buf := make([]byte, 64)
	before := heap()
	for i := range hosts {
		req, err := http.NewRequest(http.MethodGet, fmt.Sprintf("http://h%d.test/", i), nil)
		if err != nil {
			t.Fatal(err)
		}
		exchange(t, tr, req, buf)
	}
	transport.ForgetLatencies(tr)
	if each := (heap() - before) / hosts; each > 900 {
		t.Errorf("an idle host takes %d bytes, want at most 900", each)
	}
	if n := len(tr.Snapshot()); n != hosts {
		t.Errorf("%d hosts are known", n)
	}
}
