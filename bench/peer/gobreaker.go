package peer

import (
	"errors"
	"net/http"

	"github.com/sony/gobreaker/v2"

	"github.com/watertight-go/watertight/policy"
)

// guarded calls a base through gobreaker's breaker.
type guarded struct {
	base    http.RoundTripper
	breaker *gobreaker.CircuitBreaker[*http.Response]
}

// errStatus makes an answer a failure. It comes with its response.
var errStatus = errors.New("a 5xx")

func newGobreaker(base http.RoundTripper, p policy.Policy) http.RoundTripper {
	b := p.Breaker
	return &guarded{base: base, breaker: gobreaker.NewCircuitBreaker[*http.Response](gobreaker.Settings{
		MaxRequests:  uint32(b.HalfOpenProbes),
		Interval:     b.Window,
		BucketPeriod: b.Window / 60, // as many as ours has
		Timeout:      b.OpenFor,
		ReadyToTrip: func(c gobreaker.Counts) bool {
			return c.Requests >= uint32(b.MinCalls) && float64(c.TotalFailures) >= b.FailureRate*float64(c.Requests)
		},
	})}
}

func (g *guarded) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := g.breaker.Execute(func() (*http.Response, error) {
		resp, err := g.base.RoundTrip(req)
		if err == nil && resp.StatusCode >= 500 {
			err = errStatus
		}
		return resp, err
	})
	if resp != nil && errors.Is(err, errStatus) {
		return resp, nil
	}
	return resp, err
}
