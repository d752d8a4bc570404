package peer

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/eapache/go-resiliency/breaker"
	"github.com/eapache/go-resiliency/deadline"
	"github.com/eapache/go-resiliency/semaphore"

	"github.com/watertight-go/watertight/policy"
)

// resilient composes go-resiliency's breaker, semaphore and deadline.
type resilient struct {
	base     http.RoundTripper
	breaker  *breaker.Breaker
	permits  *semaphore.Semaphore
	deadline *deadline.Deadline
}

func newResiliency(base http.RoundTripper, p policy.Policy) http.RoundTripper {
	return &resilient{
		base:    base,
		breaker: breaker.New(p.Breaker.MinCalls, p.Breaker.HalfOpenProbes, p.Breaker.OpenFor),
		// Without a wait it refuses at random, be there permits or not.
		permits:  semaphore.New(p.Bulkhead.MaxConcurrent, cmp.Or(p.Bulkhead.MaxWait, time.Millisecond)),
		deadline: deadline.New(p.Timeout.Attempt),
	}
}

func (r *resilient) RoundTrip(req *http.Request) (*http.Response, error) {
	var resp *http.Response
	var full error // no failure of the host, and so not for the breaker
	err := r.breaker.Run(func() error {
		if full = r.permits.Acquire(); full != nil {
			return nil
		}
		defer r.permits.Release()
		answer := make(chan *http.Response, 1)
		err := r.deadline.Run(func(stop <-chan struct{}) error {
			got, err := r.send(req, stop)
			answer <- got
			return err
		})
		if errors.Is(err, deadline.ErrTimedOut) {
			return err
		}
		resp = <-answer
		if err == nil && resp.StatusCode >= 500 {
			err = errStatus
		}
		return err
	})
	switch {
	case full != nil:
		return nil, full
	case resp != nil && errors.Is(err, errStatus):
		return resp, nil
	}
	return resp, err
}

// send ends the request when stop is closed, which the deadline leaves to its user.
func (r *resilient) send(req *http.Request, stop <-chan struct{}) (*http.Response, error) {
	ctx, cancel := context.WithCancel(req.Context())
	done := make(chan struct{})
	go func() {
		select {
		case <-stop:
			cancel()
		case <-done:
		}
	}()
	resp, err := r.base.RoundTrip(req.WithContext(ctx))
	close(done)
	if err != nil {
		cancel()
		return nil, err
	}
	resp.Body = &ending{ReadCloser: resp.Body, end: func(error) { cancel() }}
	return resp, nil
}
