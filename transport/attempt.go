package transport

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/watertight-go/watertight/cache"
	"github.com/watertight-go/watertight/policy"
)

// attempt is one attempt of a call: what it holds, its clock, and the context
// that its request carries, by which the layers find it.
//
// Its life: init, then the layers from the breaker down admit it, then start,
// answered (headers or an error), and end, exactly once, when its body has ended
// in whatever way. The watch in timeout.go runs from start to end.
type attempt struct {
	parent   context.Context // the call's, or what the observer made of it
	call     *call
	req      http.Request             // as it is sent
	hooks    *hooks                   // the caller's, if there are any; for his goroutine
	number   int32                    // from 1
	follower atomic.Pointer[follower] // ours, where there are none of his
	endless  bool                     // the caller's context never ends; not changed once the base has the request
	fresh    bool                     // wants a connection of its own, outside the pool

	// What the breaker and the bulkhead handed out, given back by end.
	held    bool // counted as such by the bulkhead
	permit  bool // of the host
	shared  bool // of the process
	ticket  ticket
	waited  time.Duration // for them
	pool    *pool
	settled atomic.Uint32 // the policy.Verdict that was counted; 0 while none was

	mu    sync.Mutex    // guards what follows
	std   *standard     // context, nil until somebody waits for it
	done  chan struct{} // where the caller's context never ends, in place of std
	after *afterwards   // likewise
	clock clock
	alarm *alarm
	dials int32 // those that gave a connection, or found one waiting

	stopped bool // the context has ended, though std may not be made yet
	started bool // the layers above the base have let it out
	ended   bool // what it held was given back

	passage passage
	reached bool // it has come to the *http.Transport of its pool
	asked   bool // net/http wants a connection for it
	conn    bool // net/http has a connection for it
	reused  bool // its connection was used before
	heard   bool // the peer has said something
	direct  bool // its last dial was to the host itself, not to a proxy
	headed  bool // net/http has written its header on that connection

	sending   sending // how far the base is with the request body
	closing   closing // how far the response body is closed
	shadowed  bool    // a limit in shadow mode was reported
	slow      bool    // its age has passed SlowCall
	stream    bool    // it is exempt from all limits but those on connecting and StreamIdle
	faulty    bool    // the request itself is at fault
	hungUp    bool    // the base's body was closed because the caller has left
	idled     bool    // the body was found to be forgotten, be it in shadow mode
	discarded bool    // the response is not wanted any more

	rare    *rare
	upload  *upload        // the request body, or the one that took its place
	expired *Error         // the limit that fired
	resp    *http.Response // the base's
	readErr error          // what reads of the body give from now on
	unhook  func() bool    // undoes what the caller's context was told to do
	capture *cache.Capture
	handed  *call // the call that ends with the body
}

// rare is what few attempts have.
type rare struct {
	lease      time.Duration // when a probe is judged at the latest
	retryAfter time.Duration // the peer asked for it; the header itself is the caller's
	unsaid     error         // why net/http has not written the header
	fault      error         // the caller's own, if the request is at fault by that
	leaked     string        // how the body was found to be forgotten
	dropped    chan struct{} // closed when the attempt has ended for a request body that stalled; nil while none has
}

// needRare is what is rare of the attempt, to be added to. mu must be held.
func (a *attempt) needRare() *rare {
	if a.rare == nil {
		a.rare = &rare{}
	}
	return a.rare
}

// peekRare is what is rare of the attempt. mu must be held.
func (a *attempt) peekRare() rare {
	if a.rare == nil {
		return rare{}
	}
	return *a.rare
}

type attemptKey struct{}

// init makes the zero attempt one of a call.
func (a *attempt) init(c *call) {
	a.call, a.parent = c, c.ctx
	a.number = 1
}

// next returns the attempt after a; after a timeout it does not trust the pool.
func (a *attempt) next(timedOut bool) *attempt {
	n := &attempt{}
	n.init(a.call)
	n.number, n.fresh = a.number+1, timedOut
	return n
}

// request is req as this attempt sends it: a copy that carries the attempt. It is not
// inlined, for the 304 bytes of another copy on the stack of each call that waits.
//
//go:noinline
func (a *attempt) request(req *http.Request) *http.Request {
	a.req = *req.WithContext(a)
	if asks := a.call.reuse.header; asks != nil {
		a.req.Header = asks
	}
	if a.req.Header == nil {
		a.req.Header = http.Header{}
	}
	return &a.req
}

// announce tells the observer that the attempt begins, and of its wait for a permit,
// which one that was refused never did; what the observer sets in the header is sent.
func (a *attempt) announce(req *http.Request) {
	h := a.call.h
	if a.waited > 0 {
		a.call.observe(Event{Kind: EventPermit, Layer: LayerBulkhead, Attempt: int(a.number), Duration: a.waited})
	}
	req.Header = req.Header.Clone()
	a.parent = h.t.started(a.call.ctx, Start{Scheme: h.key.scheme, Host: h.name, State: h.breaker.state(),
		Attempt: int(a.number), Request: a.call.req, Header: req.Header}, req)
}

// attemptOf finds the attempt of a request between the layers.
func attemptOf(req *http.Request) *attempt {
	return req.Context().(*attempt)
}

// start begins the attempt's clock; it has its permit. What it returns is for answered,
// and only points to the attempt by its alarm.
func (a *attempt) start() *guard {
	a.call.sent++
	a.call.last = a
	a.call.h.active.Add(1)
	a.call.h.counts.attempts.Add(1)
	if !a.held {
		a.held = true
		a.call.h.bulkhead.held.Add(1)
	}
	if a.number > 1 {
		a.call.h.counts.others().retries.Add(1)
	}
	h, c := a.call.h, a.call
	now, usual := c.start, h.prompt && a.number == 1 && a.waited == 0 && a.ticket.done == nil
	if !usual {
		now = h.t.now()
	}
	g := h.t.guards.take(h.t.keeps(now))
	a.alarm, a.started = g.alarm, true // nobody else knows of the attempt yet
	a.clock.begin(now)
	a.alarm.of.Store(a)
	if !usual || c.opts != &noCall || c.earlier != 0 {
		a.mu.Lock()
		a.watch(now)
		a.mu.Unlock()
	} else if h.soonest != forever && !g.alarm.isSet(h.soonest, now) {
		a.mu.Lock()
		a.arm(h.soonest, now)
		a.mu.Unlock()
	}
	return g
}

// How an attempt ended, where it is not an error.
type ending uint8

const (
	endEOF     ending = iota // the body is complete
	endClosed                // the caller, or a layer, has closed the body early
	endBroken                // by an error, in err
	endLeaked                // the caller forgot the body
	endHeaders               // the connection is the caller's from here on
	endPanic                 // the call is abandoned
)

// end gives back what the attempt holds and settles its verdict, once. It must
// not be called with mu held.
func (a *attempt) end(how ending, err error) { a.endAt(how, err, a.call.h.t.now()) }

func (a *attempt) endAt(how ending, err error, now time.Duration) {
	h := a.call.h
	a.mu.Lock()
	if a.ended || !a.started {
		a.mu.Unlock()
		return
	}
	a.ended = true
	if how == endClosed && a.expired != nil { // when a limit had fired
		how, err = endBroken, a.expired
	}
	a.clock.shift(now, phaseDone, false)
	a.letGo()
	duration, age := now-a.clock.start, a.clock.age(now)
	a.call.free += a.clock.free
	a.call.bytes += a.clock.bytes
	a.call.faulty = a.faulty
	a.slow = a.slow || a.late(now)
	unhook := a.unhook
	resp, handed, expired := a.resp, a.handed, a.expired
	was := final{a.slow, a.faulty, a.discarded}
	pool, doubtful := a.pool, expired != nil && a.reused // the connection that it used
	sendsOn := a.sending != uploadOver                   // the rest of the request may be read; its end stops the attempt
	if how != endEOF && how != endClosed {
		a.capture.Discard()
	}
	stops := !(how == endHeaders && pool == nil) && !(how == endEOF && sendsOn) // net/http has let go of an upgraded connection
	var f *follower
	if stops && how == endEOF && !a.stopped && h.t.keeps(now) && h.t.keeps(a.clock.start) {
		f = a.unfollow()
	}
	if !a.awaited() {
		a.stopped, stops = a.stopped || stops, false
	}
	a.mu.Unlock()
	if f != nil {
		h.t.followers.release(f)
	}
	if unhook != nil {
		unhook()
	}

	// Give back first, tell afterwards: a Classify or a listener may take its time,
	// or end its goroutine.
	defer h.release() // the host is not to be dropped before its verdict
	if a.ticket.done != nil {
		defer h.breaker.settle(a, policy.Neutral, nil, nil, now) // in case judge does not
	}
	h.bulkhead.giveBack(a)
	if pool != nil {
		a.giveBack(pool, doubtful)
	}
	if stops {
		a.stop()
	}
	if resp != nil || expired != nil {
		h.took(now, age)
	}
	verdict := a.judge(how, was, resp, expired != nil, err, now)
	if h.t.observer == nil {
		return
	}
	if expired != nil {
		a.call.tellTimeout(expired, int(a.number), false)
	}
	a.tellEnd(how, verdict, was.slow, duration, resp, err)
	if handed != nil {
		handed.end(statusOf(resp), err, now)
	}
}

// tellEnd tells the observer of the end of the attempt.
func (a *attempt) tellEnd(how ending, v policy.Verdict, slow bool, took time.Duration, resp *http.Response, err error) {
	h := a.call.h
	if how == endLeaked {
		a.mu.Lock()
		leaked := a.peekRare().leaked
		a.mu.Unlock()
		a.call.observe(Event{Kind: EventLeak, Layer: LayerBulkhead, Reason: leaked, Attempt: int(a.number)})
	}
	h.t.observe(a.parent, Event{Kind: EventAttemptEnd, Scheme: h.key.scheme, Host: h.name, Attempt: int(a.number), Verdict: v, Slow: slow,
		Outcome: a.outcome(how, resp, err), Duration: took, Status: statusOf(resp), Proto: protoOf(resp), Err: err})
}

// outcome names how an attempt ended, for the observer.
func (a *attempt) outcome(how ending, resp *http.Response, err error) string {
	switch {
	case how == endPanic || resp != nil && resp.StatusCode >= 500:
		return "error"
	case err == nil:
		return "success"
	}
	var e *Error // here, since it is an allocation
	if !errors.As(err, &e) && a.call.gone() != nil {
		return "cancelled"
	}
	return "error"
}

// giveBack returns the pool of an attempt that has ended.
func (a *attempt) giveBack(p *pool, doubtful bool) {
	if doubtful && !p.heardSince(a.clock.start) {
		a.call.h.pools.retire(p)
	}
	p.release()
}

// final is what an attempt is judged by when it has ended, and may yet change.
type final struct{ slow, faulty, discarded bool }

// judge settles the verdict of an attempt that ends; ours: a limit of ours has ended it.
func (a *attempt) judge(how ending, was final, resp *http.Response, ours bool, err error, now time.Duration) policy.Verdict {
	b := &a.call.h.breaker
	if was.slow { // before its verdict; the timer may be about to
		b.slow(a, now)
	}
	if v := a.counted(); v != policy.Unclassified { // at the headers, or by a lease
		return v
	}
	verdict := policy.Neutral
	switch {
	case how == endPanic || was.faulty:
	case !ours && a.call.gone() != nil:
		b.left(a, now, was.slow)
	case how == endBroken && ofProcess(err):
	case how == endBroken && !was.discarded:
		verdict = b.verdict(resp, err)
	default:
		verdict = b.verdict(resp, nil)
	}
	b.settle(a, verdict, resp, err, now)
	return verdict
}

// attemptLayer does the attempt itself: it starts its clock, and ties what the
// layers above hold to the end of the body. It is never off, since permits and
// verdicts end here even where there is no limit.
type attemptLayer struct {
	next http.RoundTripper
}

func newAttempt(next http.RoundTripper, h *host) http.RoundTripper {
	l := &h.layers.attempt
	l.next = next
	return l
}

func (l *attemptLayer) RoundTrip(req *http.Request) (*http.Response, error) {
	a := attemptOf(req)
	g := a.start()
	if a.call.h.t.observer != nil {
		a.announce(req)
	}
	a.endless = a.parent.Done() == nil
	a.watchUpload(req)
	resp, err := l.next.RoundTrip(req)
	return a.answered(resp, err, g)
}
