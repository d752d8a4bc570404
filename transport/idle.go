package transport

import (
	"container/list"
	"sync"
	"sync/atomic"
	"time"
)

// idleConns bounds the idle connections of all hosts together. It sees them
// through httptrace, which does not tell of those that the peer or net/http's
// idle timeout has closed; so it may count too many, and close too early. HTTP/2
// is not traced: a pool that speaks it and is not in use has one idle connection.
type idleConns struct {
	max int64
	n   atomic.Int64

	mu    sync.Mutex // guards what follows, and place and since of the pools in it
	pools list.List  // that have idle connections, or had: the first to come in front
}

// enlist notes that p has idle connections. A pool in steady use stays in the list
// while it has none, so that calls do not meet at mu.
func (i *idleConns) enlist(p *pool) {
	if p.listed.Load() {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if p.place == nil {
		p.place, p.since = i.pools.PushBack(p), p.h.lastUse()
		p.listed.Store(true)
	}
}

// forget takes p out of the list, and its connections out of the count.
func (i *idleConns) forget(p *pool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.remove(p)
	i.n.Add(-p.parked.Swap(0))
}

// remove takes p out of the list. mu is held.
func (i *idleConns) remove(p *pool) {
	if p.place != nil {
		i.pools.Remove(p.place)
		p.place = nil
		p.listed.Store(false)
	}
}

// shed closes the idle connections of hosts until there are no longer too many:
// first of those whose host was not used again since it was last their turn, and
// of newest never, which alone keeps within the bound.
func (i *idleConns) shed(newest *pool) {
	for p := i.next(newest); p != nil; p = i.next(newest) {
		p.close()
	}
}

// next takes the pool out of the list, and its connections out of the count, that
// is to be closed first; nil if there are not too many, so that many who ask at
// once do not take a pool each.
func (i *idleConns) next(newest *pool) *pool {
	i.mu.Lock()
	defer i.mu.Unlock()
	for range 2 * i.pools.Len() {
		if i.n.Load() <= i.max {
			break
		}
		front := i.pools.Front()
		if front == nil {
			break
		}
		p := front.Value.(*pool)
		p.listed.Store(false) // before the look: a connection that comes after it is enlisted anew
		if p.parked.Load() == 0 {
			i.remove(p)
			continue
		}
		if used := p.h.lastUse(); p == newest || used > p.since {
			p.since = used
			p.listed.Store(true)
			i.pools.MoveToBack(front)
			continue
		}
		i.remove(p)
		i.n.Add(-p.parked.Swap(0))
		return p
	}
	return nil
}

// lastUse is when a call was last made, as exact as usedEvery.
func (h *host) lastUse() time.Duration { return time.Duration(h.used.Load()) }
