package transport

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"time"
)

// Install makes rt what http.DefaultTransport, and with it http.Get,
// http.DefaultClient and most third-party clients, use. It returns a function
// that undoes it. Call it first thing in main: neither it nor restore may run
// while requests are made through the default transport.
//
// Undo what came later first: while http.DefaultTransport is something else, such as
// what another Install has put there or a wrapper around this one, restore does
// nothing, and may be called again.
//
// http.DefaultTransport stays an *http.Transport, for the libraries that assert
// that it is one; the stack is registered with it for http and https. What goes
// around the stack: variables that hold the old default, a Clone of the new one
// (whose own fields carry the connect, TLS and read limits of the default
// policy), and wss upgrades, for which net/http skips registered protocols.
func Install(rt *Transport) (restore func()) {
	if rt == nil {
		panic("watertight: Install of a nil *Transport: make one with New")
	}
	previous := http.DefaultTransport
	carrier := rt.carrier()
	carrier.RegisterProtocol("http", rt)
	carrier.RegisterProtocol("https", registered{rt})
	http.DefaultTransport = carrier
	return func() {
		if http.DefaultTransport == http.RoundTripper(carrier) {
			http.DefaultTransport = previous
		}
	}
}

// registered is what the default transport knows of the stack for https. It has
// the shape by which net/http recognises that HTTP/2 is already seen to (see its
// issue 22891): it then passes CloseIdleConnections on to the stack, and does not
// log that it could not register its own.
type registered struct{ *Transport }

// carrier is an *http.Transport with the limits of the default policy, as far as
// its fields can hold them.
func (t *Transport) carrier() *http.Transport {
	h := &host{t: t, policy: &t.policies.fallback}
	c := h.newTransport()
	c.MaxIdleConns = int(t.idle.max)
	limits := t.policies.fallback.Timeout
	if limits.Shadow {
		return c
	}
	c.ResponseHeaderTimeout = limits.Read
	c.TLSHandshakeTimeout = cmp.Or(limits.TLSHandshake, c.TLSHandshakeTimeout)
	if limits.Connect > 0 {
		c.DialContext = within(limits.Connect, c.DialContext)
		if c.DialTLSContext != nil {
			c.DialTLSContext = within(limits.Connect+c.TLSHandshakeTimeout, c.DialTLSContext)
		}
	}
	return c
}

// within bounds a dial.
func within(limit time.Duration, dial dialFunc) dialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		return dial(ctx, network, addr)
	}
}
