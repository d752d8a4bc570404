package bench_test

import (
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"testing"

	"github.com/watertight-go/watertight/bench/peer"
	"github.com/watertight-go/watertight/policy"
)

// side is one of those that take turns over sockets, the first of which is bare.
type side struct {
	name string
	rt   http.RoundTripper
}

// sides puts peers over a transport of their own each, with the same settings.
func sides(b *testing.B, server *httptest.Server, conf policy.Policy, names ...string) []side {
	var all []side
	for _, p := range peer.All() {
		if !slices.Contains(names, p.Name) {
			continue
		}
		base := server.Client().Transport.(*http.Transport).Clone()
		base.MaxIdleConnsPerHost = 256 // or net/http keeps two
		b.Cleanup(base.CloseIdleConnections)
		rt := p.New(base, conf)
		closed(b, rt)
		all = append(all, side{p.Name, rt})
	}
	return all
}

// turns has each side take its turn as long as the benchmark lasts. Each begins with
// a clean heap, so that it collects its own garbage and no other's. Who begins
// changes, so that whatever else one leaves behind meets all alike.
func turns(b *testing.B, n int, turn func(i int)) {
	first := 0
	for b.Loop() {
		for i := range n {
			runtime.GC()
			turn((first + i) % n)
		}
		first++
	}
	b.ReportMetric(0, "ns/op") // of no meaning
}

// ratios are those of each value to the one of the same turn.
func ratios(values, to []float64) []float64 {
	all := make([]float64, 0, len(values))
	for i, v := range values {
		if to[i] > 0 {
			all = append(all, v/to[i])
		}
	}
	return all
}

// median sorts its argument.
func median(values []float64) float64 {
	n := len(values)
	if n == 0 {
		return 0
	}
	slices.Sort(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}

// quantile sorts its argument.
func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[min(int(q*float64(len(values))), len(values)-1)]
}
