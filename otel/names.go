package otel

import (
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"sync"
	"time"
)

// names finds the host and the series of an event.
type names struct {
	o      *Observer
	seed   maphash.Seed
	shards [16]shard

	mu         sync.Mutex         // guards what follows, and all writes to shards; taken before a shard's
	series     map[string]*series // for ever, since their names count for ever
	collection int
}

type shard struct {
	mu sync.RWMutex // guards m
	m  map[string]*host
	_  [32]byte // keeps shards off each other's cache line
}

// mostHosts bounds the hosts that are known where nothing collects, since nothing
// forgets them there.
const mostHosts = 16384

func (n *names) init(o *Observer) {
	n.o, n.seed, n.series = o, maphash.MakeSeed(), map[string]*series{}
}

// host finds a host by its name and port.
func (n *names) host(name string) *host {
	s := &n.shards[maphash.String(n.seed, name)%uint64(len(n.shards))]
	s.mu.RLock()
	h := s.m[name]
	s.mu.RUnlock()
	if h == nil {
		h = n.add(name, s)
	}
	return h
}

func (n *names) add(name string, s *shard) *host {
	policy := valid(n.policy(name)) // without a lock: it is the owner's
	h, series, other := n.insert(name, policy, s)
	if series != nil {
		n.o.meters.born(series)
	}
	if other {
		n.o.once(otherPolicyName, func() {
			handle(fmt.Errorf("more than %d policy names: further ones are reported as %s; Config.PolicyName can group hosts", n.o.config.MaxPolicyNames, otherPolicyName))
		})
	}
	return h
}

// policy is the policy name of a host.
func (n *names) policy(host string) (name string) {
	if n.o.config.PolicyName == nil {
		return host
	}
	defer func() {
		n.o.survived("Config.PolicyName", recover())
		if name == "" {
			name = host
		}
	}()
	return n.o.config.PolicyName(host)
}

// insert adds a host. It returns its series where that is new, and whether it is
// one for all others.
func (n *names) insert(name, policy string, s *shard) (_ *host, born *series, other bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.m[name]; h != nil {
		return h, nil, false
	}
	if n.series[policy] == nil && len(n.series) >= n.o.config.MaxPolicyNames && policy != otherPolicyName {
		policy, other = otherPolicyName, true
	}
	of := n.series[policy]
	if of == nil {
		of = n.o.newSeries(policy)
		n.series[policy] = of
		born = of
	}
	h := newHost(name, of)
	h.presence.found = n.collection
	if s.m == nil || len(s.m) >= mostHosts/len(n.shards) {
		s.m = map[string]*host{}
	}
	s.m[name] = h
	return h, born, other
}

// grace is how long a host is known that collections do not find: one that has looked
// at the Transports before there was such a host may take this long.
const grace = 2 * time.Minute

// presence is whether collections find a host. It is guarded by names.mu.
type presence struct {
	found  int       // the last collection that did
	missed time.Time // the first one since that did not
}

// gone reports whether a collection, which may be over before earlier ones are, and
// all others for grace have not found it.
func (p *presence) gone(collection int, now time.Time) bool {
	switch {
	case p.found == collection:
		p.missed = time.Time{}
	case p.missed.IsZero():
		p.missed = now
	default:
		return now.Sub(p.missed) >= grace
	}
	return false
}

// collect begins a collection that has found some hosts. It forgets those that are
// gone, and returns all series.
func (n *names) collect(found []*host) []*series {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.collection++
	now := time.Now()
	for _, h := range found {
		h.presence.found = n.collection
	}
	for i := range n.shards {
		s := &n.shards[i]
		for name, h := range s.m {
			if h.presence.gone(n.collection, now) {
				s.mu.Lock() // calls look hosts up
				delete(s.m, name)
				s.mu.Unlock()
			}
		}
	}
	return slices.Collect(maps.Values(n.series))
}
