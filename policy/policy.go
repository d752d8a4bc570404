package policy

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// longest is where computed durations saturate: 73 years, of which two can be
// added up, and a tenth more, without an overflow.
const longest time.Duration = math.MaxInt64 / 4

// Policy is everything that is configured for one dependency. The zero value
// passes every call through with no limit at all.
type Policy struct {
	Timeout  Timeout
	Bulkhead Bulkhead
	Breaker  Breaker
	Retry    Retry
	Fallback Fallback
	Cache    Cache

	// Streaming treats every response as a stream: once its headers are in,
	// only Timeout.StreamIdle bounds it, and its verdict is settled there.
	// Default: false; streams are recognised by their content type.
	Streaming bool
}

// Default returns the policy for hosts that nobody configured. It is meant to be
// safe under any program: wide limits, no queueing, no stale answer that the
// origin did not allow.
func Default() Policy {
	return Policy{
		Timeout: Timeout{
			Connect:       3 * time.Second,
			TLSHandshake:  3 * time.Second,
			Read:          10 * time.Second,
			Attempt:       10 * time.Second,
			Total:         30 * time.Second,
			MinThroughput: 8 << 10,
		},
		Bulkhead: Bulkhead{MaxConcurrent: 256, BodyIdle: 5 * time.Minute},
		Breaker: Breaker{
			Window:         60 * time.Second,
			MinCalls:       20,
			FailureRate:    0.5,
			SlowCall:       5 * time.Second,
			SlowRate:       0.5,
			OpenFor:        10 * time.Second,
			OpenForMax:     60 * time.Second,
			HalfOpenProbes: 3,
		},
		Retry: Retry{
			MaxAttempts:   3,
			Base:          200 * time.Millisecond,
			Max:           2 * time.Second,
			Statuses:      []int{408, 429, 500, 502, 503, 504},
			MaxRetryAfter: 10 * time.Second,
			ReplayBody:    64 << 10,
			Budget:        Budget{Ratio: 0.2, MinPerSecond: 0.2},
		},
		Fallback: Fallback{StaleLimit: 24 * time.Hour},
	}
}

// Service returns the policy for one service that calls another while a user
// waits: limits below the caller's own deadline, and a bulkhead that keeps one
// slow dependency from holding more than a tenth of a pool of 200 workers.
func Service() Policy {
	p := Default()
	p.Timeout.Connect = time.Second
	p.Timeout.TLSHandshake = time.Second
	p.Timeout.Read = 3 * time.Second
	p.Timeout.Attempt = 3 * time.Second
	p.Timeout.Total = 10 * time.Second
	p.Timeout.MinThroughput = 32 << 10
	p.Bulkhead = Bulkhead{MaxConcurrent: 20, BodyIdle: time.Minute}
	p.Breaker.SlowCall = 2 * time.Second
	p.Retry.MaxRetryAfter = 2 * time.Second
	p.Retry.Budget.MinPerSecond = 1
	return p
}

// Validate reports every problem of the policy at once, joined as by
// [errors.Join]; each is a [*FieldError] that names the field, its value and
// what would be right.
func (p Policy) Validate() error {
	var v validator
	p.Timeout.validate(&v)
	p.Bulkhead.validate(&v)
	p.Breaker.validate(&v)
	p.Retry.validate(&v)
	p.Fallback.validate(&v)
	p.Cache.validate(&v)
	p.validateTogether(&v)
	return errors.Join(v.errs...)
}

// validateTogether finds settings that are right alone and wrong together.
func (p Policy) validateTogether(v *validator) {
	b := p.Breaker
	limit, name := p.Timeout.Attempt, "Timeout.Attempt"
	if limit == 0 { // the next that ends a call
		limit, name = p.Timeout.Total, "Timeout.Total"
	}
	if b.slow() && limit > 0 && b.SlowCall >= limit {
		v.add("Breaker.SlowCall", b.SlowCall, fmt.Sprintf("below %s (%v), or no call could ever be counted as slow; two thirds of it is a good start", name, limit))
	}
	if p.Fallback.After > 0 && !p.Fallback.Stores() && !p.Cache.Fresh {
		v.add("Fallback.After", p.Fallback.After, "0 without Fallback.MaxStale, Fallback.StaleLimit or Cache.Fresh: there is nothing stored to serve")
	}
	if p.Cache.LabelAll && (p.Cache.Off || !p.Fallback.Stores() && !p.Cache.Fresh) {
		v.add("Cache.LabelAll", p.Cache.LabelAll, "false where nothing is stored: without Fallback.MaxStale, Fallback.StaleLimit or Cache.Fresh, or with Cache.Off")
	}
	if total := p.Timeout.Total; p.Fallback.After > 0 && total > 0 && p.Fallback.After >= total {
		v.add("Fallback.After", p.Fallback.After, fmt.Sprintf("below Timeout.Total (%v), by which the call is over", total))
	}
	if b.rates() && p.Bulkhead.MaxConcurrent > 0 && b.MinCalls > p.Bulkhead.MaxConcurrent {
		v.add("Breaker.MinCalls", b.MinCalls, fmt.Sprintf("at most Bulkhead.MaxConcurrent (%d), or a host that hangs could never be proved slow", p.Bulkhead.MaxConcurrent))
	}
}

// FieldError is one problem of a policy.
type FieldError struct {
	Path  string // of the field, such as Breaker.SlowCall
	Value any    // what it was, in the field's own type
	Want  string // what would be right
}

// Error names the field, its value and what would be right.
func (e *FieldError) Error() string {
	return fmt.Sprintf("%s: %v: must be %s", e.Path, e.Value, e.Want)
}

// validator collects problems.
type validator struct{ errs []error }

func (v *validator) add(path string, value any, want string) {
	v.errs = append(v.errs, &FieldError{Path: path, Value: value, Want: want})
}

// duration refuses negative durations; zero is off.
func (v *validator) duration(path string, d time.Duration) {
	if d < 0 {
		v.add(path, d, "0 (off) or a positive duration")
	}
}

// defaulted refuses negative durations; zero is a default.
func (v *validator) defaulted(path string, d, def time.Duration) {
	if d < 0 {
		v.add(path, d, fmt.Sprintf("0 (%v) or a positive duration", def))
	}
}

// count refuses negative counts; zero is off.
func (v *validator) count(path string, n int) {
	if n < 0 {
		v.add(path, n, "0 (off) or a positive number")
	}
}

// bytes refuses negative sizes and rates; zero is off.
func (v *validator) bytes(path string, n int64) {
	if n < 0 {
		v.add(path, n, "0 (off) or a positive number of bytes")
	}
}

// number refuses what is not from zero, which means zero, to most.
func (v *validator) number(path string, n, most int, zero string) {
	if n < 0 || n > most {
		v.add(path, n, fmt.Sprintf("0 (%s) or a number up to %d", zero, most))
	}
}

// share refuses what is not a fraction between 0 and 1.
func (v *validator) share(path string, f float64) {
	if !(f >= 0 && f <= 1) { // NaN too
		v.add(path, f, "a fraction from 0 (off) to 1; 0.5 is 50 %")
	}
}
