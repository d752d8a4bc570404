package otel

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"go.opentelemetry.io/otel/metric"

	"github.com/watertight-go/watertight/transport"
)

// Attach makes the Observer look at a Transport whenever metrics are collected,
// until the function it returns is called. transport.New and Close do both: one that is
// not closed is kept, and told of, for as long as the Observer. What a Transport
// looks like goes away with it, and of a host with the host; what was counted is told
// for as long as the provider lives. A counter that paused would be counted twice by a
// reader of deltas once it came back.
func (o *Observer) Attach(t *transport.Transport) (detach func()) {
	m := &o.meters
	m.mu.Lock()
	m.transports[t] = true
	m.mu.Unlock()
	m.register()
	return func() {
		m.mu.Lock()
		delete(m.transports, t)
		m.mu.Unlock()
	}
}

// register makes the provider call collect, for ever, where there is something to
// collect.
func (m *meters) register() {
	m.registering.Lock()
	defer m.registering.Unlock()
	if len(m.observables) == 0 || m.registered {
		return
	}
	m.registered = nil != asked[metric.Registration]("RegisterCallback", nil, func() (metric.Registration, error) {
		return m.meter.RegisterCallback(m.collect, m.observables...)
	})
}

func (m *meters) attached() []*transport.Transport {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Keys(m.transports))
}

// collect reports everything that is not told by events. Collections by several
// readers may overlap.
func (m *meters) collect(_ context.Context, to metric.Observer) (err error) {
	defer func() {
		if p := recover(); p != nil { // of the provider
			err = fmt.Errorf("watertight/otel: panic in a collection: %v", p)
		}
	}()
	looks := map[*series]*look{}
	var found []*host
	for _, t := range m.attached() {
		all := t.Snapshot()
		for i := range all {
			h := m.o.names.host(all[i].Host)
			found = append(found, h)
			l := looks[h.series]
			if l == nil {
				l = &look{}
				looks[h.series] = l
			}
			l.add(&all[i])
		}
	}
	for _, s := range m.o.names.collect(found) {
		m.counts(to, s)
		if l := looks[s]; l != nil {
			m.looks(to, s, l)
		}
	}
	return nil
}

// counts tells the counters of a series.
func (m *meters) counts(to metric.Observer, s *series) {
	s.prepare()
	for i := range families {
		f := &families[i]
		if m.counters[i] == nil {
			continue
		}
		for j := range f.cells() {
			at := f.first + j
			if v := s.counts[at].Load(); v > 0 || j < f.size() && !f.sparse { // few have shadows
				to.ObserveInt64(m.counters[i], v, s.observe[at:at+1]...) // no slice to make
			}
		}
	}
}

// looks tells what the hosts of a series look like.
func (m *meters) looks(to metric.Observer, s *series, l *look) {
	for shadow, states := range l.states {
		if l.breakers[shadow] == 0 {
			continue
		}
		for i, n := range states {
			m.int64(to, m.status, n, s.states[shadow][i:i+1])
		}
	}
	m.int64(to, m.windowCalls, l.windowCalls, s.plain[:])
	m.int64(to, m.usage, l.inFlight, s.plain[:])
	m.int64(to, m.limit, l.limit, s.plain[:])
	m.int64(to, m.queue, l.waiting, s.plain[:])
	m.float64(to, m.budgetUsage, l.budgetUsed, s.plain[:])
	m.float64(to, m.budgetLimit, l.budgetLimit, s.plain[:])
	if r := l.failureRate; r.known {
		m.float64(to, m.failureRate, r.value, s.plain[:])
	}
	if r := l.slowRate; r.known {
		m.float64(to, m.slowRate, r.value, s.plain[:])
	}
}

func (m *meters) int64(to metric.Observer, i metric.Int64Observable, v int64, with []metric.ObserveOption) {
	if i != nil {
		to.ObserveInt64(i, v, with...)
	}
}

func (m *meters) float64(to metric.Observer, i metric.Float64Observable, v float64, with []metric.ObserveOption) {
	if i != nil {
		to.ObserveFloat64(i, v, with...)
	}
}

// born makes the counter of transitions begin at zero on every edge that a breaker
// takes by itself: an increase to 1 is not seen where nothing was before.
func (m *meters) born(s *series) {
	defer func() { m.o.survived(transitionsName, recover()) }()
	for _, e := range edges {
		m.transitions.Add(context.Background(), 0, s.edge(e.from, e.to, e.trigger, false))
	}
}
