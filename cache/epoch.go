package cache

import "sync/atomic"

const epochStripes = 1024

// epoch counts the writes to the URIs of one stripe, in its upper half, and says which URI the last one was to, in its lower: an answer
// asked for in one epoch is not stored in another, since it may be from before the write. One write to another URI of the
// stripe is told apart from one to its own; where there were more, the answer is not stored, which only costs a copy.
type epoch struct{ v atomic.Uint64 }

func (e *epoch) now() uint64 { return e.v.Load() }

// end ends the epoch, for a write to k.
func (e *epoch) end(k Key) {
	for {
		was := e.v.Load()
		if e.v.CompareAndSwap(was, (was>>32+1)<<32|uint64(k.tag())) {
			return
		}
	}
}

// over reports whether k may have been written to since.
func (e *epoch) over(k Key, since uint64) bool {
	is := e.v.Load()
	switch uint32(is>>32) - uint32(since>>32) {
	case 0:
		return false
	case 1:
		return uint32(is) == k.tag()
	}
	return true
}

// tag tells most URIs of a stripe apart.
func (k Key) tag() uint32 { return uint32(k.hash >> 32) }
