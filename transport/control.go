package transport

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/watertight-go/watertight/policy"
)

// Host is a handle on the breakers of a host, for control by hand.
type Host struct {
	t    *Transport
	mask hostKey // what is empty is anything
	err  error
}

// Host returns a handle on a host: "api.example" is that name on every port and
// scheme, as in Config.Hosts; "api.example:8443" is one port, "https://api.example"
// one scheme and its port. What is forced holds for states that do not exist yet
// too. A name that is none gives a handle whose methods do nothing and whose Err
// says why.
func (t *Transport) Host(name string) *Host {
	h := &Host{t: t}
	scheme, authority, ok := strings.Cut(name, "://")
	if !ok {
		scheme, authority = "", name
	}
	scheme = strings.ToLower(scheme)
	pattern, err := policy.ParseHostPattern(authority)
	switch {
	case strings.ContainsAny(authority, "?#@"): // it may hold a password
		h.err = errors.New("host: has more than a host and a port; want name, name:port or scheme://name")
	case err != nil || pattern.Wildcard:
		h.err = fmt.Errorf("host %q: must be a name, name:port or scheme://name", name)
	case ok && scheme != "http" && scheme != "https":
		h.err = fmt.Errorf("host %q: has a scheme that is neither http nor https", name)
	}
	if h.err != nil {
		return h
	}
	h.mask, h.err = keyOf(&url.URL{Scheme: scheme, Host: authority})
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
	if h.err != nil {
		return
	}
	m := &h.t.hosts
	m.mu.Lock()
	m.forced.set(h.mask, to)
	m.mu.Unlock()
	for s := range m.all() {
		if h.mask.covers(s.key) {
			s.breaker.force(to, trigger)
			s.breaker.deliver()
		}
	}
}

// Snapshot tells the states of the host that exist: those that were called.
func (h *Host) Snapshot() []HostSnapshot {
	if h.err != nil {
		return nil
	}
	var hosts []*host
	for s := range h.t.hosts.all() {
		if h.mask.covers(s.key) {
			hosts = append(hosts, s)
		}
	}
	return snapshots(hosts)
}

// covers reports whether k is one of the hosts that mask stands for.
func (mask hostKey) covers(k hostKey) bool {
	return mask.name == k.name && (mask.scheme == "" || mask.scheme == k.scheme) && (mask.port == "" || mask.port == k.port)
}

// forced is what was forced by hand, the latest last.
type forced []force

type force struct {
	mask hostKey
	to   State // Closed: what was forced before, in a wider mask, does not hold here
}

func (f *forced) set(mask hostKey, to State) {
	kept := (*f)[:0]
	wider := false
	for _, old := range *f {
		if (mask.port == "" || mask.port == old.mask.port) && (mask.scheme == "" || mask.scheme == old.mask.scheme) && mask.name == old.mask.name {
			continue // narrower, or the same
		}
		wider = wider || old.mask.name == mask.name
		kept = append(kept, old)
	}
	clear((*f)[len(kept):])
	if to != Closed || wider {
		kept = append(kept, force{mask, to})
	}
	*f = kept
}

// of is the state that k is forced into; Closed for none.
func (f forced) of(k hostKey) State {
	for i := len(f) - 1; i >= 0; i-- {
		if f[i].mask.covers(k) {
			return f[i].to
		}
	}
	return Closed
}
