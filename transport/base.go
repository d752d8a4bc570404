package transport

import (
	"context"
	"crypto/tls"
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
		return &foreign{h.t.base}
	}
	return &base{h}
}

func (l *base) RoundTrip(req *http.Request) (*http.Response, error) {
	a := attemptOf(req)
	p := l.h.pools.acquire(l.h, a.fresh)
	a.mu.Lock()
	a.pool = p
	a.mu.Unlock()
	resp, err := a.send(p.through, req, a.trace())
	if resp != nil && resp.ProtoMajor == 2 && !p.multiplexed.Load() {
		p.multiplexed.Store(true)
	}
	if err != nil && a.Err() != nil { // not that its dial was ended with it
		a.mu.Lock()
		dialling := !a.conn
		a.mu.Unlock()
		if dialling {
			err = context.Cause(a)
		}
	}
	return resp, err
}

// send hands the attempt to what is below the stack, with our hooks, if any, and the
// caller's.
func (a *attempt) send(next http.RoundTripper, req *http.Request, ours *httptrace.ClientTrace) (*http.Response, error) {
	if trace := a.traced(ours); trace != nil {
		req = req.WithContext(httptrace.WithClientTrace(a, trace)) // which also sets the key that package net looks for
	}
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

// trace follows the phases of an attempt through net/http. A dial goes on when
// its request has found another connection, so that what it reports after that
// is not about this attempt any more.
func (a *attempt) trace() *httptrace.ClientTrace {
	move := func(p phase, from ...phase) {
		now := a.call.h.t.now()
		a.mu.Lock()
		if !a.ended && slices.Contains(from, a.clock.phase) {
			a.clock.shift(now, p, a.clock.uploading)
		}
		a.mu.Unlock()
	}
	return &httptrace.ClientTrace{
		GetConn: func(string) {
			move(phaseConnect, phaseWrite, phaseHeader)
			a.mu.Lock()
			if a.asked && !a.ended { // the first connection was no good, and Connect may be the next limit again
				a.watch(a.call.h.t.now())
			}
			a.asked, a.conn, a.headed = true, false, false
			if a.mishap != nil {
				a.mishap.unsaid = nil
			}
			a.mu.Unlock()
		},
		TLSHandshakeStart: func() { move(phaseTLS, phaseConnect) },
		TLSHandshakeDone: func(_ tls.ConnectionState, err error) {
			move(phaseConnect, phaseTLS)
			a.mu.Lock()
			if err == nil && a.direct {
				a.dials++
			}
			p := a.pool
			a.mu.Unlock()
			p.shut()
		},
		GotConn: func(info httptrace.GotConnInfo) {
			a.mu.Lock()
			a.conn, a.reused = true, info.Reused
			a.dials++
			a.mu.Unlock()
			move(phaseWrite, phaseConnect, phaseTLS)
			if info.WasIdle {
				a.pool.took()
			}
		},
		WroteHeaders: func() {
			a.mu.Lock()
			a.headed = true
			a.mu.Unlock()
		},
		WroteRequest: func(info httptrace.WroteRequestInfo) {
			if info.Err != nil {
				a.mu.Lock()
				if !a.headed {
					a.mishaps().unsaid = info.Err
				}
				a.mu.Unlock()
			}
			move(phaseHeader, phaseWrite)
		},
		GotFirstResponseByte: func() {
			a.mu.Lock()
			a.heard = true
			a.mu.Unlock()
			a.pool.hear(a.call.h.t.now())
		},
		PutIdleConn: func(err error) {
			if err == nil {
				a.pool.put()
				a.pool.shut()
			}
		},
	}
}
