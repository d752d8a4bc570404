package otel

import (
	"slices"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/watertight-go/watertight/transport"
)

// series are the figures of one policy name.
type series struct {
	attrs  []attribute.KeyValue                 // of all
	counts []atomic.Int64                       // by cell
	start  [len(states)][]trace.SpanStartOption // of calls, by the breaker's state
	record []metric.RecordOption                // of what has no attributes but attrs
	ended  [len(outcomes)][]metric.RecordOption // of calls, by outcome

	mu     sync.RWMutex                     // guards failed
	failed map[endKey][]metric.RecordOption // of calls that failed

	once    sync.Once              // guards the making of what follows
	observe []metric.ObserveOption // by cell
	states  [2][len(states)]metric.ObserveOption
	plain   [1]metric.ObserveOption // of what has no attributes but attrs
}

// states are those of a breaker, in the order of transport.State.
var states = [...]transport.State{transport.Closed, transport.Open, transport.HalfOpen, transport.ForcedOpen, transport.ForcedClosed}

// outcomes are those of a call.
var outcomes = [...]string{"success", "fallback", "rejected", "error", "cancelled"}

// endKey is what tells the calls apart that failed.
type endKey struct{ outcome, errorType string }

// mostFailed bounds what is told apart of a name: a peer chooses its status. A
// hundred names of one Observer with as many, and the other outcomes, are below an
// SDK's limit.
const mostFailed = 14

// inShadow marks what a layer in shadow mode would have done.
var inShadow = attribute.Bool("resilience.shadow", true)

func (o *Observer) newSeries(policy string) *series {
	s := &series{counts: make([]atomic.Int64, cells), failed: map[endKey][]metric.RecordOption{}}
	s.attrs = append(slices.Clone(o.common), attribute.String("resilience.policy.name", policy))
	s.record = []metric.RecordOption{s.with()}
	for i, state := range states {
		s.start[i] = []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindInternal), trace.WithAttributes(append(slices.Clip(s.attrs), stateOf(state))...)}
	}
	for i, outcome := range outcomes {
		s.ended[i] = []metric.RecordOption{s.with(attribute.String("resilience.outcome", outcome))}
	}
	return s
}

// with is a set of the series' attributes and others.
func (s *series) with(more ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(append(slices.Clip(s.attrs), more...)...))
}

func stateOf(s transport.State) attribute.KeyValue {
	return attribute.String("resilience.circuit_breaker.state", s.String())
}

// count adds one to a cell.
func (s *series) count(of int, shadow bool, first, second string) {
	if i := cell(of, shadow, first, second); i >= 0 {
		s.counts[i].Add(1)
	}
}

// endedAs are the attributes of a call's duration.
func (s *series) endedAs(k endKey) []metric.RecordOption {
	if i := slices.Index(outcomes[:], k.outcome); i >= 0 && k.errorType == "" {
		return s.ended[i]
	}
	s.mu.RLock()
	o := s.failed[k]
	if o == nil && len(s.failed) >= mostFailed {
		o = s.failed[endKey{k.outcome, otherType}]
	}
	s.mu.RUnlock()
	if o == nil {
		o = s.addFailed(k)
	}
	return o
}

func (s *series) addFailed(k endKey) []metric.RecordOption {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed[k] == nil && len(s.failed) >= mostFailed {
		k.errorType = otherType
	}
	if o := s.failed[k]; o != nil {
		return o
	}
	o := []metric.RecordOption{s.with(attribute.String("resilience.outcome", k.outcome), attribute.String("error.type", k.errorType))}
	s.failed[k] = o
	return o
}

// prepare makes the attribute sets of what is observed, once.
func (s *series) prepare() {
	s.once.Do(func() {
		s.plain[0] = s.with()
		for i, state := range states {
			s.states[0][i] = s.with(stateOf(state))
			s.states[1][i] = s.with(stateOf(state), inShadow)
		}
		s.observe = make([]metric.ObserveOption, cells)
		for i := range families {
			f := &families[i]
			for j := range f.cells() {
				s.observe[f.first+j] = s.with(f.attributes(j)...)
			}
		}
	})
}

// edge are the attributes of a transition.
func (s *series) edge(from, to transport.State, trigger string, shadow bool) metric.MeasurementOption {
	attrs := []attribute.KeyValue{
		attribute.String("resilience.circuit_breaker.previous_state", from.String()), stateOf(to),
		attribute.String("resilience.circuit_breaker.reason", trigger),
	}
	if shadow {
		attrs = append(attrs, inShadow)
	}
	return s.with(attrs...)
}

// edges are the transitions that a breaker makes by itself. Those by hand, forced and
// reset, are twelve more: with these a hundred names would be beyond an SDK's limit, at
// which it drops the attributes of whatever comes later.
var edges = []struct {
	from, to transport.State
	trigger  string
}{
	{transport.Closed, transport.Open, "failure_rate"},
	{transport.Closed, transport.Open, "slow_call_rate"},
	{transport.Closed, transport.Open, "consecutive_failures"},
	{transport.Closed, transport.Open, "failures_in_window"},
	{transport.Open, transport.HalfOpen, "wait_over"},
	{transport.HalfOpen, transport.Open, "probe_failed"},
	{transport.HalfOpen, transport.Open, "probe_slow"},
	{transport.HalfOpen, transport.Closed, "probes_succeeded"},
	{transport.Open, transport.Closed, "abandoned"},
	{transport.HalfOpen, transport.Closed, "abandoned"},
}
