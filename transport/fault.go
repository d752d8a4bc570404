package transport

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"
)

// A request may itself be at fault: net/http refuses to send it, or what its caller
// gave with it fails. That says nothing about the host, and is the same next time.

// blame says that the request is at fault, by an error of its caller's code.
func (a *attempt) blame(err error) {
	a.mu.Lock()
	a.faulty, a.needRare().fault = true, err
	a.mu.Unlock()
}

// rewind is getBody of a request, for which net/http asks when it has lost a connection;
// the request is blamed for what it fails with.
func (a *attempt) rewind(getBody func() (io.ReadCloser, error), length int64) (io.ReadCloser, error) {
	body, err := bodyAgain(getBody, length)
	if err != nil {
		a.blame(err)
	}
	return body, err
}

// atFault reports whether the request itself is.
func (a *attempt) atFault() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.faulty
}

// unwritable reports whether net/http has refused the request: before it asked for a
// connection, or when it was to write the header, which it checks only then. That
// none was written is not enough, since the connection may have failed first. HTTP/1
// says by a hook what was wrong with the request; HTTP/2 calls none, but returns it
// wrapped, as it does with no error of a connection. mu must be held.
func (a *attempt) unwritable(err error) bool {
	switch {
	case !a.reached, a.headed:
		return false
	case !a.asked:
		return true
	}
	if unsaid := a.peekRare().unsaid; unsaid != nil {
		return !ofNetwork(unsaid)
	}
	inner := errors.Unwrap(err)
	return a.conn && inner != nil && err.Error() == "http2: "+inner.Error() && !ofNetwork(inner)
}

// ofProcess reports whether an error is this process's own, and says nothing about the
// host: a layer of another stack below this one refused the call, or there was no file
// descriptor, port or memory left for a connection.
func ofProcess(err error) bool {
	var e *Error
	if errors.As(err, &e) && (e.refusal() || e.Kind == ErrClosed) {
		return true
	}
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return false
	}
	switch errno {
	case syscall.EMFILE, syscall.ENFILE, syscall.EADDRNOTAVAIL, syscall.ENOBUFS, syscall.ENOMEM:
		return true
	}
	return false
}

// ofNetwork reports whether an error is one of a connection, or of its end.
func ofNetwork(err error) bool {
	var network net.Error
	var errno syscall.Errno
	return errors.As(err, &network) || errors.As(err, &errno) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrClosedPipe) ||
		errors.Is(err, context.Canceled)
}
