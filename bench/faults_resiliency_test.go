package bench_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eapache/go-resiliency/breaker"
	"github.com/eapache/go-resiliency/deadline"
	"github.com/eapache/go-resiliency/semaphore"

	"github.com/watertight-go/watertight/policy"
)

// go-resiliency: a semaphore without a wait refuses at random while its permits are
// free.
func TestResiliencyRefusesAtRandom(t *testing.T) {
	s, refused := semaphore.New(1, 0), false
	for range 1_000_000 {
		if err := s.Acquire(); err != nil {
			refused = true
			break
		}
		s.Release()
	}
	if !refused {
		t.Error("go-resiliency takes free permits by now")
	}
	tr := stack(t, newStub(1), policy.Policy{Bulkhead: policy.Bulkhead{MaxConcurrent: 1}})
	for range 10_000 {
		if err := exchange(tr, request(t, host), make([]byte, 512)); err != nil {
			t.Fatalf("watertight: %v", err)
		}
	}
}

// go-resiliency: who waits for its semaphore waits on after leaving: it takes no
// context.
func TestResiliencySemaphoreHasNoContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := semaphore.New(1, time.Minute)
		if err := s.Acquire(); err != nil {
			t.Fatal(err)
		}
		limited := answer(func(req *http.Request) (*http.Response, error) {
			if err := s.Acquire(); err != nil {
				return nil, err
			}
			defer s.Release()
			return status(req, http.StatusOK), req.Context().Err()
		})
		waited := func(rt http.RoundTripper) time.Duration {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			began := time.Now()
			if _, err := rt.RoundTrip(request(t, host).WithContext(ctx)); err == nil {
				t.Error("answered")
			}
			return time.Since(began)
		}
		if d := waited(limited); d != time.Minute {
			t.Errorf("go-resiliency lets its caller go after %v by now", d)
		}

		open := answer(func(req *http.Request) (*http.Response, error) { return respond(req, 200, text("hello")), nil })
		tr := stack(t, open, policy.Policy{Bulkhead: policy.Bulkhead{MaxConcurrent: 1, MaxWait: time.Minute}})
		resp, err := tr.RoundTrip(request(t, host))
		if err != nil {
			t.Fatal(err)
		}
		if d := waited(tr); d != time.Second {
			t.Errorf("watertight kept its caller for %v", d)
		}
		_ = resp.Body.Close()
	})
}

// go-resiliency: a call that has timed out goes on, with its goroutine, unless its user
// ends it: the deadline knows nothing of the request's context.
func TestResiliencyDeadlineEndsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release, origin := make(chan struct{}), &hanging{}
		base := answer(func(req *http.Request) (*http.Response, error) {
			ctx, cancel := context.WithCancel(req.Context())
			defer cancel()
			go func() {
				select {
				case <-release: // so that the test ends
					cancel()
				case <-ctx.Done():
				}
			}()
			return origin.RoundTrip(req.WithContext(ctx))
		})
		timed := answer(func(req *http.Request) (resp *http.Response, err error) {
			return resp, deadline.New(time.Second).Run(func(<-chan struct{}) error {
				_, err := base.RoundTrip(req)
				return err
			})
		})
		if _, err := timed.RoundTrip(request(t, host)); !errors.Is(err, deadline.ErrTimedOut) {
			t.Errorf("go-resiliency: %v", err)
		}
		time.Sleep(time.Hour)
		if n := origin.held.Load(); n != 1 {
			t.Errorf("go-resiliency ended the request by now")
		}
		close(release)
		synctest.Wait()

		tr := stack(t, origin, policy.Policy{Timeout: policy.Timeout{Attempt: time.Second}})
		if _, err := tr.RoundTrip(request(t, host)); err == nil {
			t.Error("answered")
		}
		if n := origin.held.Load(); n != 0 {
			t.Error("watertight let the request go on")
		}
	})
}

// go-resiliency: callers who give up trip its breaker, unless its user filters the
// error.
func TestResiliencyCountsCallersWhoLeave(t *testing.T) {
	b := breaker.New(3, 1, time.Minute)
	rt := answer(func(req *http.Request) (resp *http.Response, err error) {
		err = b.Run(func() error {
			resp, err = patient.RoundTrip(req)
			return err
		})
		return resp, err
	})
	if err := leave(t, rt, 3); !errors.Is(err, breaker.ErrBreakerOpen) {
		t.Errorf("go-resiliency forgives by now: %v", err)
	}
	forgives(t)
}

// go-resiliency: calls that hang are no evidence for its breaker while they do.
func TestResiliencyLearnsNothingOfAHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, release := breaker.New(3, 1, time.Minute), make(chan struct{})
		for range 100 {
			go func() {
				_ = b.Run(func() error {
					<-release
					return nil
				})
			}()
		}
		time.Sleep(time.Hour)
		if s := b.GetState(); s != breaker.Closed {
			t.Errorf("go-resiliency is in state %d by now", s)
		}
		close(release)
		learns(t)
	})
}
