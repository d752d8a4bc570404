package transport

import (
	"net/http"
	"sync"
	"sync/atomic"
	"time"
	"weak"
)

const moment = 50 * time.Millisecond

// late closes the connections of a pool that are idle only after it was closed. An
// HTTP/2 connection counts its last stream as open for a moment after its body has
// ended, and a new one is in the pool a moment after its handshake. Neither can be
// seen, and on a machine that is busy, or with a request body that is slow to
// close, the moment is long: a pool that will not be used again is closed again,
// less and less often for about a minute; what is left then, its idle timeout ends.
//
// It holds neither the pool nor its host: an http.Transport lives as long as it has
// connections, and where there is none there is nothing to close.
type late struct {
	transport weak.Pointer[http.Transport]

	armed atomic.Bool // the timer may be running

	mu    sync.Mutex // guards what follows
	timer *time.Timer
	wait  time.Duration // what the timer is set to
	most  time.Duration // the longest wait
}

// begin starts anew: a moment from now, and with again after that.
func (l *late) begin(again bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.armed.Store(true)
	l.wait, l.most = moment, moment
	if again {
		l.most = sweepIdle / 2
	}
	if l.timer == nil {
		l.timer = time.AfterFunc(l.wait, l.tick)
	} else {
		l.timer.Reset(l.wait)
	}
}

// cancel ends it, since the pool is used again: what is idle then may be new.
func (l *late) cancel() {
	if !l.armed.Load() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.armed.Store(false)
	l.timer.Stop()
}

func (l *late) tick() {
	tr := l.transport.Value()
	if tr == nil || !l.armed.Load() {
		return
	}
	tr.CloseIdleConnections()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.wait *= 2; l.wait <= l.most && l.armed.Load() {
		l.timer.Reset(l.wait)
	} else {
		l.armed.Store(false)
	}
}
