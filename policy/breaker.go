package policy

import (
	"cmp"
	"fmt"
	"net/http"
	"time"
)

// Breaker decides when a host is no longer asked. It is on when at least one of
// its four triggers is: FailureRate, SlowRate with SlowCall, ConsecutiveFailures,
// FailuresInWindow. Each is evaluated on every outcome, on its own. SlowCall
// without SlowRate trips nothing: it only judges the probes of a breaker that is
// on.
type Breaker struct {
	// Window is how far back evidence counts. Default, and zero: 60 s.
	Window time.Duration

	// Buckets divide the window; evidence expires a bucket at a time. Zero, the
	// default: one for each second of the window, or as many as make two of
	// SlowCall if that is more; at least one, at most 600.
	Buckets int

	// WindowCalls counts the last so many calls instead of those of the last
	// Window. At most 1,000,000. Zero, the default: those of the last Window.
	WindowCalls int

	// MinCalls is the number of calls that FailureRate and SlowRate need as
	// evidence. At most WindowCalls, and at most Bulkhead.MaxConcurrent, or a hang
	// could never be proved. Default: 20. Zero: 20, or the lower of those two.
	MinCalls int

	// FailureRate trips when this share of the calls that ended failed, over the
	// window or over its last max(SlowCall, one bucket). From 0 to 1; 4xx are in
	// neither part of the fraction. Default: 0.5. Zero: no such trigger.
	FailureRate float64

	// SlowCall is the age at which a call counts as slow, while it still hangs:
	// from its permit, without the caller's pauses, and extended by what
	// Timeout.MinThroughput allows for its size. With SlowRate it must be below
	// Timeout.Attempt, or where that is off below Timeout.Total. Without SlowRate
	// only probes are judged by it. Default: 5 s (Service: 2 s). Zero: no call is
	// slow.
	SlowCall time.Duration

	// SlowRate trips when this share of the calls that got headers or passed
	// SlowCall was slow, over the window or over its last max(SlowCall, one
	// bucket). From 0 to 1. Default: 0.5. Zero: no such trigger.
	SlowRate float64

	// ConsecutiveFailures trips after so many failures without a success between
	// them, however far apart. Zero, the default: no such trigger.
	ConsecutiveFailures int

	// FailuresInWindow trips at so many failures within the window, whatever the
	// number of successes. Zero, the default: no such trigger.
	FailuresInWindow int

	// OpenFor is how long calls are refused before probes are let through,
	// jittered by 10 % either way, so that a fleet does not probe in lockstep.
	// A refusal is transport.ErrBreakerOpen. Default, and zero: 10 s.
	OpenFor time.Duration

	// OpenForMax is how far OpenFor doubles with each consecutive re-open, and how
	// far a Retry-After on the response that tripped the breaker lengthens it; the
	// jitter comes on top. At least OpenFor. Default: 60 s. Zero: neither.
	OpenForMax time.Duration

	// HalfOpenProbes is how many calls are let through after OpenFor; the
	// breaker closes when as many have succeeded, and re-opens when one has
	// failed or was slow. At most 1,000,000. Default, and zero: 3.
	HalfOpenProbes int

	// Classify may overrule the verdict on an attempt: it is given the response,
	// whose body it must not touch, or nil, and the error that ended the attempt
	// or its body, or nil; it answers Unclassified to leave the verdict alone. It
	// is asked at the headers, and again at the end of the body unless it, or the
	// rule, said Failure at once. It must not block. It is not asked about calls
	// that their caller ended or that were never sent. Nil, the default: the rule
	// of Judge alone.
	Classify func(resp *http.Response, err error) Verdict `json:"-"`

	// Shadow runs the breaker with all its states, counts and events, and lets
	// every call through. Default: false.
	Shadow bool
}

// Defaults of Breaker's zero fields.
const (
	defaultWindow   = 60 * time.Second
	defaultMinCalls = 20
	defaultOpenFor  = 10 * time.Second
	defaultProbes   = 3
	maxBuckets      = 600
	maxWindowCalls  = 1_000_000 // a slot is kept for each
	maxProbes       = 1_000_000
)

// Enabled reports whether any trigger is on.
func (b Breaker) Enabled() bool {
	return b.rates() || b.ConsecutiveFailures > 0 || b.FailuresInWindow > 0
}

// rates reports whether a trigger that needs MinCalls is on.
func (b Breaker) rates() bool { return b.FailureRate > 0 || b.slow() }

// slow reports whether the trigger that needs SlowCall is on.
func (b Breaker) slow() bool { return b.SlowRate > 0 && b.SlowCall > 0 }

// WithDefaults returns b with its zero fields replaced by what they stand for;
// maxConcurrent is the host's Bulkhead.MaxConcurrent.
func (b Breaker) WithDefaults(maxConcurrent int) Breaker {
	if b.Window == 0 {
		b.Window = defaultWindow
	}
	if b.Buckets == 0 {
		b.Buckets = b.buckets()
	}
	if b.MinCalls == 0 {
		b.MinCalls = defaultMinCalls
		if maxConcurrent > 0 {
			b.MinCalls = min(b.MinCalls, maxConcurrent)
		}
		if b.WindowCalls > 0 {
			b.MinCalls = min(b.MinCalls, b.WindowCalls)
		}
	}
	if b.OpenFor == 0 {
		b.OpenFor = defaultOpenFor
	}
	if b.HalfOpenProbes == 0 {
		b.HalfOpenProbes = defaultProbes
	}
	return b
}

// buckets is what zero Buckets stand for. With two of them to SlowCall, calls from
// before a hang and those since can be told apart when SlowCall is over.
func (b Breaker) buckets() int {
	n := max(b.Window/time.Second, 1)
	if half := b.SlowCall / 2; half > 0 {
		n = max(n, b.Window/half, 1)
		if b.Window/n > half { // rounded down
			n++
		}
	}
	return int(min(n, maxBuckets, max(b.Window, 1)))
}

// OpenDelay is how long the breaker stays open: OpenFor, doubled for each
// consecutive re-open up to OpenForMax, and jittered by 10 % either way. A
// Retry-After of the response that tripped it, up to OpenForMax, is never
// undercut: the jitter is then all above it. random is uniform in [0, 1).
func (b Breaker) OpenDelay(reopens int, retryAfter time.Duration, random float64) time.Duration {
	d := cmp.Or(b.OpenFor, defaultOpenFor)
	for range min(reopens, 63) { // more doublings than a Duration has bits change nothing
		d += max(0, min(d, b.OpenForMax-d))
	}
	d = max(0, min(d, longest))
	after := max(0, min(retryAfter, b.OpenForMax, longest))
	least, most := max(d-d/10, after), max(d+d/10, after+after/10)
	return least + time.Duration(random*float64(most-least))
}

func (b Breaker) validate(v *validator) {
	v.defaulted("Breaker.Window", b.Window, defaultWindow)
	v.duration("Breaker.SlowCall", b.SlowCall)
	v.defaulted("Breaker.OpenFor", b.OpenFor, defaultOpenFor)
	v.duration("Breaker.OpenForMax", b.OpenForMax)
	v.number("Breaker.WindowCalls", b.WindowCalls, maxWindowCalls, "off")
	v.count("Breaker.ConsecutiveFailures", b.ConsecutiveFailures)
	v.count("Breaker.FailuresInWindow", b.FailuresInWindow)
	v.share("Breaker.FailureRate", b.FailureRate)
	v.share("Breaker.SlowRate", b.SlowRate)
	if b.MinCalls < 0 {
		v.add("Breaker.MinCalls", b.MinCalls, fmt.Sprintf("0 (%d) or a positive number", defaultMinCalls))
	}
	v.number("Breaker.HalfOpenProbes", b.HalfOpenProbes, maxProbes, fmt.Sprint(defaultProbes))
	v.number("Breaker.Buckets", b.Buckets, maxBuckets, "one a second")
	if b.Buckets <= maxBuckets && b.Window > 0 && time.Duration(b.Buckets) > b.Window {
		v.add("Breaker.Buckets", b.Buckets, fmt.Sprintf("at most one for each nanosecond of Breaker.Window (%v)", b.Window))
	}
	if b.rates() && b.WindowCalls > 0 && b.MinCalls > b.WindowCalls {
		v.add("Breaker.MinCalls", b.MinCalls, fmt.Sprintf("at most Breaker.WindowCalls (%d), which is all that the window can hold", b.WindowCalls))
	}
	if b.WindowCalls > 0 && b.FailuresInWindow > b.WindowCalls {
		v.add("Breaker.FailuresInWindow", b.FailuresInWindow, fmt.Sprintf("at most Breaker.WindowCalls (%d), which is all that the window can hold", b.WindowCalls))
	}
	if openFor := cmp.Or(b.OpenFor, defaultOpenFor); b.OpenForMax > 0 && b.OpenForMax < openFor {
		v.add("Breaker.OpenForMax", b.OpenForMax, fmt.Sprintf("0 (no doubling) or at least Breaker.OpenFor (%v)", openFor))
	}
}

// A Verdict is what an attempt says about its host.
type Verdict uint8

const (
	// Unclassified leaves the verdict to the rule; only Classify answers it.
	Unclassified Verdict = iota
	// Success counts for the host.
	Success
	// Failure counts against the host.
	Failure
	// Neutral counts neither for nor against the host, in either part of a rate.
	Neutral
)

// MarshalText is String, so that a verdict reads well in JSON.
func (v Verdict) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// String is the verdict in lower case.
func (v Verdict) String() string {
	switch v {
	case Success:
		return "success"
	case Failure:
		return "failure"
	case Neutral:
		return "neutral"
	}
	return "unclassified"
}

// Judge is the verdict on an attempt that the host, not its caller, ended: that of the
// function Judge, which Classify may overrule. resp is nil when there were no headers.
func (b Breaker) Judge(resp *http.Response, err error) Verdict {
	if b.Classify != nil {
		if v := b.Classify(resp, err); v == Success || v == Failure || v == Neutral {
			return v
		}
	}
	return Judge(resp, err)
}

// Judge is the rule by which an attempt is judged that the host, not its caller, ended:
// a failure for any error and any 5xx, neutral for 4xx (which say something about the
// request), a success otherwise. resp is nil when there were no headers.
func Judge(resp *http.Response, err error) Verdict {
	switch {
	case err != nil || resp == nil || resp.StatusCode >= 500:
		return Failure
	case resp.StatusCode >= 400:
		return Neutral
	}
	return Success
}
