package transport

import (
	"context"
	"net/http/httptrace"
	"reflect"
	"sync"
	"time"
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

// askedFor is a context that remembers what it was asked for.
type askedFor struct {
	context.Context
	key any
}

func (k *askedFor) Value(key any) any {
	k.key = key
	return nil
}

// hooks are the caller's httptrace hooks for one attempt.
type hooks struct {
	trace *httptrace.ClientTrace
	wrote chan struct{} // closed when WroteRequest has returned; nil if the caller has none
	once  sync.Once     // closes it

	mu       sync.Mutex // guards what follows
	answered bool       // only what may come after an answer is passed on
	over     bool       // nothing is
	running  [2]int     // hooks, by whether they may come after an answer
	waits    chan struct{}
}

// traced is a's part of the caller's hooks, or nil if there are none.
func (a *attempt) traced() *hooks {
	a.mu.Lock()
	h := a.hooks
	a.mu.Unlock()
	if h != nil {
		return h
	}
	t := httptrace.ContextClientTrace(a.parent)
	if t == nil {
		return nil
	}
	h = &hooks{}
	h.trace = h.guard(t)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.hooks == nil {
		a.hooks = h
	}
	return a.hooks
}

// guard is t for as long as the attempt has not let go of it.
func (h *hooks) guard(t *httptrace.ClientTrace) *httptrace.ClientTrace {
	guarded := &httptrace.ClientTrace{}
	from, to := reflect.ValueOf(t).Elem(), reflect.ValueOf(guarded).Elem()
	for i := range from.NumField() {
		hook := from.Field(i)
		if hook.Kind() != reflect.Func || hook.IsNil() {
			continue
		}
		kind := 0
		switch from.Type().Field(i).Name {
		case "WroteHeaderField", "WroteHeaders", "Wait100Continue", "WroteRequest", "PutIdleConn":
			kind = 1 // an upload may outlive its answer, and the connection does
		}
		to.Field(i).Set(reflect.MakeFunc(hook.Type(), func(args []reflect.Value) []reflect.Value {
			if !h.enter(kind) {
				var none []reflect.Value
				for out := range hook.Type().Outs() {
					none = append(none, reflect.Zero(out))
				}
				return none
			}
			defer h.leave(kind)
			return hook.Call(args)
		}))
	}
	if wrote := guarded.WroteRequest; wrote != nil {
		h.wrote = make(chan struct{})
		guarded.WroteRequest = func(info httptrace.WroteRequestInfo) {
			defer h.once.Do(func() { close(h.wrote) })
			wrote(info)
		}
	}
	return guarded
}

func (h *hooks) enter(kind int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over || h.answered && kind == 0 {
		return false
	}
	h.running[kind]++
	return true
}

func (h *hooks) leave(kind int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.running[kind]--
	h.settle()
}

// settle tells whoever waits that no hook runs that should not. mu is held.
func (h *hooks) settle() bool {
	busy := h.running[0] > 0 || h.over && h.running[1] > 0
	if !busy && h.waits != nil {
		close(h.waits)
		h.waits = nil
	}
	return !busy
}

// written waits for what the caller is owed of a request that was written and
// answered: over HTTP/2 the answer may be faster than the news that it was written.
// One whose body is still being sent was answered early, and a foreign base, whose
// connections are not seen, may not say when it has written.
func (a *attempt) written() {
	a.mu.Lock()
	h, sent := a.hooks, a.conn && !a.sending
	a.mu.Unlock()
	if h != nil && h.wrote != nil && sent {
		await(h.wrote)
	}
}

// untrace lets go of the caller's hooks: of those of the dial when the attempt is
// answered, of all when it is over. One that runs is given some time to return.
func (a *attempt) untrace(over bool) {
	a.mu.Lock()
	h := a.hooks
	a.mu.Unlock()
	if h == nil {
		return
	}
	h.mu.Lock()
	h.answered, h.over = true, h.over || over
	if h.settle() {
		h.mu.Unlock()
		return
	}
	waits := make(chan struct{})
	h.waits = waits
	h.mu.Unlock()
	await(waits)
}

// await gives what ends soon some time.
func await(done <-chan struct{}) {
	select {
	case <-done:
		return
	default:
	}
	timer := time.NewTimer(letGoTime)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}
