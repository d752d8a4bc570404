package transport

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/watertight-go/watertight/policy"
)

// Observer is told what happens, as it happens, on the goroutine of the call it
// happens to. It must not block. Its methods may call any public method of the
// Transport; a panic in one is swallowed. It grows by kinds and fields, not by
// methods.
type Observer interface {
	// Start is told that a call, or one of its attempts, begins; an attempt does
	// once nothing stands in its way, so that one that is refused never does. What
	// follows runs with the context it returns. Each Start has its end: CallEnd or
	// AttemptEnd.
	Start(ctx context.Context, s Start) context.Context
	// Observe is told of an event.
	Observe(ctx context.Context, e Event)
}

// Start describes a call or an attempt that begins.
type Start struct {
	Host    string
	Attempt int           // 0 for the call itself, then 1 and on
	Request *http.Request // to be read only
	Header  http.Header   // of this attempt alone: what is set here is sent; nil for the call
}

// An EventKind says what happened, and which fields of the Event are set.
type EventKind uint8

// The kinds of events.
const (
	// CallEnd: RoundTrip's answer has ended, body included. Outcome, Attempt
	// (their number), Duration, Status, Err.
	CallEnd EventKind = iota + 1
	// AttemptEnd: an attempt has ended, body included. Attempt, Verdict, Slow,
	// Duration, Status, Err.
	AttemptEnd
	// TransitionEvent: a breaker changed its state. Transition.
	TransitionEvent
	// Refusal: a layer refused an attempt. Layer, Reason, Err.
	Refusal
	// TimeoutEvent: a limit fired. Phase, Limit.
	TimeoutEvent
	// RetryEvent: a retry is about to wait. Attempt (the one that failed), Delay,
	// Reason.
	RetryEvent
	// RetrySuppressed: a failure that could be retried is not. Attempt, Reason.
	RetrySuppressed
	// FallbackEvent: a fallback was served. Fallback, Reason, Staleness, Err
	// (what it masks).
	FallbackEvent
	// Leak: a response body that its caller forgot was closed. Reason.
	Leak
	// Blind: most of a window ended by callers' deadlines below SlowCall, so that
	// the breaker cannot judge. Reason.
	Blind
	// Overflow: MaxHosts are in use; further hosts share one state without a
	// breaker.
	Overflow
)

// Event is something that happened. Fields that do not belong to its Kind are
// zero.
type Event struct {
	Kind       EventKind
	Host       string // host:port
	Shadow     bool   // a layer in shadow mode would have done this
	Layer      string
	Reason     string
	Attempt    int
	Phase      string
	Limit      time.Duration
	Delay      time.Duration
	Duration   time.Duration
	Staleness  time.Duration
	Status     int
	Slow       bool
	Verdict    policy.Verdict
	Outcome    string // success, fallback, rejected, error (a 5xx too), cancelled
	Fallback   string // stale, degraded, fail_fast
	Err        error
	Transition *Transition // not to be changed
}

// Transition is one change of a breaker's state.
type Transition struct {
	From, To State
	At       time.Time
	Until    time.Time // when probes are let through; zero unless To is Open
	Evidence Evidence
}

// log writes a record, and survives the handler.
func (t *Transport) log(ctx context.Context, level slog.Level, msg string, attrs ...slog.Attr) {
	defer func() { _ = recover() }()
	t.logger.LogAttrs(ctx, level, msg, attrs...)
}

// observe tells the observer, if there is one, and survives it.
func (t *Transport) observe(ctx context.Context, e Event) {
	if t.observer == nil {
		return
	}
	defer func() { _ = recover() }()
	t.observer.Observe(ctx, e)
}

// started is observe for Start.
func (t *Transport) started(ctx context.Context, s Start) (out context.Context) {
	defer func() {
		if recover() != nil || out == nil {
			out = ctx
		}
	}()
	return t.observer.Start(ctx, s)
}
