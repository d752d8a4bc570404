package otel

import (
	"slices"

	"go.opentelemetry.io/otel/attribute"
)

// A family is an observable counter: a cell for each combination of its labels, and
// the same again for what layers in shadow mode would have decided.
type family struct {
	name, unit, about string
	labels            [2]label // the second may be empty
	shadow            bool
	sparse            bool // begins with its first one: few hosts have it
	first             int  // of its cells
}

type label struct {
	key    string
	values []string
}

// The families, as indices of families.
const (
	familyCalls = iota
	familyNotPermitted
	familyRejections
	familyLeaked
	familyAttempts
	familyRetries
	familySuppressed
	familyTimeouts
	familyFallbacks
	familyReuses
)

var families, cells = layout([]family{
	familyCalls: {name: "resilience.circuit_breaker.calls", unit: "{call}", about: "Attempts by the verdict of the circuit breaker.",
		labels: [2]label{{"resilience.call.result", []string{"success", "failure", "ignored"}}, {"resilience.call.slow", []string{"false", "true"}}}},
	familyNotPermitted: {name: "resilience.circuit_breaker.not_permitted", unit: "{call}", about: "Attempts that a circuit breaker refused.", shadow: true,
		labels: [2]label{{"resilience.circuit_breaker.state", []string{"open", "half_open", "forced_open"}}}},
	familyRejections: {name: "resilience.bulkhead.rejections", unit: "{request}", about: "Attempts that got no permit.", shadow: true,
		labels: [2]label{{"resilience.bulkhead.reason", []string{"full", "wait_timeout", "deadline"}}}},
	familyLeaked: {name: "resilience.bulkhead.leaked", unit: "{request}", about: "Response bodies that their callers forgot.", shadow: true,
		labels: [2]label{{"resilience.bulkhead.reason", []string{"unreachable", "idle"}}}},
	familyAttempts: {name: "resilience.attempts", unit: "{attempt}", about: "Attempts on the wire.",
		labels: [2]label{{"resilience.attempt.kind", []string{"initial", "retry"}}, {"resilience.attempt.result", []string{"success", "error", "cancelled"}}}},
	familyRetries: {name: "resilience.retries", unit: "{retry}", about: "Retries on the wire, by what they repeat.", shadow: true,
		labels: [2]label{{"resilience.retry.reason", []string{"connection", "timeout", "status"}}}},
	familySuppressed: {name: "resilience.retry.suppressed", unit: "{retry}", about: "Retries that were not made.", shadow: true,
		labels: [2]label{{"resilience.retry.reason", []string{"budget", "max_attempts", "not_idempotent", "body_not_replayable", "deadline", "breaker_open", "bulkhead_full", "retry_after"}}}},
	familyTimeouts: {name: "resilience.timeouts", unit: "{timeout}", about: "Limits that fired.", shadow: true,
		labels: [2]label{{"resilience.timeout.phase", []string{"queue", "connect", "tls", "write", "response_header", "body_stall", "attempt", "total"}}}},
	familyFallbacks: {name: "resilience.fallbacks", unit: "{response}", about: "Answers that were served in place of a failure.", shadow: true,
		labels: [2]label{{"resilience.fallback.kind", []string{"stale", "degraded", "fail_fast"}}, {"resilience.fallback.reason", []string{"breaker_open", "bulkhead_full", "timeout", "connection", "status"}}}},
	familyReuses: {name: "resilience.cache.reuses", unit: "{response}", about: "Answers from the store with nothing wrong.", sparse: true,
		labels: [2]label{{"resilience.cache.result", []string{"hit", "collapsed", "validated"}}}},
})

// layout numbers the cells.
func layout(all []family) ([]family, int) {
	n := 0
	for i := range all {
		all[i].first = n
		n += all[i].cells()
	}
	return all, n
}

// size is the number of combinations.
func (f *family) size() int { return len(f.labels[0].values) * max(len(f.labels[1].values), 1) }

// cells is the number of cells.
func (f *family) cells() int {
	if f.shadow {
		return 2 * f.size()
	}
	return f.size()
}

// cell is where a combination is counted; negative for one that is not known.
func cell(of int, shadow bool, first, second string) int {
	f := &families[of]
	i := slices.Index(f.labels[0].values, first)
	if second != "" && i >= 0 {
		j := slices.Index(f.labels[1].values, second)
		if j < 0 {
			return -1
		}
		i = i*len(f.labels[1].values) + j
	}
	if i < 0 {
		return -1
	}
	if shadow {
		i += f.size()
	}
	return f.first + i
}

// attributes are those of the i-th cell of a family.
func (f *family) attributes(i int) []attribute.KeyValue {
	var set []attribute.KeyValue
	if i >= f.size() {
		i -= f.size()
		set = append(set, inShadow)
	}
	if n := len(f.labels[1].values); n > 0 {
		second := f.labels[1]
		if v := second.values[i%n]; v == "true" || v == "false" {
			set = append(set, attribute.Bool(second.key, v == "true"))
		} else {
			set = append(set, attribute.String(second.key, v))
		}
		i /= n
	}
	return append(set, attribute.String(f.labels[0].key, f.labels[0].values[i]))
}
