package faults_test

import (
	"time"

	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
)

// The rules. They follow from what the stack promises, not from what it does.

// noticed: an idle connection that ends, or on which the peer speaks unasked, is
// closed then and there, and no call gets it.
func (c cell) noticed() bool {
	return c.point == idling && (c.fault == fin || c.fault == rst || c.fault == garbage)
}

// repeatedBelow: net/http itself sends a GET again when the used connection that
// it was given breaks before the first byte of an answer, which garbage is under
// HTTP/1 but not under TLS; HTTP/2 has GOAWAY for that. Nothing else is sent again
// there, unless no byte of it was written.
func (c cell) repeatedBelow() bool {
	if c.point != reusing || c.proto == h2 || c.request != get {
		return false
	}
	return c.fault == fin || c.fault == rst || c.fault == garbage && c.proto == encrypted
}

// silent: the peer is not heard of until a limit ends that.
func (c cell) silent() bool { return c.fault == tooLate || c.fault == blackHole }

// harmless: the first attempt succeeds.
func (c cell) harmless() bool { return c.fault == late || c.noticed() || c.repeatedBelow() }

// unsent: before there is a connection that may carry the request, surely nothing
// of it has left.
func (c cell) unsent() bool {
	return c.point == connecting || c.point == handshaking || c.point == tunnelling
}

// answered: once a response was handed over, the call is over, whatever becomes of
// its body.
func (c cell) answered() bool { return c.point == receiving }

// replayable: there is a GetBody, or nothing was read yet, or all that was read is
// within ReplayBody.
func (c cell) replayable() bool {
	return c.request != putStreamed || c.unsent() || c.bodySize() <= replayBody
}

// idempotent: the method may be sent twice.
func (c cell) idempotent() bool { return c.request != post }

// obstacle is why a failed first attempt is not repeated; empty if it is.
func (c cell) obstacle() string {
	switch {
	case !c.idempotent() && !c.unsent():
		return "not_idempotent"
	case !c.replayable():
		return "body_not_replayable"
	}
	return ""
}

// repeated: the stack makes a second attempt, which succeeds unless the fault lasts.
func (c cell) repeated() bool { return !c.harmless() && !c.answered() && c.obstacle() == "" }

// distrusted: the connection of a failed attempt is closed then and there, but for
// one of HTTP/2 that is merely silent, which others may be using.
func (c cell) distrusted() bool {
	return !c.harmless() && (c.unsent() || c.proto != h2 || !c.silent())
}

// stays: a silent connection on which the call was the first is kept for others, so
// that the next call may find it dead: a host that is merely slow would get a new
// connection for every call.
func (c cell) stays() bool {
	return c.silent() && c.proto == h2 && !c.unsent() && c.point != idling
}

// want is what is to become of a cell.
type want struct {
	first      error // of the first attempt: a sentinel, errConnection, or nil
	phase      string
	atLeast    time.Duration // that the first attempt takes
	atMost     time.Duration
	attempts   int
	suppressed string // why there is no second attempt
	err        error  // of the call, as first
	verdicts   []policy.Verdict
	hits       int // that the origin has got from the call
	whole      int // of which it has got all, and acted
	more       int // of which it may have got all: the client sends on until it has seen the fault
}

func (c cell) want() want {
	w := want{attempts: 1, atMost: limit}

	// How the first attempt ends: silence by the limit of its phase, all else at
	// once.
	switch {
	case c.harmless():
		w.atLeast, w.atMost = c.latency(), 2*limit
	case c.silent():
		w.phase, w.first = c.limit()
		w.atLeast, w.atMost = limit, 2*limit
	default:
		w.first = errConnection
	}

	if c.point == writing { // each piece that is taken begins the wait anew
		w.atMost = attempt
	}

	// What becomes of the call.
	w.err = w.first
	if c.repeated() {
		w.attempts = 2
		if !c.lasting {
			w.err = nil
		} else {
			w.suppressed = "max_attempts"
		}
	} else if w.first != nil && !c.answered() {
		w.suppressed = c.obstacle()
	}

	// Each attempt is judged: by us, for the host.
	first := policy.Failure
	if c.harmless() {
		first = policy.Success
	}
	second := policy.Success
	if c.lasting {
		second = policy.Failure
	}
	w.verdicts = []policy.Verdict{first, second}[:w.attempts]

	// What the origin sees: the first attempt if it has arrived, and the second.
	if c.arrives() {
		w.hits++
		switch {
		case c.point != writing || c.harmless():
			w.whole++
		case c.fault == garbage: // which leaves the way to the origin open
			w.more++
		}
	}
	if c.repeated() && !c.lasting {
		w.hits++
		w.whole++
	}
	return w
}

// limit is the limit that ends a silence, and the phase that it names.
func (c cell) limit() (phase string, kind error) {
	switch c.point {
	case connecting, tunnelling:
		return "connect", transport.ErrConnectTimeout
	case handshaking:
		return "tls", transport.ErrTLSTimeout
	case writing:
		if c.fault == tooLate && c.proto != h2 { // all is on its way, and HTTP/1 has no window that keeps it back
			return "response_header", transport.ErrReadTimeout
		}
		return "write", transport.ErrReadTimeout
	case receiving:
		return "body", transport.ErrReadTimeout
	}
	return "response_header", transport.ErrReadTimeout
}

// latency is how much a delay adds at least.
func (c cell) latency() time.Duration {
	if c.fault == late {
		return short
	}
	return 0
}

// arrives: the origin gets the headers of the first attempt.
func (c cell) arrives() bool {
	switch c.point {
	case connecting, handshaking, tunnelling:
		return c.fault == late
	case idling:
		return c.fault != blackHole
	case reusing:
		return c.repeatedBelow()
	}
	return true
}
