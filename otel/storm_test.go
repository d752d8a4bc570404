package otel_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/transporttest"
)

// tally is what the callers of a storm saw.
type tally struct {
	calls, open, full, cancelled, ok, failed, lost atomic.Int64
}

func TestWhateverCallersAndTheBaseDoSpansEndAndFiguresAddUp(t *testing.T) {
	var seen tally // by all storms together
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { storm(t, seed, &seen) })
		})
	}
	for what, n := range map[string]*atomic.Int64{"open": &seen.open, "full": &seen.full, "cancelled": &seen.cancelled, "ok": &seen.ok, "failed": &seen.failed, "lost": &seen.lost} {
		if n.Load() == 0 {
			t.Errorf("no storm has had a call of the kind %s", what)
		}
	}
}

func storm(t *testing.T, seed uint64, all *tally) {
	random, theirs := rand.New(rand.NewPCG(seed, 1)), rand.New(rand.NewPCG(seed, 2)) // of callers, of the base
	s := newSignals(t, sdktrace.AlwaysSample())
	p := policy.Service()
	p.Bulkhead = policy.Bulkhead{MaxConcurrent: 4, MaxWait: 100 * time.Millisecond, BodyIdle: time.Minute}
	p.Breaker.MinCalls, p.Breaker.OpenFor, p.Breaker.ConsecutiveFailures = 4, time.Second, 6
	p.Breaker.FailureRate, p.Breaker.SlowRate = 0.8, 0.8
	p.Retry = policy.Retry{} // so that what is refused is what callers see
	var mu sync.Mutex        // guards theirs
	steps := transporttest.NewBase()
	steps.ScriptFunc(func(transporttest.Hit) transporttest.Step {
		mu.Lock()
		defer mu.Unlock()
		switch theirs.IntN(9) {
		case 0:
			return transporttest.Step{Fault: transporttest.Hang}
		case 1:
			return transporttest.Step{Body: "abc", Fault: transporttest.Cut, At: 1}
		case 2:
			return transporttest.Step{Status: 500 + theirs.IntN(5), Body: "x"}
		case 3:
			return transporttest.Step{Status: 204, Delay: time.Second}
		case 4:
			return transporttest.Step{Body: "abc", Fault: transporttest.Hang, At: 1}
		}
		return transporttest.Step{Body: "abc", Chunk: 1, Pause: time.Duration(theirs.IntN(500)) * time.Millisecond}
	})
	base := rt(func(r *http.Request) (*http.Response, error) {
		switch r.Header.Get("Base") {
		case "panics":
			panic("base")
		case "ends":
			runtime.Goexit()
		}
		return steps.RoundTrip(r)
	})
	tr := stack(s.observer(), base, p)
	var seen tally
	var calls sync.WaitGroup
	for range 400 {
		host := "http://" + strconv.Itoa(random.IntN(3)) + ".test/"
		how, after := random.IntN(12), time.Duration(random.IntN(2000))*time.Millisecond
		calls.Go(func() { seen.call(tr, host, how, after) })
		time.Sleep(time.Duration(random.IntN(40)) * time.Millisecond)
		if random.IntN(20) == 0 {
			mustBeWithinLimits(t, s)
		}
	}
	calls.Wait()
	time.Sleep(2 * time.Hour)
	s.mustEnd()

	got := s.collect()
	sum := func(name string, attrs ...attribute.KeyValue) (n int64) {
		for _, p := range points(got[name]) {
			match := true
			for _, a := range attrs {
				v, ok := p.attrs.Value(a.Key)
				match = match && ok && v == a.Value
			}
			if v, err := strconv.ParseInt(p.value, 10, 64); match && err == nil {
				n += v
			} else if match {
				fmt.Sscanf(p.value, "%d of", &v)
				n += v
			}
		}
		return n
	}
	outcome := func(o string) attribute.KeyValue { return attribute.String("resilience.outcome", o) }
	for _, test := range []struct {
		what      string
		got, want int64
	}{
		{"refused by a breaker", sum("resilience.circuit_breaker.not_permitted"), seen.open.Load()},
		{"refused by a bulkhead", sum("resilience.bulkhead.rejections"), seen.full.Load()},
		{"rejected", sum("resilience.request.duration", outcome("rejected")), seen.open.Load() + seen.full.Load()},
		{"calls", sum("resilience.request.duration"), seen.calls.Load()},
		{"cancelled", sum("resilience.request.duration", outcome("cancelled")), seen.cancelled.Load()},
		{"succeeded", sum("resilience.request.duration", outcome("success")), seen.ok.Load()},
		{"failed", sum("resilience.request.duration", outcome("error")), seen.failed.Load()},
		{"attempts and verdicts", sum("resilience.attempts"), sum("resilience.circuit_breaker.calls")},
		{"attempts and durations", sum("resilience.attempts"), sum("http.client.request.duration")},
		{"in use", sum("resilience.bulkhead.usage"), 0},
		{"in the queue", sum("resilience.bulkhead.queue.usage"), 0},
		{"leaked", sum("resilience.bulkhead.leaked"), seen.lost.Load()},
	} {
		if test.got != test.want {
			t.Errorf("%s: %d, want %d", test.what, test.got, test.want)
		}
	}
	for _, sum := range [][2]*atomic.Int64{{&all.open, &seen.open}, {&all.full, &seen.full}, {&all.cancelled, &seen.cancelled}, {&all.ok, &seen.ok}, {&all.failed, &seen.failed}, {&all.lost, &seen.lost}} {
		sum[0].Add(sum[1].Load())
	}
}

// call does one call in some way, and counts what its caller sees of it.
func (n *tally) call(tr http.RoundTripper, url string, how int, after time.Duration) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	req := request("GET", url).WithContext(ctx)
	n.calls.Add(1)
	switch how {
	case 0:
		req.Header.Set("Base", "panics")
	case 1:
		req.Header.Set("Base", "ends")
	case 2, 3:
		time.AfterFunc(after, cancel)
	}
	done := make(chan struct{})
	go func() {
		sent := false
		defer close(done)
		defer func() { // the base has panicked or ended the goroutine
			_ = recover()
			if !sent {
				n.failed.Add(1)
			}
		}()
		resp, err := tr.RoundTrip(req)
		sent = true
		if err != nil {
			n.count(ctx, err)
			return
		}
		switch {
		case how == 4 && resp.StatusCode == 200:
			time.Sleep(time.Hour) // forgotten, unless a limit was faster
		case how == 5:
			_ = resp.Body.Close()
		default:
			_, err = io.Copy(io.Discard, resp.Body)
		}
		switch {
		case err != nil:
			n.count(ctx, err)
		case resp.StatusCode >= 500:
			n.failed.Add(1)
		default:
			n.ok.Add(1)
		}
		if how == 4 && resp.StatusCode == 200 {
			n.lost.Add(1)
		}
	}()
	<-done
}

func (n *tally) count(ctx context.Context, err error) {
	switch {
	case errors.Is(err, transport.ErrBreakerOpen):
		n.open.Add(1)
	case errors.Is(err, transport.ErrBulkheadFull):
		n.full.Add(1)
	case ctx.Err() != nil:
		n.cancelled.Add(1)
	default:
		n.failed.Add(1)
	}
}

// mustBeWithinLimits looks at the gauges in the middle of it.
func mustBeWithinLimits(t *testing.T, s *signals) {
	t.Helper()
	got := s.collect()
	limits := map[attribute.Distinct]string{}
	for _, p := range points(got["resilience.bulkhead.limit"]) {
		limits[p.attrs.Equivalent()] = p.value
	}
	for _, p := range points(got["resilience.bulkhead.usage"]) {
		if limit := limits[p.attrs.Equivalent()]; limit != "4" || p.value > limit { // of one digit
			t.Errorf("%s of %s permits are in use", p.value, limit)
		}
	}
	ones := map[string]int{}
	for _, p := range points(got["resilience.circuit_breaker.status"]) {
		name, _ := p.attrs.Value("resilience.policy.name")
		ones[name.AsString()] += int(p.value[0] - '0')
	}
	for name, n := range ones {
		if n != 1 {
			t.Errorf("%s is in %d states", name, n)
		}
	}
	if len(ones) == 0 {
		t.Error("no states")
	}
}
