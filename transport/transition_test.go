package transport_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
)

func TestBreakerShadowCountsAndTellsAndLetsThrough(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newBreakerDep(t, breakerPolicy(policy.Breaker{ConsecutiveFailures: 2, OpenFor: time.Second, HalfOpenProbes: 1, Shadow: true}))
		d.gets("ff", 0)
		d.wantState(transport.Open)
		d.gets("....", 0)
		if s := d.snap(); s.Counts.RefusedOpen != 4 || d.hits.Load() != 6 {
			t.Errorf("%d calls sent, %d of them would have been refused; want 6, 4", d.hits.Load(), s.Counts.RefusedOpen)
		}
		time.Sleep(2 * time.Second)
		d.gets(".", 0)
		d.wantState(transport.Closed)
		if got := d.moves(); got != "closed open half_open closed" {
			t.Errorf("told %s", got)
		}
		for _, e := range append(d.told(transport.EventTransition), d.told(transport.EventRefusal)...) {
			if !e.Shadow {
				t.Errorf("%+v does not say that it is a shadow", e)
			}
		}
		d.tr.Host("http://dep.test").ForceOpen()
		if status, err := d.get(); status != 200 || err != nil {
			t.Errorf("%d, %v", status, err)
		}
	})
}

// Listeners run outside all locks, so that they may do what they like.
func TestBreakerListenersMayCallAnyMethod(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newBreakerDep(t, breakerPolicy(policy.Breaker{ConsecutiveFailures: 2, HalfOpenProbes: 1}))
		host := d.tr.Host("http://dep.test")
		var states []string
		d.listens(func(e transport.Event) {
			if e.Kind != transport.EventTransition {
				return
			}
			states = append(states, e.Transition.From.String()+">"+e.Transition.To.String())
			_ = d.tr.Snapshot()
			_ = host.Snapshot()
			d.tr.CloseIdleConnections()
			_, _ = d.get() // refused, or a call within the call
			switch e.Transition.To {
			case transport.Open:
				host.ForceOpen()
			case transport.ForcedOpen:
				host.ForceClosed()
			case transport.ForcedClosed:
				host.Reset()
			}
		})
		d.gets("ff", 0)
		if got := strings.Join(states, " "); got != "closed>open open>forced_open forced_open>forced_closed forced_closed>closed" {
			t.Errorf("told %s", got)
		}
		d.wantState(transport.Closed)
		d.wantIdle()
	})
}

// breakerNosy is an error, and a context, whose methods look at the breaker.
type breakerNosy struct {
	context.Context
	look func()
}

func (n breakerNosy) Error() string { return "nosy" }
func (n breakerNosy) Is(error) bool { n.look(); return false }
func (n breakerNosy) Err() error    { n.look(); return n.Context.Err() }

// A lock that is held while others' code runs is a deadlock that waits for it.
func TestBreakerAsksErrorsAndContextsOutsideItsLock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newBreakerDep(t, breakerPolicy(policy.Breaker{ConsecutiveFailures: 1, HalfOpenProbes: 1}))
		nosy := breakerNosy{context.Background(), func() { _ = d.tr.Snapshot() }}
		d.does(func(*http.Request) (*http.Response, error) { return nil, nosy })
		_, _ = d.get()
		d.wantState(transport.Open)
		for _, result := range []string{"e", "f", "n"} {
			time.Sleep(d.snap().RetryIn)
			switch result {
			case "f":
				d.does(breakerStatus(503))
			case "n":
				d.does(breakerStatus(404))
			}
			_, _ = d.do(breakerRequest(nosy))
		}
		d.wantState(transport.Closed)
		d.wantIdle()
	})
}

func TestBreakerSurvivesListenersThatPanicOrEndTheirGoroutine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newBreakerDep(t, breakerPolicy(policy.Breaker{ConsecutiveFailures: 1, HalfOpenProbes: 1}))
		d.listens(func(e transport.Event) {
			if e.Kind == transport.EventTransition && e.Transition.To == transport.HalfOpen {
				panic("listener")
			}
			if e.Kind == transport.EventTransition && e.Transition.To == transport.Open {
				breakerGoexit()
			}
		})
		for range 3 {
			done := make(chan struct{})
			go func() { defer close(done); d.gets("f", 0) }()
			<-done
			d.wantState(transport.Open)
			time.Sleep(d.snap().RetryIn)
			d.gets(".", 0)
			d.wantState(transport.Closed)
		}
		if got := d.moves(); got != "closed"+strings.Repeat(" open half_open closed", 3) {
			t.Errorf("told %s", got)
		}
	})
}

// breakerTransitions checks that they follow one another, by lawful steps.
func breakerTransitions(t *testing.T, all []transport.Event, forced bool) {
	t.Helper()
	lawful := map[transport.State][]transport.State{
		transport.Closed:   {transport.Open},
		transport.Open:     {transport.HalfOpen},
		transport.HalfOpen: {transport.Closed, transport.Open},
	}
	state := transport.Closed
	for i, e := range all {
		from, to := e.Transition.From, e.Transition.To
		if from != state {
			t.Fatalf("transition %d is from %v, the one before was to %v", i, from, state)
		}
		if !forced && !slices.Contains(lawful[from], to) {
			t.Fatalf("transition %d is %v to %v", i, from, to)
		}
		state = to
	}
}

func TestBreakerMovesLawfullyUnderACrowd(t *testing.T) {
	for _, forced := range []bool{false, true} {
		t.Run(fmt.Sprintf("forced %v", forced), func(t *testing.T) {
			d := newBreakerDep(t, breakerPolicy(policy.Breaker{
				FailureRate: 0.5, MinCalls: 5, ConsecutiveFailures: 4, SlowCall: 500 * time.Microsecond, SlowRate: 0.9,
				OpenFor: 200 * time.Microsecond, OpenForMax: time.Millisecond, HalfOpenProbes: 2,
			}))
			host := d.tr.Host("http://dep.test")
			var n atomic.Int64
			d.does(func(req *http.Request) (*http.Response, error) {
				switch i := n.Add(1); {
				case i/500%2 == 0:
					return breakerStatus(200)(req)
				case i%5 == 0:
					return breakerAfter(time.Millisecond, breakerStatus(200))(req)
				case i%3 == 0:
					return nil, errBreakerReset
				}
				return breakerStatus(503)(req)
			})
			stop := time.Now().Add(400 * time.Millisecond)
			var crowd sync.WaitGroup
			for g := range 64 {
				crowd.Go(func() {
					for i := 0; time.Now().Before(stop); i++ {
						ctx, cancel := context.WithCancel(context.Background())
						if i%7 == 0 {
							time.AfterFunc(100*time.Microsecond, cancel)
						}
						_, err := d.do(breakerRequest(ctx))
						cancel()
						if err != nil && errors.Is(err, transport.ErrBreakerOpen) {
							time.Sleep(50 * time.Microsecond)
						}
						if g == 0 && i%20 == 0 {
							_ = d.tr.Snapshot()
						}
						if forced && g < 3 && i%10 == 0 {
							[]func(){host.ForceOpen, host.ForceClosed, host.Reset}[g]()
						}
					}
				})
			}
			crowd.Wait()
			told := d.told(transport.EventTransition)
			if len(told) < 6 {
				t.Fatalf("%d transitions only", len(told))
			}
			breakerTransitions(t, told, forced)
			recent := d.snap().Transitions
			for i, tr := range recent {
				if tr != *told[len(told)-len(recent)+i].Transition {
					t.Errorf("the snapshot's transitions are not the ones told")
					break
				}
			}
			d.wantIdle()
		})
	}
}
