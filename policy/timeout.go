package policy

import (
	"fmt"
	"math/bits"
	"time"
)

// Timeout bounds how long a call waits for its peer. Each limit runs only while
// the peer is waited for: time spent inside the caller's own request body, and
// between two reads of the response body, is the caller's and is free. Zero
// switches a limit off.
type Timeout struct {
	// Connect bounds DNS, TCP and, behind a proxy, the CONNECT exchange.
	// Default: 3 s (Service: 1 s). A limit that fires is
	// transport.ErrConnectTimeout.
	Connect time.Duration

	// TLSHandshake bounds the TLS handshake. Default: 3 s (Service: 1 s). A limit
	// that fires is transport.ErrTLSTimeout.
	TLSHandshake time.Duration

	// Read bounds every wait for the peer on an established connection: to take
	// the next piece of the request body, for the response headers as a whole
	// once the request is written, and for each further piece of the response
	// body. Default: 10 s (Service: 3 s). A limit that fires is
	// transport.ErrReadTimeout.
	Read time.Duration

	// Attempt bounds one attempt, from its bulkhead permit to the end of its
	// body. Default: 10 s (Service: 3 s). At most Total. A limit that fires is
	// transport.ErrAttemptTimeout.
	Attempt time.Duration

	// Total bounds the whole call: all attempts, the waits between them, and the
	// redirect hops that pass through the same Transport. Default: 30 s (Service:
	// 10 s). A limit that fires is transport.ErrTotalTimeout.
	Total time.Duration

	// MinThroughput is in bytes per second. Each byte that the peer takes or
	// gives extends Attempt, Total and Breaker.SlowCall by 1/MinThroughput, so
	// that a large transfer at a healthy rate is neither cut nor slow, and one
	// that drips is both. Default: 8 KiB/s (Service: 32 KiB/s). Zero: no
	// extension; Attempt and Total then also bound the largest possible body.
	MinThroughput int64

	// StreamIdle bounds the silence of a stream (a server-sent event stream, a
	// protocol upgrade, and whatever else Policy.Streaming covers), to which no
	// other limit applies once its headers are in. Zero, the default: streams may
	// be silent for ever, and keep their permit as long, so set it where there are
	// any.
	StreamIdle time.Duration

	// Shadow reports limits that would have fired, and lets the call go on.
	// Default: false.
	Shadow bool
}

func (t Timeout) validate(v *validator) {
	v.duration("Timeout.Connect", t.Connect)
	v.duration("Timeout.TLSHandshake", t.TLSHandshake)
	v.duration("Timeout.Read", t.Read)
	v.duration("Timeout.Attempt", t.Attempt)
	v.duration("Timeout.Total", t.Total)
	v.duration("Timeout.StreamIdle", t.StreamIdle)
	v.bytes("Timeout.MinThroughput", t.MinThroughput)
	if t.Total > 0 && t.Attempt > t.Total {
		v.add("Timeout.Attempt", t.Attempt, fmt.Sprintf("at most Timeout.Total (%v), which would always fire first", t.Total))
	}
}

// Or returns t with each zero field taken from host: how the limits of one call
// are laid over those of its host. Negative fields, which Validate never sees in
// the Timeout of a call, count as zero.
func (t Timeout) Or(host Timeout) Timeout {
	or := func(d *time.Duration, h time.Duration) {
		if *d <= 0 {
			*d = h
		}
	}
	or(&t.Connect, host.Connect)
	or(&t.TLSHandshake, host.TLSHandshake)
	or(&t.Read, host.Read)
	or(&t.Attempt, host.Attempt)
	or(&t.Total, host.Total)
	or(&t.StreamIdle, host.StreamIdle)
	if t.MinThroughput <= 0 {
		t.MinThroughput = host.MinThroughput
	}
	t.Shadow = t.Shadow || host.Shadow
	return t
}

// Extension is the time that a transfer of so many bytes earns: bytes divided by
// MinThroughput, rounded down; zero without one. It saturates at 73 years.
func (t Timeout) Extension(bytes int64) time.Duration {
	if t.MinThroughput <= 0 || bytes <= 0 {
		return 0
	}
	rate := uint64(t.MinThroughput)
	hi, lo := bits.Mul64(uint64(bytes), uint64(time.Second))
	if hi >= rate { // the quotient would not fit
		return longest
	}
	ns, _ := bits.Div64(hi, lo, rate)
	return time.Duration(min(ns, uint64(longest)))
}
