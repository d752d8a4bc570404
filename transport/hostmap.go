package transport

import (
	"context"
	"fmt"
	"hash/maphash"
	"iter"
	"log/slog"
	"net/url"
	"sync"
	"sync/atomic"
	"time"
)

// hostMap holds the states of hosts, bounded. Lookups take no lock where a state is in
// recent, else that of one of its shards, for reading; only the creation of a state
// takes mu.
type hostMap struct {
	max    int
	seed   maphash.Seed
	shards [64]hostShard
	recent [1024]atomic.Pointer[host] // see spelt

	mu     sync.Mutex // guards what follows
	ring   []*host    // all of them, searched as a clock for one to drop
	hand   int
	shared *host         // the overflow state
	retry  time.Duration // when to search again after a vain search
	broom  int           // where the next sweep begins
	forced forced

	sweepAt atomic.Int64 // when the next sweep is due, on the clock
}

type hostShard struct {
	mu sync.RWMutex     // guards m, and next of the hosts in it
	m  map[uint64]*host // by the hash of the key; those with the same one are a list
	_  [32]byte         // keeps shards off each other's cache line
}

// host returns the state of a URL's host, acquired.
func (t *Transport) host(u *url.URL, now time.Duration) (*host, error) {
	if int64(now) >= t.hosts.sweepAt.Load() {
		t.sweep(now)
	}
	known := t.hosts.spelt(u.Host)
	if h := known.Load(); h != nil && h.key.scheme == u.Scheme && h.spelling == u.Host && h.acquire() {
		h.use(now)
		return h, nil
	}
	key, err := keyOf(u)
	if err != nil {
		return nil, fmt.Errorf("watertight: %w", err)
	}
	h := t.hostAt(key, u.Host, now)
	if was := known.Load(); h.spelling == u.Host && !h.overflow && (was == nil || now-was.lastUse() > 2*usedEvery) {
		known.Store(h) // not instead of one in use: they would take turns
	}
	return h, nil
}

// spelt is where the state is kept of a host that was last asked for with the same
// scheme and spelling, or with others that share its place: finding it there takes no
// lock, and no name needs to be brought to its normal form. It may have been dropped
// meanwhile, which acquire tells.
func (m *hostMap) spelt(spelling string) *atomic.Pointer[host] {
	return &m.recent[maphash.String(m.seed, spelling)%uint64(len(m.recent))]
}

// usedEvery is how exact a host's last use is known, which is compared with
// sweepIdle.
const usedEvery = time.Second

// hostAt returns the state of a host, acquired, which is asked for with a spelling.
func (t *Transport) hostAt(key hostKey, spelling string, now time.Duration) *host {
	hash := t.hosts.hash(key)
	for {
		h := t.hosts.find(key, hash)
		known := h != nil
		if !known {
			h = t.addHost(key, hash, spelling, now)
		}
		switch {
		case !h.acquire():
		case known:
			h.use(now)
			return h
		default:
			h.used.Store(int64(now))
			return h
		}
	}
}

// use notes that the host is in use: not on every call, since that is shared.
func (h *host) use(now time.Duration) {
	if now-time.Duration(h.used.Load()) > usedEvery {
		h.used.Store(int64(now))
	}
	if !h.visited.Load() {
		h.visited.Store(true)
	}
}

// hash is that of a key; two keys may share one.
func (m *hostMap) hash(k hostKey) uint64 {
	hash := maphash.String(m.seed, k.name) ^ maphash.String(m.seed, k.port)<<1
	if k.scheme == "https" {
		return ^hash
	}
	return hash
}

func (m *hostMap) shard(hash uint64) *hostShard { return &m.shards[hash%uint64(len(m.shards))] }

func (m *hostMap) find(k hostKey, hash uint64) *host {
	s := m.shard(hash)
	s.mu.RLock()
	defer s.mu.RUnlock()
	for h := s.m[hash]; h != nil; h = h.next {
		if h.key == k {
			return h
		}
	}
	return nil
}

func (s *hostShard) add(h *host) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.m == nil {
		s.m = map[uint64]*host{}
	}
	h.next, s.m[h.hash] = s.m[h.hash], h
}

func (s *hostShard) remove(h *host) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := s.m[h.hash]
	if first != h {
		for first.next != h {
			first = first.next
		}
		first.next = h.next
	} else if h.next != nil {
		s.m[h.hash] = h.next
	} else {
		delete(s.m, h.hash)
	}
	h.next = nil
}

// addHost creates the state of a host, making room for it if need be; where no
// room can be made, it returns the overflow state, unless the host was forced by
// hand, which has a state of its own whatever the bound.
func (t *Transport) addHost(k hostKey, hash uint64, spelling string, now time.Duration) *host {
	h, dropped, tell := t.addHostLocked(k, hash, spelling, now)
	switch {
	case tell && h.overflow:
		bury(dropped)
		t.overflowed(h)
		return h
	case tell: // it was forced
		h.breaker.deliver()
	}
	bury(dropped)
	return h
}

// addHostLocked is the part of addHost that holds mu. It returns what is to be buried,
// and whether there is something to tell of the state.
func (t *Transport) addHostLocked(k hostKey, hash uint64, spelling string, now time.Duration) (h *host, dropped []*host, tell bool) {
	m := &t.hosts
	m.mu.Lock()
	defer m.mu.Unlock()
	if h := m.find(k, hash); h != nil {
		return h, nil, false
	}
	for len(m.ring) >= m.max {
		h := m.makeRoom(now)
		if h == nil {
			break
		}
		dropped = append(dropped, h)
	}
	to := m.forced.of(k)
	if len(m.ring) >= m.max && to == Closed {
		first := m.shared == nil
		if first {
			m.shared = t.newHost(hostKey{}, "", &t.policies.fallback, true)
		}
		return m.shared, dropped, first
	}
	h = t.newHost(k, spelling, t.policies.of(k), false)
	h.hash = hash
	if to != Closed {
		h.breaker.force(to, "forced")
	}
	m.ring = append(m.ring, h)
	m.shard(hash).add(h)
	return h, dropped, to != Closed
}

// bury ends what hosts that were dropped have left, without the lock: listeners and
// a dialer's connections are not ours.
func bury(dropped []*host) {
	for _, h := range dropped {
		h.breaker.deliver()
		h.pools.retire(h.pools.current.Load())
	}
}

// makeRoom drops one idle host, and returns it: the first, going round, that was
// not used again since the hand last passed, so that many hosts used once do not
// push out those in use. A vain search is not repeated within a second. m.mu is held.
func (m *hostMap) makeRoom(now time.Duration) *host {
	if now < m.retry {
		return nil
	}
	for range 2 * len(m.ring) {
		m.hand %= len(m.ring)
		h := m.ring[m.hand]
		if h.visited.Swap(false) || !h.drop(now) {
			m.hand++
			continue
		}
		m.shard(h.hash).remove(h)
		m.spelt(h.spelling).CompareAndSwap(h, nil)
		h.breaker.abandon()
		last := len(m.ring) - 1
		m.ring[m.hand] = m.ring[last]
		m.ring[last] = nil
		m.ring = m.ring[:last]
		m.hand++
		return h
	}
	m.retry = now + time.Second
	return nil
}

// overflowed tells, once, that further hosts share a state.
func (t *Transport) overflowed(h *host) {
	t.log(context.Background(), slog.LevelWarn, "too many hosts in use: further ones share one state without a breaker",
		slog.Int("max_hosts", t.hosts.max))
	t.observe(context.Background(), Event{Kind: EventOverflow, Host: h.name})
}

// all yields the states of all hosts.
func (m *hostMap) all() iter.Seq[*host] {
	m.mu.Lock()
	hosts := make([]*host, 0, len(m.ring)+1)
	hosts = append(hosts, m.ring...)
	if m.shared != nil {
		hosts = append(hosts, m.shared)
	}
	m.mu.Unlock()
	return func(yield func(*host) bool) {
		for _, h := range hosts {
			if !yield(h) {
				return
			}
		}
	}
}
