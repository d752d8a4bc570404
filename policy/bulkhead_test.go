package policy_test

import (
	"fmt"
	"time"

	"github.com/watertight-go/watertight/policy"
)

// By Little's law 50 calls/s that take 200 ms hold 10 permits; twice that leaves
// room for a slower minute. The breaker then needs no more evidence than that.
func ExampleBulkhead() {
	const rate, latency = 50, 200 * time.Millisecond
	p := policy.Service()
	p.Bulkhead.MaxConcurrent = int(2 * rate * latency / time.Second)
	fmt.Println(p.Bulkhead.MaxConcurrent, p.Validate())

	p.Bulkhead.MaxConcurrent /= 2
	fmt.Println(p.Bulkhead.MaxConcurrent, p.Validate())
	// Output:
	// 20 <nil>
	// 10 Breaker.MinCalls: 20: must be at most Bulkhead.MaxConcurrent (10), or a host that hangs could never be proved slow
}
