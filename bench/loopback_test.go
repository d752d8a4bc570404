package bench_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/watertight-go/watertight/policy"
)

// slice is how long a turn lasts: long enough for thousands of calls and for the
// garbage of most of them, short enough that what else the machine does meets all
// sides. The report has four turns of each side in a round.
const slice = 250 * time.Millisecond

// BenchmarkLoopback is a GET of 1 KiB from a server in the same process, in turns of
// 250 ms, from 1, 8 and 64 workers.
func BenchmarkLoopback(b *testing.B) {
	body := []byte(strings.Repeat("x", 1<<10))
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) })
	for _, proto := range []string{"h1", "h2"} {
		for _, workers := range []int{1, 8, 64} {
			b.Run(fmt.Sprintf("%s/%d", proto, workers), func(b *testing.B) {
				server := httptest.NewUnstartedServer(handler)
				if proto == "h2" {
					server.EnableHTTP2 = true
					server.StartTLS()
				} else {
					server.Start()
				}
				b.Cleanup(server.Close)
				loopback(b, server, workers)
			})
		}
	}
}

// run is what a side did in all of its turns.
type run struct {
	rates, p99s []float64 // one a turn
	latencies   []float64
	calls       int
	took        time.Duration
}

func loopback(b *testing.B, server *httptest.Server, workers int) {
	all := sides(b, server, policy.Default(), "bare", "timeout", "floor", "complete", "failsafe-go")
	runs := make([]run, len(all))
	for i := range all { // connections are made, and the first calls are over
		(&run{}).turn(b, all[i].rt, server.URL, workers, slice/5)
	}
	turns(b, len(all), func(i int) { runs[i].turn(b, all[i].rt, server.URL, workers, slice) })
	for i, s := range all {
		r := &runs[i]
		b.ReportMetric(float64(r.calls)/r.took.Seconds(), s.name+":req/s")
		b.ReportMetric(quantile(r.latencies, 0.5), s.name+":p50-ns")
		b.ReportMetric(quantile(r.latencies, 0.99), s.name+":p99-ns")
		b.ReportMetric(median(ratios(r.rates, runs[0].rates)), s.name+":throughput-ratio")
		b.ReportMetric(median(ratios(r.p99s, runs[0].p99s)), s.name+":p99-ratio")
	}
}

// turn calls for some time, from so many workers. The first latency of each is left
// out, which is that of a goroutine and of a connection that have yet to wake up.
func (r *run) turn(b *testing.B, rt http.RoundTripper, url string, workers int, long time.Duration) {
	latencies := make([][]float64, workers)
	reqs := make([]*http.Request, workers)
	for w := range reqs {
		req, err := http.NewRequest(http.MethodGet, url, nil)
		if err != nil {
			b.Fatal(err)
		}
		reqs[w] = req
	}
	began := time.Now()
	var wg sync.WaitGroup
	for w, req := range reqs {
		wg.Go(func() {
			buf := make([]byte, 4096)
			for now := time.Now(); now.Sub(began) < long; {
				if err := exchange(rt, req, buf); err != nil {
					b.Error(err)
					return
				}
				after := time.Now()
				latencies[w] = append(latencies[w], float64(after.Sub(now)))
				now = after
			}
		})
	}
	wg.Wait()
	took, calls := time.Since(began), 0
	var these []float64
	for _, all := range latencies {
		calls += len(all)
		these = append(these, all[min(1, len(all)):]...)
	}
	r.latencies = append(r.latencies, these...)
	r.calls += calls
	r.took += took
	r.rates = append(r.rates, float64(calls)/took.Seconds())
	r.p99s = append(r.p99s, quantile(these, 0.99))
}
