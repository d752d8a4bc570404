package transport_test

import (
	"context"
	"errors"
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

func TestBreakerWaitsWithJitter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newBreakerDep(t, breakerPolicy(policy.Breaker{ConsecutiveFailures: 1, OpenFor: 10 * time.Second}))
		seen := map[time.Duration]bool{}
		for range 50 {
			d.gets("f", 0)
			wait := d.snap().RetryIn
			if wait < 9*time.Second || wait > 11*time.Second {
				t.Fatalf("open for %v, want 10 s +-10 %%", wait)
			}
			seen[wait] = true
			if e := d.wantRefused(); e.RetryIn != wait {
				t.Errorf("the refusal says %v, the snapshot %v", e.RetryIn, wait)
			}
			time.Sleep(wait - 1)
			d.wantRefused()
			d.tr.Host("http://dep.test").Reset()
		}
		if len(seen) < 40 {
			t.Errorf("%d different waits of 50: a fleet would probe in lockstep", len(seen))
		}
	})
}

func TestBreakerWaitDoublesWithEachReopenUpToItsCap(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newBreakerDep(t, breakerPolicy(policy.Breaker{ConsecutiveFailures: 1, OpenFor: 10 * time.Second, OpenForMax: 60 * time.Second, HalfOpenProbes: 1}))
		want := func(wait time.Duration) {
			t.Helper()
			d.gets("f", 0)
			got := d.snap().RetryIn
			if got < wait-wait/10 || got > wait+wait/10 {
				t.Errorf("open for %v, want %v +-10 %%", got, wait)
			}
			time.Sleep(got)
		}
		for _, wait := range []time.Duration{10, 20, 40, 60, 60} {
			want(wait * time.Second)
		}
		d.gets(".", 0) // the host is well again: back to the base
		d.wantState(transport.Closed)
		want(10 * time.Second)
		want(20 * time.Second)
	})
}

func TestBreakerWaitDoesNotDoubleWithoutACap(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newBreakerDep(t, breakerPolicy(policy.Breaker{ConsecutiveFailures: 1, OpenFor: 10 * time.Second}))
		for range 5 {
			d.gets("f", 0)
			if got := d.snap().RetryIn; got < 9*time.Second || got > 11*time.Second {
				t.Errorf("open for %v, want 10 s +-10 %%", got)
			}
			time.Sleep(d.snap().RetryIn)
		}
	})
}

func TestBreakerRespectsRetryAfterUpToItsCap(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		value       string
		least, most time.Duration
	}{
		{"30", 30 * time.Second, 33 * time.Second},
		{"3600", 60 * time.Second, 66 * time.Second},
		{"1", 9 * time.Second, 11 * time.Second},
		{"-5", 9 * time.Second, 11 * time.Second},
		{"soon", 9 * time.Second, 11 * time.Second},
		{"Sat, 01 Jan 2000 00:00:40 GMT", 40 * time.Second, 44 * time.Second}, // a bubble begins at midnight
	} {
		synctest.Test(t, func(t *testing.T) {
			d := newBreakerDep(t, breakerPolicy(policy.Breaker{ConsecutiveFailures: 1, OpenFor: 10 * time.Second, OpenForMax: 60 * time.Second}))
			d.does(breakerRetryAfter(test.value))
			_, _ = d.get()
			if got := d.snap().RetryIn; got < test.least || got > test.most {
				t.Errorf("Retry-After %s: open for %v, want %v to %v", test.value, got, test.least, test.most)
			}
		})
	}
}

func TestBreakerRefusalSaysWhy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newBreakerDep(t, breakerPolicy(policy.Breaker{FailureRate: 0.5, MinCalls: 4, OpenFor: 10 * time.Second}))
		time.Sleep(time.Minute)
		d.gets("..ff", 0)
		opened := time.Now()
		wait := d.snap().RetryIn
		time.Sleep(time.Second)
		e := d.wantRefused()
		if e.Host != "dep.test:80" || e.Layer != transport.LayerBreaker || e.State != transport.Open || e.Attempts != 0 ||
			!e.Opened.Equal(opened) || e.RetryIn != wait-time.Second {
			t.Errorf("%+v", e)
		}
		if got, want := *e.Evidence, (transport.Evidence{Trigger: "failure_rate", Window: time.Second, Calls: 4, Failures: 2,
			Timed: 4, Consecutive: 2, Threshold: 0.5, Last: "status 503"}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		want := "watertight: circuit breaker of dep.test:80 is open: 2 of 4 calls failed in the last 1s (limit 50 %), last: status 503; next probe in " +
			(wait - time.Second).Round(time.Millisecond).String()
		if e.Error() != want {
			t.Errorf("%q, want %q", e, want)
		}
		if e.Timeout() || !e.Temporary() || errors.Is(e, context.DeadlineExceeded) || errors.Is(e, transport.ErrBulkheadFull) {
			t.Error("a refusal is temporary, and nothing else")
		}
		if got := d.snap().Counts; got.RefusedOpen != 1 || got.RefusedHalfOpen != 0 || got.Attempts != 4 {
			t.Errorf("%+v", got)
		}
		if told := d.told(transport.EventRefusal); len(told) != 1 || told[0].Reason != "open" || told[0].Err != e || told[0].Shadow {
			t.Errorf("told %+v", told)
		}
	})
}

// What could never be proved, or held, is refused before it can matter.
func TestBreakerThatCouldNeverOpenIsRefused(t *testing.T) {
	for path, change := range map[string]func(*policy.Policy){
		"Default.Breaker.SlowCall":         func(p *policy.Policy) { p.Breaker.SlowCall = p.Timeout.Attempt },
		"Default.Breaker.MinCalls":         func(p *policy.Policy) { p.Breaker.WindowCalls = p.Breaker.MinCalls - 1 },
		"Default.Breaker.FailuresInWindow": func(p *policy.Policy) { p.Breaker.WindowCalls, p.Breaker.FailuresInWindow = 50, 51 },
	} {
		p := policy.Service()
		change(&p)
		_, err := transport.New(transport.Config{Default: p})
		if err == nil || !strings.Contains(err.Error(), path+": ") {
			t.Errorf("%v, want a problem with %s", err, path)
		}
	}
}

func TestBreakerRefusalClosesTheRequestBody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newBreakerDep(t, breakerPolicy(policy.Breaker{ConsecutiveFailures: 1}))
		d.tr.Host("dep.test").ForceOpen()
		closed := 0
		req := breakerRequest(context.Background())
		req.Method, req.Body = "POST", breakerCloser{strings.NewReader("x"), &closed}
		if _, err := d.do(req); !errors.Is(err, transport.ErrBreakerOpen) || closed != 1 {
			t.Errorf("%v, body closed %d times", err, closed)
		}
	})
}

type breakerCloser struct {
	io.Reader
	closed *int
}

func (c breakerCloser) Close() error { *c.closed++; return nil }

// A dashboard must not show a breaker as open when the next call would be let
// through; and looking must change nothing.
func TestBreakerSnapshotTellsWhatTheNextCallWouldFind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newBreakerDep(t, breakerPolicy(policy.Breaker{ConsecutiveFailures: 1}))
		d.gets("f", 0)
		until := time.Now().Add(d.snap().RetryIn)
		time.Sleep(time.Until(until) - 1)
		d.wantState(transport.Open)
		time.Sleep(time.Nanosecond)
		for range 3 {
			if s := d.snap(); s.State != transport.HalfOpen || s.RetryIn != 0 || !s.Since.Equal(until) {
				t.Errorf("%v since %v, retry in %v; want half_open since %v", s.State, s.Since, s.RetryIn, until)
			}
		}
		time.Sleep(time.Hour)
		if got := d.moves(); got != "closed open" {
			t.Errorf("told %s without any traffic", got)
		}
		d.gets(".", 0)
		if got := d.moves(); got != "closed open half_open" {
			t.Errorf("told %s", got)
		}
	})
}

func TestBreakerIgnoresLateResultsOfEarlierStates(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newBreakerDep(t, breakerPolicy(policy.Breaker{ConsecutiveFailures: 3, HalfOpenProbes: 2}))
		release := map[int]chan struct{}{500: make(chan struct{}), 200: make(chan struct{}), 503: make(chan struct{})}
		var calls sync.WaitGroup
		for status, ch := range release {
			d.does(func(req *http.Request) (*http.Response, error) {
				<-ch
				return breakerStatus(status)(req)
			})
			for range 20 {
				calls.Go(func() { _, _ = d.get() })
			}
			synctest.Wait()
		}
		d.gets("fff", 0)
		before := d.snap()
		close(release[500]) // late failures of the closed state, while open
		synctest.Wait()
		after := d.snap()
		if after.State != transport.Open || after.RetryIn != before.RetryIn || after.Window != before.Window || len(after.Transitions) != 1 {
			t.Errorf("%+v became %+v", before, after)
		}
		time.Sleep(before.RetryIn)
		d.gets(".", 0)
		close(release[200]) // late successes, while half-open: not the second probe
		synctest.Wait()
		if got := d.moves(); got != "closed open half_open" {
			t.Errorf("told %s", got)
		}
		d.gets(".", 0)
		d.wantState(transport.Closed)
		close(release[503]) // late failures of the closed state before this one
		synctest.Wait()
		if s := d.snap(); s.State != transport.Closed || s.Window.Calls != 0 || s.Window.Consecutive != 0 {
			t.Errorf("%v, %+v", s.State, s.Window)
		}
		calls.Wait()
		d.wantIdle()
	})
}

func TestBreakerTripsAtTheSameCallInEachCycle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newBreakerDep(t, breakerPolicy(policy.Breaker{FailuresInWindow: 3, HalfOpenProbes: 1}))
		for cycle := range 10 {
			d.gets(".ff", 0)
			d.wantState(transport.Closed)
			d.gets("f", 0)
			d.wantState(transport.Open)
			time.Sleep(d.snap().RetryIn)
			d.gets(".", 0)
			if got := d.snap(); got.State != transport.Closed || got.Window.Failures != 0 {
				t.Fatalf("cycle %d: %v with %+v", cycle, got.State, got.Window)
			}
		}
		d.does(breakerAfter(time.Millisecond, breakerStatus(503)))
		for range 10 { // and with a crowd
			var crowd sync.WaitGroup
			for range 50 {
				crowd.Go(func() { _, _ = d.get() })
			}
			crowd.Wait()
			d.wantState(transport.Open)
			time.Sleep(d.snap().RetryIn)
		}
		d.wantIdle()
	})
}

func TestBreakerIsOneForAllSpellingsOfAHost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newBreakerDep(t, breakerPolicy(policy.Breaker{FailuresInWindow: 5}))
		d.does(breakerStatus(503))
		for _, u := range []string{"http://EXAMPLE.test/", "http://example.test/", "http://Example.Test:80/", "http://example.test./", "http://u:p@example.TEST/"} {
			d.wantStateIfAny(transport.Closed)
			req, err := http.NewRequest("GET", u, nil)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = d.do(req)
		}
		d.wantState(transport.Open)
		if got := d.moves(); got != "closed open" {
			t.Errorf("told %s, want that it opened once", got)
		}
	})
}

func (d *breakerDep) wantStateIfAny(want transport.State) {
	d.t.Helper()
	for _, s := range d.tr.Snapshot() {
		if s.State != want {
			d.t.Fatalf("the breaker is %v, want %v", s.State, want)
		}
	}
}

func TestBreakerIsControlledByHand(t *testing.T) {
	t.Parallel()
	for name, b := range map[string]policy.Breaker{
		"with triggers":    {ConsecutiveFailures: 2},
		"without triggers": {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := breakerPolicy(b)
				p.Timeout.Read = time.Second
				d := newBreakerDep(t, p)
				h := d.tr.Host("http://DEP.test:80")
				h.ForceOpen()
				h.ForceOpen() // once is enough
				if e := d.wantRefused(); e.State != transport.ForcedOpen || e.RetryIn != 0 ||
					e.Error() != "watertight: circuit breaker of dep.test:80 is forced_open: forced" {
					t.Errorf("%v, %+v", e, e)
				}
				time.Sleep(24 * time.Hour)
				d.wantRefused()
				h.ForceClosed()
				d.gets("ffffffffff", 0)
				d.wantState(transport.ForcedClosed)
				h.Reset()
				d.wantState(transport.Closed)
				d.gets("f", 0)
				d.wantState(transport.Closed) // what happened while forced is forgotten
				if got := d.moves(); got != "closed forced_open forced_closed closed" {
					t.Errorf("told %s", got)
				}
				h.ForceOpen()
				h.Reset()
				d.wantState(transport.Closed)
				d.wantIdle()
			})
		})
	}
}

func TestBreakerResetEndsAnOpenStateAndForgetsItsEvidence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newBreakerDep(t, breakerPolicy(policy.Breaker{FailuresInWindow: 3, ConsecutiveFailures: 3}))
		d.gets("fff", 0)
		d.wantState(transport.Open)
		d.tr.Host("http://dep.test").Reset()
		d.gets("ff", 0)
		d.wantState(transport.Closed)
		d.gets("f", 0)
		d.wantState(transport.Open)
	})
}

// Reset of a breaker that is closed moves nothing, and still forgets.
func TestBreakerResetOfAClosedOneForgetsItsEvidence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newBreakerDep(t, breakerPolicy(policy.Breaker{FailuresInWindow: 3, ConsecutiveFailures: 3}))
		d.does(breakerAfter(time.Second, breakerStatus(503)))
		late := make(chan struct{})
		go func() { _, _ = d.get(); close(late) }()
		synctest.Wait()
		d.gets("ff", 0)
		d.tr.Host("http://dep.test").Reset()
		if w := d.snap().Window; w.Failures != 0 || w.Consecutive != 0 || w.Last != "" {
			t.Errorf("the window holds %+v", w)
		}
		<-late // began before
		d.gets("ff", 0)
		d.wantState(transport.Closed)
		d.gets("f", 0)
		if got := d.moves(); got != "closed open" {
			t.Errorf("told %s", got)
		}
	})
}

// Many calls may be refused at once: those of the same millisecond share an error, and
// none is told to wait more than that too long, or of an outage that is over.
func TestRefusalsOfAMomentShareAnError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newBreakerDep(t, breakerPolicy(policy.Breaker{ConsecutiveFailures: 1, OpenFor: 10 * time.Second}))
		d.gets("f", 0)
		first := d.wantRefused()
		for range 100 {
			time.Sleep(100 * time.Microsecond)
			e, left := d.wantRefused(), d.snap().RetryIn
			if e.RetryIn < left || e.RetryIn >= left+time.Millisecond {
				t.Fatalf("the refusal says %v, %v are left", e.RetryIn, left)
			}
		}
		if e := d.wantRefused(); e == first || e != d.wantRefused() {
			t.Error("not an error for each moment, or one for all")
		}
		if want := 10 * time.Millisecond; first.RetryIn-d.wantRefused().RetryIn != want {
			t.Errorf("an error that was given has changed: %v", first.RetryIn)
		}
		h := d.tr.Host("http://dep.test")
		h.ForceOpen()
		if e := d.wantRefused(); e.State != transport.ForcedOpen || e.RetryIn != 0 {
			t.Errorf("forced: %v, %v", e.State, e.RetryIn)
		}
		h.Reset()
		d.gets("f", 0)
		if e := d.wantRefused(); e.State != transport.Open || e.Evidence == first.Evidence {
			t.Errorf("open again: %v, %v", e.State, e.Evidence)
		}
	})
}
