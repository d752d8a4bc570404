package otel

import (
	"context"
	"fmt"
	"math"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
)

// Attach makes the Observer look at a Transport whenever metrics are collected,
// until the function it returns is called. transport.New and Close do both.
func (o *Observer) Attach(t *transport.Transport) (detach func()) {
	m := &o.meters
	m.attach(t, true)
	return func() { m.attach(t, false) }
}

func (m *meters) attach(t *transport.Transport, on bool) {
	m.registering.Lock()
	defer m.registering.Unlock()
	m.mu.Lock()
	if on {
		m.transports[t] = true
	} else {
		delete(m.transports, t)
	}
	wanted := len(m.transports) > 0 && len(m.observables) > 0
	m.mu.Unlock() // a collection waits for it, and the provider for the collection
	switch {
	case wanted && m.callback == nil:
		callback, err := m.meter.RegisterCallback(m.collect, m.observables...)
		if err != nil {
			otel.Handle(fmt.Errorf("watertight/otel: %w", err))
		}
		m.callback = callback
	case !wanted && m.callback != nil:
		if err := m.callback.Unregister(); err != nil {
			otel.Handle(fmt.Errorf("watertight/otel: %w", err))
		}
		m.callback = nil
	}
}

// look is what the hosts of one policy name look like at a collection.
type look struct {
	states                                [len(states)]int64
	windowCalls, inFlight, limit, waiting int64
	budgetUsed, budgetLimit               float64
	rates                                 []rates
}

// rates of one host that has enough calls for a judgment.
type rates struct{ failure, slow *float64 }

// collect reports everything that is not told by events.
func (m *meters) collect(_ context.Context, to metric.Observer) (err error) {
	defer func() {
		if p := recover(); p != nil { // of a reader, or a PolicyName: calls are not its concern
			err = fmt.Errorf("watertight/otel: collection: %v", p)
		}
	}()
	m.mu.Lock()
	var all []transport.HostSnapshot
	for t := range m.transports {
		all = append(all, t.Snapshot()...)
	}
	m.mu.Unlock()
	looks := map[*series]*look{}
	n := &m.o.names
	found := make([]*host, len(all))
	for i := range all {
		found[i] = n.host(all[i].Host)
	}
	n.mu.Lock()
	n.collection++
	for i, h := range found {
		h.seen, h.series.seen = n.collection, n.collection
		l := looks[h.series]
		if l == nil {
			l = &look{}
			looks[h.series] = l
		}
		l.add(&all[i])
	}
	n.collected()
	every := make([]*series, 0, len(n.series))
	for _, s := range n.series {
		every = append(every, s)
	}
	n.mu.Unlock()
	for _, s := range every {
		m.report(to, s, looks[s])
	}
	return nil
}

func (l *look) add(s *transport.HostSnapshot) {
	for i, state := range states {
		if s.State == state {
			l.states[i]++
		}
	}
	l.windowCalls += int64(s.Window.Calls)
	l.inFlight += int64(s.InFlight)
	l.limit += int64(s.MaxConcurrent)
	l.waiting += int64(s.Waiting)
	if s.Policy.Retry.Enabled() && s.Policy.Retry.Budget.Enabled() {
		l.budgetLimit += policy.BudgetBurst
		l.budgetUsed += policy.BudgetBurst - s.RetryBudget
	}
	var r rates
	least := s.Policy.Breaker.WithDefaults(s.MaxConcurrent).MinCalls
	if s.Window.Calls > 0 && s.Window.Calls >= least {
		r.failure = share(s.Window.Failures, s.Window.Calls)
	}
	if s.Window.Timed > 0 && s.Window.Timed >= least {
		r.slow = share(s.Window.Slow, s.Window.Timed)
	}
	l.rates = append(l.rates, r)
}

func share(part, whole int) *float64 {
	s := float64(part) / float64(whole)
	return &s
}

// worst is the highest of some rates, which is that of the host if it is one.
func (l *look) worst(of func(rates) *float64) (rate float64, ok bool) {
	for _, r := range l.rates {
		if v := of(r); v != nil {
			rate, ok = max(rate, *v), true
		}
	}
	return rate, ok
}

// report tells the figures of one series.
func (m *meters) report(to metric.Observer, s *series, l *look) {
	s.prepare()
	for i := range families {
		f := &families[i]
		if any(m.counters[i]) == nil {
			continue
		}
		for j := range f.size() {
			to.ObserveInt64(m.counters[i], s.counts[f.first+j].Load(), s.observe[f.first+j])
		}
		if !f.shadow {
			continue
		}
		for j := f.first + f.size(); j < f.first+2*f.size(); j++ {
			if v := s.counts[j].Load(); v > 0 { // few have shadows
				to.ObserveInt64(m.counters[i], v, s.observe[j])
			}
		}
	}
	if l == nil {
		return
	}
	for i := range states {
		m.int64(to, m.status, l.states[i], s.states[i])
	}
	m.int64(to, m.windowCalls, l.windowCalls, s.plain)
	m.int64(to, m.usage, l.inFlight, s.plain)
	m.int64(to, m.limit, l.limit, s.plain)
	m.int64(to, m.queue, l.waiting, s.plain)
	m.float64(to, m.budgetUsage, math.Max(l.budgetUsed, 0), s.plain)
	m.float64(to, m.budgetLimit, l.budgetLimit, s.plain)
	if rate, ok := l.worst(func(r rates) *float64 { return r.failure }); ok {
		m.float64(to, m.failureRate, rate, s.plain)
	}
	if rate, ok := l.worst(func(r rates) *float64 { return r.slow }); ok {
		m.float64(to, m.slowRate, rate, s.plain)
	}
}

func (m *meters) int64(to metric.Observer, i metric.Int64Observable, v int64, with metric.ObserveOption) {
	if i != nil {
		to.ObserveInt64(i, v, with)
	}
}

func (m *meters) float64(to metric.Observer, i metric.Float64Observable, v float64, with metric.ObserveOption) {
	if i != nil {
		to.ObserveFloat64(i, v, with)
	}
}

// prepare makes the attribute sets of what is observed, once; collections do not
// overlap.
func (s *series) prepare() {
	s.once.Do(func() {
		s.plain = s.with()
		for i, state := range states {
			s.states[i] = s.with(attribute.String("resilience.circuit_breaker.state", state.String()))
		}
		s.observe = make([]metric.ObserveOption, cells)
		for i := range families {
			f := &families[i]
			n := f.size()
			if f.shadow {
				n *= 2
			}
			for j := range n {
				s.observe[f.first+j] = s.with(f.attributes(j)...)
			}
		}
	})
}

// born makes the counter of transitions begin at zero on every edge that a breaker
// takes by itself: an increase to 1 is not seen where nothing was before.
func (m *meters) born(s *series) {
	for _, e := range edges {
		m.transitions.Add(context.Background(), 0, s.edge(e.from, e.to, e.trigger))
	}
}

// edges are the transitions that a breaker makes by itself.
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
}

func (s *series) edge(from, to transport.State, trigger string) metric.MeasurementOption {
	return s.with(attribute.String("resilience.circuit_breaker.previous_state", from.String()),
		attribute.String("resilience.circuit_breaker.state", to.String()),
		attribute.String("resilience.circuit_breaker.reason", trigger))
}

// tooMany says, once, that further policy names are added up.
func (m *meters) tooMany(most int) {
	otel.Handle(fmt.Errorf("watertight/otel: more than %d policy names: further ones are reported as %s", most, otherPolicyName))
}
