package transport

import "net/http"

// Install makes rt what http.DefaultTransport, and with it http.Get,
// http.DefaultClient and most third-party clients, use. It returns a function
// that undoes it. Call it first thing in main: neither it nor restore may run
// while requests are made through the default transport.
//
// http.DefaultTransport stays an *http.Transport, for the libraries that assert
// that it is one; the stack is registered with it for http and https. What goes
// around the stack: variables that hold the old default, a Clone of the new one
// (whose own fields carry the connect, TLS and read limits of the default
// policy), and wss upgrades, for which net/http skips registered protocols.
func Install(rt *Transport) (restore func()) {
	previous := http.DefaultTransport
	carrier := rt.carrier()
	carrier.RegisterProtocol("http", rt)
	carrier.RegisterProtocol("https", rt)
	http.DefaultTransport = carrier
	return func() { http.DefaultTransport = previous }
}

// carrier is an *http.Transport with the limits of the default policy, as far as
// its fields can hold them.
func (t *Transport) carrier() *http.Transport {
	h := &host{t: t, policy: &t.policies.fallback}
	c := h.newPool(false).transport
	limits := t.policies.fallback.Timeout
	c.ResponseHeaderTimeout = limits.Read
	if limits.TLSHandshake > 0 {
		c.TLSHandshakeTimeout = limits.TLSHandshake
	}
	return c
}
