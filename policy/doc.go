// Package policy says what a dependency may cost its caller: plain structs with
// documented defaults, their validation, and the arithmetic that follows from
// them. It holds no goroutine, no lock, no clock and does no I/O; package
// transport acts on what is computed here.
//
// Start from [Default], which is safe under any program, or from [Service], for
// one service that calls another behind a user's request, and change what the
// dependency needs:
//
//	payments := policy.Service()
//	payments.Timeout.Attempt = 800 * time.Millisecond
//	payments.Breaker.SlowCall = 500 * time.Millisecond
//
// The zero value of each layer's struct ([Timeout], [Bulkhead], [Breaker], [Retry],
// [Fallback]) switches that layer off. In the comment of a field, "Default" is what
// [Default] sets, with [Service] beside it where that differs, and "zero" is what
// the field means when a policy is written from scratch: off, or a default.
// [Policy.Validate] reports all that contradicts itself.
//
// Every layer's struct has a Shadow field: the layer then decides, counts and
// reports what it would have done, and lets the call through. That is how limits
// are chosen on live traffic without an outage.
package policy
