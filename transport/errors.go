package transport

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// What callers branch on, with [errors.Is]. The error itself is an [*Error].
var (
	// ErrBreakerOpen: the host's breaker refused the call; nothing was sent.
	ErrBreakerOpen = errors.New("circuit breaker open")
	// ErrBulkheadFull: all permits of the host, or of the process, were taken;
	// nothing was sent.
	ErrBulkheadFull = errors.New("bulkhead full")
	// ErrConnectTimeout: no connection within Timeout.Connect.
	ErrConnectTimeout = errors.New("connect timeout")
	// ErrTLSTimeout: no TLS session within Timeout.TLSHandshake.
	ErrTLSTimeout = errors.New("TLS handshake timeout")
	// ErrReadTimeout: the peer neither took nor gave anything for Timeout.Read.
	ErrReadTimeout = errors.New("read timeout")
	// ErrAttemptTimeout: one attempt took longer than Timeout.Attempt.
	ErrAttemptTimeout = errors.New("attempt timeout")
	// ErrTotalTimeout: the call as a whole took longer than Timeout.Total.
	ErrTotalTimeout = errors.New("total timeout")
	// ErrStreamIdle: a stream was silent for Timeout.StreamIdle.
	ErrStreamIdle = errors.New("stream idle timeout")
	// ErrClosed: the Transport was closed.
	ErrClosed = errors.New("transport closed")
)

// Kinds that nobody branches on, but that an Error may say.
var (
	errBodyIdle   = errors.New("response body forgotten")
	errUploadIdle = errors.New("request body stalled")
)

// The layers, as Error.Layer and Event.Layer name them.
const (
	LayerTimeout  = "timeout"
	LayerFallback = "fallback"
	LayerRetry    = "retry"
	LayerBreaker  = "breaker"
	LayerBulkhead = "bulkhead"
)

// Error says which layer ended a call, where and why. After several attempts it also
// wraps the error of the last one; after a single one that is returned as it came. In
// the text of an error what it quotes, which may be of a header or a query, is replaced
// by "..."; Unwrap gives the error itself.
//
// Calls that are refused may be given the same Error, those of one moment by a breaker and
// all by a bulkhead: it must not be changed.
//
// An Error survives the *url.Error of http.Client: reach it with [errors.As]. Nothing of
// the URL but its host, and no header value, is ever in it.
type Error struct {
	Kind     error         // one of the sentinels; nil when Err came from the network
	Host     string        // host:port
	Layer    string        // the layer that ended the call
	Attempts int           // attempts that were sent, this one included
	Phase    string        // of a timeout: queue, connect, tls, write, response_header, body, attempt, total
	Limit    time.Duration // of a timeout or a queue: what was exceeded
	Knob     string        // the field of policy.Policy to turn
	State    State         // of the breaker that refused
	Opened   time.Time     // when that breaker opened
	RetryIn  time.Duration // from a refusal: when to try again, at most a millisecond too late; zero when not known
	Evidence *Evidence     // what tripped that breaker; not to be changed
	Err      error         // the cause, if there is one below
}

// Error is a sentence for a log: layer, host, reason and the knob to turn.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("watertight: ")
	switch {
	case e.Kind == ErrBreakerOpen:
		fmt.Fprintf(&b, "circuit breaker of %s is %s", e.Host, e.State)
		if e.Evidence != nil {
			fmt.Fprintf(&b, ": %s", e.Evidence)
		}
		if e.RetryIn > 0 {
			fmt.Fprintf(&b, "; next probe in %v", e.RetryIn.Round(time.Millisecond))
		}
	case e.Kind == ErrBulkheadFull && e.Limit > 0:
		fmt.Fprintf(&b, "bulkhead of %s full for %v (%s)", e.Host, e.Limit, e.Knob)
	case e.Kind == ErrBulkheadFull:
		fmt.Fprintf(&b, "bulkhead of %s full (%s; are all bodies closed?)", e.Host, e.Knob)
	case e.Kind == errBodyIdle:
		fmt.Fprintf(&b, "%s: response body was not read for %v and has been closed (%s; close bodies, or raise it)", e.Host, e.Limit, e.Knob)
	case e.Kind == errUploadIdle:
		fmt.Fprintf(&b, "%s: a Read of the request body gave nothing for %v (%s; bound whatever it waits for, or raise it)", e.Host, e.Limit, e.Knob)
	case e.Kind != nil && e.Limit > 0:
		fmt.Fprintf(&b, "%s: %v in phase %s after %v (%s; a slower endpoint needs a policy or a transport.Call of its own)", e.Host, e.Kind, e.Phase, e.Limit, e.Knob)
	case e.Kind != nil:
		fmt.Fprintf(&b, "%s: %v", e.Host, e.Kind)
	default:
		b.WriteString(e.Host)
	}
	if e.Attempts > 1 {
		fmt.Fprintf(&b, ", after %d attempts", e.Attempts)
	}
	if e.Err != nil {
		fmt.Fprintf(&b, ": %v", e.Err)
	}
	return b.String()
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is matches the sentinel in Kind; a timeout also matches
// context.DeadlineExceeded, and never context.Canceled.
func (e *Error) Is(target error) bool {
	return e.Kind != nil && target == e.Kind || target == context.DeadlineExceeded && e.limit()
}

// Timeout reports whether a limit on time was exceeded, as net.Error has it.
func (e *Error) Timeout() bool {
	if e.limit() {
		return true
	}
	var t interface{ Timeout() bool }
	return errors.As(e.Err, &t) && t.Timeout()
}

// Temporary completes net.Error; it is true for timeouts and refusals.
func (e *Error) Temporary() bool { return e.Timeout() || e.refusal() }

func (e *Error) limit() bool {
	switch e.Kind {
	case ErrConnectTimeout, ErrTLSTimeout, ErrReadTimeout, ErrAttemptTimeout, ErrTotalTimeout, ErrStreamIdle:
		return true
	}
	return false
}

// refusal reports whether nothing was sent because a layer of ours said no.
func (e *Error) refusal() bool {
	return e.Kind == ErrBreakerOpen || e.Kind == ErrBulkheadFull
}

// ErrorType is a low-cardinality name of the error for metrics and spans.
func (e *Error) ErrorType() string {
	switch e.Kind {
	case ErrBreakerOpen:
		if e.State == HalfOpen {
			return "circuit_half_open"
		}
		return "circuit_open"
	case ErrBulkheadFull:
		if e.Limit > 0 {
			return "bulkhead_wait_timeout"
		}
		return "bulkhead_full"
	case ErrConnectTimeout:
		return "timeout_connect"
	case ErrTLSTimeout:
		return "timeout_tls"
	case ErrReadTimeout:
		switch e.Phase {
		case phaseBody.String():
			return "timeout_body"
		case phaseWrite.String():
			return "timeout_write"
		}
		return "timeout_response_header"
	case ErrStreamIdle:
		return "timeout_body"
	case ErrAttemptTimeout:
		return "timeout_attempt"
	case ErrTotalTimeout:
		return "deadline_exceeded"
	case ErrClosed:
		return "transport_closed"
	case errBodyIdle:
		return "body_forgotten"
	case errUploadIdle:
		return "request_body_stalled"
	}
	return "connection_error"
}
