package transport

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"reflect"
	"strings"
	"syscall"
)

// timeoutOf reports whether an error is a timeout.
func timeoutOf(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

// hopeless reports whether an error will be the same next time: it is about
// certificates, the two sides have no version or protocol in common, or the peer of
// an https URL speaks plain HTTP.
func hopeless(err error) bool {
	var record tls.RecordHeaderError
	plain := errors.As(err, &record) && string(record.RecordHeader[:]) == "HTTP/"
	return plain || certificateError(err) || marked[uncertified](err) || rejected(err)
}

// rejected reports whether the peer did not accept our certificate, that there was
// none, or what we offer to speak. The alert that says so is of a type that
// crypto/tls does not export.
func rejected(err error) bool {
	var op *net.OpError
	if !errors.As(err, &op) || op.Op != "remote error" {
		return false
	}
	alert := reflect.ValueOf(op.Err)
	if alert.Kind() != reflect.Uint8 {
		return false
	}
	switch alert.Uint() { // RFC 8446 section 6
	case 42, 43, 44, 45, 46, 48, 49, 116: // bad_certificate to certificate_unknown, unknown_ca, access_denied, certificate_required
		return true
	case 70, 120: // protocol_version, no_application_protocol
		return true
	}
	return false
}

// certificateError reports whether a peer could not prove who it is.
func certificateError(err error) bool {
	if e, ok := err.(*Error); err == nil || ok && e.Kind != nil {
		return false
	}
	var verification *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	var roots x509.SystemRootsError
	return errors.As(err, &verification) || errors.As(err, &authority) || errors.As(err, &name) ||
		errors.As(err, &invalid) || errors.As(err, &roots) || marked[untrusted](err)
}

// reasonOf names in one token why a fallback was asked for; it is the detail of
// Cache-Status.
func reasonOf(resp *http.Response, err error) string {
	if err == nil {
		return "stale-if-error"
	}
	if e, ok := err.(*Error); ok {
		switch {
		case e.Kind == ErrBreakerOpen:
			return "breaker-open"
		case e.Kind == ErrBulkheadFull:
			return "bulkhead-full"
		case e.limit():
			return "timeout"
		}
	}
	return networkReason(err)
}

// networkReason names an error of the network.
func networkReason(err error) string {
	var op *net.OpError
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns):
		return "dns-error"
	case timeoutOf(err):
		return "timeout"
	case errors.Is(err, syscall.ECONNREFUSED), errors.As(err, &op) && (op.Op == "dial" || op.Op == "proxyconnect"):
		return "dial-error"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "reset"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "eof"
	case errors.As(err, &op):
		return "network-error"
	}
	return "error"
}

// errorName names an error for a breaker's evidence.
func errorName(err error) string {
	var e *Error
	if errors.As(err, &e) && e.Kind != nil {
		return e.Kind.Error()
	}
	if certificateError(err) {
		return "certificate"
	}
	return networkReason(err)
}

// failureName names a failure for people: a status code or a kind of error.
func failureName(resp *http.Response, err error) string {
	if err != nil {
		return errorName(err)
	}
	if resp != nil {
		return fmt.Sprintf("status %d", resp.StatusCode)
	}
	return ""
}

// quoting stands for an error whose text quotes, as net/http's do what they found wrong
// in a header or a URL.
type quoting struct {
	error
	text string // without that
}

func (q quoting) Error() string { return q.text }
func (q quoting) Unwrap() error { return q.error }

// quotingNet is one of the network: who asks for net.Error may not unwrap.
type quotingNet struct{ quoting }

func (q quotingNet) Timeout() bool   { return q.error.(net.Error).Timeout() }
func (q quotingNet) Temporary() bool { return q.error.(net.Error).Temporary() }

func unquoted(err error, text string) error {
	q := quoting{err, text}
	if _, ok := err.(net.Error); ok {
		return quotingNet{q}
	}
	return q
}

// discreet is err without what a header or a query may hold in its text: without
// whatever it quotes. Left as they are: those of the caller's bodies, hooks and context
// (not of his dialer or proxy function), those about certificates, and what net/http
// says before it asks for a connection, which is about names.
func (a *attempt) discreet(err error) error {
	var header textproto.ProtocolError
	if errors.As(err, &header) {
		return unquoted(err, "malformed header from the peer")
	}
	if a.ownWords(err) {
		return err
	}
	text := err.Error()
	first, last := strings.IndexByte(text, '"'), strings.LastIndexByte(text, '"')
	if first < 0 || strings.Contains(text[:first], "server sent GOAWAY") { // which quotes why
		return err
	}
	rest := "" // where a quotation has no end
	if last > first {
		rest = text[last+1:]
	}
	return unquoted(err, text[:first]+`"..."`+rest)
}

// ownWords reports whether the text of an error is neither from the peer nor about what
// was to be sent to it.
func (a *attempt) ownWords(err error) bool {
	a.mu.Lock()
	names, fault := a.reached && !a.asked, a.peekRare().fault
	a.mu.Unlock()
	var e *Error
	return names || errors.As(err, &e) || certificateError(err) ||
		fault != nil && errors.Is(err, fault) || errors.Is(err, context.Cause(a.call.ctx))
}
