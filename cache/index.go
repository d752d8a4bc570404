package cache

import (
	"encoding/binary"
	"sync/atomic"
)

// index is a hash table that is read without a lock while one writer changes it: chains of links whose nodes
// never move. Growing makes a new table with links of its own; readers of the old one see the same nodes.
type index struct {
	buckets []atomic.Pointer[link] // a power of two
	len     int
}

type link struct {
	node *node
	next atomic.Pointer[link]
}

func newIndex(buckets int) *index { return &index{buckets: make([]atomic.Pointer[link], buckets)} }

// hash is that of the key, with the partition, which is one already, on top.
func hash(k Key, p Partition) uint64 { return k.hash ^ binary.LittleEndian.Uint64(p[:8]) }

func (t *index) bucket(hash uint64) *atomic.Pointer[link] {
	return &t.buckets[hash&uint64(len(t.buckets)-1)]
}

// find returns the node of a URI and partition and its variants, or nil.
func (t *index) find(k Key, p Partition) (*node, []*Entry) {
	h := hash(k, p)
	for l := t.bucket(h).Load(); l != nil; l = l.next.Load() {
		if l.node.hash != h {
			continue
		}
		variants := l.node.variants.Load()
		if variants == nil {
			continue
		}
		if e := (*variants)[0]; e.partition == p && e.key == k {
			return l.node, *variants
		}
	}
	return nil, nil
}

// add puts n into t, or into a larger table if t is full, and returns which.
func (t *index) add(n *node) *index {
	if t.len == len(t.buckets) {
		larger := newIndex(2 * len(t.buckets))
		for i := range t.buckets {
			for l := t.buckets[i].Load(); l != nil; l = l.next.Load() {
				larger.link(l.node)
			}
		}
		t = larger
	}
	t.link(n)
	return t
}

func (t *index) link(n *node) {
	b := t.bucket(n.hash)
	l := &link{node: n}
	l.next.Store(b.Load())
	b.Store(l)
	t.len++
}

func (t *index) remove(n *node) {
	at := t.bucket(n.hash)
	for l := at.Load(); l != nil; l = at.Load() {
		if l.node == n {
			at.Store(l.next.Load())
			t.len--
			return
		}
		at = &l.next
	}
}
