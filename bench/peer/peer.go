// Package peer has what watertight is measured against, each as an
// http.RoundTripper over a base that is given.
//
// A [policy.Policy] configures all of them, so that they do the same work as far as
// they can: what a peer has no word for is left out, and where its documentation
// recommends a way, that is taken.
package peer

import (
	"net/http"

	"github.com/watertight-go/watertight/policy"
)

// Peer is one way to make calls.
type Peer struct {
	Name string

	// New puts the peer over a base.
	New func(base http.RoundTripper, p policy.Policy) http.RoundTripper

	// PerHost says that the peer keeps a state for each host.
	PerHost bool

	// What it can do. A peer is left out of the works that it has no layer for.
	Retries, Breaks, Bounds, Stale, Fresh bool

	// Tangled says that one layer of the peer disturbs the measure of another: its
	// retries wait after a refusal, or its refusals open its breaker. Where one is
	// measured the others are then off.
	Tangled bool
}

// All are the peers in the order of the tables: what everybody writes by hand, the
// layers of watertight, and other people's libraries.
func All() []Peer {
	return []Peer{
		{Name: "bare", New: bare, PerHost: true},
		{Name: "timeout", New: newTimeout, PerHost: true},
		{Name: "floor", New: newFloor, Retries: true, Breaks: true, Bounds: true},
		{Name: "floor-per-host", New: perHost(newFloor), PerHost: true, Retries: true, Breaks: true, Bounds: true},
		{Name: "none", New: only(nothing), PerHost: true},
		{Name: "only-timeout", New: only(justTimeout), PerHost: true},
		{Name: "only-fallback", New: only(justFallback), PerHost: true, Stale: true},
		{Name: "only-retry", New: only(justRetry), PerHost: true, Retries: true},
		{Name: "only-breaker", New: only(justBreaker), PerHost: true, Breaks: true},
		{Name: "only-bulkhead", New: only(justBulkhead), PerHost: true, Bounds: true},
		{Name: "complete", New: newWatertight, PerHost: true, Retries: true, Breaks: true, Bounds: true, Stale: true, Fresh: true},
		{Name: "failsafe-go", New: newFailsafe, Retries: true, Breaks: true, Bounds: true},
		{Name: "failsafe-go-per-host", New: perHost(newFailsafe), PerHost: true, Retries: true, Breaks: true, Bounds: true},
		{Name: "gobreaker", New: newGobreaker, Breaks: true},
		{Name: "go-retryablehttp", New: newRetryable, Retries: true},
		{Name: "heimdall", New: newHeimdall, Retries: true},
		{Name: "heimdall-hystrix", New: newHystrix, Retries: true, Breaks: true, Bounds: true, Tangled: true},
		{Name: "go-resiliency", New: newResiliency, Breaks: true, Bounds: true},
		{Name: "httpcache", New: newHTTPCache, Stale: true, Fresh: true},
	}
}

// bare is the base itself.
func bare(base http.RoundTripper, _ policy.Policy) http.RoundTripper { return base }
