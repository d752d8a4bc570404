package soak

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/watertight-go/watertight/policy"
)

// maxConcurrent bounds the metered hosts together.
const maxConcurrent = 40

// policyOf is the policy of a host: short limits, so that all of them fire in a
// short run.
func policyOf(host int) policy.Policy {
	p := policy.Policy{
		Timeout: policy.Timeout{
			Connect: time.Second, TLSHandshake: 2 * time.Second, Read: 800 * time.Millisecond, Attempt: 1500 * time.Millisecond,
			Total: 3 * time.Second, MinThroughput: 256 << 10, StreamIdle: 500 * time.Millisecond,
		},
		Bulkhead: policy.Bulkhead{MaxConcurrent: 4 + host%4, BodyIdle: 800 * time.Millisecond},
		Breaker: policy.Breaker{
			Window: 4 * time.Second, MinCalls: 4, FailureRate: 0.5, SlowCall: time.Second, SlowRate: 0.5,
			OpenFor: 200 * time.Millisecond, OpenForMax: 800 * time.Millisecond, HalfOpenProbes: 2,
		},
		Retry: policy.Retry{
			MaxAttempts: 3, Base: 10 * time.Millisecond, Max: 60 * time.Millisecond, MaxRetryAfter: 1200 * time.Millisecond,
			ReplayBody: 64 << 10, Budget: policy.Budget{Ratio: 0.2, MinPerSecond: 0.5},
		},
	}
	switch host % 5 {
	case 1:
		p.Bulkhead.MaxWait = 50 * time.Millisecond
		p.Breaker.ConsecutiveFailures = 3
	case 2:
		p.Breaker.FailuresInWindow = 6
		p.Fallback.Degraded = degraded
	case 3:
		p.Breaker.WindowCalls, p.Breaker.Window = 20, 0
		p.Fallback.FailFast503 = true
	case 4:
		p.Retry.Budget = policy.Budget{MinPerSecond: 1}
	}
	if host%2 == 0 {
		p.Fallback.MaxStale = time.Minute
	}
	if reuses(host) {
		p.Cache.Fresh = true
		if p.Fallback.MaxStale > 0 {
			p.Fallback.After = 150 * time.Millisecond
		}
	}
	return p
}

// reuses reports whether the answers of a host are reused.
func reuses(host int) bool { return host%5 == 0 }

const degradedHeader = "Soak-Degraded"

func degraded(req *http.Request, _ error) *http.Response {
	if req.Method != http.MethodGet {
		return nil
	}
	return &http.Response{Header: http.Header{degradedHeader: {"1"}}, Body: io.NopCloser(strings.NewReader("degraded"))}
}

func TestThePoliciesAreValid(t *testing.T) {
	for host := range hosts {
		if err := policyOf(host).Validate(); err != nil {
			t.Error(nameOf(host), err)
		}
	}
}
