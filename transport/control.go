package transport

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// Host is a handle on the breaker of a host, for control by hand. It covers http
// and https alike unless its name had a scheme.
type Host struct {
	t    *Transport
	keys []hostKey
	err  error
}

// Host returns a handle on a host: "api.example", "api.example:8443" or
// "https://api.example". The host need not have been called yet. A name that is
// none gives a handle whose methods do nothing and whose Err says why.
func (t *Transport) Host(name string) *Host {
	h := &Host{t: t}
	schemes := []string{"http", "https"}
	authority := name
	if scheme, rest, ok := strings.Cut(name, "://"); ok {
		schemes, authority = []string{strings.ToLower(scheme)}, rest
	}
	if strings.ContainsAny(authority, "?#@") { // it may hold a password
		h.err = errors.New("host: has more than a host and a port; want name, name:port or scheme://name")
		return h
	}
	if authority == "" || strings.ContainsAny(authority, "/ ") {
		h.err = fmt.Errorf("host %q: must be a name, name:port or scheme://name", name)
		return h
	}
	if schemes[0] != "http" && schemes[0] != "https" {
		h.err = fmt.Errorf("host %q: has a scheme that is neither http nor https", name)
		return h
	}
	for _, scheme := range schemes {
		k, err := keyOf(&url.URL{Scheme: scheme, Host: authority})
		if err != nil {
			h.err = err
			return h
		}
		h.keys = append(h.keys, k)
	}
	return h
}

// Err says why the handle is on no host, or is nil.
func (h *Host) Err() error { return h.err }

// ForceOpen refuses every call to the host until Reset or ForceClosed.
func (h *Host) ForceOpen() { h.force(ForcedOpen, "forced") }

// ForceClosed lets every call to the host through until Reset or ForceOpen.
func (h *Host) ForceClosed() { h.force(ForcedClosed, "forced") }

// Reset closes the breaker and forgets its evidence.
func (h *Host) Reset() { h.force(Closed, "reset") }

func (h *Host) force(to State, trigger string) {
	for _, k := range h.keys {
		s := h.t.hostAt(k, true)
		s.breaker.force(to, trigger)
		s.release()
	}
}

// Snapshot tells the state of the host: one for each scheme that has been called
// or forced.
func (h *Host) Snapshot() []HostSnapshot {
	var all []HostSnapshot
	for _, k := range h.keys {
		if s := h.t.hosts.find(k); s != nil {
			all = append(all, s.snapshot())
		}
	}
	return all
}
