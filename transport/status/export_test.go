package status

import (
	"time"

	"github.com/watertight-go/watertight/transport"
)

// Describe is all that a document says of a host.
func Describe(s *transport.HostSnapshot, at time.Time) Host {
	h := describe(s, at)
	h.detail(s, at)
	return h
}
