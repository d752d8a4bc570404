package bench_test

import (
	"net/http"
	"net/http/httptest"
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

// turns has each side take its turn as long as the benchmark lasts. Nothing is collected
// in between: a turn is long enough for many collections, all but the first of which
// are of its own garbage, and one that began with a clean heap would be spared the cost
// of what it leaves behind. Who begins changes, and every other time they go backwards,
// so that each comes after each.
func turns(b *testing.B, n int, turn func(i int)) {
	round := 0
	for b.Loop() {
		for i := range n {
			if round%2 != 0 {
				i = n - i
			}
			turn((round + i) % n)
		}
		round++
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
