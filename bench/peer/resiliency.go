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
		// Without a wait it refuses at random, be there permits or not: how fast it
		// refuses is therefore not measured.
		permits:  semaphore.New(p.Bulkhead.MaxConcurrent, cmp.Or(p.Bulkhead.MaxWait, time.Second)),
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
		ctx, cancel := context.WithCancel(req.Context())
		answer := make(chan *http.Response, 1)
		err := r.deadline.Run(func(<-chan struct{}) error {
			resp, err := r.base.RoundTrip(req.WithContext(ctx))
			answer <- resp
			return err
		})
		if errors.Is(err, deadline.ErrTimedOut) {
			cancel() // which the deadline leaves to its user
			return err
		}
		if resp = <-answer; err != nil {
			cancel()
			return err
		}
		resp.Body = &ending{ReadCloser: resp.Body, end: func(error) { cancel() }}
		if resp.StatusCode >= 500 {
			return errStatus
		}
		return nil
	})
	switch {
	case full != nil:
		return nil, full
	case resp != nil && errors.Is(err, errStatus):
		return resp, nil
	}
	return resp, err
}
