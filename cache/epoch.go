package cache

import (
	"sync"
	"sync/atomic"
)

const (
	epochStripes = 1024
	epochWrites  = 16 // that a stripe remembers, less one that is being made: seven writes, each of which ends an epoch twice
)

// epoch counts the writes to the URIs of one stripe, and remembers which URIs the last ones were to: an answer asked for before a
// write to its URI is not stored after it. Where there were more writes than are remembered, the answer is not stored, which only
// costs a copy.
type epoch struct {
	writes atomic.Uint64
	last   [epochWrites]atomic.Uint32 // tags, each at the number of its write

	mu sync.Mutex // of writers
}

// end ends the epoch of k, for a write to it.
func (c *Cache) end(k *Key) {
	c.origins.writesOf(k.origin).Add(1) // first: see named
	c.epoch(k).end(k)
}

func (e *epoch) now() uint64 { return e.writes.Load() }

// end ends the epoch, for a write to k.
func (e *epoch) end(k *Key) {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := e.writes.Load() + 1
	e.last[n%epochWrites].Store(k.tag()) // first: who sees the write sees its tag
	e.writes.Store(n)
}

// over reports whether k may have been written to since.
func (e *epoch) over(k *Key, since uint64) bool {
	is := e.writes.Load()
	if is-since >= epochWrites {
		return true
	}
	for n := is; n > since; n-- {
		if e.last[n%epochWrites].Load() == k.tag() {
			return true
		}
	}
	return e.writes.Load()-since >= epochWrites // a tag may have been another's by the time it was looked at
}

// tag tells most URIs of a stripe apart.
func (k *Key) tag() uint32 { return uint32(k.hash >> 32) }
