package exchanges_test

import (
	"crypto/tls"
	"fmt"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"strings"
	"sync"
)

// hooks keeps what the hooks of httptrace are told: all of them, with all that they
// are told but for times and addresses.
type hooks struct {
	mu    sync.Mutex // guards what follows
	lanes map[string][]string
}

// laneOf is whose a hook is: three goroutines of net/http run them, each in order, and
// what one does while another does something is open.
func laneOf(hook string) string {
	switch {
	case strings.HasPrefix(hook, "Wrote"), strings.HasPrefix(hook, "Wait"):
		return "written"
	case strings.HasPrefix(hook, "GotConn"):
		return "connected"
	case strings.HasPrefix(hook, "Got"), strings.HasPrefix(hook, "Put"):
		return "read"
	}
	return "connected"
}

func (h *hooks) tell(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lanes == nil {
		h.lanes = map[string][]string{}
	}
	told := fmt.Sprintf(format, args...)
	lane := laneOf(told)
	if lane == "connected" {
		told = anyAddr.ReplaceAllString(told, "addr")
	}
	h.lanes[lane] = append(h.lanes[lane], told)
}

func (h *hooks) told() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Concat(h.lanes["connected"], h.lanes["written"], h.lanes["read"])
}

func (h *hooks) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GetConn: func(hostPort string) { h.tell("GetConn %s", hostPort) },
		GotConn: func(i httptrace.GotConnInfo) {
			_, encrypted := i.Conn.(*tls.Conn)
			h.tell("GotConn reused %v, was idle %v, TLS %v, to %v", i.Reused, i.WasIdle, encrypted, i.Conn.RemoteAddr())
		},
		PutIdleConn:          func(err error) { h.tell("PutIdleConn %s", errorClass(err)) },
		GotFirstResponseByte: func() { h.tell("GotFirstResponseByte") },
		Got100Continue:       func() { h.tell("Got100Continue") },
		Got1xxResponse: func(code int, header textproto.MIMEHeader) error {
			h.tell("Got1xxResponse %d %v", code, header)
			return nil
		},
		DNSStart: func(i httptrace.DNSStartInfo) { h.tell("DNSStart %s", i.Host) },
		DNSDone: func(i httptrace.DNSDoneInfo) {
			h.tell("DNSDone %v %s %v", i.Addrs, errorClass(i.Err), i.Coalesced)
		},
		ConnectStart:      func(network, addr string) { h.tell("ConnectStart %s %s", network, addr) },
		ConnectDone:       func(network, addr string, err error) { h.tell("ConnectDone %s %s %s", network, addr, errorClass(err)) },
		TLSHandshakeStart: func() { h.tell("TLSHandshakeStart") },
		TLSHandshakeDone: func(s tls.ConnectionState, err error) {
			h.tell("TLSHandshakeDone %x %s %s %s", s.Version, s.NegotiatedProtocol, s.ServerName, errorClass(err))
		},
		WroteHeaderField: func(key string, value []string) { h.tell("WroteHeaderField %s: %s", key, strings.Join(value, ", ")) },
		WroteHeaders:     func() { h.tell("WroteHeaders") },
		Wait100Continue:  func() { h.tell("Wait100Continue") },
		WroteRequest:     func(i httptrace.WroteRequestInfo) { h.tell("WroteRequest %s", errorClass(i.Err)) },
	}
}
