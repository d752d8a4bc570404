package transport

import (
	"context"
	"time"
)

// The attempt is the context of its request. The context of the standard library
// that can be cancelled is only made when somebody waits for it, which a base
// that answers at once does not.

// Deadline is the caller's.
func (a *attempt) Deadline() (time.Time, bool) { return a.parent.Deadline() }

// Done is closed when the caller leaves, a limit fires, or the attempt ends.
func (a *attempt) Done() <-chan struct{} {
	if !a.endless {
		return a.standard().ctx.Done()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.done == nil {
		if f := a.follower.Load(); f != nil && f.done != nil && !a.stopped {
			a.done, f.done = f.done, nil
			return a.done
		}
		a.done = make(chan struct{})
		if a.stopped {
			close(a.done)
		}
	}
	return a.done
}

// AfterFunc is how package context has what is made of the attempt end with it, where
// it would otherwise start a goroutine.
func (a *attempt) AfterFunc(then func()) (stop func() bool) {
	if !a.endless {
		return context.AfterFunc(a.standard().ctx, then)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stopped {
		go then() // package context holds a lock that it takes
		return func() bool { return false }
	}
	if f := a.follower.Load(); f != nil {
		if stop, ok := f.register(then); ok {
			return stop
		}
	}
	e := &afterwards{a: a, f: then}
	e.next, a.after = a.after, e
	return e.cancel
}

// awaited reports whether anything is to be done when the attempt is stopped. mu must be
// held.
func (a *attempt) awaited() bool {
	if f := a.follower.Load(); f != nil && f.then != nil {
		return true
	}
	return a.std != nil || a.done != nil || a.after != nil
}

// afterwards is a function to be called when an attempt is stopped whose caller's
// context never ends.
type afterwards struct {
	a    *attempt
	f    func()
	next *afterwards
}

// cancel takes the function out; false if it was called, or was taken out before.
func (e *afterwards) cancel() bool {
	e.a.mu.Lock()
	defer e.a.mu.Unlock()
	for at := &e.a.after; *at != nil; at = &(*at).next {
		if *at == e {
			*at = e.next
			return true
		}
	}
	return false
}

// Err follows Done.
func (a *attempt) Err() error {
	a.mu.Lock()
	std, stopped := a.std, a.stopped
	a.mu.Unlock()
	switch {
	case std != nil:
		return std.ctx.Err()
	case stopped:
		return context.Canceled
	}
	return a.parent.Err()
}

// Value is the caller's, but for the attempt itself, and the caller's httptrace
// hooks, which the base passes on.
func (a *attempt) Value(key any) any {
	if key == (attemptKey{}) {
		return a
	}
	switch key {
	case cancelKey:
		if a.endless { // what it may be derived from has let go of it
			return nil
		}
	case traceKey:
		if f := a.follower.Load(); f != nil {
			return &f.trace
		}
		return nil
	case raceKey{}, refreshingKey{}: // the marks are of this call, not of what its base may ask others
		return nil
	}
	a.mu.Lock()
	std := a.std
	a.mu.Unlock()
	if std != nil {
		return std.ctx.Value(key)
	}
	return a.parent.Value(key)
}

// standard is a context of the standard library that can be cancelled.
type standard struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
}

// standard makes the context of the standard library, if there is none yet: without
// a lock, since it asks the caller's.
func (a *attempt) standard() *standard {
	a.mu.Lock()
	std := a.std
	a.mu.Unlock()
	if std != nil {
		return std
	}
	made := &standard{}
	made.ctx, made.cancel = context.WithCancelCause(a.parent)
	a.mu.Lock()
	if a.std != nil { // by another, meanwhile
		std = a.std
		a.mu.Unlock()
		made.cancel(nil)
		return std
	}
	a.std = made
	stopped := a.stopped
	a.mu.Unlock()
	if stopped {
		made.cancel(context.Canceled)
	}
	return made
}

// stop cancels the attempt's context.
func (a *attempt) stop() {
	a.mu.Lock()
	std, after := a.std, a.after
	if a.done != nil && !a.stopped {
		close(a.done)
	}
	a.stopped, a.after = true, nil
	var then func()
	if f := a.follower.Load(); f != nil {
		then, f.then = f.then, nil
	}
	a.mu.Unlock()
	if std != nil {
		std.cancel(context.Canceled)
	}
	if then != nil {
		then() // of package context, which starts a goroutine for what may block
	}
	for ; after != nil; after = after.next {
		after.f()
	}
}
