package peer

import (
	"errors"
	"net/http"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/bulkhead"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/failsafe-go/failsafe-go/timeout"

	"github.com/watertight-go/watertight/policy"
)

// newFailsafe composes failsafe-go's policies in the order that it recommends: the
// retries around the breaker, the bulkhead and the timeout of an attempt. It has no
// limit for the whole call and no budget here, which spares it their cost, and its
// retries leave refusals alone, which by default they repeat, and its breaker does,
// for which by default a full bulkhead is a failure of the host.
func newFailsafe(base http.RoundTripper, p policy.Policy) http.RoundTripper {
	var policies []failsafe.Policy[*http.Response]
	if p.Retry.Enabled() {
		r := failsafehttp.NewRetryPolicyBuilder().
			WithMaxAttempts(p.Retry.MaxAttempts).
			AbortOnErrors(circuitbreaker.ErrOpen, bulkhead.ErrFull).
			ReturnLastFailure()
		if p.Retry.Base > 0 {
			r = r.WithBackoff(p.Retry.Base, p.Retry.Max)
		}
		policies = append(policies, r.Build())
	}
	if b := p.Breaker; b.Enabled() {
		policies = append(policies, circuitbreaker.NewBuilder[*http.Response]().
			HandleIf(failed).
			WithFailureRateThreshold(b.FailureRate, uint(b.MinCalls), b.Window).
			WithDelay(b.OpenFor).
			WithSuccessThreshold(uint(b.HalfOpenProbes)).
			Build())
	}
	if n := p.Bulkhead.MaxConcurrent; n > 0 {
		policies = append(policies, bulkhead.NewBuilder[*http.Response](uint(n)).WithMaxWaitTime(p.Bulkhead.MaxWait).Build())
	}
	if limit := p.Timeout.Attempt; limit > 0 {
		policies = append(policies, timeout.New[*http.Response](limit))
	}
	return failsafehttp.NewRoundTripper(base, policies...)
}

// failed reports whether an attempt says that its host fails: a refusal says nothing.
func failed(resp *http.Response, err error) bool {
	if err != nil {
		return !errors.Is(err, bulkhead.ErrFull) && !errors.Is(err, circuitbreaker.ErrOpen)
	}
	return resp.StatusCode >= 500
}
