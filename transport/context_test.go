package transport_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
)

// contextAsks is a caller's context that asks for what it was made to, whenever
// anything of it is asked for.
type contextAsks struct {
	context.Context
	ask atomic.Pointer[func()]
}

func (c *contextAsks) asked() {
	if ask := c.ask.Load(); ask != nil {
		(*ask)()
	}
}

func (c *contextAsks) Value(key any) any     { c.asked(); return c.Context.Value(key) }
func (c *contextAsks) Done() <-chan struct{} { c.asked(); return c.Context.Done() }

// A context is its caller's code, and may wait for a goroutine that needs the attempt.
func TestContextOfTheCallerIsAskedUnderNoLock(t *testing.T) {
	parent, cancel := context.WithCancel(t.Context())
	defer cancel()
	ctx := &contextAsks{Context: parent}
	var times atomic.Int64
	closed := make(chan struct{})
	tr := bulkheadNew(t, transport.Config{Base: bulkheadBase(func(r *http.Request) (*http.Response, error) {
		ask := func() {
			times.Add(1)
			done := make(chan struct{})
			go func() { _ = r.Context().Err(); close(done) }()
			select {
			case <-done:
			case <-time.After(10 * time.Second):
				t.Error("the attempt is locked while its caller's context is asked")
			}
		}
		ctx.ask.Store(&ask)
		_ = r.Context().Done()
		return bulkheadAnswer(r, 200, &bodyFuncs{
			OnRead:  func([]byte) (int, error) { <-closed; return 0, errors.New("closed") },
			OnClose: sync.OnceValue(func() error { close(closed); return nil }),
		}), nil
	})})
	pr, pw := io.Pipe()
	defer func() { _ = pw.Close() }()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://x.test/", pr)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	before := times.Load()
	cancel()
	if _, err := resp.Body.Read(make([]byte, 1)); err != context.Canceled {
		t.Error(err)
	}
	if before == 0 || times.Load() == before {
		t.Errorf("asked %d times, and %d in all", before, times.Load())
	}
}

// detached is how contexts were freed of their end before context.WithoutCancel.
type detached struct{ context.Context }

func (detached) Done() <-chan struct{}       { return nil }
func (detached) Err() error                  { return nil }
func (detached) Deadline() (time.Time, bool) { return time.Time{}, false }

func TestTheCauseOfAnAttemptIsNotThatOfAContextLongAgo(t *testing.T) {
	old := errors.New("of long ago")
	var causes []error
	base := rt(func(r *http.Request) (*http.Response, error) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		<-ctx.Done()
		causes = append(causes, context.Cause(ctx), context.Cause(r.Context()))
		return nil, ctx.Err()
	})
	tr := transport.Must(transport.New(transport.Config{Base: base, Default: policy.Policy{Timeout: policy.Timeout{Attempt: 10 * time.Millisecond}}}))
	defer func() { _ = tr.Close() }()
	ended, end := context.WithCancelCause(t.Context())
	end(old)
	req, err := http.NewRequestWithContext(detached{ended}, http.MethodGet, "http://a.test/", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tr.RoundTrip(req); !errors.Is(err, transport.ErrAttemptTimeout) {
		t.Error(err)
	}
	for _, cause := range causes {
		if cause != context.Canceled {
			t.Errorf("%v", cause)
		}
	}
	if len(causes) != 2 {
		t.Error("the base was not reached")
	}
}
