package transporttest

import (
	"fmt"
	"slices"
	"time"
)

// Flow is one direction of a Relay: what its sender sends, and its receiver gets.
// Delay adds to Throttle or Drip, of which one replaces the other; BlackHole stops
// whatever they let through. Cut, Reset and Garbage are final for connections
// that are open, and last for new ones until Pass.
type Flow struct {
	relay *Relay

	// Under relay.board.
	delay   time.Duration
	portion int           // bytes that are delivered at a time; zero: all
	every   time.Duration // how often a portion is
	hole    bool
	final   final
	garbage []byte
	taken   int64
	given   int64
}

// final is how a Flow ends, if it does.
type final uint8

const (
	finalNone final = iota
	finalCut
	finalReset
	finalGarbage
)

// Pass ends the faults of this direction: what was held back arrives.
func (f *Flow) Pass() { f.relay.set((*Flow).pass, f) }

// Delay has each byte, and the end, arrive d later than it would: latency. The
// order stays, and so does the throughput, up to 4 MiB that are on their way at a
// time. Zero or less: no delay.
func (f *Flow) Delay(d time.Duration) {
	f.relay.set(func(f *Flow) { f.delay = max(d, 0) }, f)
}

// Throttle lets up to so many bytes a second through, on each connection; one if
// that is zero or less (BlackHole lets none through).
func (f *Flow) Throttle(bytesPerSecond int) {
	portion := min(max(bytesPerSecond/50, 1), pieceSize)
	every := time.Duration(portion) * time.Second / time.Duration(max(bytesPerSecond, 1))
	f.Drip(portion, every)
}

// Drip lets n bytes through, and then n more each time that every has passed, on
// each connection. n is at least 1; with an every of zero or less nothing is held
// back.
func (f *Flow) Drip(n int, every time.Duration) {
	f.relay.set(func(f *Flow) { f.portion, f.every = max(n, 1), max(every, 0) }, f)
}

// BlackHole lets nothing through, not even the end, as if all packets were lost:
// the sender can send until buffers are full, some 200 KiB, and the receiver hears
// nothing. After Pass what was sent arrives, as TCP would send it again.
func (f *Flow) BlackHole() { f.relay.set((*Flow).blackHole, f) }

// Cut tells the receiver that the sender has ended (FIN), and drops whatever the
// sender still sends: a half-close, since the other direction goes on.
func (f *Flow) Cut() { f.relay.set((*Flow).cut, f) }

// Reset resets the receiver's connection (RST), and with it both directions; the
// sender is told that the receiver has ended.
func (f *Flow) Reset() { f.relay.set((*Flow).reset, f) }

// Garbage gives the receiver p, which nobody has sent, and then nothing more:
// whatever the sender still sends is dropped.
func (f *Flow) Garbage(p []byte) {
	p = slices.Clone(p)
	f.relay.set(func(f *Flow) { f.final, f.garbage = finalGarbage, p }, f)
}

// What set does to a Flow, under board.
func (f *Flow) blackHole() { f.hole = true }
func (f *Flow) cut()       { f.final = finalCut }
func (f *Flow) reset()     { f.final = finalReset }
func (f *Flow) pass() {
	f.delay, f.portion, f.every, f.hole, f.final, f.garbage = 0, 0, 0, false, finalNone, nil
}

// Bytes returns how many bytes were taken from senders, and how many of those were
// given to receivers.
func (f *Flow) Bytes() (taken, given int64) {
	f.relay.board.mu.Lock()
	defer f.relay.board.mu.Unlock()
	return f.taken, f.given
}

// WaitTaken waits until n bytes in all were taken from senders, be they delivered
// or not. It fails the test if that takes more than 10 seconds, and must be called
// from the test's goroutine.
func (f *Flow) WaitTaken(n int64) {
	f.relay.t.Helper()
	f.relay.board.await(f.relay.t, func() bool { return f.taken >= n },
		func() string { return fmt.Sprintf("%d bytes, have %d", n, f.taken) })
}

// set changes flows, and has all open connections feel it.
func (r *Relay) set(change func(*Flow), flows ...*Flow) {
	var lanes []*lane
	r.board.update(func() {
		for _, f := range flows {
			change(f)
			for k := range r.links {
				l := k.laneOf(f)
				l.mark()
				lanes = append(lanes, l)
			}
		}
	})
	for _, l := range lanes {
		l.strike()
	}
}
