package transport

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/watertight-go/watertight/policy"
)

// Observer is told what happens, after it has happened and was acted upon: mostly
// on the goroutine of the call it happened to, but what a timer or the garbage
// collector finds on theirs, and transitions of a host one after another on
// whichever goroutine is at it. It should not block: some call waits for it. Its
// methods may call any public method of the Transport; a panic in one is logged
// once and goes no further. It grows by kinds and fields, not by methods.
type Observer interface {
	// Start is told that a call, or one of its attempts, begins; an attempt does
	// once nothing stands in its way, so that one that is refused never does. What
	// follows runs with the context it returns. Each Start has its end: CallEnd or
	// AttemptEnd.
	Start(ctx context.Context, s Start) context.Context
	// Observe is told of an event.
	Observe(ctx context.Context, e Event)
}

// Attacher is an Observer that wants to look at the Transport it observes, say for
// gauges: New hands the Transport to it, and Close calls what it returned, unless
// that is nil.
type Attacher interface {
	Observer
	Attach(t *Transport) (detach func())
}

// Start describes a call or an attempt that begins.
type Start struct {
	Scheme  string
	Host    string        // host:port
	State   State         // of the breaker
	Attempt int           // 0 for the call itself, then 1 and on
	Request *http.Request // to be read only
	Header  http.Header   // of this attempt alone: what is set here is sent; nil for the call
}

// An EventKind says what happened, and which fields of the Event are set.
type EventKind uint8

// The kinds of events.
const (
	// EventCallEnd: RoundTrip's answer has ended, body included. Outcome, Attempt
	// (their number), Duration, Status, Err.
	EventCallEnd EventKind = iota + 1
	// EventAttemptEnd: an attempt has ended, body included. Attempt, Verdict, Slow,
	// Outcome, Duration, Status, Proto, Err.
	EventAttemptEnd
	// EventTransition: a breaker changed its state. Transition.
	EventTransition
	// EventRefusal: a layer refused an attempt. Layer, Reason, Duration (of a wait
	// for a permit), Err.
	EventRefusal
	// EventPermit: an attempt got its permit after a wait. Duration; Err if its
	// caller has ended the wait instead.
	EventPermit
	// EventTimeout: a limit fired. Phase, Limit.
	EventTimeout
	// EventRetry: a retry is about to wait. Attempt (the one that failed), Delay,
	// Reason.
	EventRetry
	// EventRetrySuppressed: a failure that could be retried is not. Attempt, Reason.
	EventRetrySuppressed
	// EventFallback: a fallback was served. Fallback, Reason, Staleness, and what
	// it masks: Err, or else Status.
	EventFallback
	// EventLeak: a response body that its caller forgot was closed. Reason.
	EventLeak
	// EventBlind: most of a window ended by callers' deadlines below SlowCall, so that
	// the breaker cannot judge. Reason.
	EventBlind
	// EventOverflow: MaxHosts are in use; further hosts share one state without a
	// breaker.
	EventOverflow
	// EventLogBlocked: Config.Logger has not returned from a record in time (Reason
	// blocked, Limit): until it does, further ones are lost. Or it has panicked
	// (Reason panicked), of which only the first time is told.
	EventLogBlocked
	// EventReuse: an answer came from the store with nothing wrong (policy.Cache.Fresh,
	// only-if-cached). Reason: hit, collapsed (it has waited for another call's answer)
	// or validated (the origin has confirmed it).
	EventReuse
)

// String is the kind in lower case.
func (k EventKind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "unknown"
}

var kindNames = [...]string{"none", "call_end", "attempt_end", "transition", "refusal", "permit", "timeout", "retry",
	"retry_suppressed", "fallback", "leak", "blind", "overflow", "log_blocked", "reuse"}

// Event is something that happened. Kind, Scheme, Host, Layer and Attempt are set
// wherever they mean something; the other fields where its Kind says so.
type Event struct {
	Kind       EventKind
	Scheme     string
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
	Proto      string // such as HTTP/2.0
	Slow       bool
	Verdict    policy.Verdict
	Outcome    string // success, fallback, rejected, error (a 5xx too), cancelled; of an attempt success, error or cancelled
	Fallback   string // stale, degraded, fail_fast
	Err        error
	Transition *Transition // not to be changed
}

// survived logs, once, the panic of a function that the caller configured, if
// there was one.
func (t *Transport) survived(what string, panicked any) bool {
	if panicked == nil {
		return false
	}
	if _, told := t.panics.LoadOrStore(what, true); !told {
		t.log(context.Background(), slog.LevelError, "panic in what was configured; further ones are not logged",
			slog.String("in", what), slog.String("panic", panicText(panicked)), slog.String("at", panicPlace()))
	}
	return true
}

// panicText is what may be told of a panic: its text, or its type where a URL is in
// that.
func panicText(v any) string {
	if text := fmt.Sprint(v); !strings.Contains(text, "://") {
		return text
	}
	return fmt.Sprintf("a %T that holds a URL", v)
}

// panicPlace is where the panic came from that is being recovered.
func panicPlace() string {
	var pcs [32]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	panicking := false
	for {
		f, more := frames.Next()
		switch {
		case f.Function == "runtime.gopanic":
			panicking = true
		case panicking && !strings.HasPrefix(f.Function, "runtime."):
			return f.File + ":" + strconv.Itoa(f.Line)
		}
		if !more {
			return ""
		}
	}
}

// survive calls a function of the caller's on a goroutine of ours, where its panic would
// end the program.
func (t *Transport) survive(what string, call func()) {
	defer func() { t.survived(what, recover()) }()
	call()
}

// attach hands the Transport to its observer, and survives it.
func (t *Transport) attach(a Attacher) {
	defer func() { t.survived("Attacher.Attach", recover()) }()
	detach := a.Attach(t)
	if detach == nil {
		return
	}
	t.detach = func() {
		defer func() { t.survived("what Attacher.Attach returned", recover()) }()
		detach()
	}
}

// observe tells the observer, if there is one, and survives it.
func (t *Transport) observe(ctx context.Context, e Event) {
	if t.observer == nil {
		return
	}
	defer func() { t.survived("Observer.Observe", recover()) }()
	t.observer.Observe(ctx, e)
}

// started is observe for Start. It closes the body of req, which nobody else gets, where
// the observer ends its goroutine.
func (t *Transport) started(ctx context.Context, s Start, req *http.Request) (out context.Context) {
	returned := false
	defer func() {
		panicked := t.survived("Observer.Start", recover())
		if panicked || out == nil {
			out = ctx
		}
		if !returned && !panicked {
			closeBody(req)
		}
	}()
	out = t.observer.Start(ctx, s)
	returned = true
	return out
}
