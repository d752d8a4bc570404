package transport

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"reflect"
	"slices"

	"github.com/watertight-go/watertight/cache"
	"github.com/watertight-go/watertight/internal/hostname"
	"github.com/watertight-go/watertight/policy"
)

// Config configures a Transport. The zero value gives every host policy.Default.
type Config struct {
	// Default is the policy of hosts that Hosts does not name. Zero:
	// policy.Default().
	Default policy.Policy

	// Hosts maps exact names ("api.example"), names with a port
	// ("api.example:8443") or suffixes ("*.example") to policies; the most
	// specific wins. An entry replaces Default, it is not merged with it: start
	// from policy.Default() or policy.Service().
	Hosts map[string]policy.Policy

	// Base does the exchange. An *http.Transport is cloned for each host, so that
	// a dead host's pool can be retired alone; its settings are kept, but for its
	// bounds on idle connections (see MaxIdleConns and Bulkhead.MaxConcurrent) and
	// its TLSHandshakeTimeout, where the policy has one. A Middleware around an
	// *http.Transport, such as transporttest.Faults, is put around each of those
	// clones. Which phase a limit names, what counts as a failure and whether a POST
	// may be sent again then depend on what the Middleware tells, see there. Any other
	// RoundTripper is used as it is, with the limits that a context can enforce. Nil:
	// go-cleanhttp's pooled transport, which honours the proxy environment and speaks
	// HTTP/2.
	Base http.RoundTripper

	// Store keeps responses for the fallback. Nil: 64 MiB of memory, 1 MiB an
	// entry.
	Store cache.Store

	// Observer is told what happens. Nil: nobody is.
	Observer Observer

	// Logger gets the breakers' transitions, what else an owner must know, and at
	// debug refusals and retries (whether it takes those it is asked once a second,
	// without the context of a call). A handler that blocks holds up a call for
	// 100 ms a record, and then none until it is free. One that itself calls
	// through the Transport must pass on the context it is given, or at debug its
	// calls are told to it too. Nil: slog.Default() at the
	// time; silence it with slog.New(slog.DiscardHandler).
	Logger *slog.Logger

	// MaxConcurrent bounds the calls of all hosts together. Zero: no bound.
	MaxConcurrent int

	// MaxHosts bounds how many hosts have a state of their own. Beyond it an idle
	// host makes room for a new one. A host that was forced by hand or has calls in
	// flight never does. One whose breaker is open or half-open does once nobody
	// has called it for a Breaker.Window, but at least 1 s, and its wait is over
	// as long. Zero: 10,000.
	MaxHosts int

	// MaxIdleConns bounds the idle connections of all hosts together. Zero: 256.
	MaxIdleConns int
}

const (
	defaultMaxHosts     = 10_000
	defaultMaxIdleConns = 256
)

// compile validates a configuration and makes its policies ready to be looked up.
func compile(c Config) (policies, []error) {
	var ps policies
	var errs []error
	number := func(path string, n, def int) {
		if n < 0 {
			errs = append(errs, &policy.FieldError{Path: path, Value: n, Want: fmt.Sprintf("0 (%s) or a positive number", zeroMeans(def))})
		}
	}
	number("MaxConcurrent", c.MaxConcurrent, 0)
	number("MaxHosts", c.MaxHosts, defaultMaxHosts)
	number("MaxIdleConns", c.MaxIdleConns, defaultMaxIdleConns)

	check := func(path string, p *policy.Policy) {
		if err := p.Validate(); err != nil {
			errs = append(errs, prefixed(path, err)...)
		}
		if c.MaxConcurrent > 0 && p.Bulkhead.MaxConcurrent > c.MaxConcurrent {
			errs = append(errs, &policy.FieldError{Path: path + "Bulkhead.MaxConcurrent", Value: p.Bulkhead.MaxConcurrent,
				Want: fmt.Sprintf("at most Config.MaxConcurrent (%d)", c.MaxConcurrent)})
		}
		if b := p.Breaker; c.MaxConcurrent > 0 && p.Bulkhead.MaxConcurrent == 0 && b.MinCalls > c.MaxConcurrent && (b.FailureRate > 0 || b.SlowRate > 0 && b.SlowCall > 0) {
			errs = append(errs, &policy.FieldError{Path: path + "Breaker.MinCalls", Value: b.MinCalls,
				Want: fmt.Sprintf("at most Config.MaxConcurrent (%d), or a host that hangs could never be proved slow", c.MaxConcurrent)})
		}
		p.Timeout, p.Breaker.SlowCall = bounded(p.Timeout), min(p.Breaker.SlowCall, forever)
	}
	ps.fallback = c.Default
	if isZero(c.Default) {
		ps.fallback = policy.Default()
		if b := &ps.fallback.Bulkhead; c.MaxConcurrent > 0 && b.MaxConcurrent > c.MaxConcurrent {
			b.MaxConcurrent = c.MaxConcurrent
			ps.fallback.Breaker.MinCalls = min(ps.fallback.Breaker.MinCalls, c.MaxConcurrent)
		}
	}
	check("Default.", &ps.fallback)
	seen := map[policy.HostPattern]string{}
	for _, name := range slices.Sorted(maps.Keys(c.Hosts)) {
		p := c.Hosts[name]
		pattern, err := policy.ParseHostPattern(name)
		if err == nil {
			pattern.Name, err = hostname.Normal(pattern.Name)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("Hosts: %w", err))
			name = "?" // it may hold a password
		}
		check(fmt.Sprintf("Hosts[%q].", name), &p)
		if err != nil {
			continue
		}
		if other, ok := seen[pattern]; ok {
			errs = append(errs, fmt.Errorf("Hosts[%q]: the same host as Hosts[%q]: must be one entry", name, other))
		}
		seen[pattern] = name
		ps.patterns = append(ps.patterns, hostPolicy{pattern, &p})
	}
	slices.SortStableFunc(ps.patterns, func(a, b hostPolicy) int {
		switch {
		case a.pattern.MoreSpecific(b.pattern):
			return -1
		case b.pattern.MoreSpecific(a.pattern):
			return 1
		}
		return 0
	})
	return ps, errs
}

func zeroMeans(def int) string {
	if def == 0 {
		return "no bound"
	}
	return fmt.Sprint(def)
}

// prefixed puts the path of a policy before the paths of its problems.
func prefixed(path string, err error) []error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{fmt.Errorf("%s%w", path, err)}
	}
	var errs []error
	for _, e := range joined.Unwrap() {
		var f *policy.FieldError
		if errors.As(e, &f) {
			e = &policy.FieldError{Path: path + f.Path, Value: f.Value, Want: f.Want}
		}
		errs = append(errs, e)
	}
	return errs
}

// policies finds the policy of a host.
type policies struct {
	patterns []hostPolicy // the most specific first
	fallback policy.Policy
}

type hostPolicy struct {
	pattern policy.HostPattern
	policy  *policy.Policy
}

func (ps *policies) of(k hostKey) *policy.Policy {
	for _, p := range ps.patterns {
		if p.pattern.Match(k.name, k.port) {
			return p.policy
		}
	}
	return &ps.fallback
}

// isZero reports whether nothing at all is set.
func isZero(p policy.Policy) bool { return reflect.ValueOf(p).IsZero() }
