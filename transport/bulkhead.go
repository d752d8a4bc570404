package transport

import (
	"context"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/watertight-go/watertight/policy"
)

// bulkhead lets a host hold no more than its share of calls at once. A permit is
// taken here and given back by the end of the attempt.
type bulkhead struct {
	next    http.RoundTripper
	h       *host
	policy  *policy.Bulkhead
	permits *semaphore.Weighted // where calls wait, or are only counted; nil: most, or no bound of its own
	most    int64               // the bound of held, where a permit is had at once or not at all; 0: see permits
	held    atomic.Int64        // attempts under way
	waiting atomic.Int64
	refusal atomic.Pointer[Error] // of all calls that find it full, and had sent nothing
}

func newBulkhead(next http.RoundTripper, h *host) http.RoundTripper {
	b := &h.bulkhead
	b.next, b.h, b.policy = next, h, &h.policy.Bulkhead
	switch n := int64(b.policy.MaxConcurrent); {
	case n <= 0:
	case b.policy.MaxWait <= 0 && !b.policy.Shadow:
		b.most = n
	default:
		b.permits = semaphore.NewWeighted(n)
	}
	if b.most == 0 && b.permits == nil && h.t.permits == nil {
		return next
	}
	return b
}

func (b *bulkhead) RoundTrip(req *http.Request) (*http.Response, error) {
	a := attemptOf(req)
	if err := b.acquire(a); err != nil {
		closeBody(req)
		return nil, err
	}
	return b.next.RoundTrip(req)
}

// acquire takes a permit of the host and one of the process. Shadowed, it does
// not insist on the host's; the process's is not the host's to let go of.
func (b *bulkhead) acquire(a *attempt) error {
	wait := b.policy.MaxWait
	if b.most > 0 && !b.hold(a) {
		return b.refuse(a, a.call.error(b.error()), false)
	}
	if b.permits != nil {
		err := b.take(a, b.permits, &wait, "Bulkhead.MaxConcurrent", b.policy.Shadow)
		if err != nil && !b.policy.Shadow {
			return err
		}
		a.permit = err == nil
	}
	if all := b.h.t.permits; all != nil {
		if err := b.take(a, all, &wait, "Config.MaxConcurrent", false); err != nil {
			b.giveBack(a)
			return err
		}
		a.shared = true
	}
	return nil
}

// error is the refusal of an attempt that finds no permit of the host's.
func (b *bulkhead) error() *Error {
	return &Error{Kind: ErrBulkheadFull, Host: b.h.name, Layer: LayerBulkhead, Phase: "queue", Knob: "Bulkhead.MaxConcurrent"}
}

// refused is error for a call that has sent nothing, which is the same for all of those.
func (b *bulkhead) refused() *Error {
	if e := b.refusal.Load(); e != nil {
		return e
	}
	e := b.error()
	b.refusal.Store(e)
	return e
}

// full reports whether an attempt would be refused now.
func (b *bulkhead) full() bool { return b.most > 0 && b.held.Load() >= b.most }

// hold counts an attempt among those that are held, unless there are as many as there may be.
func (b *bulkhead) hold(a *attempt) bool {
	for {
		n := b.held.Load()
		if n >= b.most {
			return false
		}
		if b.held.CompareAndSwap(n, n+1) {
			a.held = true
			return true
		}
	}
}

// take takes one permit, after a wait of up to wait, which is less what was
// waited already.
func (b *bulkhead) take(a *attempt, permits *semaphore.Weighted, wait *time.Duration, knob string, shadow bool) error {
	if permits.TryAcquire(1) {
		return nil
	}
	c := a.call
	full := &Error{Kind: ErrBulkheadFull, Layer: LayerBulkhead, Phase: "queue", Knob: knob}
	if shadow || b.policy.MaxWait <= 0 {
		return b.refuse(a, c.error(full), shadow)
	}
	full.Limit = b.policy.MaxWait
	begun := b.h.t.now()
	defer func() { *wait -= b.h.t.now() - begun }()
	if left := c.leftOfTotal(begun); left < *wait {
		return b.await(a, permits, begun, left, c.totalTimeout("queue"))
	}
	return b.await(a, permits, begun, *wait, c.error(full))
}

// await waits for a permit until the caller leaves or the time is over.
func (b *bulkhead) await(a *attempt, permits *semaphore.Weighted, begun, wait time.Duration, late *Error) error {
	c := a.call
	ctx, cancel := context.WithTimeout(c.ctx, wait)
	defer cancel()
	if c.req.Cancel != nil {
		go func() {
			select {
			case <-c.req.Cancel:
				cancel()
			case <-ctx.Done():
			}
		}()
	}
	b.waiting.Add(1)
	err := permits.Acquire(ctx, 1)
	b.waiting.Add(-1)
	a.waited += b.h.t.now() - begun
	if err == nil {
		return nil // the wait is told of when the attempt has started, and is sure to end
	}
	if err := c.gone(); err != nil {
		c.observe(Event{Kind: EventPermit, Layer: LayerBulkhead, Attempt: int(a.number), Duration: a.waited, Err: err})
		return err
	}
	return b.refuse(a, late, false)
}

// refuse counts a refusal and tells of it, once the host's permit is back that was
// taken before the process had none.
func (b *bulkhead) refuse(a *attempt, e *Error, shadow bool) error {
	b.giveBack(a)
	reason := "full"
	switch {
	case e.Kind == ErrTotalTimeout:
		reason = "deadline"
		a.call.timedOut(e, int(a.number), false)
	case e.Limit > 0:
		reason = "wait_timeout"
	}
	b.tell(a.call.ctx, reason, shadow, b.h.t.now())
	a.call.observe(Event{Kind: EventRefusal, Layer: LayerBulkhead, Reason: reason, Attempt: int(a.number), Duration: a.waited, Err: e, Shadow: shadow})
	return e
}

// tell counts a refusal, and logs it.
func (b *bulkhead) tell(ctx context.Context, reason string, shadow bool, now time.Duration) {
	b.h.counts.others().rejected.Add(1)
	if t := b.h.t; t.debugging(ctx, now) {
		t.log(ctx, slog.LevelDebug, "call refused", slog.String("host", b.h.name), slog.String("layer", LayerBulkhead),
			slog.String("reason", reason), slog.Bool("shadow", shadow))
	}
}

// giveBack returns the permits that the attempt holds.
func (b *bulkhead) giveBack(a *attempt) {
	if a.held { // first, so that the gauge never shows more than there are permits
		a.held = false
		b.held.Add(-1)
	}
	if a.permit {
		a.permit = false
		b.permits.Release(1)
	}
	if a.shared {
		a.shared = false
		b.h.t.permits.Release(1)
	}
}
