package transport

import "time"

// phase is what an attempt is waiting for.
type phase uint8

const (
	phaseConnect phase = iota // a connection: DNS, TCP, a proxy's CONNECT
	phaseTLS                  // the TLS handshake
	phaseWrite                // the peer to take the request
	phaseHeader               // the response headers
	phaseBody                 // the next piece of the response body
	phaseIdle                 // the caller, between two reads of the response body
	phaseDone
)

// String is the phase as errors and events name it.
func (p phase) String() string {
	switch p {
	case phaseConnect:
		return "connect"
	case phaseTLS:
		return "tls"
	case phaseWrite:
		return "write"
	case phaseHeader:
		return "response_header"
	case phaseBody:
		return "body"
	case phaseIdle:
		return "idle"
	}
	return "done"
}

// clock tells the time that an attempt has spent waiting for its peer from that
// which was the caller's own: inside its request body, and between two reads of
// the response body.
type clock struct {
	phase     phase
	uploading bool          // inside the caller's request body
	start     time.Duration // of the attempt
	since     time.Duration // start of the present wait
	free      time.Duration // the caller's pauses before since
	bytes     int64         // that the peer took or gave
}

func (c *clock) begin(now time.Duration) {
	*c = clock{start: now, since: now}
}

// paused reports whether the time is the caller's.
func (c *clock) paused() bool {
	return c.uploading || c.phase == phaseIdle || c.phase == phaseDone
}

// shift moves to another phase, and begins a new wait.
func (c *clock) shift(now time.Duration, p phase, uploading bool) {
	if c.paused() {
		c.free += now - c.since
	}
	c.since = now
	c.phase, c.uploading = p, uploading
}

// pauses is how long the caller has been waited for in all.
func (c *clock) pauses(now time.Duration) time.Duration {
	if c.paused() {
		return c.free + now - c.since
	}
	return c.free
}

// age is how long the peer has been waited for in all.
func (c *clock) age(now time.Duration) time.Duration { return now - c.start - c.pauses(now) }

// waited is how long the present wait has lasted; false in a pause.
func (c *clock) waited(now time.Duration) (time.Duration, bool) {
	if c.paused() {
		return 0, false
	}
	return now - c.since, true
}
