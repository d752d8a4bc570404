package transport

import (
	"context"
	"net/http"
	"sync"
	"testing"
)

func uncalled() *attempt {
	a := &attempt{endless: true}
	a.init(&call{ctx: context.Background(), req: &http.Request{}, opts: &noCall})
	return a
}

// Package context registers what it makes of a context while it holds the lock that the
// function takes: an attempt that has just ended must not call it at once.
func TestAnAttemptMayEndWhileAContextIsMadeOfIt(t *testing.T) {
	a := uncalled()
	a.stop()
	var held sync.Mutex
	called := make(chan struct{})
	held.Lock()
	stop := a.AfterFunc(func() {
		held.Lock()
		defer held.Unlock()
		close(called)
	})
	held.Unlock()
	<-called
	if stop() {
		t.Error("what was called is taken out")
	}
}

func TestContextsOfAnAttemptEndWithIt(t *testing.T) {
	a := uncalled()
	var made []context.Context
	for i := range 5 {
		ctx, cancel := context.WithCancel(a)
		defer cancel()
		if i == 2 {
			cancel() // which takes it out
		}
		made = append(made, ctx)
	}
	if stop := context.AfterFunc(a, func() { t.Error("called in spite of having been stopped") }); !stop() || stop() {
		t.Error("what was registered cannot be taken out, or can twice")
	}
	called := make(chan struct{})
	context.AfterFunc(a, func() { close(called) })
	if a.Err() != nil || a.after == nil {
		t.Fatal("ended before its end")
	}
	a.stop()
	a.stop()
	for _, ctx := range made {
		<-ctx.Done()
	}
	<-called
	<-a.Done()
	if a.Err() != context.Canceled || context.Cause(a) != context.Canceled || a.after != nil {
		t.Errorf("%v, because of %v", a.Err(), context.Cause(a))
	}
}
