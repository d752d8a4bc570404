package bench_test

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/watertight-go/watertight/bench/peer"
	"github.com/watertight-go/watertight/policy"
)

const hung = 10_000 // calls

// hanging answers nothing and heeds nothing but the context.
type hanging struct{ held, ever atomic.Int64 }

func (h *hanging) RoundTrip(req *http.Request) (*http.Response, error) {
	h.ever.Add(1)
	h.held.Add(1)
	defer h.held.Add(-1)
	<-req.Context().Done()
	return nil, context.Cause(req.Context())
}

// BenchmarkHung is what 10,000 calls hold that hang, beyond what they hold over the
// bare base, which is in memory: the bytes of heap and stacks of each, and its goroutines.
// Of bytes, some hundreds more or less are of how the runtime hands out stacks.
func BenchmarkHung(b *testing.B) {
	bare := peer.All()[0]
	holding(b, bare) // goroutines that have ended are kept for the next ones
	each(b, bounding, func(b *testing.B, p peer.Peer) {
		var bytes, goroutines []float64
		for b.Loop() {
			least, one := holding(b, bare)
			all, n := holding(b, p)
			bytes, goroutines = append(bytes, (all-least)/hung), append(goroutines, (n-one)/hung)
		}
		b.ReportMetric(median(bytes), "B/call")
		b.ReportMetric(median(goroutines), "goroutines/call")
		b.ReportMetric(0, "ns/op") // of no meaning
	})
}

// bounding is who may be measured: bare, and whoever can hold so many calls.
func bounding(p peer.Peer) bool {
	return p.Name == "bare" || p.Name == "timeout" || p.Breaks() || p.Bounds()
}

func holding(b *testing.B, p peer.Peer) (bytes, goroutines float64) {
	conf := unlimited()
	conf.Bulkhead.MaxConcurrent = hung + 1
	conf.Bulkhead.MaxWait = time.Minute // for go-resiliency, which else refuses calls that are slow to start
	origin := &hanging{}
	rt := p.New(origin, conf)
	defer end(rt)
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	before, running := memory(), runtime.NumGoroutine()
	var wg sync.WaitGroup
	call(ctx, b, rt, hung, &wg, nil)
	for origin.held.Load() < hung {
		time.Sleep(time.Millisecond)
	}
	bytes, goroutines = memory()-before, float64(runtime.NumGoroutine()-running)
	cancel()
	wg.Wait()
	return bytes, goroutines
}

// BenchmarkHungKnown is how long it takes until the first call is refused by an open
// breaker, when every call hangs, a call is slow after 200 ms, and an attempt may take a
// second.
func BenchmarkHungKnown(b *testing.B) {
	each(b, peer.Peer.Breaks, func(b *testing.B, p peer.Peer) {
		var knows []float64
		for b.Loop() {
			took, ok := known(b, p)
			if !ok {
				b.SkipNow() // it has no limit of its own
			}
			knows = append(knows, took.Seconds()*1e3)
		}
		b.ReportMetric(median(knows), "known-ms")
		b.ReportMetric(0, "ns/op") // of no meaning
	})
}

// patience is how long it is waited for the first refusal.
const patience = 5 * time.Second

func known(b *testing.B, p peer.Peer) (took time.Duration, ok bool) {
	conf := unlimited()
	conf.Timeout = policy.Timeout{Attempt: time.Second}
	conf.Retry = policy.Retry{}
	conf.Breaker.SlowCall, conf.Breaker.SlowRate = 200*time.Millisecond, 0.5
	conf.Bulkhead.MaxConcurrent, conf.Bulkhead.MaxWait = 100_000, time.Minute
	rt := p.New(&hanging{}, conf)
	defer end(rt)
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	refused := make(chan time.Time, 1)
	began := time.Now()
	call(ctx, b, rt, 100, &wg, nil)
	for time.Since(began) < patience {
		call(ctx, b, rt, 1, &wg, func(err error) {
			if errors.Is(err, p.Open) {
				select {
				case refused <- time.Now():
				default: // another was the first
				}
			}
		})
		select {
		case at := <-refused:
			return at.Sub(began), true
		case <-time.After(5 * time.Millisecond):
		}
	}
	return 0, false
}

// call makes n calls that somebody else ends, or a refusal: ended is told.
func call(ctx context.Context, b *testing.B, rt http.RoundTripper, n int, wg *sync.WaitGroup, ended func(error)) {
	for range n {
		req := request(b, host).WithContext(ctx)
		wg.Go(func() {
			resp, err := rt.RoundTrip(req)
			if err == nil {
				_ = resp.Body.Close()
			}
			if ended != nil {
				ended(err)
			}
		})
	}
}

// memory is what the heap and the stacks hold.
func memory() float64 {
	h := heap()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return h + float64(m.StackInuse)
}
