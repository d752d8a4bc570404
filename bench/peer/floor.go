package peer

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/watertight-go/watertight/policy"
)

// floor is what can be written by hand in an afternoon, and about the least that the
// work can cost: a bulkhead that holds its permit until the body has ended, a breaker
// that counts, a retry within a budget, and a limit for the attempt with its body. It
// has no cache, reports nothing, and learns of a hang when the limit is over.
type floor struct {
	base    http.RoundTripper
	policy  policy.Policy
	permits chan struct{} // nil: no bulkhead

	mu        sync.Mutex // guards all below
	began     time.Time  // of the window
	calls     int
	failures  int
	openUntil time.Time
	probing   bool
	tokens    float64 // of the budget
}

// The floor's refusals.
var (
	errOpen = errors.New("floor: breaker open")
	errFull = errors.New("floor: bulkhead full")
)

func newFloor(base http.RoundTripper, p policy.Policy) http.RoundTripper {
	f := &floor{base: base, policy: p, began: time.Now(), tokens: policy.BudgetBurst}
	if n := p.Bulkhead.MaxConcurrent; n > 0 {
		f.permits = make(chan struct{}, n)
	}
	return f
}

func (f *floor) RoundTrip(req *http.Request) (*http.Response, error) {
	for attempt := 1; ; attempt++ {
		resp, err := f.attempt(req)
		if attempt >= f.policy.Retry.MaxAttempts || !f.again(req, resp, err) {
			return resp, err
		}
		if resp != nil {
			_, _ = io.CopyN(io.Discard, resp.Body, 4<<10) // or the connection is lost
			_ = resp.Body.Close()
		}
		if err := wait(req.Context(), f.policy.Retry.Delay(attempt-1, 0.5)); err != nil {
			return nil, err
		}
		if req.GetBody != nil {
			body, err := req.GetBody()
			if err != nil {
				return nil, err
			}
			req = req.Clone(req.Context())
			req.Body = body
		}
	}
}

func (f *floor) attempt(req *http.Request) (*http.Response, error) {
	if !f.admit() {
		return nil, errOpen
	}
	if f.permits != nil {
		select {
		case f.permits <- struct{}{}:
		default:
			f.forget()
			return nil, errFull
		}
	}
	ctx, cancel := req.Context(), context.CancelFunc(func() {})
	if limit := f.policy.Timeout.Attempt; limit > 0 {
		ctx, cancel = context.WithTimeout(ctx, limit)
	}
	end := func(failed bool) {
		cancel()
		if f.permits != nil {
			<-f.permits
		}
		if failed && req.Context().Err() != nil { // the caller has left
			f.forget()
			return
		}
		f.record(failed)
	}
	resp, err := f.base.RoundTrip(req.WithContext(ctx))
	if err != nil {
		end(true)
		return nil, err
	}
	failed := resp.StatusCode >= 500
	resp.Body = &ending{ReadCloser: resp.Body, end: func(err error) { end(failed || err != nil) }}
	return resp, nil
}

// again reports whether to repeat, and takes a token for it.
func (f *floor) again(req *http.Request, resp *http.Response, err error) bool {
	failed := err != nil && !errors.Is(err, errOpen) && !errors.Is(err, errFull) ||
		resp != nil && f.policy.Retry.Status(resp.StatusCode)
	if !failed || !policy.Idempotent(req) || req.Context().Err() != nil ||
		req.Body != nil && req.Body != http.NoBody && req.GetBody == nil {
		return false
	}
	if !f.policy.Retry.Budget.Enabled() {
		return true
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.tokens < 1 {
		return false
	}
	f.tokens--
	return true
}

// admit reports whether the breaker lets a call through.
func (f *floor) admit() bool {
	if !f.policy.Breaker.Enabled() {
		return true
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.openUntil.IsZero() {
		return true
	}
	if f.probing || time.Now().Before(f.openUntil) {
		return false
	}
	f.probing = true
	return true
}

// forget takes back what admit has let through, and what says nothing of the host.
func (f *floor) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.probing = false
}

func (f *floor) record(failed bool) {
	b := f.policy.Breaker
	f.mu.Lock()
	defer f.mu.Unlock()
	if !failed {
		f.tokens = f.policy.Retry.Budget.Refill(f.tokens, 1, 0)
	}
	if !b.Enabled() {
		return
	}
	now := time.Now()
	if f.probing {
		f.probing = false
		f.openUntil = time.Time{}
		f.calls, f.failures, f.began = 0, 0, now
	}
	if now.Sub(f.began) > b.Window {
		f.calls, f.failures, f.began = 0, 0, now
	}
	f.calls++
	if failed {
		f.failures++
	}
	if f.calls >= b.MinCalls && float64(f.failures) >= b.FailureRate*float64(f.calls) {
		f.openUntil = now.Add(b.OpenFor)
	}
}

// wait returns after d, or when the call is over.
func wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
