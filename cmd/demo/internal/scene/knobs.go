package scene

import (
	"errors"
	"fmt"
	"io"
	"sort"
	"strings"
	"time"

	"github.com/watertight-go/watertight/policy"
)

// knob is a flag for one field of a policy.
type knob struct {
	flag  string
	path  string // of the field
	usage string
	zero  string // what 0 means
	field func(*policy.Policy) any
}

// knobs are the fields that can be set on the command line, by layer.
var knobs = []knob{
	{"connect", "Timeout.Connect", "name lookup and TCP", "off", func(p *policy.Policy) any { return &p.Timeout.Connect }},
	{"tls", "Timeout.TLSHandshake", "the TLS handshake", "off", func(p *policy.Policy) any { return &p.Timeout.TLSHandshake }},
	{"read", "Timeout.Read", "each wait for the target", "off", func(p *policy.Policy) any { return &p.Timeout.Read }},
	{"attempt", "Timeout.Attempt", "one attempt, to the end of its body", "off", func(p *policy.Policy) any { return &p.Timeout.Attempt }},
	{"total", "Timeout.Total", "all attempts and the waits between them", "off", func(p *policy.Policy) any { return &p.Timeout.Total }},
	{"min-throughput", "Timeout.MinThroughput", "bytes/s below which a transfer is too slow", "size earns no time", func(p *policy.Policy) any { return &p.Timeout.MinThroughput }},
	{"stream-idle", "Timeout.StreamIdle", "the silence of a stream or upgrade", "off", func(p *policy.Policy) any { return &p.Timeout.StreamIdle }},

	{"max-concurrent", "Bulkhead.MaxConcurrent", "calls at once", "off", func(p *policy.Policy) any { return &p.Bulkhead.MaxConcurrent }},
	{"max-wait", "Bulkhead.MaxWait", "how long a call may wait for its turn", "refuse at once", func(p *policy.Policy) any { return &p.Bulkhead.MaxWait }},
	{"body-idle", "Bulkhead.BodyIdle", "how long a client may pause its reading", "off", func(p *policy.Policy) any { return &p.Bulkhead.BodyIdle }},

	{"window", "Breaker.Window", "how far back evidence counts", "1m", func(p *policy.Policy) any { return &p.Breaker.Window }},
	{"min-calls", "Breaker.MinCalls", "calls that the rates need as evidence", "20, or what fits", func(p *policy.Policy) any { return &p.Breaker.MinCalls }},
	{"failure-rate", "Breaker.FailureRate", "share of failures that opens it", "off", func(p *policy.Policy) any { return &p.Breaker.FailureRate }},
	{"slow-call", "Breaker.SlowCall", "age at which a call is slow", "off", func(p *policy.Policy) any { return &p.Breaker.SlowCall }},
	{"slow-rate", "Breaker.SlowRate", "share of slow calls that opens it", "off", func(p *policy.Policy) any { return &p.Breaker.SlowRate }},
	{"consecutive-failures", "Breaker.ConsecutiveFailures", "failures in a row that open it", "off", func(p *policy.Policy) any { return &p.Breaker.ConsecutiveFailures }},
	{"failures-in-window", "Breaker.FailuresInWindow", "failures in the window that open it", "off", func(p *policy.Policy) any { return &p.Breaker.FailuresInWindow }},
	{"open-for", "Breaker.OpenFor", "how long it stays open", "10s", func(p *policy.Policy) any { return &p.Breaker.OpenFor }},
	{"open-for-max", "Breaker.OpenForMax", "up to where that doubles", "no doubling", func(p *policy.Policy) any { return &p.Breaker.OpenForMax }},
	{"probes", "Breaker.HalfOpenProbes", "calls let through, all to succeed, to close it", "3", func(p *policy.Policy) any { return &p.Breaker.HalfOpenProbes }},

	{"attempts", "Retry.MaxAttempts", "of a call that may be repeated; 1: no retry", "no retry", func(p *policy.Policy) any { return &p.Retry.MaxAttempts }},
	{"retry-base", "Retry.Base", "what the wait before a retry grows from", "no wait", func(p *policy.Policy) any { return &p.Retry.Base }},
	{"retry-max", "Retry.Max", "up to where it grows", "no cap", func(p *policy.Policy) any { return &p.Retry.Max }},
	{"max-retry-after", "Retry.MaxRetryAfter", "the longest Retry-After that is waited for", "-retry-max", func(p *policy.Policy) any { return &p.Retry.MaxRetryAfter }},
	{"replay-body", "Retry.ReplayBody", "bytes of a request kept for a retry", "sent once", func(p *policy.Policy) any { return &p.Retry.ReplayBody }},
	{"budget", "Retry.Budget.Ratio", "retries for each call that succeeds", "adds none; both 0: no bound", func(p *policy.Policy) any { return &p.Retry.Budget.Ratio }},
	{"budget-min", "Retry.Budget.MinPerSecond", "retries a second, come what may", "adds none; both 0: no bound", func(p *policy.Policy) any { return &p.Retry.Budget.MinPerSecond }},

	{"max-stale", "Fallback.MaxStale", "how long after its freshness an answer serves", "what the target grants", func(p *policy.Policy) any { return &p.Fallback.MaxStale }},
	{"stale-limit", "Fallback.StaleLimit", "the most of that, also by the target's grant", "24h; with no -max-stale: store nothing", func(p *policy.Policy) any { return &p.Fallback.StaleLimit }},
	{"after", "Fallback.After", "how long to wait where there is a stored answer", "as long as the limits let it", func(p *policy.Policy) any { return &p.Fallback.After }},
}

// shadows are the layers that can be put in shadow mode.
var shadows = map[string]func(*policy.Policy) *bool{
	"timeout":  func(p *policy.Policy) *bool { return &p.Timeout.Shadow },
	"bulkhead": func(p *policy.Policy) *bool { return &p.Bulkhead.Shadow },
	"breaker":  func(p *policy.Policy) *bool { return &p.Breaker.Shadow },
	"retry":    func(p *policy.Policy) *bool { return &p.Retry.Shadow },
	"fallback": func(p *policy.Policy) *bool { return &p.Fallback.Shadow },
}

// policyFlags defines the flags of a policy; the policy is what it returns, once
// the command line was read.
func policyFlags(f *flags) func() policy.Policy {
	p := policy.Default()
	read := policy.Policy{}
	f.value("policy", "default or service", func(s string) bool {
		if s == "service" {
			p = policy.Service()
		}
		return s == "default" || s == "service"
	})
	for _, k := range knobs {
		f.variable(k.flag, k.field(&read))
	}
	f.value("shadow", "all, or some of timeout,bulkhead,breaker,retry,fallback", func(s string) bool {
		for layer := range strings.SplitSeq(s, ",") {
			field, ok := shadows[strings.TrimSpace(layer)]
			switch {
			case ok:
				*field(&read) = true
			case layer == "all":
				for _, field := range shadows {
					*field(&read) = true
				}
			default:
				return false
			}
		}
		return true
	})
	return func() policy.Policy {
		for _, k := range knobs {
			if _, given := f.given[k.flag]; given {
				assign(k.field(&p), k.field(&read))
			}
		}
		for _, field := range shadows {
			*field(&p) = *field(&read)
		}
		return p
	}
}

func assign(to, from any) {
	switch to := to.(type) {
	case *time.Duration:
		*to = *from.(*time.Duration)
	case *int:
		*to = *from.(*int)
	case *int64:
		*to = *from.(*int64)
	case *float64:
		*to = *from.(*float64)
	}
}

// validate notes every problem of a policy, in the words of the command line.
func (f *flags) validate(p policy.Policy) {
	err := p.Validate()
	if err == nil {
		return
	}
	names := flagNames()
	for _, err := range err.(interface{ Unwrap() []error }).Unwrap() {
		var e *policy.FieldError
		if !errors.As(err, &e) {
			f.problems = append(f.problems, err.Error())
			continue
		}
		name, value := names.Replace(e.Path), fmt.Sprint(e.Value)
		if _, given := f.given[strings.TrimPrefix(name, "-")]; !given {
			value += ", its default"
		}
		f.problems = append(f.problems, fmt.Sprintf("%s (%s): must be %s", name, value, names.Replace(e.Want)))
	}
}

// flagNames replaces the paths of fields by flags.
func flagNames() *strings.Replacer {
	byLength := append([]knob(nil), knobs...)
	sort.SliceStable(byLength, func(i, j int) bool { return len(byLength[i].path) > len(byLength[j].path) })
	var pairs []string
	for _, k := range byLength { // a path may be the beginning of another
		pairs = append(pairs, k.path, "-"+k.flag)
	}
	return strings.NewReplacer(pairs...)
}

// writeKnobs lists the flags of a policy with their defaults.
func writeKnobs(w io.Writer) {
	p, service := policy.Default(), policy.Service()
	fmt.Fprintf(w, "  %-22s %-46s %-8s %-8s %s\n", "", "", "default", "service", "0 means")
	layer := ""
	for _, k := range knobs {
		if l, _, _ := strings.Cut(k.path, "."); l != layer {
			layer = l
			fmt.Fprintf(w, "  %s\n", strings.ToLower(l))
		}
		fmt.Fprintf(w, "  -%-21s %-46s %-8s %-8s %s\n", k.flag, k.usage, shown(k.field(&p)), shown(k.field(&service)), k.zero)
	}
}

func shown(v any) string {
	switch v := v.(type) {
	case *time.Duration:
		s := v.String()
		if strings.HasSuffix(s, "m0s") {
			s = strings.TrimSuffix(s, "0s")
		}
		if strings.HasSuffix(s, "h0m") {
			s = strings.TrimSuffix(s, "0m")
		}
		return s
	case *int:
		return fmt.Sprint(*v)
	case *int64:
		return fmt.Sprint(*v)
	case *float64:
		return fmt.Sprint(*v)
	}
	return ""
}
