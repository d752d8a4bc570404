package transport_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
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
	}{
		{name: "a call", policy: policy.Default(), stub: newStub(256), most: 5},
		{name: "a call whose answer is stored", policy: stale, stub: newStub(4 << 10), most: 12},
		{name: "a stored answer in place of a refusal", policy: stale, stub: newStub(1 << 10), before: open, most: 4},
		{name: "a stored answer without contact", policy: fresh, stub: freshStub(), most: 7},
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
		n := testing.AllocsPerRun(2000, func() {
			if !test.refused {
				exchange(t, tr, req, buf)
			} else if _, err := tr.RoundTrip(req); err == nil {
				t.Fatalf("%s: it is none", test.name)
			}
		})
		if n > test.most {
			t.Errorf("%s: %v allocations, want at most %v", test.name, n, test.most)
		}
		_ = tr.Close()
	}
}

// TestACallCostsFewBytes: what the stub takes of them, 192, is among them.
func TestACallCostsFewBytes(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector has memory of its own")
	}
	tr := transport.Must(transport.New(transport.Config{Base: newStub(256), Logger: quiet()}))
	defer tr.Close()
	req, buf := benchRequest(t), make([]byte, 4<<10)
	if each := bytesOf(t, tr, req, buf, 5000); each > 1280 {
		t.Errorf("a call takes %d bytes, want at most 1280", each)
	}
}

// bytesOf is what each of n calls allocates.
func bytesOf(t *testing.T, rt http.RoundTripper, req *http.Request, buf []byte, n uint64) uint64 {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range n {
		exchange(t, rt, req, buf)
	}
	runtime.ReadMemStats(&after)
	return (after.TotalAlloc - before.TotalAlloc) / n
}

// TestACallOverNetHTTPCostsFewAllocations: beyond those of a bare http.Transport to the
// same server, that is for a context that can end and for the hooks that net/http calls.
func TestACallOverNetHTTPCostsFewAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector has allocations of its own")
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello")) }))
	defer server.Close()
	bare := &http.Transport{}
	defer bare.CloseIdleConnections()
	tr := transport.Must(transport.New(transport.Config{Base: &http.Transport{}, Logger: quiet()}))
	defer tr.Close()
	buf := make([]byte, 4<<10)
	cost := func(rt http.RoundTripper) (allocations float64, bytes uint64) {
		req, err := http.NewRequest(http.MethodGet, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		exchange(t, rt, req, buf)
		return testing.AllocsPerRun(500, func() { exchange(t, rt, req, buf) }), bytesOf(t, rt, req, buf, 500)
	}
	least, fewest := cost(bare)
	n, bytes := cost(tr)
	if n > least+5 || bytes > fewest+1300 {
		t.Errorf("%v allocations and %d bytes, want at most 5 and 1300 beyond the %v and %d of a bare transport", n, bytes, least, fewest)
	}
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
