package transport

import (
	"context"
	"net/http/httptrace"
	"net/textproto"
	"runtime"
	"sync"
)

// A dial goes on when its request has failed, or has found another connection, and
// net/http then calls hooks that the caller takes to be over. So each attempt has
// the caller's hooks to itself, and lets go of them when it is answered.

// traceKey is the key by which package httptrace finds the hooks of a context; it
// does not export it.
var traceKey = func() any {
	var k askedFor
	httptrace.ContextClientTrace(&k)
	return k.key
}()

// cancelKey is that by which package context finds what it can cancel, or ask for a cause.
var cancelKey = func() any {
	var k askedFor
	_ = context.Cause(&k)
	return k.key
}()

// askedFor is a context that remembers what it was asked for.
type askedFor struct {
	context.Context
	key any
}

func (k *askedFor) Value(key any) any {
	k.key = key
	return nil
}

func (k *askedFor) Err() error { return context.Canceled } // or there is no cause to ask for

// until is how long an attempt lets a hook run.
type until uint8

const (
	untilAnswered until = iota // what is about a connection, or the answer
	untilOver                  // what may come later: an upload may outlive its answer, and the connection does
	untils
)

// hooks are the caller's httptrace hooks for one attempt.
type hooks struct {
	caller *httptrace.ClientTrace
	wrote  chan struct{} // closed when WroteRequest has returned; nil if the caller has none
	once   sync.Once     // closes it

	mu      sync.Mutex // guards what follows
	past    until      // what runs until less than this is over
	running [untils]int
	waits   chan struct{} // closed when none of those runs
	begun   []begun       // of the dial
	instead func()        // what GetConn has done and not returned: panics with the same, or ends its goroutine
}

// traced is ours, which may be nil, with the caller's hooks for as long as the
// attempt has not let go of them; nil if there are none.
func (a *attempt) traced(f *follower) *httptrace.ClientTrace {
	t := httptrace.ContextClientTrace(a.parent)
	if t == nil {
		return nil
	}
	var ours *httptrace.ClientTrace
	if f != nil {
		ours = &f.trace
	} else {
		ours = &httptrace.ClientTrace{}
	}
	h := &hooks{caller: t}
	a.hooks = h
	both := h.after(ours, t)
	if t.GetConn != nil {
		both.GetConn = a.aside(h, ours.GetConn)
	}
	if hook := t.Got1xxResponse; hook != nil {
		both.Got1xxResponse = func(code int, header textproto.MIMEHeader) error {
			if !h.enter(untilAnswered) {
				return nil
			}
			defer h.leave(untilAnswered)
			err := hook(code, header)
			if err != nil { // it ends the attempt
				a.blame(err)
			}
			return err
		}
	}
	return both
}

// after is the hooks of ours, each with that of t after it, but for Got1xxResponse.
func (h *hooks) after(ours, t *httptrace.ClientTrace) *httptrace.ClientTrace {
	both := *t                  // with what a later Go may have added
	both.GetConn = ours.GetConn // see aside
	both.GotConn = guard1(h, untilAnswered, ours.GotConn, t.GotConn)
	both.PutIdleConn = guard1(h, untilOver, ours.PutIdleConn, t.PutIdleConn)
	both.GotFirstResponseByte = guard0(h, untilAnswered, ours.GotFirstResponseByte, t.GotFirstResponseByte)
	both.Got100Continue = guard0(h, untilAnswered, ours.Got100Continue, t.Got100Continue)
	h.dial(&both, ours, t)
	both.WroteHeaderField = guard2(h, untilOver, ours.WroteHeaderField, t.WroteHeaderField)
	both.WroteHeaders = guard0(h, untilOver, ours.WroteHeaders, t.WroteHeaders)
	both.Wait100Continue = guard0(h, untilOver, ours.Wait100Continue, t.Wait100Continue)
	both.WroteRequest = guard1(h, untilOver, ours.WroteRequest, h.telling(t.WroteRequest))
	return &both
}

// aside is the hook ours, and then the caller's GetConn on a goroutine of its own,
// until the attempt ends. The HTTP/2 of net/http calls that hook with the connections
// of the host locked: one that panics, that ends its goroutine or that does not return
// would keep them locked, and with them every later call, past every limit.
func (a *attempt) aside(h *hooks, ours func(string)) func(string) {
	return func(hostPort string) {
		if ours != nil {
			ours(hostPort)
		}
		if !h.enter(untilAnswered) {
			return
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer h.leave(untilAnswered)
			returned := false
			defer func() {
				if !returned {
					a.unreturned(h, recover())
				}
			}()
			h.caller.GetConn(hostPort)
			returned = true
		}()
		select {
		case <-done:
		case <-a.Done():
		}
	}
}

// unreturned ends the attempt whose GetConn has panicked, or has ended its goroutine
// if that is nil. The caller's goroutine then does the same, if it still waits.
func (a *attempt) unreturned(h *hooks, panicked any) {
	h.mu.Lock()
	late := h.past > untilAnswered
	if !late {
		h.instead = runtime.Goexit
		if panicked != nil {
			h.instead = func() { panic(panicked) }
		}
	}
	h.mu.Unlock()
	if late {
		a.call.h.t.survived("httptrace.ClientTrace.GetConn", panicked)
		return
	}
	a.stop()
}

// insteadOf is what a hook did in place of returning, for the caller's goroutine to do.
func (a *attempt) insteadOf() func() {
	h := a.hooks
	if h == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.instead
}

// telling is a WroteRequest hook that written can wait for.
func (h *hooks) telling(hook func(httptrace.WroteRequestInfo)) func(httptrace.WroteRequestInfo) {
	if hook == nil {
		return nil
	}
	h.wrote = make(chan struct{})
	return func(info httptrace.WroteRequestInfo) {
		defer h.once.Do(func() { close(h.wrote) })
		hook(info)
	}
}

// guard0 is the hook ours, and then the caller's for as long as it may run. So are
// guard1 and guard2, of hooks that are told something.
func guard0(h *hooks, u until, ours, hook func()) func() {
	if hook == nil {
		return ours
	}
	return func() {
		if ours != nil {
			ours()
		}
		if h.enter(u) {
			defer h.leave(u)
			hook()
		}
	}
}

func guard1[A any](h *hooks, u until, ours, hook func(A)) func(A) {
	if hook == nil {
		return ours
	}
	return func(a A) {
		if ours != nil {
			ours(a)
		}
		if h.enter(u) {
			defer h.leave(u)
			hook(a)
		}
	}
}

func guard2[A, B any](h *hooks, u until, ours, hook func(A, B)) func(A, B) {
	if hook == nil {
		return ours
	}
	return func(a A, b B) {
		if ours != nil {
			ours(a, b)
		}
		if h.enter(u) {
			defer h.leave(u)
			hook(a, b)
		}
	}
}

// enter reports whether a hook may still run, which then leaves.
func (h *hooks) enter(u until) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if u < h.past {
		return false
	}
	h.running[u]++
	return true
}

func (h *hooks) leave(u until) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.running[u]--
	if h.waits != nil && !h.busy() {
		close(h.waits)
		h.waits = nil
	}
}

// busy reports whether a hook runs that should not. mu is held.
func (h *hooks) busy() bool {
	for _, n := range h.running[:h.past] {
		if n > 0 {
			return true
		}
	}
	return false
}

// written waits for what the caller is owed of a request that was written and
// answered: over HTTP/2 the answer may be faster than the news that it was written.
// One whose body is still being sent was answered early, and a foreign base, whose
// connections are not seen, may not say when it has written.
func (a *attempt) written() {
	h := a.hooks
	if h == nil || h.wrote == nil {
		return
	}
	a.mu.Lock()
	sent := a.conn && a.sending == uploadOver
	a.mu.Unlock()
	if sent {
		await(h.wrote, letGoTime)
	}
}

// untrace lets go of the caller's hooks: of those of the dial when the attempt is
// answered, of all when it is over. One that runs is given some time to return, and
// what a dial has begun ends here.
func (a *attempt) untrace(over bool) {
	h := a.hooks
	if h == nil {
		return
	}
	last := untilAnswered
	if over {
		last = untilOver
	}
	var waits chan struct{}
	h.mu.Lock()
	h.past = max(h.past, last+1)
	if h.busy() {
		waits = make(chan struct{})
		h.waits = waits
	}
	h.mu.Unlock()
	if waits != nil {
		await(waits, letGoTime)
	}
	h.abandon()
}
