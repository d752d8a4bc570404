package transport

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/watertight-go/watertight/cache"
	"github.com/watertight-go/watertight/policy"
)

// answer is the stack's own copy of a response, with its body. It is apart from
// the attempt, and nothing of ours points to it, so that one whose caller has
// forgotten it becomes unreachable and is found.
type answer struct {
	http.Response
	body body
}

// body is the one wrapper around a response body for all layers: it tells the
// attempt's clock whose time it is, copies what is to be stored, and ends the
// attempt.
type body struct {
	a     *attempt
	resp  *http.Response
	guard atomic.Pointer[guard] // until the attempt has ended
}

// closing is how far a body is closed.
type closing uint8

const (
	bodyOpen     closing = iota
	bodyClosed           // to its caller, by himself or for having forgotten it
	closedWithin         // by himself; the base's is closed too, or at its end and about to be
)

var errNoAnswer = errors.New("the base RoundTripper returned neither a response nor an error")

// answered takes what the base returned: headers or an error.
func (a *attempt) answered(resp *http.Response, err error, g *guard) (*http.Response, error) {
	h := a.call.h
	now := h.t.now()
	if err != nil || resp == nil {
		err = a.unanswered(resp, err, now)
		h.t.guards.release(g)
		return nil, err
	}
	ans := &answer{Response: *resp}
	ans.Request = a.call.req
	if ans.Body == nil {
		ans.Body = http.NoBody
	}
	if h.policy.Breaker.Classify != nil { // which may look at it until the body has ended
		ans.Header = resp.Header.Clone()
	}
	var retryAfter time.Duration
	if resp.Header["Retry-After"] != nil {
		retryAfter, _ = policy.RetryAfter(resp.Header, time.Now())
	}
	a.mu.Lock()
	if a.expired != nil || a.peekRare().dropped != nil { // just before the headers came
		a.mu.Unlock()
		err := a.tooLate(ans.Body, now)
		h.t.guards.release(g)
		return nil, err
	}
	if retryAfter > 0 {
		a.needRare().retryAfter = retryAfter
	}
	a.slow = a.slow || a.late(now)
	a.resp = resp
	upgrade := resp.StatusCode == http.StatusSwitchingProtocols
	exempted := a.stream
	a.stream = a.stream || upgrade || a.call.streaming() || streams(resp.Header["Content-Type"])
	a.clock.shift(now, phaseIdle, a.clock.uploading)
	if a.pool != nil {
		a.pool.hear(now)
	}
	bodiless := a.bodiless(ans.Body)
	if !bodiless && a.ticket.done != nil {
		a.needRare().lease = now + a.leaseTime()
		a.watch(now)
	} else if a.stream && !exempted && a.call.timeout.StreamIdle > 0 {
		a.watch(now)
	}
	slow, stream := a.slow, a.stream
	hook := a.sending == uploadOpen && !bodiless // a read may not heed the context until all is sent
	a.mu.Unlock()
	if hook {
		a.hook()
	}

	h.breaker.headers(a, resp, slow, stream, now)
	switch {
	case upgrade:
		a.endAt(endHeaders, nil, now)
		if a.call.timeout.StreamIdle > 0 || a.pool == nil {
			if rw, ok := ans.Body.(io.ReadWriteCloser); ok {
				ans.Body = newTunnel(rw, a)
			}
		}
	case bodiless:
		a.endAt(endEOF, nil, now)
		if !empty(ans.Body) { // of an answer to HEAD, by a base that made one
			_ = ans.Body.Close()
			ans.Body = http.NoBody
		}
	default:
		b := &ans.body
		b.a, b.resp = a, &ans.Response
		ans.Body = b
		g.watch()
		b.guard.Store(g)
		return &ans.Response, nil
	}
	h.t.guards.release(g)
	return &ans.Response, nil
}

// unanswered ends an attempt whose base gave no answer, and returns the error for that.
func (a *attempt) unanswered(resp *http.Response, err error, now time.Duration) error {
	if resp != nil && resp.Body != nil {
		_ = resp.Body.Close() // a base that returns both
	}
	if dropped := a.back(now); dropped != nil {
		a.untrace(true)
		return dropped
	}
	if err == nil {
		err = errNoAnswer
	}
	a.mu.Lock()
	a.faulty = a.faulty || a.unwritable(err)
	a.mu.Unlock()
	err = a.explain(err)
	a.end(endBroken, err)
	return err
}

// tooLate ends an attempt that was given up before its headers came, and returns the
// error for that.
func (a *attempt) tooLate(body io.Closer, now time.Duration) error {
	_ = body.Close()
	a.untrace(true)
	if dropped := a.back(now); dropped != nil {
		return dropped
	}
	a.mu.Lock()
	expired := a.expired
	a.mu.Unlock()
	a.end(endBroken, expired)
	return expired
}

// back says that the base has returned, after which the caller's time begins anew; or
// it waits until the attempt has been ended that was dropped meanwhile, and gives the
// error for that.
func (a *attempt) back(now time.Duration) error {
	a.mu.Lock()
	dropped, err := a.peekRare().dropped, a.readErr
	if dropped == nil {
		a.clock.shift(now, a.clock.phase, a.clock.uploading)
	}
	a.mu.Unlock()
	if dropped == nil {
		return nil
	}
	<-dropped
	return err
}

// bodiless reports whether an answer is over with its headers. A 204 or 304 need not
// be: an HTTP/2 peer may yet end it with a frame or with trailers, and its body waits
// for that.
func (a *attempt) bodiless(body io.Reader) bool {
	switch {
	case body == http.NoBody, a.call.req.Method == http.MethodHead:
		return true
	case a.resp.StatusCode == http.StatusNoContent, a.resp.StatusCode == http.StatusNotModified:
		return empty(body)
	}
	return false
}

// empty reports whether a body is of a type that has no room for anything to wait on,
// as are http.NoBody and what net/http has for an HTTP/2 answer that its headers ended.
func empty(body io.Reader) bool { return reflect.TypeOf(body).Size() == 0 }

// hook has the base's body closed if the caller leaves.
func (a *attempt) hook() {
	if a.parent.Done() == nil {
		return
	}
	unhook := context.AfterFunc(a.parent, a.closeDeaf)
	a.mu.Lock()
	ended := a.ended
	a.unhook = unhook
	a.mu.Unlock()
	if ended {
		unhook()
	}
}

// explain is the error to return for one of the base's: ours, if it is due to a
// limit of ours, and the caller's if we have closed the body since he has left.
func (a *attempt) explain(err error) error {
	a.mu.Lock()
	expired, hungUp := a.expired, a.hungUp
	a.mu.Unlock()
	switch {
	case expired != nil:
		return expired
	case hungUp:
		return a.left()
	}
	if u, ok := err.(*url.Error); ok && u.Err != nil { // of a base that is a client: it names the whole URL
		err = u.Err
	}
	return a.discreet(err)
}

// Read reads on, on the peer's time.
func (b *body) Read(p []byte) (int, error) {
	a := b.a
	a.mu.Lock()
	if err, asks := a.readErr, a.closing == closedWithin; err != nil {
		a.mu.Unlock()
		if asks && prompt(a.resp.Body) { // it has words of its own
			if n, own := a.resp.Body.Read(p); n == 0 && own != nil {
				err = own
			}
		}
		return 0, err
	}
	if e := a.expired; e != nil { // found in the pause; the base's body may not heed the context
		a.mu.Unlock()
		return 0, b.got(nil, e)
	}
	a.clock.shift(a.call.h.t.now(), phaseBody, a.clock.uploading)
	a.mu.Unlock()
	n, err := a.resp.Body.Read(p)
	return n, b.got(p[:n], err)
}

// prompt reports whether a body that is closed answers a Read at once, as those of the
// standard library do. Others may not heed Close, and keep their caller waiting.
func prompt(body io.Reader) bool {
	t := reflect.TypeOf(body)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.PkgPath() == "net/http" || t == reflect.TypeFor[io.PipeReader]() || inMemory(body) >= 0
}

// got takes what a Read of the base's body returned.
func (b *body) got(p []byte, err error) error {
	a := b.a
	if err != nil && err != io.EOF {
		err = a.explain(err)
	}
	now := a.call.h.t.now()
	a.mu.Lock()
	a.clock.bytes += int64(len(p))
	if len(p) > 0 && a.pool != nil {
		a.pool.hear(now)
	}
	b.carryTrailer()
	if a.closing != bodyOpen || a.ended { // meanwhile: whoever closed it ends the attempt
		defer a.mu.Unlock()
		if err != nil && a.readErr != nil {
			return a.readErr
		}
		return err
	}
	a.clock.shift(now, phaseIdle, a.clock.uploading)
	capture := a.capture
	if err == nil {
		a.mu.Unlock()
		capture.Write(p)
		return nil
	}
	readErr, how := err, endBroken
	if err == io.EOF {
		how, err = endEOF, nil
	}
	a.readErr = readErr
	a.mu.Unlock()
	capture.Write(p)
	a.endAt(how, err, now)
	if how == endEOF {
		if capture != nil {
			b.store(true)
		}
		b.unguard()
	}
	return readErr
}

// carryTrailer gives the caller the base's trailers, as soon as it has them: a zipped
// body may read ahead to them. mu must be held.
func (b *body) carryTrailer() {
	if t := b.a.resp.Trailer; t != nil {
		b.resp.Trailer = t
	}
}

// store ends what is kept of the body. The Store may be the caller's own: no lock
// is held, and everything was given back before.
func (b *body) store(eof bool) {
	b.a.mu.Lock()
	capture := b.a.capture
	b.a.capture = nil
	trailers := len(b.a.resp.Trailer) > 0
	b.a.mu.Unlock()
	if trailers {
		capture.Trailers()
	}
	capture.Complete(eof)
}

// Close ends the attempt. A body whose end is as good as there is read to it, so
// that it can be stored and its connection used again.
func (b *body) Close() error {
	a := b.a
	a.mu.Lock()
	if a.closing != bodyOpen {
		a.mu.Unlock()
		return nil
	}
	a.closing = bodyClosed
	open, atEOF := a.readErr == nil, a.readErr == io.EOF
	if atEOF {
		a.closing = closedWithin // as good as: at its end a body that is prompt does not block
	}
	ended := a.ended
	a.readErr = http.ErrBodyReadAfterClose
	toEnd := open && a.capture.NeedsEnd() && a.clock.phase == phaseIdle
	a.mu.Unlock()
	if atEOF {
		if ended { // else the Read that ends it gives the guard back
			b.unguard()
		}
		return a.resp.Body.Close()
	}
	eof := false
	if toEnd {
		eof = b.drain()
	}
	if open && !eof {
		a.stop() // or, over HTTP/2, Close waits for a peer that may not read
	}
	defer b.closed(open, eof) // also when the base's Close panics
	return a.resp.Body.Close()
}

// closed ends the attempt once the base's body is closed. Before that it was open, if
// nothing had ended its reading, and at its end, if drain found that.
func (b *body) closed(open, eof bool) {
	a := b.a
	a.mu.Lock()
	a.closing = closedWithin
	ended := a.ended
	a.mu.Unlock()
	if open {
		a.end(endClosed, nil)
		b.store(eof)
	}
	if open || ended {
		b.unguard()
	}
}

// unguard gives the guard back, once; the attempt must have ended.
func (b *body) unguard() {
	if g := b.guard.Load(); g != nil && b.guard.CompareAndSwap(g, nil) {
		b.a.call.h.t.guards.release(g)
	}
}

// What Close reads at most of a body that is to be stored.
const (
	closeDrainBytes = 4 << 10
	closeDrainTime  = 25 * time.Millisecond
)

// drain reads a body to its end, if that is near, and reports whether it was.
func (b *body) drain() bool {
	a := b.a
	stop := time.AfterFunc(closeDrainTime, a.interrupt)
	defer stop.Stop()
	buf := make([]byte, 512)
	for total := 0; total <= closeDrainBytes; {
		n, err := a.resp.Body.Read(buf)
		total += n
		a.mu.Lock()
		capture := a.capture
		b.carryTrailer()
		a.mu.Unlock()
		capture.Write(buf[:n])
		if err != nil {
			return err == io.EOF
		}
	}
	return false
}

// interrupt makes a read of the base's body return.
func (a *attempt) interrupt() {
	a.stop()
	a.mu.Lock()
	deaf := a.deaf()
	a.mu.Unlock()
	if deaf {
		a.closeBase()
	}
}

// deaf reports whether a read of the base's body may not heed the context: that of
// a foreign base, and over HTTP/2 that of a call whose request body waits for its
// caller. mu must be held.
func (a *attempt) deaf() bool { return a.pool == nil || a.sending == uploadOpen }

// closeBase closes the base's body.
func (a *attempt) closeBase() {
	a.mu.Lock()
	resp := a.resp
	a.mu.Unlock()
	if resp != nil && resp.Body != nil {
		a.call.h.t.survive("Response.Body.Close", func() { _ = resp.Body.Close() })
	}
}

// closeDeaf closes the base's body if a read of it still does not heed the context.
func (a *attempt) closeDeaf() {
	a.mu.Lock()
	deaf := a.deaf()
	a.hungUp = deaf
	a.mu.Unlock()
	if deaf {
		a.closeBase()
	}
}

// left is what a read says whose caller has left meanwhile.
func (a *attempt) left() error {
	if a.resp.ProtoMajor == 2 { // which leaves the cause out
		return a.parent.Err()
	}
	return context.Cause(a.parent)
}

// hand makes the end of the body the end of the call; false if it has ended.
func (b *body) hand(c *call) bool {
	b.a.mu.Lock()
	defer b.a.mu.Unlock()
	if b.a.ended {
		return false
	}
	b.a.handed = c
	return true
}

// keep ties a capture to the body of a response of ours; one without a body is
// complete at once.
func keep(resp *http.Response, c *cache.Capture) {
	if c == nil {
		return
	}
	b, ok := resp.Body.(*body)
	if !ok {
		if resp.Body == http.NoBody {
			c.Complete(true)
		} else {
			c.Discard()
		}
		return
	}
	b.a.mu.Lock()
	stream := b.a.stream
	if !stream {
		b.a.capture = c
	}
	b.a.mu.Unlock()
	if stream { // which has no end worth waiting for, but supersedes what is stored
		c.Trailers()
	}
}
