package transport

import "time"

const (
	sweepEvery = time.Second
	sweepHosts = 256              // looked at in one sweep
	sweepIdle  = 90 * time.Second // after which a pool is given back
)

// sweep gives back the pools and the latencies of hosts that have not been used for a while, a few
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
		if h := m.ring[m.broom]; now-time.Duration(h.used.Load()) > sweepIdle {
			idle = append(idle, h)
		}
	}
	m.mu.Unlock()
	for _, h := range idle {
		h.giveBackLatency()
		h.breaker.giveBackWindow(now)
		h.pools.giveBack()
	}
}
