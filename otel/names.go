package otel

import (
	"hash/maphash"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/watertight-go/watertight/transport"
)

// host is what is known of one host:port.
type host struct {
	series  *series
	address []attribute.KeyValue              // server.address and server.port
	tripped atomic.Pointer[trace.SpanContext] // of the call that opened the breaker, if it was sampled
	mu      sync.RWMutex                      // guards sent
	sent    map[sentKey][]metric.RecordOption // attribute sets of attempts
	seen    int                               // the last collection that found it; guarded by names.mu
}

// series are the figures of one policy name.
type series struct {
	name   string
	attrs  []attribute.KeyValue
	counts []atomic.Int64                       // by cell
	start  [len(states)][]trace.SpanStartOption // of calls, by the breaker's state
	ended  [len(outcomes)][]metric.RecordOption // of calls, by outcome
	record []metric.RecordOption                // of what has no attributes but attrs

	once    sync.Once              // guards the making of what follows
	observe []metric.ObserveOption // by cell
	states  [len(states)]metric.ObserveOption
	plain   metric.ObserveOption // of what has no attributes but attrs

	mu     sync.RWMutex                     // guards failed
	failed map[endKey][]metric.RecordOption // of calls that failed

	seen int // the last collection that found it; guarded by names.mu
}

// mostHosts bounds the hosts that are known.
const mostHosts = 16384

// states are those of a breaker, in the order of transport.State.
var states = [...]transport.State{transport.Closed, transport.Open, transport.HalfOpen, transport.ForcedOpen, transport.ForcedClosed}

// outcomes are those of a call.
var outcomes = [...]string{"success", "fallback", "rejected", "error", "cancelled"}

// names finds the host and the series of an event.
type names struct {
	o      *Observer
	seed   maphash.Seed
	shards [16]shard

	mu         sync.Mutex // guards what follows; taken before a shard's
	series     map[string]*series
	collection int
	told       bool // that there are too many
}

type shard struct {
	mu sync.RWMutex // guards m
	m  map[string]*host
	_  [32]byte // keeps shards off each other's cache line
}

func (n *names) init(o *Observer) {
	n.o, n.seed, n.series = o, maphash.MakeSeed(), map[string]*series{}
}

func (n *names) shard(name string) *shard {
	return &n.shards[maphash.String(n.seed, name)%uint64(len(n.shards))]
}

// host finds a host by its name and port.
func (n *names) host(name string) *host {
	s := n.shard(name)
	s.mu.RLock()
	h := s.m[name]
	s.mu.RUnlock()
	if h == nil {
		h = n.add(name, s)
	}
	return h
}

func (n *names) add(name string, s *shard) *host {
	policy := name
	if f := n.o.config.PolicyName; f != nil { // without a lock: it is the owner's
		if p := f(name); p != "" {
			policy = p
		}
	}
	h, first := n.insert(name, policy, s)
	if first { // without a lock: the handler of errors is the owner's
		n.o.meters.tooMany(n.o.config.MaxPolicyNames)
	}
	return h
}

// insert adds a host, and reports whether it is the first with too many names.
func (n *names) insert(name, policy string, s *shard) (_ *host, first bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.m[name]; h != nil {
		return h, false
	}
	told := n.told
	h := &host{series: n.of(policy), sent: map[sentKey][]metric.RecordOption{}, seen: n.collection}
	address, port, err := net.SplitHostPort(name)
	if err != nil { // the overflow state
		address = name
	}
	h.address = append(h.address, attribute.String("server.address", address))
	if p, err := strconv.Atoi(port); err == nil {
		h.address = append(h.address, attribute.Int("server.port", p))
	}
	if s.m == nil || len(s.m) >= mostHosts/len(n.shards) { // where nothing collects, nothing forgets
		s.m = map[string]*host{}
	}
	s.m[name] = h
	return h, n.told && !told
}

// of is the series of a policy name. n.mu is held.
func (n *names) of(policy string) *series {
	if s := n.series[policy]; s != nil {
		return s
	}
	if len(n.series) >= n.o.config.MaxPolicyNames && policy != otherPolicyName {
		n.told = true
		return n.of(otherPolicyName)
	}
	s := n.o.newSeries(policy)
	s.seen = n.collection
	n.series[policy] = s
	return s
}

func (o *Observer) newSeries(policy string) *series {
	s := &series{name: policy, counts: make([]atomic.Int64, cells), failed: map[endKey][]metric.RecordOption{}}
	s.attrs = append(slices.Clone(o.common), attribute.String("resilience.policy.name", policy))
	s.record = []metric.RecordOption{s.with()}
	for i, state := range states {
		set := append(slices.Clip(s.attrs), attribute.String("resilience.circuit_breaker.state", state.String()))
		s.start[i] = []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindInternal), trace.WithAttributes(set...)}
	}
	for i, outcome := range outcomes {
		s.ended[i] = []metric.RecordOption{s.with(attribute.String("resilience.outcome", outcome))}
	}
	o.meters.born(s)
	return s
}

// with is a set of the series' attributes and others.
func (s *series) with(more ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(append(slices.Clip(s.attrs), more...)...))
}

// count adds one to a cell.
func (s *series) count(of int, shadow bool, first, second string) {
	if i := cell(of, shadow, first, second); i >= 0 {
		s.counts[i].Add(1)
	}
}

// collected forgets hosts and series that two collections have not found: their
// states are no more. n.mu is held.
func (n *names) collected() {
	gone := func(seen int) bool { return seen < n.collection-1 }
	for i := range n.shards {
		s := &n.shards[i]
		s.mu.Lock()
		for name, h := range s.m {
			if gone(h.seen) {
				delete(s.m, name)
			}
		}
		s.mu.Unlock()
	}
	for name, s := range n.series {
		if gone(s.seen) {
			delete(n.series, name)
		}
	}
}
