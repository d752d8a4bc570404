package policy

import "time"

// Bulkhead bounds how many calls a host may hold at once. A permit is taken when
// a call really goes out and given back when its response body has ended; it is
// not held while a retry waits.
type Bulkhead struct {
	// MaxConcurrent is the number of permits. By Little's law a dependency
	// needs rate x latency of them: 50 calls/s at 200 ms hold 10. Default: 256
	// (Service: 20). Zero: no bulkhead. A full bulkhead is
	// transport.ErrBulkheadFull.
	MaxConcurrent int

	// MaxWait is how long a call waits for a permit, in order of arrival. Zero,
	// the default, refuses at once: a queue is a smaller version of the problem.
	MaxWait time.Duration

	// BodyIdle is how long a response body may stay open without being read
	// before it counts as forgotten: its connection is closed, its permit
	// returned, and a later Read of it gives a *transport.Error with Knob
	// "Bulkhead.BodyIdle". With the same error a call ends, and is not repeated,
	// for which a Read of its request body gives nothing for that long. Neither
	// says anything about the host. Streams are exempt. Default: 5 min (Service:
	// 1 min). Zero: only a response body that has become unreachable is found.
	BodyIdle time.Duration

	// Shadow counts and reports refusals, and lets the calls through.
	// Default: false.
	Shadow bool
}

func (b Bulkhead) validate(v *validator) {
	v.count("Bulkhead.MaxConcurrent", b.MaxConcurrent)
	v.duration("Bulkhead.MaxWait", b.MaxWait)
	v.duration("Bulkhead.BodyIdle", b.BodyIdle)
}
