package transport

import (
	"crypto/tls"
	"net/http"
	"net/http/httptrace"
	"reflect"
	"sync"
	"sync/atomic"
)

// follower is the hooks that follow an attempt through net/http, made once for many
// attempts, with what net/http waits for in the context of one. It serves the next
// attempt only if nobody can use any of that for the last one any more: see private, and
// followed.
type follower struct {
	of    atomic.Pointer[attempt]
	trace httptrace.ClientTrace

	done chan struct{} // of the last attempt's context, never closed; nil: none
	then func()        // what is to be called when the attempt is stopped; guarded by its mu
	over bool          // nothing but then is waited for to go; guarded by its mu
	stop func() bool   // unregisters then

	// The hooks that not every attempt needs, made with the first that does.
	putIdleConn  func(error)
	wroteHeaders func()
	handshakes   func()
	shookHands   func(tls.ConnectionState, error)
}

func newFollower() *follower {
	f := &follower{}
	f.trace.GetConn = func(string) { f.tell((*attempt).getConn) }
	f.trace.GotConn = func(info httptrace.GotConnInfo) { f.tell(func(a *attempt) { a.gotConn(info) }) }
	f.trace.WroteRequest = func(info httptrace.WroteRequestInfo) { f.tell(func(a *attempt) { a.wroteRequest(info) }) }
	f.trace.GotFirstResponseByte = func() { f.tell((*attempt).gotFirstByte) }
	return f
}

// tell tells the attempt something, unless there is none, which does not happen with any
// net/http that is known.
func (f *follower) tell(it func(*attempt)) {
	if a := f.of.Load(); a != nil {
		it(a)
	}
}

// hooks sets those that not every attempt needs.
func (f *follower) hooks(idle, tells, encrypts bool) {
	t := &f.trace
	t.PutIdleConn, t.WroteHeaders, t.TLSHandshakeStart, t.TLSHandshakeDone = nil, nil, nil, nil
	if idle {
		if f.putIdleConn == nil {
			f.putIdleConn = func(err error) { f.tell(func(a *attempt) { a.putIdleConn(err) }) }
		}
		t.PutIdleConn = f.putIdleConn
	}
	if tells {
		if f.wroteHeaders == nil {
			f.wroteHeaders = func() { f.tell((*attempt).wroteHeaders) }
		}
		t.WroteHeaders = f.wroteHeaders
	}
	if encrypts {
		if f.handshakes == nil {
			f.handshakes = func() { f.tell((*attempt).handshakes) }
			f.shookHands = func(_ tls.ConnectionState, err error) { f.tell(func(a *attempt) { a.shookHands(err) }) }
		}
		t.TLSHandshakeStart, t.TLSHandshakeDone = f.handshakes, f.shookHands
	}
}

// followers are those that no attempt uses.
type followers struct{ free sync.Pool }

// follow has an attempt followed. A dial goes on when its request has found another
// connection, so that what it reports after that is not about this attempt any more.
func (s *followers) follow(a *attempt, req *http.Request) *follower {
	f, ok := s.free.Get().(*follower)
	if !ok {
		f = newFollower()
	}
	f.hooks(
		!a.pool.multiplexed.Load(),                                      // HTTP/2 does not tell of idle connections
		req.Body != nil && req.Body != http.NoBody,                      // else it is all header
		a.call.h.key.scheme == "https" || a.pool.transport.Proxy != nil, // which may be one that speaks TLS
	)
	f.of.Store(a)
	return f
}

// unregister is the stop of a context's AfterFunc.
func (f *follower) unregister() bool {
	a := f.of.Load()
	if a == nil { // it was called before
		return false
	}
	a.mu.Lock()
	was, over := f.then != nil, f.over
	f.then, f.over = nil, false
	a.mu.Unlock()
	if over {
		a.call.h.t.followers.release(f)
	}
	return was
}

// leave takes the follower from an attempt that was followed, and returns it unless it is
// still to be unregistered, after which it releases itself. The attempt's mu must be held.
func (f *follower) leave(a *attempt) *follower {
	a.follower.Store(nil)
	if a.done != nil {
		f.done, a.done = a.done, nil
	}
	if f.over = f.then != nil; f.over {
		return nil
	}
	return f
}

// release takes back a follower that is not in use.
func (s *followers) release(f *follower) {
	f.of.Store(nil)
	s.free.Put(f)
}

// private reports whether nobody but net/http sees the requests to a transport, or what
// they carry, unless there is a dial.
func private(t *http.Transport, around []Middleware) bool {
	known := t.Proxy == nil || reflect.ValueOf(t.Proxy).Pointer() == reflect.ValueOf(http.ProxyFromEnvironment).Pointer()
	return known && len(around) == 0
}

// passage is how an attempt goes through net/http.
type passage uint8

const (
	unknown   passage = iota
	atOnce            // on a connection that was idle, without a dial
	cameBack          // and that connection is idle again, after all other hooks
	notAtOnce         // in another way
)

// followed reports whether an attempt that has ended was HTTP/1.1 that needed nothing
// but an idle connection and has given it back: net/http is then through with its hooks
// and its context, which nobody else has seen. mu must be held.
func (a *attempt) followed() bool {
	return a.passage == cameBack && a.pool.private && a.follower.Load() != nil
}
