package status

import (
	"time"

	"github.com/watertight-go/watertight/transport"
)

// Keeps reports whether a look at the state is kept.
func (h *Handler) Keeps() bool {
	h.looks.mu.Lock()
	defer h.looks.mu.Unlock()
	return h.looks.hosts != nil || h.looks.views != nil
}

// Describe is all that a document says of a host.
func Describe(s *transport.HostSnapshot, at time.Time) Host {
	h := describe(s, at)
	h.detail(s, at)
	return h
}
