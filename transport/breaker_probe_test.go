package transport_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
)

func breakerGoexit() { runtime.Goexit() }

func TestProbesAreAdmittedExactlyUpToTheirQuota(t *testing.T) {
	t.Parallel()
	for _, quota := range []int{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			p := breakerPolicy(policy.Breaker{ConsecutiveFailures: 1, HalfOpenProbes: quota})
			p.Timeout.Attempt = time.Minute
			d := newBreakerDep(t, p)
			d.halfOpen()
			before := d.hits.Load()
			d.does(breakerHang)
			start := time.Now()
			var crowd sync.WaitGroup
			for range 100 {
				crowd.Go(func() {
					_, err := d.get()
					var e *transport.Error
					switch {
					case !errors.As(err, &e):
						t.Errorf("%v, want an Error", err)
					case errors.Is(err, transport.ErrBreakerOpen) && (e.State != transport.HalfOpen || time.Since(start) != 0 || e.Evidence == nil):
						t.Errorf("refused after %v: %+v", time.Since(start), e)
					}
				})
			}
			synctest.Wait()
			if got := d.hits.Load() - before; got != int64(quota) {
				t.Errorf("%d probes went out, want %d", got, quota)
			}
			if got := d.snap().Counts.RefusedHalfOpen; got != int64(100-quota) {
				t.Errorf("%d calls refused, want %d", got, 100-quota)
			}
			crowd.Wait()
			d.wantState(transport.Open)
			d.wantIdle()
		})
	}
}

func TestProbesDecideTogether(t *testing.T) {
	t.Parallel()
	const slow = 2 * time.Second
	for _, test := range []struct {
		name   string
		probes string
		moves  string
	}{
		{"three successes close", "...", "closed open half_open closed"},
		{"4xx prove that the host answers", "n.n", "closed open half_open closed"},
		{"one lucky call is not enough", ".", "closed open half_open"},
		{"the third fails", "..f", "closed open half_open open"},
		{"the first fails", "f", "closed open half_open open"},
		{"one is slow", ".s", "closed open half_open open"},
		{"one has no connection", "..e", "closed open half_open open"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newBreakerDep(t, breakerPolicy(policy.Breaker{ConsecutiveFailures: 1, SlowCall: slow, SlowRate: 0.5, HalfOpenProbes: 3}))
				d.halfOpen()
				d.gets(test.probes, slow)
				synctest.Wait() // a timer may be about to tell
				if got := d.moves(); got != test.moves {
					t.Errorf("told %s, want %s", got, test.moves)
				}
				d.wantIdle()
			})
		})
	}
}

func TestProbeThatIsSlowReopensWhileItHangs(t *testing.T) {
	t.Parallel()
	for _, answer := range []breakerAnswer{breakerHang, breakerBody(200, time.Hour, io.EOF)} {
		synctest.Test(t, func(t *testing.T) {
			p := breakerPolicy(policy.Breaker{ConsecutiveFailures: 1, SlowCall: 2 * time.Second, SlowRate: 0.5})
			p.Timeout.Attempt = 3 * time.Second
			d := newBreakerDep(t, p)
			d.halfOpen()
			d.does(answer)
			before := d.snap().Counts.Failure
			done := make(chan struct{})
			go func() { _, _ = d.get(); close(done) }()
			time.Sleep(2*time.Second - 1)
			synctest.Wait()
			d.wantState(transport.HalfOpen)
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			s := d.snap()
			if s.State != transport.Open || s.Trip.Trigger != "probe_slow" || s.Trip.String() != "a probe was slow, last: slow call" {
				t.Errorf("%v, %v", s.State, s.Trip)
			}
			<-done
			if after := d.snap(); after.RetryIn != s.RetryIn-time.Second || after.Counts.Failure != before+1 || len(after.Transitions) != 3 {
				t.Errorf("%+v became %+v", s, after)
			}
			d.wantIdle()
		})
	}
}

// Each way in which a probe may come to nothing must leave its slot free.
func TestProbeWithoutAVerdictGivesItsSlotBack(t *testing.T) {
	t.Parallel()
	later := func(f func()) { time.AfterFunc(time.Millisecond, f) }
	withContext := func(d *breakerDep, use func(context.Context, context.CancelFunc)) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		use(ctx, cancel)
	}
	for _, test := range []struct {
		name  string
		probe func(*breakerDep)
	}{
		{"cancelled before its headers", func(d *breakerDep) {
			d.does(breakerHang)
			withContext(d, func(ctx context.Context, cancel context.CancelFunc) {
				later(cancel)
				_, _ = d.do(breakerRequest(ctx))
			})
		}},
		{"cancelled in its body", func(d *breakerDep) {
			d.does(breakerBody(200, time.Hour, io.EOF))
			withContext(d, func(ctx context.Context, cancel context.CancelFunc) {
				later(cancel)
				_, _ = d.do(breakerRequest(ctx))
			})
		}},
		{"a 404 cancelled in its body", func(d *breakerDep) {
			d.does(breakerBody(404, time.Hour, io.EOF))
			withContext(d, func(ctx context.Context, cancel context.CancelFunc) {
				later(cancel)
				_, _ = d.do(breakerRequest(ctx))
			})
		}},
		{"cancelled between headers and close", func(d *breakerDep) {
			withContext(d, func(ctx context.Context, cancel context.CancelFunc) {
				resp, err := d.tr.RoundTrip(breakerRequest(ctx))
				if err != nil {
					d.t.Fatal(err)
				}
				cancel()
				resp.Body.Close()
			})
		}},
		{"ended by its caller's deadline", func(d *breakerDep) {
			d.does(breakerHang)
			ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
			defer cancel()
			_, _ = d.do(breakerRequest(ctx))
		}},
		{"a faulty request body", func(d *breakerDep) {
			d.does(breakerUpload)
			req := breakerRequest(context.Background())
			req.Method, req.Body = "POST", io.NopCloser(breakerFaultyReader{})
			_, _ = d.do(req)
		}},
		{"a panic in the base", func(d *breakerDep) {
			d.does(func(*http.Request) (*http.Response, error) { panic("base") })
			defer func() {
				if recover() == nil {
					d.t.Error("the panic was swallowed")
				}
			}()
			_, _ = d.get()
		}},
		{"Goexit in the base", func(d *breakerDep) {
			d.does(func(*http.Request) (*http.Response, error) { breakerGoexit(); return nil, nil })
			done := make(chan struct{})
			go func() { defer close(done); _, _ = d.get() }()
			<-done
		}},
		{"Classify finds a 503 neutral", func(d *breakerDep) {
			d.does(breakerStatus(503))
			req := breakerRequest(context.Background())
			req.Header.Set("Neutral", "1")
			_, _ = d.do(req)
		}},
		{"Classify finds a cut body neutral", func(d *breakerDep) {
			d.does(breakerBody(200, 0, io.ErrUnexpectedEOF))
			req := breakerRequest(context.Background())
			req.Header.Set("Neutral", "1")
			_, _ = d.do(req)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := breakerPolicy(policy.Breaker{ConsecutiveFailures: 1, HalfOpenProbes: 1, Classify: func(resp *http.Response, err error) policy.Verdict {
					if resp != nil && resp.Request.Header.Get("Neutral") != "" && (resp.StatusCode == 503 || err != nil) {
						return policy.Neutral
					}
					return policy.Unclassified
				}})
				d := newBreakerDep(t, p)
				d.halfOpen()
				for range 3 { // more often than there are slots
					test.probe(d)
					d.wantState(transport.HalfOpen)
				}
				if got := d.moves(); got != "closed open half_open" {
					t.Errorf("told %s", got)
				}
				d.gets(".", 0)
				d.wantState(transport.Closed)
				d.wantIdle()
			})
		})
	}
}

// A probe that is admitted and then finds no permit was never sent.
func TestProbeRefusedByTheBulkheadGivesItsSlotBack(t *testing.T) {
	t.Parallel()
	for _, maxWait := range []time.Duration{0, time.Second, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			p := breakerPolicy(policy.Breaker{ConsecutiveFailures: 1, HalfOpenProbes: 1, OpenFor: 10 * time.Second})
			p.Bulkhead = policy.Bulkhead{MaxConcurrent: 1, MaxWait: maxWait}
			d := newBreakerDep(t, p)
			d.does(breakerStatus(503))
			held, err := d.tr.RoundTrip(breakerRequest(context.Background())) // trips at its headers, and keeps its permit
			if err != nil {
				t.Fatal(err)
			}
			d.wantState(transport.Open)
			time.Sleep(d.snap().RetryIn)
			for range 3 {
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				_, err := d.do(breakerRequest(ctx))
				cancel()
				if !errors.Is(err, transport.ErrBulkheadFull) && !(maxWait > time.Minute && errors.Is(err, context.DeadlineExceeded)) {
					t.Errorf("%v, want a full bulkhead", err)
				}
				d.wantState(transport.HalfOpen)
			}
			held.Body.Close()
			d.gets(".", 0)
			d.wantState(transport.Closed)
			if got := d.hits.Load(); got != 2 {
				t.Errorf("%d calls went out, want 2", got)
			}
			d.wantIdle()
		})
	}
}

// No caller's behaviour may keep a breaker half-open.
func TestProbeIsJudgedAtTheEndOfItsLease(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		attempt time.Duration
		status  int
		lease   time.Duration
		want    transport.State
	}{
		{"a 200, with Attempt", 3 * time.Second, 200, 3 * time.Second, transport.Closed},
		{"a 200, without", 0, 200, 10 * time.Second, transport.Closed},
		{"a 404", 0, 404, 10 * time.Second, transport.Closed},
		{"a 503, at its headers", 0, 503, 0, transport.Open},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := breakerPolicy(policy.Breaker{ConsecutiveFailures: 1, HalfOpenProbes: 1, OpenFor: time.Hour})
				p.Timeout.Attempt = test.attempt
				d := newBreakerDep(t, p)
				d.halfOpen()
				d.does(breakerAfter(time.Second, breakerBody(test.status, time.Hour, io.EOF)))
				resp, err := d.tr.RoundTrip(breakerRequest(context.Background()))
				if err != nil {
					t.Fatal(err)
				}
				if test.lease > 0 {
					time.Sleep(test.lease - 1)
					synctest.Wait()
					d.wantState(transport.HalfOpen)
					time.Sleep(time.Nanosecond)
					synctest.Wait()
				}
				d.wantState(test.want)
				before := d.snap()
				resp.Body.Close() // changes nothing any more
				if after := d.snap(); after.Counts.Success != before.Counts.Success || after.Counts.Failure != before.Counts.Failure || after.Window != before.Window {
					t.Errorf("%+v became %+v", before, after)
				}
				d.wantIdle()
			})
		})
	}
}

// The lease of a probe whose body hangs ends at the same moment as its Attempt,
// when its headers were prompt; that is no reason to take it for a success.
func TestProbeThatHitsItsLimitWithItsLeaseHasFailed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := breakerPolicy(policy.Breaker{ConsecutiveFailures: 1, HalfOpenProbes: 1})
		p.Timeout.Attempt = 3 * time.Second
		d := newBreakerDep(t, p)
		d.halfOpen()
		d.does(breakerBody(200, time.Hour, io.EOF))
		if _, err := d.get(); !errors.Is(err, transport.ErrAttemptTimeout) {
			t.Error(err)
		}
		if s := d.snap(); s.State != transport.Open || s.Trip.Trigger != "probe_failed" {
			t.Errorf("%v, %v", s.State, s.Trip)
		}
	})
}

// A base that does not heed its context must not keep a breaker half-open either.
func TestProbeOnADeafBaseFailsAtItsLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := breakerPolicy(policy.Breaker{ConsecutiveFailures: 1, HalfOpenProbes: 1})
		p.Timeout.Attempt = 3 * time.Second
		d := newBreakerDep(t, p)
		d.halfOpen()
		wake := make(chan struct{})
		d.does(func(req *http.Request) (*http.Response, error) {
			<-wake
			return breakerStatus(200)(req)
		})
		done := make(chan struct{})
		go func() { _, _ = d.get(); close(done) }()
		time.Sleep(3 * time.Second)
		synctest.Wait()
		d.wantState(transport.Open)
		close(wake)
		<-done
		d.wantState(transport.Open)
		d.wantIdle()
	})
}

// An upload whose caller never ends it holds the slot no longer than the lease.
func TestProbeWhoseCallerStallsItsUploadGivesItsSlotBack(t *testing.T) {
	t.Parallel()
	for _, attempt := range []time.Duration{0, 3 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			p := breakerPolicy(policy.Breaker{ConsecutiveFailures: 1, HalfOpenProbes: 1, SlowCall: 2 * time.Second, SlowRate: 1, MinCalls: 1})
			p.Timeout.Attempt, p.Timeout.Read = attempt, 5*time.Second
			d := newBreakerDep(t, p)
			d.halfOpen()
			d.does(breakerUpload)
			body, caller := io.Pipe()
			req := breakerRequest(context.Background())
			req.Method, req.Body = "POST", body
			done := make(chan struct{})
			go func() { _, _ = d.do(req); close(done) }()
			synctest.Wait()
			d.wantRefused()
			time.Sleep(max(attempt, 10*time.Second*time.Duration(1-min(attempt, 1))))
			synctest.Wait()
			d.gets(".", 0)
			d.wantState(transport.Closed)
			caller.Close()
			<-done
			d.wantState(transport.Closed)
			d.wantIdle()
		})
	}
}

// Where nothing bounds the wait for headers, the lease does.
func TestProbeWithoutAnyLimitGivesItsSlotBack(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*policy.Policy, *http.Request){
		"no limits":        func(*policy.Policy, *http.Request) {},
		"limits in shadow": func(p *policy.Policy, _ *http.Request) { p.Timeout = policy.Timeout{Read: time.Second, Shadow: true} },
		"a request of gRPC": func(p *policy.Policy, req *http.Request) {
			p.Timeout.Read = time.Second
			req.Header.Set("Content-Type", "application/grpc+proto")
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := breakerPolicy(policy.Breaker{ConsecutiveFailures: 1, HalfOpenProbes: 1})
				req := breakerRequest(context.Background())
				change(&p, req)
				d := newBreakerDep(t, p)
				d.halfOpen()
				wake := make(chan struct{})
				d.does(func(req *http.Request) (*http.Response, error) {
					<-wake
					return nil, errBreakerReset
				})
				done := make(chan struct{})
				go func() { _, _ = d.do(req); close(done) }()
				time.Sleep(10*time.Second - 1)
				d.wantRefused()
				time.Sleep(time.Nanosecond)
				synctest.Wait()
				d.gets(".", 0)
				d.wantState(transport.Closed)
				close(wake)
				<-done
				d.wantState(transport.Closed)
				d.wantIdle()
			})
		})
	}
}

// While the peer is waited for and a limit bounds that, the probe has not come to
// nothing: there must not be another each time a lease is over.
func TestProbeKeepsItsSlotWhileALimitBoundsItsWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := breakerPolicy(policy.Breaker{ConsecutiveFailures: 1, HalfOpenProbes: 1, OpenFor: time.Hour})
		p.Timeout.Read = 35 * time.Second
		d := newBreakerDep(t, p)
		d.halfOpen()
		before := d.hits.Load()
		d.does(breakerHang)
		done := make(chan struct{})
		go func() { _, _ = d.get(); close(done) }()
		for range 34 {
			time.Sleep(time.Second)
			d.wantRefused()
		}
		<-done
		d.wantState(transport.Open)
		if got := d.hits.Load() - before; got != 1 {
			t.Errorf("%d probes went out, want 1", got)
		}
	})
}

// A stream's verdict is settled at its headers, so that it holds no slot.
func TestProbeThatIsAStreamIsJudgedAtItsHeaders(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newBreakerDep(t, breakerPolicy(policy.Breaker{ConsecutiveFailures: 1, HalfOpenProbes: 1}))
		d.halfOpen()
		d.does(func(req *http.Request) (*http.Response, error) {
			resp, _ := breakerBody(200, time.Hour, io.ErrUnexpectedEOF)(req)
			resp.Header.Set("Content-Type", "text/event-stream; charset=utf-8")
			return resp, nil
		})
		resp, err := d.tr.RoundTrip(breakerRequest(context.Background()))
		if err != nil {
			t.Fatal(err)
		}
		d.wantState(transport.Closed)
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if s := d.snap(); s.State != transport.Closed || s.Window.Calls != 0 {
			t.Errorf("%v, %+v", s.State, s.Window)
		}
	})
}

// A retry after a probe that failed is refused, and the probe's own answer is
// what its caller gets.
func TestProbeThatFailsIsNotRetried(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := policy.Default()
		p.Breaker = policy.Breaker{ConsecutiveFailures: 3, HalfOpenProbes: 1}
		d := newBreakerDep(t, p)
		d.does(breakerStatus(503))
		if status, err := d.get(); status != 503 || err != nil {
			t.Fatal(status, err)
		}
		d.wantState(transport.Open)
		time.Sleep(d.snap().RetryIn)
		start := time.Now()
		if status, err := d.get(); status != 503 || err != nil || time.Since(start) != 0 {
			t.Errorf("%d, %v after %v; want the probe's 503 at once", status, err, time.Since(start))
		}
		if got := d.hits.Load(); got != 4 {
			t.Errorf("%d attempts went out, want 3 and a probe", got)
		}
		d.wantState(transport.Open)
		d.wantIdle()
	})
}

// When the caller's deadline is SlowCall to the nanosecond, whichever is noticed
// first, the probe was slow.
func TestProbeThatItsCallerLeavesAtSlowCallWasSlow(t *testing.T) {
	t.Parallel()
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			d := newBreakerDep(t, breakerPolicy(policy.Breaker{ConsecutiveFailures: 1, HalfOpenProbes: 1, SlowCall: time.Second, SlowRate: 1}))
			d.halfOpen()
			d.does(breakerHang)
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			_, _ = d.do(breakerRequest(ctx))
			if s := d.snap(); s.State != transport.Open || s.Trip.Trigger != "probe_slow" {
				t.Errorf("%v, %v", s.State, s.Trip)
			}
			d.wantIdle()
		})
	}
}
