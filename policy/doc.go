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
// The zero value of each layer's struct switches that layer off; inside a layer
// that is on, a zero field means what its comment says: off, or a default.
// Every layer's struct has a Shadow field: the layer then decides, counts and
// reports what it would have done, and lets the call through.
package policy
