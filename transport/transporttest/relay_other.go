//go:build !linux

package transporttest

import (
	"errors"
	"net"
)

// setBacklog does not know how to.
func setBacklog(*net.TCPListener, int) error { return errors.ErrUnsupported }
