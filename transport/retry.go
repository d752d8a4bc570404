package transport

import (
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/watertight-go/watertight/policy"
)

// retry repeats an attempt where repeating is safe and within a budget.
type retry struct {
	next   http.RoundTripper
	h      *host
	policy *policy.Retry
}

func newRetry(next http.RoundTripper, h *host) http.RoundTripper {
	if !h.policy.Retry.Enabled() {
		return next
	}
	r := &h.layers.retry
	r.next, r.h, r.policy = next, h, &h.policy.Retry
	if r.policy.Budget.Enabled() {
		h.layers.budget.begin(r.policy.Budget, h.t.now())
	}
	return r
}

// budget is that of the host's retries; nil: they have none.
func (h *host) budget() *budget {
	if h.layers.retry.h == nil || !h.policy.Retry.Budget.Enabled() {
		return nil
	}
	return &h.layers.budget
}

func (r *retry) RoundTrip(req *http.Request) (*http.Response, error) {
	bodies := r.begin(req)
	defer bodies.seal()
	resp, err := r.next.RoundTrip(req)
	return r.ended(attemptOf(req), bodies, resp, err)
}

// begin takes charge of the body of a request; nil: that needs no copy.
//
//go:noinline
func (r *retry) begin(req *http.Request) *replay {
	c := attemptOf(req).call
	c.idempotent = c.opts.Idempotent || policy.Idempotent(c.req)
	keep := int64(0) // of a body that is only sent again if nothing of it was
	if c.idempotent {
		keep = r.policy.ReplayBody
	}
	return newReplay(r.h.t, req, keep)
}

// credit puts into the budget what a call brings that succeeds.
func (r *retry) credit(resp *http.Response, err error) {
	if err == nil && resp.StatusCode < 500 && !r.policy.Status(resp.StatusCode) {
		r.h.budget().deposit(r.h.t)
	}
}

// ended retries a, which has ended, until there is an answer, or no use in more.
//
//go:noinline
func (r *retry) ended(a *attempt, bodies *replay, resp *http.Response, err error) (*http.Response, error) {
	c := a.call
	for n := 0; ; n++ {
		reason := a.retryReason(resp, err, r.policy)
		if reason == "" {
			r.credit(resp, err)
			return resp, c.attempted(err)
		}
		delay, obstacle := r.plan(a, bodies, resp, err, n)
		if obstacle != "" || r.policy.Shadow {
			r.suppress(a, obstacle, reason, delay)
			return resp, c.attempted(err)
		}
		body, bodyErr := bodies.nextAfter(resp, c.req)
		if bodyErr != nil { // of the caller's GetBody
			r.h.budget().putBack()
			r.suppress(a, "body_not_replayable", reason, 0)
			return resp, c.attempted(err)
		}
		last := a.discard(resp, err)
		r.tell(a, delay, reason)
		next := a.next(timeoutOf(err))
		if err = c.wait(delay); err != nil {
			if body != nil {
				_ = body.Close()
			}
		} else {
			req := next.request(c.req)
			req.Body = body
			resp, err = r.next.RoundTrip(req)
		}
		sent := next.wasSent()
		if err != nil && (!sent || next.atFault()) { // what the host said last is the answer
			if !sent {
				r.h.budget().putBack()
			}
			if c.gone() != nil {
				return nil, err
			}
			if !sent {
				r.suppress(a, obstacleOf(err), reason, 0)
			}
			c.faulty = false // not with the body that it came with
			return last.restore(c)
		}
		a = next
	}
}

// plan is how long to wait before retry n, or what stands against it. Where the
// answer is a delay, a token of the budget is taken.
func (r *retry) plan(a *attempt, bodies *replay, resp *http.Response, err error, n int) (delay time.Duration, obstacle string) {
	c := a.call
	switch {
	case n+1 >= r.policy.MaxAttempts:
		return 0, "max_attempts"
	case !c.idempotent && !a.unsent(err):
		return 0, "not_idempotent"
	case bodies.lost():
		return 0, "body_not_replayable"
	case r.h.breaker.refuses():
		return 0, "breaker_open"
	}
	delay = r.policy.Delay(n, random())
	if resp != nil {
		if after, ok := policy.RetryAfter(resp.Header, time.Now()); ok {
			if delay, ok = r.policy.RetryAfterDelay(delay, after, random()); !ok {
				return 0, "retry_after"
			}
		}
	}
	if deadline, ok := c.ctx.Deadline(); ok && time.Until(deadline) <= delay {
		return 0, "deadline"
	}
	now := r.h.t.now()
	if a.leftOfTotal(now) <= delay {
		return 0, "deadline"
	}
	if !r.h.budget().take(now) {
		return 0, "budget"
	}
	if !r.policy.Shadow && !bodies.ready() { // last, since it may wait
		r.h.budget().putBack()
		return 0, "body_not_replayable"
	}
	return delay, ""
}

// tell tells of a retry that is about to wait.
func (r *retry) tell(a *attempt, delay time.Duration, reason string) {
	if t := r.h.t; t.debugging(a.call.ctx, t.now()) {
		t.log(a.call.ctx, slog.LevelDebug, "retry", slog.String("host", r.h.name), slog.Int("attempt", int(a.number)),
			slog.String("reason", reason), seconds("delay_seconds", delay))
	}
	a.call.observe(Event{Kind: EventRetry, Layer: LayerRetry, Attempt: int(a.number), Delay: delay, Reason: reason})
}

// suppress tells of a retry that is not made.
func (r *retry) suppress(a *attempt, obstacle, reason string, delay time.Duration) {
	if obstacle == "" { // it is in shadow mode
		a.call.observe(Event{Kind: EventRetry, Layer: LayerRetry, Attempt: int(a.number), Delay: delay, Reason: reason, Shadow: true})
		return
	}
	r.h.counts.others().suppressed.Add(1)
	if t := r.h.t; t.debugging(a.call.ctx, t.now()) {
		t.log(a.call.ctx, slog.LevelDebug, "retry suppressed", slog.String("host", r.h.name), slog.Int("attempt", int(a.number)),
			slog.String("reason", obstacle), slog.Bool("shadow", r.policy.Shadow))
	}
	a.call.observe(Event{Kind: EventRetrySuppressed, Layer: LayerRetry, Attempt: int(a.number), Reason: obstacle, Shadow: r.policy.Shadow})
}

// obstacleOf names what kept a retry from being sent after its wait.
func obstacleOf(err error) string {
	switch {
	case errors.Is(err, ErrBreakerOpen):
		return "breaker_open"
	case errors.Is(err, ErrBulkheadFull):
		return "bulkhead_full"
	}
	return "deadline"
}

// retryReason says why an attempt would be worth repeating: connection, timeout
// or status; empty if it is not.
func (a *attempt) retryReason(resp *http.Response, err error, p *policy.Retry) string {
	if err == nil && !p.Status(resp.StatusCode) || a.call.gone() != nil {
		return ""
	}
	if err == nil {
		return "status"
	}
	a.mu.Lock()
	faulty, sent := a.faulty, a.started
	a.mu.Unlock()
	if faulty || !sent || hopeless(err) {
		return ""
	}
	var e *Error
	if errors.As(err, &e) && e.Kind != nil {
		if e.limit() && e.Kind != ErrTotalTimeout {
			return "timeout"
		}
		return ""
	}
	if timeoutOf(err) {
		return "timeout"
	}
	return "connection"
}

// wasSent reports whether the layers above the base have let the attempt out.
func (a *attempt) wasSent() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.started
}

// leftOfTotal is the call's, while the answer of its last attempt is still open.
func (a *attempt) leftOfTotal(now time.Duration) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	left := a.call.leftOfTotal(now)
	if a.ended {
		return left
	}
	paused := now - a.clock.start - a.clock.age(now)
	return left + paused + a.call.timeout.Extension(a.clock.bytes)
}

// unsent reports whether the request surely never left. net/http does not send it again
// once the peer has said something, but a Middleware may.
func (a *attempt) unsent(err error) bool {
	if err == nil {
		return false
	}
	a.mu.Lock()
	traced, sent := a.reached || a.asked, a.conn || a.heard
	a.mu.Unlock()
	if traced {
		return !sent
	}
	var op *net.OpError
	return errors.As(err, &op) && (op.Op == "dial" || op.Op == "proxyconnect")
}

// attempted adds the number of attempts to the error of a call that made several;
// the error of a single one is returned as it is.
func (c *call) attempted(err error) error {
	if err == nil {
		return nil
	}
	if _, ours := err.(*Error); ours || c.sent < 2 || c.gone() != nil {
		return err
	}
	return &Error{Host: c.h.name, Layer: LayerRetry, Attempts: int(c.sent), Err: err}
}

// wait waits before a retry. It ends with the caller, whose error it returns, or
// with Total, which discarding an answer may have brought closer than planned.
func (c *call) wait(d time.Duration) error {
	left := c.leftOfTotal(c.h.t.now())
	if d > 0 && left > 0 {
		timer := time.NewTimer(min(d, left))
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-c.ctx.Done():
		case <-c.req.Cancel:
		}
	}
	if gone := c.gone(); gone != nil {
		return gone
	}
	if left > d {
		return nil
	}
	e := c.totalTimeout("total")
	c.timedOut(e, int(c.sent), false)
	return e
}
