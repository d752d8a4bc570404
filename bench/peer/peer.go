// Package peer has what watertight is measured against, each as an
// http.RoundTripper over a base that is given.
//
// A [policy.Policy] configures all of them, so that they do the same work as far as
// they can: what a peer has no word for is left out, and where its documentation
// recommends a way, that is taken.
package peer

import (
	"net/http"

	"github.com/afex/hystrix-go/hystrix"
	"github.com/eapache/go-resiliency/breaker"
	"github.com/eapache/go-resiliency/semaphore"
	"github.com/failsafe-go/failsafe-go/bulkhead"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/sony/gobreaker/v2"

	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
)

// Peer is one way to make calls.
type Peer struct {
	Name string

	// New puts the peer over a base.
	New func(base http.RoundTripper, p policy.Policy) http.RoundTripper

	// PerHost says that the peer keeps a state for each host.
	PerHost bool

	// What it can do. A peer is left out of the works that it has no layer for.
	Retries, Stale, Fresh bool

	// Open is what its open breaker refuses with, Full what its full bulkhead does. Nil
	// is a peer without one.
	Open, Full error

	// Waits says that its bulkhead cannot refuse at once.
	Waits bool

	// Tangled says that one layer of the peer disturbs the measure of another: its
	// retries wait after a refusal, or its refusals open its breaker. Where one is
	// measured the others are then off.
	Tangled bool
}

// Breaks reports whether the peer has a breaker.
func (p Peer) Breaks() bool { return p.Open != nil }

// Bounds reports whether the peer has a bulkhead.
func (p Peer) Bounds() bool { return p.Full != nil }

// All are the peers in the order of the tables: what everybody writes by hand, the
// layers of watertight, and other people's libraries.
func All() []Peer {
	return []Peer{
		{Name: "bare", New: bare, PerHost: true},
		{Name: "timeout", New: newTimeout, PerHost: true},
		{Name: "floor", New: newFloor, Retries: true, Open: errOpen, Full: errFull},
		{Name: "floor-per-host", New: perHost(newFloor), PerHost: true, Retries: true, Open: errOpen, Full: errFull},
		{Name: "none", New: only(nothing), PerHost: true},
		{Name: "only-timeout", New: only(justTimeout), PerHost: true},
		{Name: "only-fallback", New: only(justFallback), PerHost: true, Stale: true},
		{Name: "only-retry", New: only(justRetry), PerHost: true, Retries: true},
		{Name: "only-breaker", New: only(justBreaker), PerHost: true, Open: transport.ErrBreakerOpen},
		{Name: "only-bulkhead", New: only(justBulkhead), PerHost: true, Full: transport.ErrBulkheadFull},
		{Name: "complete", New: newWatertight, PerHost: true, Retries: true, Open: transport.ErrBreakerOpen, Full: transport.ErrBulkheadFull, Stale: true, Fresh: true},
		{Name: "failsafe-go", New: newFailsafe, Retries: true, Open: circuitbreaker.ErrOpen, Full: bulkhead.ErrFull},
		{Name: "failsafe-go-per-host", New: perHost(newFailsafe), PerHost: true, Retries: true, Open: circuitbreaker.ErrOpen, Full: bulkhead.ErrFull},
		{Name: "gobreaker", New: newGobreaker, Open: gobreaker.ErrOpenState},
		{Name: "go-retryablehttp", New: newRetryable, Retries: true},
		{Name: "heimdall", New: newHeimdall, Retries: true},
		{Name: "heimdall-hystrix", New: newHystrix, Retries: true, Open: hystrix.ErrCircuitOpen, Full: hystrix.ErrMaxConcurrency, Tangled: true},
		{Name: "go-resiliency", New: newResiliency, Open: breaker.ErrBreakerOpen, Full: semaphore.ErrNoTickets, Waits: true},
		{Name: "httpcache", New: newHTTPCache, Stale: true, Fresh: true},
	}
}

// bare is the base itself.
func bare(base http.RoundTripper, _ policy.Policy) http.RoundTripper { return base }
