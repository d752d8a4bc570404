package transport

import "time"

const (
	sweepEvery = time.Second
	sweepHosts = 256              // looked at in one sweep
	sweepIdle  = 90 * time.Second // after which a pool is given back
)

// sweep gives back the pools of hosts that have not been used for a while, a few
// hosts at a time, on the goroutine of whichever call finds it due.
func (t *Transport) sweep(now time.Duration) {
	m := &t.hosts
	if !m.mu.TryLock() {
		return
	}
	if int64(now) < m.sweepAt.Load() {
		m.mu.Unlock()
		return
	}
	m.sweepAt.Store(int64(now + sweepEvery))
	var idle []*host
	for range min(len(m.ring), sweepHosts) {
		m.broom = (m.broom + 1) % len(m.ring)
		if h := m.ring[m.broom]; now-time.Duration(h.used.Load()) > sweepIdle && h.pools.current.Load() != nil {
			idle = append(idle, h)
		}
	}
	m.mu.Unlock()
	for _, h := range idle {
		h.pools.giveBack()
	}
}

// shedIdle closes the idle connections of the host that was used longest ago,
// of a few that have any: there are too many in all.
func (t *Transport) shedIdle(newest *pool) {
	m := &t.hosts
	if !m.mu.TryLock() {
		return
	}
	var oldest *pool
	for i := range min(len(m.ring), sweepHosts) {
		h := m.ring[(m.broom+i)%len(m.ring)]
		p := h.pools.current.Load()
		if p == nil || p == newest || p.parked.Load() == 0 {
			continue
		}
		if oldest == nil || h.used.Load() < oldest.h.used.Load() {
			oldest = p
		}
	}
	m.broom += sweepHosts
	m.mu.Unlock()
	if oldest != nil { // newest alone keeps within the bound
		oldest.close()
	}
}
