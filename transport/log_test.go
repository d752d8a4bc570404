package transport_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/transporttest"
)

// tripping trips with every call.
func tripping(logger *slog.Logger, seen *transporttest.Recorder) *transport.Transport {
	return transport.Must(transport.New(transport.Config{
		Base:     transporttest.NewBase(transporttest.Step{Status: 503}),
		Default:  policy.Policy{Breaker: policy.Breaker{ConsecutiveFailures: 1, OpenFor: time.Hour}},
		Logger:   logger,
		Observer: seen,
	}))
}

func TestLogThatBlocksLetsCallsGoOnAndOneEventSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		logs, seen := &transporttest.Logs{}, &transporttest.Recorder{}
		var handled atomic.Int64
		tr := tripping(slog.New(listenerLog(func(ctx context.Context, r slog.Record) {
			handled.Add(1)
			<-release
			_ = logs.Handle(ctx, r)
		})), seen)
		start := time.Now()
		for _, host := range []string{"http://a.test", "http://b.test", "http://c.test"} {
			if err := hostCall(tr, host); err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(start); took != 100*time.Millisecond {
			t.Errorf("three calls took %v in all, want 100ms", took)
		}
		if n := seen.Count(transport.EventLogBlocked); n != 1 {
			t.Errorf("%d events say that the log is blocked", n)
		}
		close(release)
		synctest.Wait()
		got := logs.Records()
		if len(got) != 2 || got[1].Message != "log records were lost while the log handler blocked" || !strings.Contains(logs.String(), "lost=2") {
			t.Errorf("in the log:\n%s", logs.String())
		}
		_ = hostCall(tr, "http://d.test")
		if len(logs.Records()) != 3 {
			t.Errorf("once it is free, it has nothing more of\n%s", logs.String())
		}
	})
}

func TestLogThatPanicsOrEndsItsGoroutineReachesNoCall(t *testing.T) {
	for name, handle := range map[string]func(){"panic": func() { panic("no disk") }, "goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			tr := tripping(slog.New(listenerLog(func(context.Context, slog.Record) { handle() })), &transporttest.Recorder{})
			if err := hostCall(tr, "http://a.test"); err != nil {
				t.Error(err)
			}
			if s := tr.Snapshot()[0].State; s != transport.Open {
				t.Error(s)
			}
		})
	}
}

func TestLogOfRefusalsAndRetriesIsAtDebug(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, level := range []slog.Level{slog.LevelDebug, slog.LevelInfo} {
			var lines []string
			logger := slog.New(leveled{level, listenerLog(func(_ context.Context, r slog.Record) {
				line := r.Level.String() + " " + r.Message
				r.Attrs(func(a slog.Attr) bool { line += " " + a.String(); return true })
				lines = append(lines, line)
			})})
			p := policy.Policy{
				Bulkhead: policy.Bulkhead{MaxConcurrent: 1},
				Breaker:  policy.Breaker{ConsecutiveFailures: 2, OpenFor: time.Hour},
				Retry:    policy.Retry{MaxAttempts: 2, Base: time.Second, Max: time.Second, Statuses: []int{503}},
			}
			base := transporttest.NewBase(transporttest.Step{Body: "held"}, transporttest.Step{Status: 503})
			tr := transport.Must(transport.New(transport.Config{Base: base, Default: p, Logger: logger}))
			held := hostHold(t, tr, "http://a.test/?sig=S3CRET")
			_ = hostCall(tr, "http://a.test/?sig=S3CRET")
			_ = held.Close()
			_ = hostCall(tr, "http://a.test/?sig=S3CRET")
			_ = hostCall(tr, "http://a.test/?sig=S3CRET")
			got := strings.Join(lines, "\n")
			if strings.Contains(got, "S3CRET") {
				t.Error("a secret is in the log")
			}
			for _, want := range []string{
				"DEBUG call refused host=a.test:80 layer=bulkhead reason=full shadow=false",
				"DEBUG retry host=a.test:80 attempt=1 reason=status delay_seconds=",
				"DEBUG call refused host=a.test:80 layer=breaker reason=open retry_in_seconds=",
			} {
				if strings.Contains(got, want) != (level == slog.LevelDebug) {
					t.Errorf("at %v, %q in\n%s", level, want, got)
				}
			}
			if !strings.Contains(got, "WARN circuit breaker state changed") {
				t.Errorf("at %v, no transition in\n%s", level, got)
			}
		}
	})
}

// A handler may hold its lock while it blocks, which Enabled then waits for.
func TestLogThatBlocksWhenAskedForItsLevelLetsCallsGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		tr := tripping(slog.New(asked(func() { <-release })), &transporttest.Recorder{})
		_ = hostCall(tr, "http://a.test") // trips
		start := time.Now()
		for range 100 {
			if err := hostCall(tr, "http://a.test"); !errors.Is(err, transport.ErrBreakerOpen) {
				t.Fatal(err)
			}
		}
		if took := time.Since(start); took > 200*time.Millisecond {
			t.Errorf("a hundred refusals took %v in all, want 200ms at most", took)
		}
		time.Sleep(time.Hour)
		close(release)
	})
	t.Run("or ends its goroutine", func(t *testing.T) {
		tr := tripping(slog.New(asked(runtime.Goexit)), &transporttest.Recorder{})
		_ = hostCall(tr, "http://a.test")
		for range 3 {
			if err := hostCall(tr, "http://a.test"); !errors.Is(err, transport.ErrBreakerOpen) {
				t.Fatal(err)
			}
		}
	})
}

// asked is a handler that does something when it is asked for its level.
type asked func()

func (a asked) Enabled(context.Context, slog.Level) bool  { a(); return false }
func (a asked) Handle(context.Context, slog.Record) error { return nil }
func (a asked) WithAttrs([]slog.Attr) slog.Handler        { return a }
func (a asked) WithGroup(string) slog.Handler             { return a }

// A handler that sends its records through the Transport is not told of those calls.
func TestLogThatCallsTheTransportDoesNotFeedItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tr *transport.Transport
		var records atomic.Int64
		tr = tripping(slog.New(listenerLog(func(ctx context.Context, r slog.Record) {
			if records.Add(1) > 1000 {
				return
			}
			req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://a.test", nil)
			_, _ = tr.RoundTrip(req)
		})), &transporttest.Recorder{})
		for range 3 { // trips, and is refused
			_ = hostCall(tr, "http://a.test")
		}
		time.Sleep(time.Minute)
		if n := records.Load(); n != 3 {
			t.Errorf("%d records, want one of the transition and one of each refusal", n)
		}
	})
}

func TestLogThatPanicsIsToldOfOnce(t *testing.T) {
	for name, handle := range map[string]func(){"panic": func() { panic("no disk") }, "goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			seen := &transporttest.Recorder{}
			tr := tripping(slog.New(listenerLog(func(context.Context, slog.Record) { handle() })), seen)
			for _, host := range []string{"http://a.test", "http://b.test"} {
				_ = hostCall(tr, host)
			}
			if e := seen.Events(transport.EventLogBlocked); len(e) != 1 || e[0].Reason != "panicked" {
				t.Errorf("told of %+v", e)
			}
		})
	}
}

func TestLogOfAPanicHoldsNoURL(t *testing.T) {
	logs := &transporttest.Logs{}
	tr := transport.Must(transport.New(transport.Config{
		Base:   transporttest.NewBase(transporttest.Step{Status: 503}),
		Logger: slog.New(logs),
		Default: policy.Policy{Fallback: policy.Fallback{Degraded: func(r *http.Request, _ error) *http.Response {
			panic("cannot serve " + r.URL.String())
		}}},
	}))
	_ = hostCall(tr, "http://a.test/?sig=S3CRET")
	if got := logs.String(); strings.Contains(got, "S3CRET") || !strings.Contains(got, "panic=") || !strings.Contains(got, "log_test.go:") {
		t.Errorf("in the log:\n%s", got)
	}
}

// A transition is told of before its call returns, whatever the log of another one does.
func TestLogThatTakesItsTimeDelaysNoObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &transporttest.Recorder{}
		tr := transport.Must(transport.New(transport.Config{
			Base:     transporttest.NewBase(transporttest.Step{Status: 503}),
			Default:  policy.Policy{Breaker: policy.Breaker{ConsecutiveFailures: 1, OpenFor: time.Millisecond, HalfOpenProbes: 1}},
			Logger:   slog.New(listenerLog(func(context.Context, slog.Record) { time.Sleep(90 * time.Millisecond) })),
			Observer: seen,
		}))
		go func() { _ = hostCall(tr, "http://a.test") }() // trips, and logs that
		time.Sleep(10 * time.Millisecond)
		start := time.Now()
		_ = hostCall(tr, "http://a.test") // a probe
		if n := seen.Count(transport.EventTransition); n != 3 || time.Since(start) != 0 {
			t.Errorf("%d transitions were told of after %v, want 3 at once", n, time.Since(start))
		}
		time.Sleep(time.Minute)
	})
}

// leveled is a handler with a level.
type leveled struct {
	least slog.Level
	slog.Handler
}

func (l leveled) Enabled(_ context.Context, level slog.Level) bool { return level >= l.least }
