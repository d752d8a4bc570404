package peer

import (
	"log/slog"
	"net/http"

	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
)

// newWatertight is the stack with all of a policy. It is quiet, as the others are.
func newWatertight(base http.RoundTripper, p policy.Policy) http.RoundTripper {
	return transport.Must(transport.New(transport.Config{
		Base: base, Default: p, Logger: slog.New(slog.DiscardHandler),
	}))
}

// only is the stack with a part of a policy.
func only(part func(policy.Policy) policy.Policy) func(http.RoundTripper, policy.Policy) http.RoundTripper {
	return func(base http.RoundTripper, p policy.Policy) http.RoundTripper { return newWatertight(base, part(p)) }
}

// nothing is no layer at all. An empty policy would be the default one.
func nothing(policy.Policy) policy.Policy { return policy.Policy{Cache: policy.Cache{Off: true}} }

func justTimeout(p policy.Policy) policy.Policy { return policy.Policy{Timeout: p.Timeout} }

// justFallback stores, whether the policy does or not.
func justFallback(p policy.Policy) policy.Policy {
	f := p.Fallback
	if f.MaxStale == 0 {
		f.MaxStale = policy.DefaultStaleLimit
	}
	return policy.Policy{Fallback: f}
}

func justRetry(p policy.Policy) policy.Policy    { return policy.Policy{Retry: p.Retry} }
func justBreaker(p policy.Policy) policy.Policy  { return policy.Policy{Breaker: p.Breaker} }
func justBulkhead(p policy.Policy) policy.Policy { return policy.Policy{Bulkhead: p.Bulkhead} }
