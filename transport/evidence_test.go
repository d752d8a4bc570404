package transport_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
)

func TestBreakerTripsAtEachThresholdAndNotBelowIt(t *testing.T) {
	t.Parallel()
	const slow = time.Second
	for _, test := range []struct {
		name    string
		b       policy.Breaker
		calls   string // the last one trips
		trigger string
	}{
		{"failure rate at MinCalls", policy.Breaker{FailureRate: 0.5, MinCalls: 10}, ".....fffff", "failure_rate"},
		{"failure rate after MinCalls", policy.Breaker{FailureRate: 0.5, MinCalls: 10}, "......ffffff", "failure_rate"},
		{"failures only", policy.Breaker{FailureRate: 0.5, MinCalls: 10}, "ffffffffff", "failure_rate"},
		{"failure rate of one", policy.Breaker{FailureRate: 1, MinCalls: 3}, "eee", "failure_rate"},
		{"failure rate of 7 %", policy.Breaker{FailureRate: 0.07, MinCalls: 100}, strings.Repeat(".", 93) + "fffffff", "failure_rate"},
		{"a success is the last of MinCalls", policy.Breaker{FailureRate: 0.5, MinCalls: 4}, "fff.", "failure_rate"},
		{"4xx are not in the denominator", policy.Breaker{FailureRate: 0.5, MinCalls: 4}, "nnnn..nnnfnnnf", "failure_rate"},
		{"slow rate at MinCalls", policy.Breaker{SlowCall: slow, SlowRate: 0.5, MinCalls: 10}, ".....sssss", "slow_call_rate"},
		{"slow calls only", policy.Breaker{SlowCall: slow, SlowRate: 0.5, MinCalls: 10}, "ssssssssss", "slow_call_rate"},
		{"4xx are in the slow rate's denominator", policy.Breaker{SlowCall: slow, SlowRate: 0.5, MinCalls: 6}, "nnnsss", "slow_call_rate"},
		{"a 4xx is the last of MinCalls", policy.Breaker{SlowCall: slow, SlowRate: 0.5, MinCalls: 4}, "sssn", "slow_call_rate"},
		{"consecutive failures", policy.Breaker{ConsecutiveFailures: 3}, "ff.ff.fef", "consecutive_failures"},
		{"4xx do not end a row", policy.Breaker{ConsecutiveFailures: 3}, "fnnfnnnf", "consecutive_failures"},
		{"one failure is enough", policy.Breaker{ConsecutiveFailures: 1}, "..f", "consecutive_failures"},
		{"failures in the window", policy.Breaker{FailuresInWindow: 3}, "f....f....nnn.e", "failures_in_window"},
		{"triggers stand alone", policy.Breaker{FailureRate: 0.9, SlowCall: slow, SlowRate: 0.9, ConsecutiveFailures: 5, FailuresInWindow: 4}, "f.f.f.f", "failures_in_window"},
		{"window of calls", policy.Breaker{FailureRate: 0.5, MinCalls: 4, WindowCalls: 4}, "......ff", "failure_rate"},
		{"window of calls, slow", policy.Breaker{SlowCall: slow, SlowRate: 0.5, MinCalls: 4, WindowCalls: 4}, "......ss", "slow_call_rate"},
		{"failures in a window of calls", policy.Breaker{FailuresInWindow: 3, WindowCalls: 5}, "f...ff...fff", "failures_in_window"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newBreakerDep(t, breakerPolicy(test.b))
				last := len(test.calls) - 1
				for i := range last {
					d.gets(test.calls[i:i+1], slow)
					if got := d.snap(); got.State != transport.Closed {
						t.Fatalf("open after %q: %v", test.calls[:i+1], got.Trip)
					}
				}
				d.gets(test.calls[last:], slow)
				d.wantState(transport.Open)
				if got := d.snap().Trip.Trigger; got != test.trigger {
					t.Errorf("tripped by %s, want %s", got, test.trigger)
				}
				d.wantRefused()
				d.wantIdle()
			})
		})
	}
}

func TestBreakerStaysClosedBelowEachThreshold(t *testing.T) {
	t.Parallel()
	const slow = time.Second
	for _, test := range []struct {
		name  string
		b     policy.Breaker
		calls string
	}{
		{"below the failure rate", policy.Breaker{FailureRate: 0.5, MinCalls: 10}, strings.Repeat("..f", 40)},
		{"below MinCalls", policy.Breaker{FailureRate: 0.5, MinCalls: 10}, "fffffffff"},
		{"below the slow rate", policy.Breaker{SlowCall: slow, SlowRate: 0.5, MinCalls: 10}, strings.Repeat(".s.", 10)},
		{"slow calls below MinCalls", policy.Breaker{SlowCall: slow, SlowRate: 0.5, MinCalls: 10}, "sssssssss"},
		{"no row", policy.Breaker{ConsecutiveFailures: 3}, strings.Repeat("ff.", 40)},
		{"few failures in the window", policy.Breaker{FailuresInWindow: 3}, strings.Repeat(".", 1000) + "ff"},
		{"a slow rate without SlowCall", policy.Breaker{SlowRate: 0.1, MinCalls: 1, FailuresInWindow: 9}, "ssss"},
		{"SlowCall without a slow rate", policy.Breaker{SlowCall: slow, FailuresInWindow: 9}, "ssss"},
		{"4xx only", policy.Breaker{FailureRate: 0.01, MinCalls: 1, ConsecutiveFailures: 1, FailuresInWindow: 1}, strings.Repeat("n", 100)},
		{"no trigger", policy.Breaker{OpenFor: time.Second, MinCalls: 1}, strings.Repeat("f", 100)},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newBreakerDep(t, breakerPolicy(test.b))
				d.gets(test.calls, slow)
				d.wantState(transport.Closed)
				if got := d.hits.Load(); got != int64(len(test.calls)) {
					t.Errorf("%d calls went out, want %d", got, len(test.calls))
				}
				d.wantIdle()
			})
		})
	}
}

// A slow trickle is an outage too: a row of failures has no window.
func TestBreakerCountsARowOfFailuresHoweverFarApart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newBreakerDep(t, breakerPolicy(policy.Breaker{Window: 10 * time.Second, ConsecutiveFailures: 5}))
		for range 4 {
			d.gets("f", 0)
			time.Sleep(15 * time.Second)
		}
		d.wantState(transport.Closed)
		d.gets("f", 0)
		d.wantState(transport.Open)
	})
}

func TestBreakerForgetsWhatHasLeftTheWindow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newBreakerDep(t, breakerPolicy(policy.Breaker{Window: 10 * time.Second, FailuresInWindow: 3}))
		d.gets("f", 0)
		time.Sleep(5 * time.Second)
		d.gets("f", 0)
		time.Sleep(5 * time.Second) // the first has expired
		d.gets("f", 0)
		d.wantState(transport.Closed)
		if got := d.snap().Window.Failures; got != 2 {
			t.Errorf("%d failures in the window, want 2", got)
		}
		time.Sleep(5*time.Second - 1) // the second is about to
		d.gets("f", 0)
		d.wantState(transport.Open)
	})
}

// The trip point must not depend on how long the process has been up, nor on
// where the edge of a window falls.
func TestBreakerFindsAnOutageBehindTenThousandGoodCalls(t *testing.T) {
	t.Parallel()
	for _, b := range []policy.Breaker{policy.Default().Breaker, func() policy.Breaker {
		b := policy.Default().Breaker
		b.WindowCalls = 1000
		return b
	}()} {
		synctest.Test(t, func(t *testing.T) {
			d := newBreakerDep(t, breakerPolicy(b))
			for range fewer(10_000) {
				d.gets(".", 0)
			}
			time.Sleep(b.SlowCall)
			for range b.MinCalls - 1 {
				d.gets("e", 0)
			}
			d.wantState(transport.Closed)
			d.gets("e", 0)
			d.wantState(transport.Open)
			if trip := d.snap().Trip; trip.Calls != b.MinCalls || trip.Failures != b.MinCalls || trip.Window != b.SlowCall {
				t.Errorf("%+v, want %d failures in %v", trip, b.MinCalls, b.SlowCall)
			}
		})
	}
}

func TestBreakerStaysClosedWhenFewFailuresLieAcrossAnEdge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newBreakerDep(t, breakerPolicy(policy.Breaker{Window: 10 * time.Second, MinCalls: 20, FailureRate: 0.1}))
		for i := range 3000 { // 9 in a hundred, over three windows
			if i%100%11 == 10 {
				d.gets("f", 0)
			} else {
				d.gets(".", 0)
			}
			time.Sleep(time.Millisecond)
			if i%100 == 99 {
				time.Sleep(900 * time.Millisecond)
			}
		}
		d.wantState(transport.Closed)
	})
}

// The promise: SlowCall plus the time that MinCalls need to arrive.
func TestBreakerOpensOnAHangAfterSlowCallWhateverTheHistory(t *testing.T) {
	t.Parallel()
	const minCalls = 20
	hangs := map[string]breakerAnswer{
		"no headers":     breakerHang,
		"a stalled body": breakerBody(200, time.Hour, io.EOF),
	}
	for _, windowCalls := range []int{0, 100} {
		for what, hang := range hangs {
			for _, test := range []struct {
				slowCall, every time.Duration
			}{
				{2 * time.Second, 0},
				{2 * time.Second, 20 * time.Millisecond},
				{2 * time.Second, 70 * time.Millisecond},
				{2 * time.Second, 105 * time.Millisecond},
				{500 * time.Millisecond, 10 * time.Millisecond},
				{1500 * time.Millisecond, 0},
			} {
				t.Run(fmt.Sprintf("%s, SlowCall %v, a call each %v, WindowCalls %d", what, test.slowCall, test.every, windowCalls), func(t *testing.T) {
					for offset := time.Duration(0); offset < time.Second; offset += time.Second/time.Duration(fewer(6)) - 3*time.Millisecond {
						synctest.Test(t, func(t *testing.T) {
							breakerHangs(t, hang, offset, test.slowCall, test.every, minCalls, windowCalls)
						})
					}
				})
			}
		}
	}
}

func breakerHangs(t *testing.T, hang breakerAnswer, offset, slowCall, every time.Duration, minCalls, windowCalls int) {
	p := breakerPolicy(policy.Breaker{MinCalls: minCalls, FailureRate: 0.5, SlowCall: slowCall, SlowRate: 0.5, WindowCalls: windowCalls})
	p.Timeout.Attempt = slowCall * 3 / 2
	d := newBreakerDep(t, p)
	time.Sleep(offset)
	for range 300 {
		d.gets(".", 0)
		time.Sleep(10 * time.Millisecond)
	}
	d.does(hang)
	start := time.Now()
	var calls sync.WaitGroup
	for range minCalls {
		calls.Go(func() { _, _ = d.get() })
		time.Sleep(every)
	}
	due := slowCall + time.Duration(minCalls-1)*every
	time.Sleep(time.Until(start.Add(due)))
	synctest.Wait()
	calls.Wait()
	s := d.snap()
	if s.Trip == nil {
		t.Fatal("the breaker has not opened")
	}
	opened := s.Transitions[0].At.Sub(start)
	if s.Trip.Trigger != "slow_call_rate" || s.Trip.Timed < minCalls || opened < slowCall || opened > due {
		t.Errorf("%v into a second: opened after %v by %v, want %v to %v", offset, opened, s.Trip, slowCall, due)
	}
	d.wantIdle()
}

// Little's law: no more than the bulkhead's permits are ever out, and they are
// out once.
func TestBreakerAndBulkheadHoldAHangToItsPermits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := policy.Service()
		p.Retry = policy.Retry{}
		p.Timeout.Read = time.Second
		p.Breaker.SlowCall, p.Breaker.SlowRate = 0, 0
		d := newBreakerDep(t, p)
		d.does(breakerHang)
		start := time.Now()
		var calls sync.WaitGroup
		for range 500 {
			calls.Go(func() {
				if _, err := d.get(); err == nil {
					t.Error("a call was answered")
				}
			})
		}
		synctest.Wait()
		if got := d.snap().InFlight; got != 20 || d.hits.Load() != 20 {
			t.Errorf("%d in flight, %d sent; want 20", got, d.hits.Load())
		}
		calls.Wait()
		if got := time.Since(start); got != time.Second {
			t.Errorf("the hang was over after %v, want 1 s", got)
		}
		d.wantState(transport.Open)
		d.wantRefused()
		if got := d.hits.Load(); got != 20 {
			t.Errorf("%d calls went out, want 20", got)
		}
		d.wantIdle()
	})
}

// A caller's own deadline says nothing about the host, unless the host had taken
// longer than SlowCall by then.
func TestBreakerTakesACallersDeadlineForSlowFromSlowCallOn(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name     string
		deadline time.Duration
		slow     int
	}{
		{"below", 2*time.Second - 1, 0},
		{"at", 2 * time.Second, 1},
		{"above", 2*time.Second + 1, 1},
	} {
		for _, answer := range []breakerAnswer{breakerHang, breakerBody(200, time.Hour, io.EOF)} {
			t.Run(test.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					d := newBreakerDep(t, breakerPolicy(policy.Breaker{SlowCall: 2 * time.Second, SlowRate: 1, MinCalls: 2}))
					d.does(answer)
					ctx, cancel := context.WithTimeout(context.Background(), test.deadline)
					defer cancel()
					if _, err := d.do(breakerRequest(ctx)); !errors.Is(err, context.DeadlineExceeded) {
						t.Error(err)
					}
					synctest.Wait()
					if s := d.snap(); s.Window.Slow != test.slow || s.Window.Calls != 0 || s.Counts.Neutral != 1 {
						t.Errorf("%+v, %+v; want %d slow and neutral", s.Window, s.Counts, test.slow)
					}
				})
			})
		}
	}
}

func TestBreakerCountsSlowTheMomentACallIsSlowAndOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := breakerPolicy(policy.Breaker{SlowCall: 2 * time.Second, SlowRate: 1, MinCalls: 100})
		p.Timeout.Attempt = 3 * time.Second
		d := newBreakerDep(t, p)
		d.does(breakerHang)
		done := make(chan struct{})
		go func() { _, _ = d.get(); close(done) }()
		check := func(wait time.Duration, timed, slow, calls, failures int) {
			t.Helper()
			time.Sleep(wait)
			synctest.Wait()
			if w := d.snap().Window; w.Timed != timed || w.Slow != slow || w.Calls != calls || w.Failures != failures {
				t.Errorf("%+v, want timed %d, slow %d, calls %d, failures %d", w, timed, slow, calls, failures)
			}
		}
		check(2*time.Second-1, 0, 0, 0, 0)
		check(1, 1, 1, 0, 0)
		check(time.Second-1, 1, 1, 0, 0)
		check(1, 1, 1, 1, 1)
		<-done
		check(58*time.Second, 1, 1, 1, 1) // the bucket where it was slow is 59 s back
		check(time.Second, 0, 0, 0, 0)
		d.wantIdle()
	})
}

func TestBreakerSlowIsTheHostsTimeNotTheCallers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newBreakerDep(t, breakerPolicy(policy.Breaker{SlowCall: 2 * time.Second, SlowRate: 1, MinCalls: 100}))
		d.does(breakerBody(200, 1900*time.Millisecond, io.EOF))
		resp, err := d.tr.RoundTrip(breakerRequest(context.Background()))
		if err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 10)
		_, _ = resp.Body.Read(buf)
		time.Sleep(time.Minute) // the caller thinks
		if _, err := resp.Body.Read(buf); err != io.EOF {
			t.Error(err)
		}
		resp.Body.Close()
		if w := d.snap().Window; w.Slow != 0 || w.Calls != 1 {
			t.Errorf("%+v, want a call that is not slow", w)
		}
	})
}

// A long download that was given its headers in another window and stalls in this
// one is one slow call of one, not of none.
func TestBreakerCountsALateSlowCallInItsDenominatorToo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newBreakerDep(t, breakerPolicy(policy.Breaker{Window: 10 * time.Second, SlowCall: 2 * time.Second, SlowRate: 1, MinCalls: 100}))
		d.does(breakerBody(200, time.Hour, io.EOF))
		var calls []*http.Response
		for range 5 {
			resp, err := d.tr.RoundTrip(breakerRequest(context.Background()))
			if err != nil {
				t.Fatal(err)
			}
			_, _ = resp.Body.Read(make([]byte, 10))
			calls = append(calls, resp)
		}
		time.Sleep(time.Minute)
		for _, resp := range calls {
			go func() { _, _ = resp.Body.Read(make([]byte, 10)) }()
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if w := d.snap().Window; w.Slow != 5 || w.Timed != 5 {
			t.Errorf("%d slow of %d, want 5 of 5", w.Slow, w.Timed)
		}
		for _, resp := range calls {
			resp.Body.Close()
		}
		d.wantIdle()
	})
}

func TestBreakerSaysOnceThatItIsBlind(t *testing.T) {
	t.Parallel()
	for _, windowCalls := range []int{0, 50} {
		synctest.Test(t, func(t *testing.T) { breakerGoesBlind(t, windowCalls) })
	}
}

func breakerGoesBlind(t *testing.T, windowCalls int) {
	d := newBreakerDep(t, breakerPolicy(policy.Breaker{SlowCall: 2 * time.Second, SlowRate: 0.5, FailureRate: 0.5, MinCalls: 10, WindowCalls: windowCalls}))
	leave := func(n int) {
		d.does(breakerHang)
		for range n {
			ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
			_, _ = d.do(breakerRequest(ctx))
			cancel()
		}
	}
	d.gets(strings.Repeat(".", 20), 0)
	leave(20)
	if got := d.told(transport.EventBlind); len(got) != 0 {
		t.Fatalf("told %+v when half of the calls were judged", got)
	}
	leave(20)
	if got := d.told(transport.EventBlind); len(got) != 1 || got[0].Host != "dep.test:80" || got[0].Layer != transport.LayerBreaker || got[0].Reason == "" {
		t.Fatalf("told %+v, want it once", got)
	}
	d.gets(strings.Repeat(".", 1000), 0)
	leave(1) // it sees again
	time.Sleep(2 * time.Minute)
	leave(10)
	if got := d.told(transport.EventBlind); len(got) != 2 {
		t.Errorf("told %d times, want once more", len(got))
	}
	d.wantState(transport.Closed)
}

func TestBreakerIsNotBlindToCallersWhoCancelOrWaitLongEnough(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newBreakerDep(t, breakerPolicy(policy.Breaker{SlowCall: 2 * time.Second, SlowRate: 1, MinCalls: 10, FailuresInWindow: 100}))
		d.does(breakerHang)
		for range 30 {
			ctx, cancel := context.WithCancel(context.Background())
			time.AfterFunc(time.Millisecond, cancel)
			_, _ = d.do(breakerRequest(ctx))
		}
		for range 9 {
			ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
			_, _ = d.do(breakerRequest(ctx))
			cancel()
		}
		if got := d.told(transport.EventBlind); len(got) != 0 {
			t.Errorf("told %+v", got)
		}
	})
}
