package transport_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watertight-go/watertight/cache"
	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/transporttest"
)

// 1, the total deadline, is outside of all others.

func TestOrderTotalBoundsAttemptsAndTheWaitsBetweenThem(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := policy.Policy{
			Timeout: policy.Timeout{Attempt: 2 * time.Second, Total: 5 * time.Second},
			Retry:   policy.Retry{MaxAttempts: 10, Base: time.Nanosecond, Max: time.Nanosecond},
		}
		r := newFallbackRig(t, p, transporttest.Step{Fault: transporttest.Hang})
		start := time.Now()
		_, _, err := r.get("/")
		if d := time.Since(start); !errors.Is(err, transport.ErrTotalTimeout) || d.Round(time.Microsecond) != 5*time.Second || len(r.base.Hits()) != 3 {
			t.Errorf("%v after %v and %d attempts", err, d, len(r.base.Hits()))
		}
	})
}

func TestOrderTotalBoundsTheWaitForAPermit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := policy.Policy{
			Timeout:  policy.Timeout{Total: 2 * time.Second},
			Bulkhead: policy.Bulkhead{MaxConcurrent: 1, MaxWait: time.Minute},
		}
		r := newFallbackRig(t, p, transporttest.Step{Body: "held", Header: http.Header{"Content-Type": {"text/event-stream"}}})
		held := hostHold(t, r, "http://a.test/")
		defer held.Close()
		start := time.Now()
		_, _, err := r.get("/")
		if d := time.Since(start); !errors.Is(err, transport.ErrTotalTimeout) || d != 2*time.Second {
			t.Errorf("%v after %v", err, d)
		}
	})
}

func TestOrderTotalTakesIntoAccountWhatIsServedInItsPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := tenMinutes()
		p.Timeout.Total = time.Second
		r := newFallbackRig(t, p)
		r.fill("/", good("old"))
		r.base.Script(transporttest.Step{Fault: transporttest.Hang})
		start := time.Now()
		resp, _, err := r.get("/")
		info, _ := cache.FromResponse(resp)
		if err != nil || !errors.Is(info.Cause, transport.ErrTotalTimeout) || time.Since(start) != time.Second {
			t.Errorf("%v, %v, %v after %v", resp, err, info.Cause, time.Since(start))
		}
	})
}

// 2, the fallback, is outside of retry: it sees the final verdict only.

func TestOrderFallbackIsAskedOnceAllRetriesAreOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := tenMinutes()
		p.Retry = policy.Retry{MaxAttempts: 3, Base: time.Second, Max: time.Second}
		r := newFallbackRig(t, p)
		r.fill("/", good("old"))
		r.base.Script(transporttest.Step{Status: 503}, transporttest.Step{Err: errFallbackDial}, good("new"))
		resp, text, err := r.get("/")
		if _, stored := cache.FromResponse(resp); err != nil || stored || text != "new" || r.seen.Count(transport.EventFallback) != 0 {
			t.Errorf("%v, %q, %v", resp, text, err)
		}
		r.base.Script(transporttest.Step{Status: 503}, transporttest.Step{Err: errFallbackDial}, transporttest.Step{Status: 502})
		resp, text, err = r.get("/")
		if _, stored := cache.FromResponse(resp); err != nil || !stored || text != "new" || r.seen.Count(transport.EventFallback) != 1 || len(r.base.Hits()) != 7 {
			t.Errorf("%v, %q, %v", resp, text, err)
		}
	})
}

// 3, retry, is outside of the breaker.

func TestOrderBreakerSeesEveryAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := policy.Policy{
			Retry:   policy.Retry{MaxAttempts: 3, Base: time.Nanosecond, Max: time.Nanosecond},
			Breaker: policy.Breaker{ConsecutiveFailures: 3},
		}
		r := newFallbackRig(t, p, transporttest.Step{Status: 503})
		if resp, _, err := r.get("/"); err != nil || resp.StatusCode != 503 {
			t.Fatal(resp, err)
		}
		if s := r.Snapshot()[0]; s.State != transport.Open || s.Counts.Calls != 1 || s.Counts.Attempts != 3 || s.Counts.Failure != 3 {
			t.Errorf("%+v", s)
		}
	})
}

func TestOrderARefusalEndsTheRetries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := policy.Policy{
			Retry:   policy.Retry{MaxAttempts: 5, Base: time.Hour, Max: time.Hour},
			Breaker: policy.Breaker{ConsecutiveFailures: 1},
		}
		r := newFallbackRig(t, p, transporttest.Step{Status: 503, Body: "sorry"})
		start := time.Now()
		if resp, text, err := r.get("/"); err != nil || resp.StatusCode != 503 || text != "sorry" { // opened by the first attempt
			t.Error(resp, text, err)
		}
		_, _, err := r.get("/")
		var e *transport.Error
		if !errors.As(err, &e) || e.Kind != transport.ErrBreakerOpen || e.Attempts != 0 {
			t.Error(err)
		}
		if hits := len(r.base.Hits()); hits != 1 || time.Since(start) != 0 {
			t.Errorf("%d requests in %v", hits, time.Since(start))
		}
	})
}

func TestOrderAFullBulkheadIsNotRetried(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := policy.Policy{
			Retry:    policy.Retry{MaxAttempts: 5, Base: time.Hour, Max: time.Hour},
			Bulkhead: policy.Bulkhead{MaxConcurrent: 1},
		}
		r := newFallbackRig(t, p, transporttest.Step{Body: "held"})
		held := hostHold(t, r, "http://a.test/")
		defer held.Close()
		start := time.Now()
		if _, _, err := r.get("/"); !errors.Is(err, transport.ErrBulkheadFull) || time.Since(start) != 0 {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

// 4, the breaker, is outside of the bulkhead.

func TestOrderBulkheadRefusalsAreNoEvidence(t *testing.T) {
	p := policy.Policy{
		Breaker:  policy.Breaker{ConsecutiveFailures: 1},
		Bulkhead: policy.Bulkhead{MaxConcurrent: 1},
	}
	r := newFallbackRig(t, p, transporttest.Step{Body: "held"})
	held := hostHold(t, r, "http://a.test/")
	defer held.Close()
	for range 20 {
		if _, _, err := r.get("/"); !errors.Is(err, transport.ErrBulkheadFull) {
			t.Fatal(err)
		}
	}
	if s := r.Snapshot()[0]; s.State != transport.Closed || s.Window.Calls != 0 {
		t.Errorf("%v, %+v", s.State, s.Window)
	}
}

func TestOrderAnOpenBreakerRefusesBeforeAFullBulkhead(t *testing.T) {
	r := newFallbackRig(t, policy.Policy{Bulkhead: policy.Bulkhead{MaxConcurrent: 1}}, transporttest.Step{Body: "held"})
	held := hostHold(t, r, "http://a.test/")
	defer held.Close()
	r.Host("a.test").ForceOpen()
	if _, _, err := r.get("/"); !errors.Is(err, transport.ErrBreakerOpen) {
		t.Error(err)
	}
	if s := r.Host("http://a.test").Snapshot()[0]; s.Counts.Rejected != 0 || s.InFlight != 1 {
		t.Errorf("%+v", s)
	}
}

// 5, the bulkhead, is outside of the attempt and its limits.

func TestOrderAWaitForAPermitIsNotPartOfTheAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := policy.Policy{
			Timeout:  policy.Timeout{Attempt: 3 * time.Second},
			Breaker:  policy.Breaker{SlowCall: 2 * time.Second, SlowRate: 1, MinCalls: 1},
			Bulkhead: policy.Bulkhead{MaxConcurrent: 1, MaxWait: time.Minute},
		}
		r := newFallbackRig(t, p, transporttest.Step{Body: "x", Delay: 1500 * time.Millisecond})
		start := time.Now()
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				if _, _, err := r.get("/"); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if s := r.Snapshot()[0]; time.Since(start) != 15*time.Second || s.Window.Slow != 0 || s.State != transport.Closed {
			t.Errorf("after %v: %+v", time.Since(start), s.Window)
		}
	})
}

func TestOrderNoPermitIsHeldBetweenAttempts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := policy.Policy{
			Retry:    policy.Retry{MaxAttempts: 2, Base: 10 * time.Second, Max: 10 * time.Second},
			Bulkhead: policy.Bulkhead{MaxConcurrent: 1},
		}
		r := newFallbackRig(t, p, transporttest.Step{Status: 503, Body: "x"}, transporttest.Step{Body: "x"})
		done := make(chan error)
		go func() {
			_, _, err := r.get("/")
			done <- err
		}()
		synctest.Wait() // it backs off
		if s := r.Snapshot()[0]; s.InFlight != 0 {
			t.Errorf("%d permits are held in a backoff", s.InFlight)
		}
		start := time.Now()
		if _, _, err := r.get("/"); err != nil || time.Since(start) != 0 {
			t.Errorf("the next: %v after %v", err, time.Since(start))
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// 6, the attempt's limits, are inside of the breaker.

func TestOrderBreakerLearnsOfTimeouts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := policy.Policy{
			Timeout: policy.Timeout{Attempt: time.Second},
			Breaker: policy.Breaker{ConsecutiveFailures: 2},
		}
		r := newFallbackRig(t, p, transporttest.Step{Fault: transporttest.Hang})
		for range 2 {
			if _, _, err := r.get("/"); !errors.Is(err, transport.ErrAttemptTimeout) {
				t.Error(err)
			}
		}
		if _, _, err := r.get("/"); !errors.Is(err, transport.ErrBreakerOpen) {
			t.Error(err)
		}
	})
}

func TestOrderEachAttemptHasItsOwnLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := policy.Policy{
			Timeout: policy.Timeout{Attempt: time.Second},
			Retry:   policy.Retry{MaxAttempts: 3, Base: time.Nanosecond, Max: time.Nanosecond},
		}
		hang := transporttest.Step{Fault: transporttest.Hang}
		r := newFallbackRig(t, p, hang, hang, transporttest.Step{Delay: 900 * time.Millisecond})
		start := time.Now()
		if resp, _, err := r.get("/"); err != nil || time.Since(start).Round(time.Microsecond) != 2900*time.Millisecond {
			t.Errorf("%v, %v after %v", resp, err, time.Since(start))
		}
	})
}

// All of them together, and none.

func TestOrderOfAllLayersInOneCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := policy.Policy{
			Timeout:  policy.Timeout{Attempt: time.Second, Total: time.Minute},
			Bulkhead: policy.Bulkhead{MaxConcurrent: 1},
			Breaker:  policy.Breaker{ConsecutiveFailures: 2},
			Retry:    policy.Retry{MaxAttempts: 4, Base: time.Second, Max: time.Second},
			Fallback: policy.Fallback{MaxStale: time.Hour},
		}
		r := newFallbackRig(t, p)
		r.fill("/", good("old"))
		earlier := len(r.seen.Events())
		r.base.Script(transporttest.Step{Fault: transporttest.Hang}, transporttest.Step{Status: 503})
		if resp, _, err := r.get("/"); err != nil || !fallbackStale(resp) {
			t.Fatal(resp, err)
		}
		var got []transport.EventKind
		for _, e := range r.seen.Events()[earlier:] {
			if e.Kind != transport.EventAttemptEnd {
				got = append(got, e.Kind)
			}
		}
		want := []transport.EventKind{
			transport.EventTimeout,         // 6: the first attempt is cut off
			transport.EventRetry,           // 3: and repeated
			transport.EventTransition,      // 4: the second is the breaker's second failure
			transport.EventRetrySuppressed, // 3: which ends the retries
			transport.EventFallback,        // 2: and the stored answer stands in
			transport.EventCallEnd,
		}
		if len(got) != len(want) {
			t.Fatalf("%v, want %v", got, want)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Fatalf("%v, want %v", got, want)
			}
		}
	})
}

func TestOrderEachLayerIsOffAtItsZeroValue(t *testing.T) {
	t.Parallel()
	hang := transporttest.Step{Delay: time.Hour, Body: "late"}
	for _, test := range []struct {
		name string
		off  func(*policy.Policy)
		try  func(*testing.T, *fallbackRig)
	}{
		{"timeouts", func(p *policy.Policy) { p.Timeout = policy.Timeout{} }, func(t *testing.T, r *fallbackRig) {
			r.base.Script(hang)
			start := time.Now()
			if _, text, err := r.get("/"); err != nil || text != "late" || time.Since(start) != time.Hour {
				t.Error(text, err)
			}
		}},
		{"bulkhead", func(p *policy.Policy) { p.Bulkhead = policy.Bulkhead{} }, func(t *testing.T, r *fallbackRig) {
			r.base.Script(transporttest.Step{Body: "x"})
			for range 1000 {
				held := hostHold(t, r, "http://a.test/")
				defer held.Close()
			}
		}},
		{"breaker", func(p *policy.Policy) { p.Breaker = policy.Breaker{} }, func(t *testing.T, r *fallbackRig) {
			r.base.Script(transporttest.Step{Status: 500})
			for range 1000 {
				if _, _, err := r.do(fallbackRequest("POST", "http://a.test/")); err != nil {
					t.Fatal(err)
				}
			}
		}},
		{"retry", func(p *policy.Policy) { p.Retry = policy.Retry{} }, func(t *testing.T, r *fallbackRig) {
			r.base.Script(transporttest.Step{Status: 503})
			if _, _, err := r.get("/"); err != nil || len(r.base.Hits()) != 1 {
				t.Error(err)
			}
		}},
		{"fallback", func(p *policy.Policy) { p.Fallback = policy.Fallback{} }, func(t *testing.T, r *fallbackRig) {
			r.fill("/", good("old", "Cache-Control", "max-age=600, stale-if-error=600"))
			if resp, _, err := r.get("/"); err == nil {
				t.Error(resp)
			}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := policy.Service()
				test.off(&p)
				test.try(t, newFallbackRig(t, p))
			})
		})
	}
}

// Shadow mode: a layer decides, counts and tells, and lets the call through.

func TestShadowLetsEveryLayersDecisionPassAndTellsOfIt(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		policy policy.Policy
		try    func(*testing.T, *fallbackRig)
		kind   transport.EventKind
		layer  string
		events int
	}{
		{"timeouts", policy.Policy{Timeout: policy.Timeout{Read: time.Second, Shadow: true}}, func(t *testing.T, r *fallbackRig) {
			r.base.Script(transporttest.Step{Delay: time.Minute, Body: "late"})
			if _, text, err := r.get("/"); err != nil || text != "late" {
				t.Error(text, err)
			}
		}, transport.EventTimeout, transport.LayerTimeout, 1},
		{"bulkhead", policy.Policy{Bulkhead: policy.Bulkhead{MaxConcurrent: 2, Shadow: true}}, func(t *testing.T, r *fallbackRig) {
			r.base.Script(transporttest.Step{Body: "x"})
			for range 5 {
				held := hostHold(t, r, "http://a.test/")
				defer held.Close()
			}
			if s := r.Snapshot()[0]; s.InFlight != 5 || s.Counts.Rejected != 3 {
				t.Errorf("%d in flight, %d rejected", s.InFlight, s.Counts.Rejected)
			}
		}, transport.EventRefusal, transport.LayerBulkhead, 3},
		{"breaker", policy.Policy{Breaker: policy.Breaker{ConsecutiveFailures: 2, Shadow: true}}, func(t *testing.T, r *fallbackRig) {
			r.base.Script(transporttest.Step{Status: 503})
			for range 5 {
				if resp, _, err := r.get("/"); err != nil || resp.StatusCode != 503 {
					t.Error(resp, err)
				}
			}
			if s := r.Snapshot()[0]; s.State != transport.Open || len(r.base.Hits()) != 5 || s.Counts.RefusedOpen != 3 {
				t.Errorf("%v, %+v", s.State, s.Counts)
			}
			if e := r.seen.Events(transport.EventTransition); len(e) != 1 || !e[0].Shadow {
				t.Errorf("%+v", e)
			}
		}, transport.EventRefusal, transport.LayerBreaker, 3},
		{"retry", policy.Policy{Retry: policy.Retry{MaxAttempts: 3, Base: time.Second, Max: time.Second, Shadow: true}}, func(t *testing.T, r *fallbackRig) {
			r.base.Script(transporttest.Step{Status: 503, Body: "sorry"})
			start := time.Now()
			if resp, text, err := r.get("/"); err != nil || resp.StatusCode != 503 || text != "sorry" || len(r.base.Hits()) != 1 || time.Since(start) != 0 {
				t.Error(resp, text, err)
			}
		}, transport.EventRetry, transport.LayerRetry, 1},
		{"fallback", policy.Policy{Fallback: policy.Fallback{MaxStale: time.Hour, Shadow: true}}, func(t *testing.T, r *fallbackRig) {
			r.fill("/", good("old"))
			if resp, _, err := r.get("/"); err == nil {
				t.Error(resp)
			}
		}, transport.EventFallback, transport.LayerFallback, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newFallbackRig(t, test.policy)
				test.try(t, r)
				events := r.seen.Events(test.kind)
				if len(events) != test.events {
					t.Errorf("%d events, want %d", len(events), test.events)
				}
				for _, e := range events {
					if !e.Shadow || e.Layer != test.layer {
						t.Errorf("%+v", e)
					}
				}
				transporttest.CheckPermits(t, r.Transport)
			})
		})
	}
}

func TestShadowOfABulkheadLeavesForgottenBodiesOpen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := policy.Policy{Bulkhead: policy.Bulkhead{MaxConcurrent: 1, BodyIdle: time.Minute, Shadow: true}, Timeout: policy.Timeout{Read: time.Second}}
		r := newFallbackRig(t, p, transporttest.Step{Body: "slowly read"})
		resp, err := r.RoundTrip(fallbackRequest("GET", "http://a.test/"))
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			time.Sleep(10 * time.Minute)
			if n, err := resp.Body.Read(make([]byte, 2)); n != 2 || err != nil {
				t.Errorf("%d bytes, %v", n, err)
			}
		}
		if e := r.seen.Events(transport.EventLeak); len(e) != 1 || !e[0].Shadow || r.Snapshot()[0].Counts.Leaked != 1 {
			t.Errorf("told of as %+v", e)
		}
		_ = resp.Body.Close()
		transporttest.CheckPermits(t, r.Transport)
	})
}

func TestShadowOfAllLayersChangesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := policy.Service()
		p.Timeout.Shadow, p.Bulkhead.Shadow, p.Breaker.Shadow, p.Retry.Shadow, p.Fallback.Shadow = true, true, true, true, true
		p.Breaker.ConsecutiveFailures = 1
		p.Fallback.MaxStale, p.Fallback.FailFast503 = time.Hour, true
		r := newFallbackRig(t, p)
		r.fill("/", good("old"))
		var held []interface{ Close() error }
		for range 30 {
			r.base.Script(transporttest.Step{Body: "x"})
			held = append(held, hostHold(t, r, "http://a.test/held"))
		}
		r.base.Script(transporttest.Step{Delay: time.Hour, Status: 503, Body: "sorry"})
		for range 3 {
			before, start := len(r.base.Hits()), time.Now()
			resp, text, err := r.get("/")
			if err != nil || resp.StatusCode != 503 || text != "sorry" || len(r.base.Hits()) != before+1 || time.Since(start) != time.Hour {
				t.Errorf("%v, %q, %v after %v", resp, text, err, time.Since(start))
			}
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if _, err := r.RoundTrip(fallbackRequest("GET", "http://a.test/").WithContext(ctx)); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		for _, body := range held {
			_ = body.Close()
		}
		observerBalance(t, r.seen)
		transporttest.CheckPermits(t, r.Transport)
	})
}
