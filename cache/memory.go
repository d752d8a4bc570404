package cache

import (
	"container/heap"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Memory is a [Store] in the process, bounded in bytes. Reads take no lock and allocate nothing. Writes take one lock.
// Room is made by SIEVE (Zhang et al., NSDI 2024), after all that is past its use. It starts no goroutine.
type Memory struct {
	maxBytes, maxEntryBytes int64

	index atomic.Pointer[index]
	len   atomic.Int64
	bytes atomic.Int64

	mu     sync.Mutex       // guards all below, and every change of the above
	uris   map[uint64]*node // first node of each URI, by the hash of its key
	queue  queue
	deaths deaths
}

// node holds the variants of one URI and partition. It is what is looked up and what is evicted.
type node struct {
	hash     uint64
	variants atomic.Pointer[[]*Entry] // nil once removed
	visited  atomic.Bool

	weight       int64
	dies         time.Time // when the last variant is useless
	heapAt       int
	older, newer *node // in the queue
	next, prev   *node // of the same URI
}

// NewMemory returns an empty store, or what [Config.Validate] says.
func NewMemory(c Config) (*Memory, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	m := &Memory{maxBytes: c.MaxBytes, maxEntryBytes: c.MaxEntryBytes, uris: make(map[uint64]*node)}
	m.index.Store(newIndex(64))
	return m, nil
}

// Len is the number of entries.
func (m *Memory) Len() int { return int(m.len.Load()) }

// Bytes is the weight of all entries, never more than [Config.MaxBytes].
func (m *Memory) Bytes() int64 { return m.bytes.Load() }

// MaxEntryBytes is the bound of the same name in [Config].
func (m *Memory) MaxEntryBytes() int64 { return m.maxEntryBytes }

// Lookup returns the variants stored for one URI and partition, without a lock.
func (m *Memory) Lookup(k Key, p Partition) []*Entry {
	n, variants := m.index.Load().find(k, p)
	if n == nil {
		return nil
	}
	if !n.visited.Load() { // a write would take the cache line from the other readers
		n.visited.Store(true)
	}
	return variants
}

// Put stores e as [Entry.Join] says and makes room for it first. It refuses an entry that is heavier than the
// whole store may be.
func (m *Memory) Put(e *Entry) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, variants := m.index.Load().find(e.key, e.partition)
	joined, ok := e.Join(variants)
	if !ok || e.Weight() > m.maxBytes {
		return false
	}
	for weigh(joined) > m.maxBytes {
		joined = joined[1:] // e is the last
	}
	if n == nil {
		m.makeRoom(weigh(joined), nil)
		n = m.insert(e)
	} else {
		m.makeRoom(weigh(joined)-n.weight, n)
		n.visited.Store(true)
	}
	m.update(n, joined)
	return true
}

// Delete removes e, and only e.
func (m *Memory) Delete(e *Entry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, variants := m.index.Load().find(e.key, e.partition)
	i := slices.Index(variants, e)
	if i < 0 {
		return
	}
	if len(variants) == 1 {
		m.remove(n)
		return
	}
	m.update(n, slices.Delete(slices.Clone(variants), i, i+1))
}

// DeleteAll removes every variant in every partition of a URI.
func (m *Memory) DeleteAll(k Key) {
	m.mu.Lock() // even if there is nothing: a Put that has passed its check of the epoch ends first
	defer m.mu.Unlock()
	for n := m.uris[k.hash]; n != nil; {
		next := n.next
		if (*n.variants.Load())[0].key == k {
			m.remove(n)
		}
		n = next
	}
}

// All are the entries stored when it is ranged over.
func (m *Memory) All() iter.Seq[*Entry] {
	return func(yield func(*Entry) bool) {
		for _, e := range m.snapshot() {
			if !yield(e) {
				return
			}
		}
	}
}

func (m *Memory) snapshot() []*Entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]*Entry, 0, m.Len())
	for n := m.queue.newest; n != nil; n = n.older {
		all = append(all, *n.variants.Load()...)
	}
	return all
}

// makeRoom evicts until extra bytes more fit, sparing keep.
func (m *Memory) makeRoom(extra int64, keep *node) {
	if m.Bytes()+extra <= m.maxBytes {
		return
	}
	now := time.Now()
	for m.Bytes()+extra > m.maxBytes {
		if first := m.deaths[0]; first != keep && first.dies.Before(now) {
			m.remove(first)
			continue
		}
		m.remove(m.queue.victim(keep))
	}
}

// insert adds an empty node for the URI and partition of e.
func (m *Memory) insert(e *Entry) *node {
	n := &node{hash: hash(e.key, e.partition)}
	m.queue.push(n)
	n.dies = e.Useless()
	heap.Push(&m.deaths, n)
	if n.next = m.uris[e.key.hash]; n.next != nil {
		n.next.prev = n
	}
	m.uris[e.key.hash] = n
	m.index.Store(m.index.Load().add(n))
	return n
}

// update gives n its variants, which are at least one.
func (m *Memory) update(n *node, variants []*Entry) {
	before := 0
	if old := n.variants.Load(); old != nil {
		before = len(*old)
	}
	weight := weigh(variants)
	m.len.Add(int64(len(variants) - before))
	m.bytes.Add(weight - n.weight)
	n.weight = weight
	n.dies = variants[0].Useless()
	for _, v := range variants[1:] {
		if t := v.Useless(); t.After(n.dies) {
			n.dies = t
		}
	}
	heap.Fix(&m.deaths, n.heapAt)
	n.variants.Store(&variants)
}

func (m *Memory) remove(n *node) {
	variants := *n.variants.Load()
	k := variants[0].key
	n.variants.Store(nil)
	m.index.Load().remove(n)
	m.queue.remove(n)
	heap.Remove(&m.deaths, n.heapAt)
	if n.next != nil {
		n.next.prev = n.prev
	}
	switch {
	case n.prev != nil:
		n.prev.next = n.next
	case n.next != nil:
		m.uris[k.hash] = n.next
	default:
		delete(m.uris, k.hash)
	}
	m.len.Add(-int64(len(variants)))
	m.bytes.Add(-n.weight)
}

func weigh(variants []*Entry) (sum int64) {
	for _, v := range variants {
		sum += v.Weight()
	}
	return sum
}

// queue is SIEVE's: new ones at one end, a hand that walks from the old end to the new and takes the first
// that was not visited since it last came by.
type queue struct {
	newest, oldest, hand *node
	len                  int
}

func (q *queue) push(n *node) {
	if n.older = q.newest; n.older != nil {
		n.older.newer = n
	} else {
		q.oldest = n
	}
	q.newest = n
	q.len++
}

func (q *queue) remove(n *node) {
	if q.hand == n {
		q.hand = n.newer
	}
	if n.older != nil {
		n.older.newer = n.newer
	} else {
		q.oldest = n.newer
	}
	if n.newer != nil {
		n.newer.older = n.older
	} else {
		q.newest = n.older
	}
	n.older, n.newer = nil, nil
	q.len--
}

// victim is the next to go, and not keep. Readers may visit faster than the hand walks, so it walks two rounds at most.
func (q *queue) victim(keep *node) *node {
	n := q.hand
	for steps := 0; ; steps++ {
		if n == nil {
			n = q.oldest
		}
		if n != keep && (!n.visited.Swap(false) || steps > 2*q.len) {
			break
		}
		n = n.newer
	}
	q.hand = n
	return n
}

// deaths is a heap of nodes, the first to become useless on top.
type deaths []*node

func (d deaths) Len() int           { return len(d) }
func (d deaths) Less(i, j int) bool { return d[i].dies.Before(d[j].dies) }
func (d deaths) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].heapAt, d[j].heapAt = i, j
}

func (d *deaths) Push(x any) {
	n := x.(*node)
	n.heapAt = len(*d)
	*d = append(*d, n)
}

func (d *deaths) Pop() any {
	last := len(*d) - 1
	n := (*d)[last]
	(*d)[last] = nil
	*d = (*d)[:last]
	return n
}
