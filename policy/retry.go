package policy

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Retry repeats an attempt, only where repeating is safe: for GET, HEAD, OPTIONS,
// TRACE, PUT and DELETE (idempotent by RFC 9110 section 9.2.2), for requests with
// an Idempotency-Key or X-Idempotency-Key header as net/http understands them,
// and for any method when the request surely never left.
type Retry struct {
	// MaxAttempts counts the first attempt too. Default: 3. Zero or one: no
	// retries.
	MaxAttempts int

	// Base scales the wait before a retry, which is uniform in
	// [Base/2, min(Max, Base x 2^n)] before retry n+1. Default: 200 ms. Zero:
	// no wait but what Retry-After asks for.
	Base time.Duration

	// Max caps the wait that Base grows to. At least half of Base. Default: 2 s.
	// Zero: no cap.
	Max time.Duration

	// Statuses are the status codes that are retried, all from 400 to 599.
	// Default, and nil: 408, 429, 500, 502, 503, 504. An empty, non-nil slice:
	// none.
	Statuses []int

	// MaxRetryAfter is the longest Retry-After (RFC 9110 section 10.2.3) that is
	// waited for; a response that asks for more is returned at once. Default:
	// 10 s (Service: 2 s). Zero: Max takes its place; where that is zero too, no
	// Retry-After is waited for.
	MaxRetryAfter time.Duration

	// ReplayBody is how many bytes of a request body without GetBody are kept,
	// while the first attempt streams them, so that they can be sent again.
	// Default: 64 KiB. Zero: such a body is sent once.
	ReplayBody int64

	// Budget bounds the retries of all calls to a host together: to Ratio of the
	// calls that succeed, MinPerSecond, and BudgetBurst at first. A quiet host
	// stays within the last two and may retry nearly everything; a busy one
	// retries at most about Ratio of its calls. Zero: no bound.
	Budget Budget

	// Shadow reports retries that would have been made, and makes none. Default:
	// false.
	Shadow bool
}

// Budget is a token bucket: a retry takes a token, and waits for none. It starts
// with, and holds at most, BudgetBurst tokens. Over a time in which n calls
// succeed, retries are therefore at most Ratio x n, plus MinPerSecond for each
// second, plus BudgetBurst. (The idea is that of the retry throttling in gRFC A6
// and of the retry budget in the SRE book, chapter 21.)
type Budget struct {
	// Ratio is what each call that succeeds puts in: 0.2 is one retry for five of
	// them. From 0 to 1. Default: 0.2. Zero: successes put nothing in.
	Ratio float64

	// MinPerSecond is what each second puts in, so that quiet hosts may retry
	// too. Default: 0.2 (Service: 1). Zero: time puts nothing in.
	MinPerSecond float64
}

// BudgetBurst is the number of tokens that a budget starts with and can hold.
const BudgetBurst = 10

// Enabled reports whether the budget bounds anything: both fields zero is no
// budget.
func (b Budget) Enabled() bool { return b.Ratio > 0 || b.MinPerSecond > 0 }

// Refill returns the tokens after so many successes and so much time, at most
// BudgetBurst; a clock that went back takes none away.
func (b Budget) Refill(tokens float64, successes int, elapsed time.Duration) float64 {
	tokens += b.Ratio*float64(successes) + b.MinPerSecond*max(elapsed, 0).Seconds()
	return min(tokens, BudgetBurst)
}

func (r Retry) validate(v *validator) {
	v.count("Retry.MaxAttempts", r.MaxAttempts)
	v.duration("Retry.Base", r.Base)
	v.duration("Retry.Max", r.Max)
	v.duration("Retry.MaxRetryAfter", r.MaxRetryAfter)
	v.bytes("Retry.ReplayBody", r.ReplayBody)
	v.share("Retry.Budget.Ratio", r.Budget.Ratio)
	if m := r.Budget.MinPerSecond; !(m >= 0) || math.IsInf(m, 0) {
		v.add("Retry.Budget.MinPerSecond", m, "0 or a positive, finite number")
	}
	if r.Max > 0 && r.Base/2 > r.Max {
		v.add("Retry.Max", r.Max, fmt.Sprintf("0 (no cap) or at least half of Retry.Base (%v)", r.Base))
	}
	for i, s := range r.Statuses {
		if s < 400 || s > 599 {
			v.add(fmt.Sprintf("Retry.Statuses[%d]", i), s, "a status code from 400 to 599")
		}
	}
}

// Enabled reports whether anything is ever retried.
func (r Retry) Enabled() bool { return r.MaxAttempts > 1 }

// Status reports whether a response with this status code is retried.
func (r Retry) Status(code int) bool {
	if r.Statuses != nil {
		return slices.Contains(r.Statuses, code)
	}
	switch code {
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// Delay is the wait before a retry, the first of which is number 0: uniform in
// [Base/2, min(Max, Base x 2^retry)]. random is uniform in [0, 1). It never
// overflows.
func (r Retry) Delay(retry int, random float64) time.Duration {
	if r.Base <= 0 {
		return 0
	}
	most := r.Base
	for range retry {
		if r.Max > 0 && most >= r.Max || most > math.MaxInt64/8 {
			break
		}
		most *= 2
	}
	if r.Max > 0 {
		most = min(most, r.Max)
	}
	least := min(r.Base/2, most)
	return least + time.Duration(random*float64(most-least))
}

// RetryAfterDelay is the wait for a response that asked for one: at least what it
// asked for, never less than the delay of the backoff, plus a jitter of up to
// Base; false when it asks for more than MaxRetryAfter (or Max, where
// MaxRetryAfter is zero) allows. random is uniform in [0, 1).
func (r Retry) RetryAfterDelay(delay, after time.Duration, random float64) (time.Duration, bool) {
	limit := r.MaxRetryAfter
	if limit == 0 {
		limit = r.Max
	}
	if after > limit {
		return 0, false
	}
	if after <= delay {
		return delay, true
	}
	after = min(after, longest)
	return after + time.Duration(random*float64(min(max(r.Base, 0), longest))), true
}

// Idempotent reports whether a request may be sent twice: its method is
// idempotent by RFC 9110 section 9.2.2, or it carries an Idempotency-Key or
// X-Idempotency-Key header field, be it without a value, as net/http has it.
func Idempotent(req *http.Request) bool {
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	_, key := req.Header["Idempotency-Key"]
	_, xkey := req.Header["X-Idempotency-Key"]
	return key || xkey
}

// maxRetryAfter is where delta-seconds saturate.
const maxRetryAfter = math.MaxInt32 * time.Second

// RetryAfter reads the Retry-After header field (RFC 9110 section 10.2.3): a
// number of seconds, or an HTTP date in any of its three forms (section 5.6.7).
// It answers false when the field is missing, malformed, repeated with different
// values, zero or in the past, and the duration is then zero. Values saturate at
// 2^31-1 seconds.
func RetryAfter(h http.Header, now time.Time) (time.Duration, bool) {
	values := h["Retry-After"]
	if len(values) == 0 {
		return 0, false
	}
	v := strings.TrimSpace(values[0])
	for _, other := range values[1:] {
		if strings.TrimSpace(other) != v {
			return 0, false
		}
	}
	if v == "" {
		return 0, false
	}
	if strings.Trim(v, "0123456789") == "" {
		s, err := strconv.ParseInt(v, 10, 64)
		if err != nil || s > math.MaxInt32 { // all digits: too large, not malformed
			return maxRetryAfter, true
		}
		return time.Duration(s) * time.Second, s > 0
	}
	t, err := http.ParseTime(v)
	if err != nil || strings.Contains(v, "-") && !strings.HasSuffix(v, " GMT") {
		return 0, false // net/http takes any zone in the RFC 850 form
	}
	d := min(max(t.Sub(now), 0), maxRetryAfter)
	return d, d > 0
}
