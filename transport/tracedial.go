package transport

import (
	"context"
	"crypto/tls"
	"net/http/httptrace"
	"slices"
)

// begun is what a Start hook of the caller's is told of, and no Done hook yet. It
// would stay open for good where the dial is let go of, as would a span of it: its end
// is told then, even to a hook pair whose Start has not returned.
type begun struct {
	step          dialStep
	network, addr string // of stepConnect, several of which may be under way
}

type dialStep uint8

const (
	stepDNS dialStep = iota
	stepConnect
	stepTLS
)

// dial is the part of after that comes in pairs.
func (h *hooks) dial(both, ours, t *httptrace.ClientTrace) {
	if start := t.DNSStart; start != nil {
		both.DNSStart = func(info httptrace.DNSStartInfo) {
			if h.enter(untilAnswered) {
				defer h.leave(untilAnswered)
				if h.begin(begun{step: stepDNS}) {
					start(info)
				}
			}
		}
	}
	if done := t.DNSDone; done != nil {
		both.DNSDone = func(info httptrace.DNSDoneInfo) {
			if h.enter(untilAnswered) {
				defer h.leave(untilAnswered)
				h.done(begun{step: stepDNS})
				done(info)
			}
		}
	}
	if start := t.ConnectStart; start != nil {
		both.ConnectStart = func(network, addr string) {
			if h.enter(untilAnswered) {
				defer h.leave(untilAnswered)
				if h.begin(begun{stepConnect, network, addr}) {
					start(network, addr)
				}
			}
		}
	}
	if done := t.ConnectDone; done != nil {
		both.ConnectDone = func(network, addr string, err error) {
			if h.enter(untilAnswered) {
				defer h.leave(untilAnswered)
				h.done(begun{stepConnect, network, addr})
				done(network, addr, err)
			}
		}
	}
	start, done := t.TLSHandshakeStart, t.TLSHandshakeDone
	if start != nil && done != nil {
		start = func() {
			if h.begin(begun{step: stepTLS}) {
				t.TLSHandshakeStart()
			}
		}
		done = func(state tls.ConnectionState, err error) {
			h.done(begun{step: stepTLS})
			t.TLSHandshakeDone(state, err)
		}
	}
	both.TLSHandshakeStart = guard0(h, untilAnswered, ours.TLSHandshakeStart, start)
	both.TLSHandshakeDone = guard2(h, untilAnswered, ours.TLSHandshakeDone, done)
}

// begin notes what a Start hook is about to be told of; false if the dial was let go of
// meanwhile, whose hook is not to run then.
func (h *hooks) begin(b begun) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.past > untilAnswered {
		return false
	}
	h.begun = append(h.begun, b)
	return true
}

func (h *hooks) done(b begun) {
	h.mu.Lock()
	if i := slices.Index(h.begun, b); i >= 0 {
		h.begun = slices.Delete(h.begun, i, i+1)
	}
	h.mu.Unlock()
}

// abandon ends what was begun and is not done, in the dial's place.
func (h *hooks) abandon() {
	h.mu.Lock()
	all := h.begun
	h.begun = nil
	h.mu.Unlock()
	for _, b := range all {
		switch t := h.caller; {
		case b.step == stepDNS && t.DNSDone != nil:
			t.DNSDone(httptrace.DNSDoneInfo{Err: context.Canceled})
		case b.step == stepConnect && t.ConnectDone != nil:
			t.ConnectDone(b.network, b.addr, context.Canceled)
		case b.step == stepTLS && t.TLSHandshakeDone != nil:
			t.TLSHandshakeDone(tls.ConnectionState{}, context.Canceled)
		}
	}
}
