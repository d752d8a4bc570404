package transport

import (
	"cmp"
	"context"
	"log/slog"
	"sync/atomic"
	"time"
)

type logKey struct{}

const (
	logPatience = 100 * time.Millisecond // how long a call waits for the Logger
	debugEvery  = time.Second            // how often the Logger is asked whether it takes what is at debug
)

// logs is the Logger, which may block, panic or end its goroutine: none of that
// reaches a call.
type logs struct {
	to      *slog.Logger // nil: slog.Default()
	blocked atomic.Bool  // a record is with the handler for longer than logPatience
	lost    atomic.Int64 // records since
	telling atomic.Bool  // that some were lost is about to be told
	debug   atomic.Bool  // it takes what is at debug, when last asked
	askAt   atomic.Int64 // when to ask again, on the clock
}

func (l *logs) logger() *slog.Logger { return cmp.Or(l.to, slog.Default()) }

// debugging reports whether records of what happens often are wanted. It does not ask
// the handler for each of them, on whose lock a call could wait. A handler's own calls
// are not told of, or it would be given a record for each that it sends.
func (t *Transport) debugging(ctx context.Context, now time.Duration) bool {
	return t.takesDebug(now) && ctx.Value(logKey{}) == nil
}

func (t *Transport) takesDebug(now time.Duration) bool {
	l := &t.logs
	at := l.askAt.Load()
	if int64(now) < at || !l.askAt.CompareAndSwap(at, int64(forever)) {
		return l.debug.Load()
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		wanted := false
		defer func() { // also when the handler ends its goroutine
			_ = recover()
			l.debug.Store(wanted)
			l.askAt.Store(int64(t.now() + debugEvery))
		}()
		wanted = l.logger().Enabled(context.Background(), slog.LevelDebug)
	}()
	await(done, logPatience)
	return l.debug.Load()
}

// log writes a record. It waits for the handler, so that records keep their order,
// but no longer than logPatience.
func (t *Transport) log(ctx context.Context, level slog.Level, msg string, attrs ...slog.Attr) {
	l := &t.logs
	if l.blocked.Load() {
		l.lost.Add(1)
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		returned := false
		defer func() {
			_ = recover()
			if !returned { // also when it has ended its goroutine
				t.logFailed(ctx)
			}
		}()
		l.logger().LogAttrs(context.WithValue(ctx, logKey{}, true), level, msg, attrs...)
		returned = true
	}()
	patience := time.NewTimer(logPatience)
	defer patience.Stop()
	select {
	case <-done:
	case <-patience.C:
		if l.blocked.CompareAndSwap(false, true) {
			go t.unblock(done)
			t.observe(ctx, Event{Kind: EventLogBlocked, Reason: "blocked", Limit: logPatience})
		}
	}
}

// logFailed tells, once, of a handler that panics.
func (t *Transport) logFailed(ctx context.Context) {
	if _, told := t.panics.LoadOrStore("Logger", true); !told {
		t.observe(ctx, Event{Kind: EventLogBlocked, Reason: "panicked"})
	}
}

// unblock waits for the handler, and then says what was lost: once a second at most,
// since it may block again.
func (t *Transport) unblock(done <-chan struct{}) {
	<-done
	l := &t.logs
	l.blocked.Store(false)
	if l.lost.Load() == 0 || !l.telling.CompareAndSwap(false, true) {
		return
	}
	t.tellLost()
	time.AfterFunc(time.Second, func() {
		l.telling.Store(false)
		if l.lost.Load() > 0 && !l.blocked.Load() {
			t.tellLost()
		}
	})
}

func (t *Transport) tellLost() {
	if n := t.logs.lost.Swap(0); n > 0 {
		t.log(context.Background(), slog.LevelWarn, "log records were lost while the log handler blocked", slog.Int64("lost", n))
	}
}

// seconds is a duration in a log, to the millisecond.
func seconds(key string, d time.Duration) slog.Attr {
	return slog.Float64(key, d.Round(time.Millisecond).Seconds())
}
