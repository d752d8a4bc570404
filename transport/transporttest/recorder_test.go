package transporttest_test

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
	. "github.com/watertight-go/watertight/transport/transporttest"
)

// fakeT is a test that may fail.
type fakeT struct {
	testing.TB
	mu       sync.Mutex
	failures int
}

func (f *fakeT) Errorf(string, ...any) {
	f.mu.Lock()
	f.failures++
	f.mu.Unlock()
}

func (f *fakeT) failed() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failures
}

func TestRecorderCollects(t *testing.T) {
	r, logs := &Recorder{}, &Logs{}
	tr := transport.Must(transport.New(transport.Config{Base: NewBase(Step{Status: 404}), Observer: r, Logger: slog.New(logs)}))
	go get(tr.Client(), "http://a.test")
	if e := r.WaitFor(t, transport.EventAttemptEnd, transport.EventCallEnd); len(e) != 2 || e[1].Status != 404 || e[0].Verdict != policy.Neutral {
		t.Fatalf("%+v", e)
	}
	if s := r.Starts(); len(s) != 2 || s[0].Attempt != 0 || s[1].Attempt != 1 {
		t.Fatalf("%+v", s)
	}
	if n := r.Count(transport.EventRefusal); n != 0 || len(r.Events()) != 2 {
		t.Fatal(n, r.Events())
	}
	CheckPermits(t, tr)
}

func TestLogsKeepAttributes(t *testing.T) {
	logs := &Logs{}
	l := slog.New(logs)
	l.With("a", 1).WithGroup("g").With("b", 2).Info("one", "c", 3)
	l.Debug("two")
	l.WithGroup("empty").Info("three")
	s := logs.String()
	if len(logs.Records()) != 3 || !strings.Contains(s, "msg=one a=1 g.b=2 g.c=3\n") || !strings.Contains(s, "msg=two\n") || !strings.Contains(s, "msg=three\n") {
		t.Fatal(s)
	}
	if !logs.Enabled(context.Background(), -100) {
		t.Fatal("disabled")
	}
}

func TestCheckLeaksWaitsForGoroutines(t *testing.T) {
	stop := make(chan struct{})
	t.Run("leaves one", func(t *testing.T) {
		CheckLeaks(t)
		started := make(chan struct{})
		go func() {
			close(started)
			<-stop
		}()
		<-started
		t.Cleanup(func() { close(stop) })
	})
}

func TestNothingIsLeft(t *testing.T) {
	for _, f := range flavours {
		t.Run(f.name, func(t *testing.T) {
			CheckLeaks(t)
			o := NewOrigin(t, f.opts...)
			tr := transport.Must(transport.New(transport.Config{Base: o.Base(), Observer: &Recorder{}, Logger: slog.New(&Logs{})}))
			o.Script(Step{Size: 20_000}, Step{Body: "abcd", Fault: Reset, At: 2}, Step{Status: http.StatusTeapot})
			for range 3 {
				_, _, _ = get(tr.Client(), o.URL)
			}
			CheckPermits(t, tr)
		})
	}
}
