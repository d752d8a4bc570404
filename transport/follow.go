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
// attempt only if nobody can use any of that for the last one any more: see unfollow.
type follower struct {
	of    atomic.Pointer[attempt]
	trace httptrace.ClientTrace

	// Guarded by the mu of the attempt.
	done  chan struct{} // of the last attempt's context, never closed; nil: none
	asked bool          // something was registered with the attempt's context
	then  func()        // that is to be called when it is stopped; nil: nothing, or not any more
	over  bool          // the attempt has left, and then is to be unregistered yet
	stop  func() bool   // unregisters then

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

// tell tells the attempt something, if it is still followed: a hook that comes later than
// any of the known net/http finds nobody.
func (f *follower) tell(it func(*attempt)) {
	if a := f.of.Load(); a != nil {
		it(a)
	}
}

// followers are those that no attempt uses, and none of a bubble.
type followers struct{ free sync.Pool }

// follow has an attempt followed.
func (s *followers) follow(a *attempt, req *http.Request) *follower {
	var f *follower
	if a.call.h.t.keeps(a.clock.start) {
		f, _ = s.free.Get().(*follower)
	}
	if f == nil {
		f = newFollower()
	}
	t := &f.trace
	t.PutIdleConn, t.WroteHeaders, t.TLSHandshakeStart, t.TLSHandshakeDone = nil, nil, nil, nil
	if !a.pool.multiplexed.Load() { // HTTP/2 does not tell of idle connections
		if f.putIdleConn == nil {
			f.putIdleConn = func(err error) { f.tell(func(a *attempt) { a.putIdleConn(err) }) }
		}
		t.PutIdleConn = f.putIdleConn
	}
	if req.Body != nil && req.Body != http.NoBody { // else it is all header
		if f.wroteHeaders == nil {
			f.wroteHeaders = func() { f.tell((*attempt).wroteHeaders) }
		}
		t.WroteHeaders = f.wroteHeaders
	}
	if a.call.h.key.scheme == "https" || a.pool.transport.Proxy != nil { // which may be one that speaks TLS
		if f.handshakes == nil {
			f.handshakes = func() { f.tell((*attempt).handshakes) }
			f.shookHands = func(_ tls.ConnectionState, err error) { f.tell(func(a *attempt) { a.shookHands(err) }) }
		}
		t.TLSHandshakeStart, t.TLSHandshakeDone = f.handshakes, f.shookHands
	}
	f.asked = false
	f.of.Store(a)
	return f
}

// register has a function called when the attempt is stopped; false if that is not the
// first one. For who comes later, what stops the first must not stop another. The
// attempt's mu must be held.
func (f *follower) register(then func()) (stop func() bool, ok bool) {
	if f.asked {
		return nil, false
	}
	f.asked, f.then = true, then
	if f.stop == nil {
		f.stop = f.unregister
	}
	return f.stop, true
}

// unregister takes out what was registered; false if it was called, or taken out before.
func (f *follower) unregister() bool {
	a := f.of.Load()
	if a == nil {
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

// unfollow takes the follower from an attempt that has read its body to the end, if
// nobody else has seen it: if the attempt was HTTP/1.1 and needed nothing but an idle
// connection, which net/http has put back after it has called all other hooks. It returns
// the follower to be released, unless something is to be unregistered first, after which
// it releases itself. mu must be held.
func (a *attempt) unfollow() *follower {
	f := a.follower.Load()
	if f == nil || a.passage != passBack || !a.pool.private {
		return nil
	}
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

// private reports whether nobody but net/http sees the requests of a pool, and what they
// carry, unless there is a dial.
func (h *host) private(t *http.Transport) bool {
	switch {
	case len(h.t.around) > 0, len(t.TLSNextProto) > 0:
		return false
	case h.policy.Breaker.Classify != nil: // which is shown net/http's response, and so its request
		return false
	}
	return t.Proxy == nil || reflect.ValueOf(t.Proxy).Pointer() == reflect.ValueOf(http.ProxyFromEnvironment).Pointer()
}

// passage is how an attempt goes through net/http.
type passage uint8

const (
	passUnknown passage = iota
	passAtOnce          // on a connection that was idle, without a dial
	passBack            // and that connection is idle again
	passOther           // in another way; a dial reports on when its request has found another connection
)
