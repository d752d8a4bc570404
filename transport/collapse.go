package transport

import (
	"hash/maphash"
	"sync"
	"time"

	"github.com/watertight-go/watertight/cache"
)

// Identical requests that come together wait for the first one's answer, where answers
// are reused. Nobody is given what is not stored for him, and nobody shares a failure:
// who finds nothing stored then goes out himself, and waits for no second one.

const (
	// aloneTime is how long requests do not wait for each other after the last one whose
	// answer was of no use to those who had (hit-for-miss).
	aloneTime = 10 * time.Second
	// mostAlone bounds how many of those are remembered of a host.
	mostAlone = 4096
	// bodyTime is how long the others wait for a body, which whoever reads it may be
	// slow to do.
	bodyTime = time.Second
)

// flights are the requests of a host for whose answers others wait.
type flights struct {
	mu      sync.Mutex // guards what follows
	running map[cache.Flight]*flight
	alone   map[uint64]time.Duration // until when, on the clock, by a hash
}

var flightSeed = maphash.MakeSeed()

// flight is one request that others wait for.
type flight struct {
	of     *flights
	what   cache.Flight
	headed chan struct{} // closed when its answer is being read,
	since  time.Duration // from then on
	done   chan struct{} // closed when it has ended
}

// join returns the flight to wait for, or, leading, the one that others will wait for;
// nil if there is no use in that.
func (f *flights) join(what cache.Flight, now time.Duration) (_ *flight, leads bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if mark := maphash.Comparable(flightSeed, what); now < f.alone[mark] {
		f.alone[mark] = now + aloneTime
		return nil, false
	}
	if fl := f.running[what]; fl != nil {
		return fl, false
	}
	fl := &flight{of: f, what: what, headed: make(chan struct{}), done: make(chan struct{})}
	if f.running == nil {
		f.running, f.alone = map[cache.Flight]*flight{}, map[uint64]time.Duration{}
	}
	f.running[what] = fl
	return fl, true
}

// end lets the others go. What was Useless to them, or Dropped unread, ends the waiting
// for such answers, for a while; failed does not. A nil flight has nobody waiting.
func (fl *flight) end(how cache.Settlement, now time.Duration) {
	if fl == nil {
		return
	}
	fl.of.mu.Lock()
	defer fl.of.mu.Unlock()
	if fl.of.running[fl.what] != fl {
		return // it has ended
	}
	delete(fl.of.running, fl.what)
	if how == cache.Useless || how == cache.Dropped {
		if len(fl.of.alone) >= mostAlone {
			clear(fl.of.alone)
		}
		fl.of.alone[maphash.Comparable(flightSeed, fl.what)] = now + aloneTime
	}
	close(fl.done)
}

// failed is how a flight ends that has brought no answer.
const failed cache.Settlement = 0

// collapse lets a call that is to be sent wait for another like it, and returns the
// flight that it leads, if it goes first; or why its waiting has ended, if that is its
// caller or Timeout.Total. It may have an answer then.
func (f *fallback) collapse(c *call) (*flight, error) {
	if !f.fresh || c.reuse.stored != nil || c.opts.NoStale {
		return nil, nil
	}
	what, ok := f.cache.Flight(&c.reuse.exchange, f.h.named(c.req))
	if !ok {
		return nil, nil
	}
	fl, leads := f.flights.join(what, f.h.t.now())
	if fl == nil || leads {
		return fl, nil
	}
	if refreshing(c.req) {
		return nil, nil
	}
	if err := c.follow(fl); err != nil {
		return nil, err
	}
	var again reuse
	f.begin(&again, c.req, &c.reuse.exchange, f.h.t.now())
	c.reuse = again
	return nil, nil
}

// patience is how long a call waits for another's answer before it goes out itself: no
// longer than it would take to be slow, or to fail, so that a host that hangs is noticed.
func (c *call) patience() time.Duration {
	d := aloneTime
	for _, limit := range [...]time.Duration{c.slowCall, c.timeout.Read, c.timeout.Attempt} {
		if limit > 0 {
			d = min(d, limit)
		}
	}
	return d
}

// follow waits for a flight, and returns why it does not any more if that is its caller
// or Timeout.Total.
func (c *call) follow(fl *flight) error {
	patience, left := c.patience(), c.leftOfTotal(c.h.t.now())
	timer := time.NewTimer(max(min(left, patience), 0))
	defer timer.Stop()
	headed := fl.headed
	var slow <-chan time.Time
	for {
		select {
		case <-fl.done:
			return c.gone()
		case <-headed:
			body := time.NewTimer(fl.since + bodyTime - c.h.t.now())
			defer body.Stop()
			headed, slow = nil, body.C
		case <-slow:
			fl.end(cache.Useless, c.h.t.now())
			return nil
		case <-c.ctx.Done():
			return c.gone()
		case <-c.req.Cancel:
			return c.gone()
		case <-timer.C:
			if left > patience {
				return nil
			}
			e := c.totalTimeout("total")
			c.timedOut(e, int(c.sent), false)
			return e
		}
	}
}
