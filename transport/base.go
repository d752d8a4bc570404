package transport

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"slices"
)

// base is the innermost layer: it hands the attempt to the host's pool of
// connections, or to a RoundTripper that is not an *http.Transport.
type base struct {
	h *host
}

// foreign hands the attempt to a base that is not an *http.Transport, but may have
// one below it.
type foreign struct {
	next http.RoundTripper
}

func (l *foreign) RoundTrip(req *http.Request) (*http.Response, error) {
	return attemptOf(req).send(l.next, req, nil)
}

func newBase(h *host) http.RoundTripper {
	if h.t.pooled == nil {
		l := &h.layers.foreign
		l.next = h.t.base
		return l
	}
	l := &h.layers.base
	l.h = h
	return l
}

func (l *base) RoundTrip(req *http.Request) (*http.Response, error) {
	a := attemptOf(req)
	p := l.h.pools.acquire(l.h, a.fresh)
	a.mu.Lock()
	a.pool = p
	a.mu.Unlock()
	resp, err := a.send(p.through, req, l.h.t.followers.follow(a, req))
	if resp != nil && resp.ProtoMajor == 2 && !p.multiplexed.Load() {
		p.multiplexed.Store(true)
	}
	if err != nil {
		err = a.undialled(err)
	}
	return resp, err
}

// undialled is the error of a base that has failed; where the attempt was ended before it
// had a connection, the cause of that in place of the dial's error.
//
//go:noinline
func (a *attempt) undialled(err error) error {
	if a.Err() == nil {
		return err
	}
	a.mu.Lock()
	dialling := !a.conn
	a.mu.Unlock()
	if dialling {
		return context.Cause(a)
	}
	return err
}

// send hands the attempt to what is below the stack, with our hooks, if any, and the
// caller's.
func (a *attempt) send(next http.RoundTripper, req *http.Request, ours *follower) (*http.Response, error) {
	req = a.hooked(req, ours)
	if a.hooks == nil {
		return next.RoundTrip(req)
	}
	return a.sendHooked(next, req)
}

// hooked is req, to be followed by our hooks, if any; where the caller has hooks, a copy
// that is followed by both, and a.hooks is set.
//
//go:noinline
func (a *attempt) hooked(req *http.Request, ours *follower) *http.Request {
	trace := a.traced(ours)
	if trace == nil {
		if ours != nil {
			a.follower.Store(ours)
		}
		return req
	}
	return req.WithContext(httptrace.WithClientTrace(a, trace)) // which also sets the key that package net looks for
}

// sendHooked is send for a caller who has hooks.
func (a *attempt) sendHooked(next http.RoundTripper, req *http.Request) (*http.Response, error) {
	over := true // as after a panic
	defer func() { a.untrace(over) }()
	resp, err := next.RoundTrip(req)
	if instead := a.insteadOf(); instead != nil {
		if resp != nil {
			_ = resp.Body.Close()
		}
		instead()
	}
	if err == nil {
		a.written()
	}
	over = err != nil
	return resp, err
}

// move moves from one of some phases to another. mu must be held.
func (a *attempt) move(p phase, from ...phase) {
	if !a.ended && slices.Contains(from, a.clock.phase) {
		a.clock.shift(a.call.h.t.now(), p, a.clock.uploading)
	}
}

func (a *attempt) getConn() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.move(phaseConnect, phaseWrite, phaseHeader)
	if a.asked {
		a.passage = passOther
	}
	if a.asked && !a.ended { // the first connection was no good, and Connect may be the next limit again
		a.watch(a.call.h.t.now())
	}
	a.asked, a.conn, a.headed = true, false, false
	if a.rare != nil {
		a.rare.unsaid = nil
	}
}

func (a *attempt) handshakes() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.passage = passOther
	a.move(phaseTLS, phaseConnect)
}

func (a *attempt) shookHands(err error) {
	a.mu.Lock()
	a.move(phaseConnect, phaseTLS)
	if err == nil && a.direct {
		a.dials++
	}
	p := a.pool
	a.mu.Unlock()
	p.shut()
}

func (a *attempt) gotConn(info httptrace.GotConnInfo) {
	a.mu.Lock()
	a.conn, a.reused = true, info.Reused
	a.dials++
	if a.passage == passUnknown && info.WasIdle {
		a.passage = passAtOnce
	} else {
		a.passage = passOther
	}
	h, p := a.call.h, a.pool
	ready := info.WasIdle && a.clock.phase == phaseConnect && h.key.scheme == "http" && len(h.t.around) == 0 && !p.multiplexed.Load()
	switch { // else it may have been waited for, or a Middleware
	case ready && !a.ended:
		a.clock.shift(a.clock.since, phaseWrite, a.clock.uploading)
	case !ready:
		a.move(phaseWrite, phaseConnect, phaseTLS)
	}
	a.mu.Unlock()
	if info.WasIdle {
		p.took()
	}
}

func (a *attempt) wroteHeaders() {
	a.mu.Lock()
	a.headed = true
	a.mu.Unlock()
}

func (a *attempt) wroteRequest(info httptrace.WroteRequestInfo) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case info.Err == nil:
		a.headed = true
	case !a.headed:
		a.needRare().unsaid = info.Err
	}
	a.move(phaseHeader, phaseWrite)
}

func (a *attempt) gotFirstByte() {
	a.mu.Lock()
	a.heard = true
	at, p := a.clock.since, a.pool
	if a.clock.phase != phaseHeader { // it answers while it is still being sent the request
		at = a.call.h.t.now()
	}
	a.mu.Unlock()
	p.hear(at) // it is later than that, but not by more than the attempt itself has waited
}

func (a *attempt) putIdleConn(err error) {
	if err == nil {
		a.mu.Lock()
		if a.passage == passAtOnce {
			a.passage = passBack
		}
		a.mu.Unlock()
		a.pool.put()
		a.pool.shut()
	}
}
