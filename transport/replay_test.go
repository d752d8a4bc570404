package transport_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/transporttest"
)

// replayBody is a request body that counts what is done to it, and notices when
// two goroutines read it.
type replayBody struct {
	r       io.Reader
	reads   atomic.Int32
	closes  atomic.Int32
	busy    atomic.Bool
	overlap atomic.Bool
}

func newReplayBody(s string) *replayBody { return &replayBody{r: strings.NewReader(s)} }

func (b *replayBody) Read(p []byte) (int, error) {
	if !b.busy.CompareAndSwap(false, true) {
		b.overlap.Store(true)
	}
	defer b.busy.Store(false)
	b.reads.Add(1)
	return b.r.Read(p)
}

func (b *replayBody) Close() error {
	b.closes.Add(1)
	return nil
}

// replayBase is a base in a function.
type replayBase func(*http.Request) (*http.Response, error)

func (f replayBase) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func replayOK(r *http.Request, status int, body string) *http.Response {
	return &http.Response{StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{},
		Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)), Request: r}
}

// replayKeeper is a base that fails, and lets go of the request body only later.
type replayKeeper struct {
	keep   time.Duration
	err    error
	hits   atomic.Int32
	before func()              // what it does before it fails
	after  func(*http.Request) // and after
}

func (k *replayKeeper) RoundTrip(r *http.Request) (*http.Response, error) {
	k.hits.Add(1)
	if k.before != nil {
		k.before()
	}
	go func() {
		if k.after != nil {
			k.after(r)
		}
		time.Sleep(k.keep)
		_ = r.Body.Close()
	}()
	return nil, k.err
}

func TestReplayGivesEachAttemptTheWholeBody(t *testing.T) {
	want := strings.Repeat("0123456789abcdef", 40)[:628]
	retryOrigins(t, func(t *testing.T, o *transporttest.Origin) {
		for name, body := range map[string]func() io.Reader{
			"GetBody":  func() io.Reader { return strings.NewReader(want) },
			"one shot": func() io.Reader { return newReplayBody(want) },
		} {
			before := len(o.Hits())
			o.ScriptFunc(func(h transporttest.Hit) transporttest.Step {
				if h.Number-before < 3 {
					return transporttest.Step{Status: 503}
				}
				return transporttest.Step{}
			})
			tr := retryTransport(t, o.Base(), retrySocketPolicy(), nil)
			req := retryRequest(t, http.MethodPut, o.URL, body())
			req.ContentLength = 628
			if status, _ := retryDo(t, tr, req); status != 200 {
				t.Errorf("%s: status %d, want 200", name, status)
			}
			hits := o.Hits()[before:]
			for _, h := range hits {
				if string(h.Body) != want || h.Header.Get("Content-Length") != "628" {
					t.Errorf("%s: request %d had %d bytes and said %s, want 628", name, h.Number, h.BodySize, h.Header.Get("Content-Length"))
				}
			}
			if len(hits) != 3 {
				t.Errorf("%s: %d hits, want 3", name, len(hits))
			}
		}
	})
}

// A body without GetBody is sent again if it fits the buffer, and once if not.
func TestReplayIsBounded(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		limit int64
		size  int
		hits  int
	}{
		{64, 0, 3}, {64, 1, 3}, {64, 64, 3}, {64, 65, 1}, {64, 1000, 1}, {0, 1, 1}, {0, 0, 3},
		{64 << 10, 64 << 10, 3}, {64 << 10, 64<<10 + 1, 1},
	} {
		for _, known := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				base := transporttest.NewBase(transporttest.Step{Status: 503, Body: "sorry"})
				p := retryPolicy()
				p.Retry.ReplayBody = test.limit
				tr := retryTransport(t, base, p, nil)
				body := newReplayBody(strings.Repeat("x", test.size))
				req := retryRequest(t, http.MethodPut, "http://x.test/", body)
				if req.ContentLength = -1; known {
					req.ContentLength = int64(test.size)
				}
				if status, answer := retryDo(t, tr, req); status != 503 || answer != "sorry" {
					t.Errorf("%+v: %d %q, want the 503 untouched", test, status, answer)
				}
				hits := base.Hits()
				if len(hits) != test.hits {
					t.Errorf("%+v: %d hits, want %d", test, len(hits), test.hits)
				}
				for _, h := range hits {
					if h.BodySize != int64(test.size) {
						t.Errorf("%+v: a body of %d bytes", test, h.BodySize)
					}
				}
				if body.closes.Load() == 0 || body.overlap.Load() {
					t.Errorf("%+v: closed %d times, two readers: %v", test, body.closes.Load(), body.overlap.Load())
				}
			})
		}
	}
}

// The body is streamed: each piece is on its way before the next is read.
func TestReplayNeverReadsAhead(t *testing.T) {
	retryOrigins(t, func(t *testing.T, o *transporttest.Origin) {
		got := make(chan string)
		o.Script(transporttest.Step{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			defer close(got)
			buf := make([]byte, 100)
			for {
				n, err := r.Body.Read(buf)
				if n > 0 {
					got <- string(buf[:n])
				}
				if err != nil {
					return
				}
			}
		})})
		tr := retryTransport(t, o.Base(), retrySocketPolicy(), nil)
		r, w := io.Pipe()
		req := retryRequest(t, http.MethodPut, o.URL, r)
		done := make(chan int)
		go func() {
			status, _ := retryDo(t, tr, req)
			done <- status
		}()
		for i := range 5 { // the pipe gives a piece only when it is asked for one
			piece := fmt.Sprint("piece ", i)
			if _, err := io.WriteString(w, piece); err != nil {
				t.Fatal(err)
			}
			if s := <-got; s != piece {
				t.Fatalf("%q, want %q", s, piece)
			}
		}
		_ = w.Close()
		if status := <-done; status != 200 {
			t.Errorf("status %d", status)
		}
	})
	synctest.Test(t, func(t *testing.T) { // and a base that reads nothing reads nothing
		base := transporttest.NewBase(transporttest.Step{Unread: true, Status: 503}, transporttest.Step{Unread: true})
		tr := retryTransport(t, base, retryPolicy(), nil)
		body := newReplayBody("x")
		retryDo(t, tr, retryRequest(t, http.MethodPut, "http://x.test/", body))
		if body.reads.Load() != 0 || len(base.Hits()) != 2 || body.closes.Load() == 0 {
			t.Errorf("%d reads, %d hits, closed %d times; want none, 2 and once", body.reads.Load(), len(base.Hits()), body.closes.Load())
		}
	})
}

// An attempt that failed half-way: the next one has what was read from the buffer,
// and the rest from the body.
func TestReplayGoesOnWhereTheFirstAttemptStopped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var got []string
		base := replayBase(func(r *http.Request) (*http.Response, error) {
			defer r.Body.Close()
			n := len(got) + 1
			if n < 3 {
				b := make([]byte, 10*n)
				_, _ = io.ReadFull(r.Body, b)
				got = append(got, string(b))
				return nil, io.ErrUnexpectedEOF
			}
			b, err := io.ReadAll(iotestOneByte{r.Body})
			if err != nil {
				return nil, err
			}
			got = append(got, string(b))
			return replayOK(r, 200, ""), nil
		})
		tr := retryTransport(t, base, retryPolicy(), nil)
		whole := strings.Repeat("0123456789", 10)
		body := newReplayBody(whole)
		if status, _ := retryDo(t, tr, retryRequest(t, http.MethodPut, "http://x.test/", body)); status != 200 {
			t.Errorf("status %d", status)
		}
		if len(got) != 3 || got[0] != whole[:10] || got[1] != whole[:20] || got[2] != whole {
			t.Errorf("%q", got)
		}
		if body.closes.Load() != 1 || body.overlap.Load() {
			t.Errorf("closed %d times, want once", body.closes.Load())
		}
	})
}

type iotestOneByte struct{ io.Reader }

func (r iotestOneByte) Read(p []byte) (int, error) {
	if len(p) > 1 {
		p = p[:1]
	}
	return r.Reader.Read(p)
}

// A body is sent again only once the attempt before has let go of it.
func TestReplayWaitsUntilTheAttemptHasLetGo(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		keep   time.Duration
		hits   int32
		reason string
	}{
		{0, 3, "max_attempts"}, {20 * time.Millisecond, 3, "max_attempts"}, {time.Second, 1, "body_not_replayable"},
	} {
		synctest.Test(t, func(t *testing.T) {
			base, rec := &replayKeeper{keep: test.keep, err: io.ErrUnexpectedEOF}, &transporttest.Recorder{}
			tr := retryTransport(t, base, retryPolicy(), rec)
			body := newReplayBody("x")
			start := time.Now()
			_, err := tr.RoundTrip(retryRequest(t, http.MethodPut, "http://x.test/", body))
			if !errors.Is(err, io.ErrUnexpectedEOF) || base.hits.Load() != test.hits {
				t.Errorf("%v: %v after %d hits, want %d", test.keep, err, base.hits.Load(), test.hits)
			}
			if d := time.Since(start); test.hits == 1 && d > 50*time.Millisecond {
				t.Errorf("%v: held for %v, want 50ms at most", test.keep, d)
			}
			if e := rec.Events(transport.EventRetrySuppressed); len(e) != 1 || e[0].Reason != test.reason {
				t.Errorf("%v: %+v, want %s", test.keep, e, test.reason)
			}
			time.Sleep(time.Minute)
			if body.closes.Load() != 1 {
				t.Errorf("%v: closed %d times, want once", test.keep, body.closes.Load())
			}
		})
	}
}

// When there will be no retry anyway, nobody waits for a body.
func TestReplayDoesNotWaitForARetryThatIsNotMade(t *testing.T) {
	t.Parallel()
	for _, reason := range []string{"budget", "deadline", "breaker_open", "max_attempts", "not_idempotent"} {
		synctest.Test(t, func(t *testing.T) {
			base, rec := &replayKeeper{keep: time.Second, err: io.ErrUnexpectedEOF}, &transporttest.Recorder{}
			p := retryPolicy()
			p.Retry.MaxAttempts = 2
			p.Retry.Budget = policy.Budget{Ratio: 0.2}
			tr := retryTransport(t, base, p, rec)
			req := retryRequest(t, http.MethodPut, "http://x.test/", newReplayBody("x"))
			switch reason {
			case "budget":
				for range policy.BudgetBurst {
					drain := retryRequest(t, http.MethodPut, "http://x.test/", strings.NewReader("x"))
					_, _ = tr.RoundTrip(drain)
				}
			case "deadline":
				ctx, cancel := context.WithTimeout(t.Context(), 90*time.Millisecond)
				defer cancel()
				req = req.WithContext(ctx)
			case "breaker_open":
				base.before = func() { tr.Host("x.test").ForceOpen() }
			case "max_attempts":
				req.GetBody = func() (io.ReadCloser, error) { return newReplayBody("x"), nil }
			case "not_idempotent":
				req.Method = http.MethodPost
			}
			before := rec.Count(transport.EventRetrySuppressed)
			start := time.Now()
			_, err := tr.RoundTrip(req)
			d := time.Since(start)
			if reason == "max_attempts" { // but for the wait before the first retry
				if d < 100*time.Millisecond || d > 200*time.Millisecond {
					t.Errorf("%s: after %v", reason, d)
				}
			} else if d != 0 || err != io.ErrUnexpectedEOF {
				t.Errorf("%s: %v after %v, want the error at once", reason, err, d)
			}
			if e := rec.Events(transport.EventRetrySuppressed)[before:]; len(e) != 1 || e[0].Reason != reason {
				t.Errorf("%+v, want %s", e, reason)
			}
			time.Sleep(time.Minute)
		})
	}
}

// Nobody else's read runs into a body that is still being read.
func TestReplayIsNeverReadByTwo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reading, block := make(chan struct{}), make(chan struct{})
		body := &replayBody{r: replayFunc(func(p []byte) (int, error) {
			close(reading)
			<-block
			return copy(p, "late"), io.EOF
		})}
		var hits int
		base := replayBase(func(r *http.Request) (*http.Response, error) {
			hits++
			go func() { _, _ = io.ReadAll(r.Body) }()
			<-reading
			time.AfterFunc(time.Millisecond, func() { _ = r.Body.Close() })
			return nil, io.ErrUnexpectedEOF
		})
		tr := retryTransport(t, base, retryPolicy(), nil)
		start := time.Now()
		_, err := tr.RoundTrip(retryRequest(t, http.MethodPut, "http://x.test/", body))
		if d := time.Since(start); err != io.ErrUnexpectedEOF || hits != 1 || d < 40*time.Millisecond || d > 50*time.Millisecond {
			t.Errorf("%v, %d hits after %v; want the error of the one attempt after 50ms at most", err, hits, d)
		}
		if body.closes.Load() != 1 { // which makes a read return
			t.Errorf("closed %d times, want once", body.closes.Load())
		}
		close(block)
		time.Sleep(time.Second)
		if body.reads.Load() != 1 || body.overlap.Load() {
			t.Errorf("%d reads, want 1", body.reads.Load())
		}
	})
}

type replayFunc func([]byte) (int, error)

func (f replayFunc) Read(p []byte) (int, error) { return f(p) }

// An answer that comes before the request was sent: every attempt has a reader of
// its own, which nobody else reads.
func TestReplayOfAnUploadThatWasAnsweredEarly(t *testing.T) {
	const size = 10 << 20
	retryOrigins(t, func(t *testing.T, o *transporttest.Origin) {
		for _, getBody := range []bool{true, false} {
			before := len(o.Hits())
			o.Script(transporttest.Step{Unread: true, Status: 503, Body: "busy"})
			p := retrySocketPolicy()
			tr := retryTransport(t, o.Base(), p, nil)
			var mu sync.Mutex
			var readers []*replayBody
			fresh := func() (io.ReadCloser, error) {
				b := &replayBody{r: io.LimitReader(replayZeros{}, size)}
				mu.Lock()
				readers = append(readers, b)
				mu.Unlock()
				return b, nil
			}
			first, _ := fresh()
			req := retryRequest(t, http.MethodPut, o.URL, first)
			req.ContentLength = size
			least := 1 // or more, if no more was read than is kept
			if getBody {
				req.GetBody = fresh
				least = 3
			}
			resp, err := tr.RoundTrip(req)
			if err != nil {
				// HTTP/1 may find the connection closed while it writes; so does
				// the bare client.
				t.Logf("%v", err)
			} else {
				b, _ := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if resp.StatusCode != 503 || string(b) != "busy" {
					t.Errorf("%d %q, want the 503", resp.StatusCode, b)
				}
			}
			if n := len(o.Hits()) - before; n < least || n > 3 {
				t.Errorf("GetBody %v: %d hits, want %d to 3", getBody, n, least)
			}
			transporttest.CheckPermits(t, tr)
			tr.CloseIdleConnections()
			mu.Lock()
			for i, b := range readers {
				replayEventually(t, func() bool { return b.closes.Load() > 0 }, fmt.Sprintf("reader %d of %d closed", i, len(readers)))
				if b.overlap.Load() {
					t.Errorf("reader %d was read by two", i)
				}
			}
			if getBody && len(readers) < 3 {
				t.Errorf("%d readers, want one for each attempt", len(readers))
			}
			mu.Unlock()
		}
	})
}

type replayZeros struct{}

func (replayZeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func replayEventually(t *testing.T, yes func() bool, what string) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); !yes(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Errorf("never: %s", what)
			return
		}
	}
}

// An attempt that is discarded does not go on with its upload.
func TestReplayStopsTheUploadOfADiscardedAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var stopped atomic.Int32
		n := 0
		base := replayBase(func(r *http.Request) (*http.Response, error) {
			if n++; n > 1 {
				_ = r.Body.Close()
				return replayOK(r, 200, ""), nil
			}
			go func() { // the rest of the request
				<-r.Context().Done()
				stopped.Add(1)
				_ = r.Body.Close()
			}()
			return replayOK(r, 503, "busy"), nil
		})
		tr := retryTransport(t, base, retryPolicy(), nil)
		req := retryRequest(t, http.MethodPut, "http://x.test/", newReplayBody("x"))
		req.GetBody = func() (io.ReadCloser, error) { return newReplayBody("x"), nil }
		retryDo(t, tr, req)
		if stopped.Load() != 1 {
			t.Error("the upload of the discarded attempt goes on")
		}
		time.Sleep(time.Minute)
	})
}

// An HTTP/2 server that shuts down has not processed the streams it disowns: the
// request is sent again, whole, and nothing is held against the host.
func TestReplayAfterGoAway(t *testing.T) {
	transporttest.CheckLeaks(t)
	body := strings.Repeat("x", 1024)
	for name, test := range map[string]struct {
		body io.Reader
		key  bool
		sent bool
	}{
		"GetBody":                      {strings.NewReader(body), false, true},
		"one shot":                     {newReplayBody(body), false, false},
		"one shot, but it may be kept": {newReplayBody(body), true, true},
	} {
		t.Run(name, func(t *testing.T) {
			o := transporttest.NewOrigin(t, transporttest.TLS("h2"))
			o.Script(transporttest.Step{Fault: transporttest.GoAway}, transporttest.Step{})
			p := retrySocketPolicy()
			p.Timeout.Read = 5 * time.Second
			tr := retryTransport(t, o.Base(), p, nil)
			req := retryRequest(t, http.MethodPost, o.URL, test.body)
			req.ContentLength = 1024
			if test.key {
				req.Header.Set("Idempotency-Key", "k")
			}
			resp, err := tr.RoundTrip(req)
			if !test.sent {
				if err == nil {
					_ = resp.Body.Close()
				}
				if err == nil || !strings.Contains(err.Error(), "GOAWAY") && !strings.Contains(err.Error(), "GetBody") {
					t.Errorf("%v, want an error that names the cause", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			hits := o.Hits()
			if resp.StatusCode != 200 || len(hits) != 2 || hits[1].BodySize != 1024 {
				t.Errorf("%d after %d hits, the last with %d bytes", resp.StatusCode, len(hits), hits[len(hits)-1].BodySize)
			}
			if c := tr.Snapshot()[0].Counts; !test.key && c.Failure != 0 {
				t.Errorf("%d failures, want none", c.Failure)
			}
		})
	}
}

func TestReplayLeavesExpectContinueAlone(t *testing.T) {
	const size = 1 << 20
	retry503 := func(o *transporttest.Origin) {
		o.ScriptFunc(func(h transporttest.Hit) transporttest.Step {
			if h.Number == 1 {
				return transporttest.Step{Unread: true, Status: 503, Header: http.Header{"Connection": {"close"}}}
			}
			return transporttest.Step{}
		})
	}
	for name, test := range map[string]struct {
		script func(*transporttest.Origin)
		oneOff bool
		status int
		sent   []int64 // bytes of each request
	}{
		"refused": {func(o *transporttest.Origin) {
			o.Script(transporttest.Step{Unread: true, Status: 401, Header: http.Header{"Connection": {"close"}}})
		}, true, 401, []int64{0}},
		"continued":                  {func(o *transporttest.Origin) { o.Script() }, true, 200, []int64{size}},
		"refused once, GetBody":      {retry503, false, 200, []int64{0, size}},
		"refused once, and one body": {retry503, true, 200, []int64{0, size}}, // nothing of it was read
	} {
		t.Run(name, func(t *testing.T) {
			transporttest.CheckLeaks(t)
			o := transporttest.NewOrigin(t)
			test.script(o)
			base := o.Base()
			base.ExpectContinueTimeout = 5 * time.Second
			tr := retryTransport(t, base, retrySocketPolicy(), nil)
			body := newReplayBody(strings.Repeat("x", size))
			req := retryRequest(t, http.MethodPut, o.URL, body)
			if !test.oneOff {
				req.GetBody = func() (io.ReadCloser, error) { return newReplayBody(strings.Repeat("x", size)), nil }
			}
			req.ContentLength = size
			req.Header.Set("Expect", "100-continue")
			if status, _ := retryDo(t, tr, req); status != test.status {
				t.Errorf("status %d, want %d", status, test.status)
			}
			var sent []int64
			for _, h := range o.Hits() {
				sent = append(sent, h.BodySize)
			}
			if fmt.Sprint(sent) != fmt.Sprint(test.sent) {
				t.Errorf("%v bytes sent, want %v", sent, test.sent)
			}
			if test.sent[0] == 0 && len(test.sent) == 1 && body.reads.Load() != 0 {
				t.Errorf("%d reads of a body that was not asked for", body.reads.Load())
			}
			if n, _ := o.Connections(); n != len(test.sent) {
				t.Errorf("%d connections, want %d", n, len(test.sent))
			}
			replayEventually(t, func() bool { return body.closes.Load() > 0 }, "body closed")
		})
	}
	t.Run("silence", func(t *testing.T) {
		transporttest.CheckLeaks(t)
		o := transporttest.NewOrigin(t)
		o.Script(transporttest.Step{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			c, rw, err := http.NewResponseController(w).Hijack() // no 100 Continue
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			_, _ = io.CopyN(io.Discard, rw, size)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		})})
		base := o.Base()
		base.ExpectContinueTimeout = 50 * time.Millisecond
		tr := retryTransport(t, base, retrySocketPolicy(), nil)
		req := retryRequest(t, http.MethodPut, o.URL, newReplayBody(strings.Repeat("x", size)))
		req.ContentLength = size
		req.Header.Set("Expect", "100-continue")
		if status, _ := retryDo(t, tr, req); status != 200 {
			t.Errorf("status %d, want 200", status)
		}
	})
}

// Whatever becomes of a call, its request body is closed.
func TestReplayClosesTheBodyOnEveryPath(t *testing.T) {
	transporttest.CheckLeaks(t)
	type setup struct {
		t   *testing.T
		tr  *transport.Transport
		o   *transporttest.Origin
		req *http.Request
	}
	cancelled := func(s *setup) {
		ctx, cancel := context.WithCancel(s.req.Context())
		cancel()
		s.req = s.req.WithContext(ctx)
	}
	hold := func(s *setup) {
		s.o.Script(transporttest.Step{Fault: transporttest.Hang, At: transporttest.HeadersOnly, Size: 10})
		resp, err := s.tr.RoundTrip(retryRequest(s.t, http.MethodGet, s.o.URL, nil))
		if err != nil {
			s.t.Error(err)
			return
		}
		s.t.Cleanup(func() { _ = resp.Body.Close() })
	}
	fail := transporttest.Step{Status: 503}
	for name, prepare := range map[string]func(*setup){
		"answered":            func(*setup) {},
		"retried":             func(s *setup) { s.o.Script(fail, transporttest.Step{}) },
		"exhausted":           func(s *setup) { s.o.Script(fail) },
		"reset":               func(s *setup) { s.o.Script(transporttest.Step{Fault: transporttest.Reset}) },
		"timed out":           func(s *setup) { s.o.Script(transporttest.Step{Fault: transporttest.Hang}) },
		"closed":              func(s *setup) { _ = s.tr.Close() },
		"breaker open":        func(s *setup) { s.tr.Host(strings.TrimPrefix(s.o.URL, "http://")).ForceOpen() },
		"bulkhead full":       hold,
		"caller gone":         cancelled,
		"Request.Cancel":      func(s *setup) { c := make(chan struct{}); close(c); s.req.Cancel = c },
		"refused":             func(s *setup) { s.o.OnDial(transporttest.Refuse) },
		"no URL":              func(s *setup) { s.req.URL = nil },
		"no host":             func(s *setup) { s.req.URL.Host = "" },
		"impossible host":     func(s *setup) { s.req.URL.Host = "[::x]" },
		"scheme":              func(s *setup) { s.req.URL.Scheme = "ftp" },
		"invalid header":      func(s *setup) { s.req.Header["X"] = []string{"\n"} },
		"invalid method":      func(s *setup) { s.req.Method = "P T" },
		"caller leaves early": func(s *setup) { s.o.Script(transporttest.Step{Fault: transporttest.Hang}); replayLeave(s.o, &s.req) },
		"caller leaves in the wait": func(s *setup) {
			s.o.Script(transporttest.Step{Status: 503, Header: http.Header{"Retry-After": {"2"}}})
			replayLeave(s.o, &s.req)
		},
		"answered early": func(s *setup) { s.o.Script(transporttest.Step{Unread: true, Status: 503}) },
	} {
		for _, kind := range []string{"one shot", "GetBody", "too large to keep", "POST"} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				o := transporttest.NewOrigin(t)
				p := retrySocketPolicy()
				p.Timeout.Read = 50 * time.Millisecond
				p.Bulkhead.MaxConcurrent = 1
				if name == "caller leaves early" {
					p.Timeout.Read = 0
				}
				tr := retryTransport(t, o.Base(), p, nil)
				size := 100
				if kind == "too large to keep" {
					size = 200 << 10
				}
				var mu sync.Mutex
				var bodies []*replayBody
				fresh := func() *replayBody {
					b := newReplayBody(strings.Repeat("x", size))
					mu.Lock()
					bodies = append(bodies, b)
					mu.Unlock()
					return b
				}
				method := http.MethodPut
				if kind == "POST" {
					method = http.MethodPost
				}
				req := retryRequest(t, method, o.URL, fresh())
				req.ContentLength = int64(size)
				if kind == "GetBody" {
					req.GetBody = func() (io.ReadCloser, error) { return fresh(), nil }
				}
				s := &setup{t, tr, o, req}
				prepare(s)
				resp, err := tr.RoundTrip(s.req)
				if err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
				mu.Lock()
				defer mu.Unlock()
				for i, b := range bodies {
					replayEventually(t, func() bool { return b.closes.Load() > 0 }, fmt.Sprintf("body %d closed (%v)", i, err))
					if b.overlap.Load() {
						t.Errorf("body %d read by two", i)
					}
				}
			})
		}
	}
}

// replayLeave has the caller leave once the request was received.
func replayLeave(o *transporttest.Origin, req **http.Request) {
	ctx, cancel := context.WithCancel((*req).Context())
	*req = (*req).WithContext(ctx)
	go func() {
		o.WaitHits(1)
		cancel()
	}()
}

func TestReplayReturnsTheLastAnswerWhenGetBodyFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base, rec := transporttest.NewBase(transporttest.Step{Status: 503, Body: "sorry"}), &transporttest.Recorder{}
		tr := retryTransport(t, base, retryPolicy(), rec)
		req := retryRequest(t, http.MethodPut, "http://x.test/", strings.NewReader("x"))
		req.GetBody = func() (io.ReadCloser, error) { return nil, errors.New("file is gone") }
		if status, body := retryDo(t, tr, req); status != 503 || body != "sorry" {
			t.Errorf("%d %q, want the 503 with its body", status, body)
		}
		if e := rec.Events(transport.EventRetrySuppressed); len(e) != 1 || e[0].Reason != "body_not_replayable" {
			t.Errorf("%+v, want one suppressed: body_not_replayable", e)
		}
	})
}

// Wherever attempts fail, each has the body from its start.
func FuzzReplay(f *testing.F) {
	f.Add(100, 100, 10, 20, 7)
	f.Add(100, 50, 50, 51, 1)
	f.Add(100, 50, 51, 0, 100)
	f.Add(0, 0, 0, 0, 1)
	f.Add(1000, 1000, 1000, 0, 3)
	f.Fuzz(func(t *testing.T, size, limit, first, second, chunk int) {
		size, limit, chunk = size&0xfff, limit&0xfff, max(chunk&0xff, 1)
		cuts := []int{min(first&0xfff, size), min(second&0xfff, size)}
		whole := make([]byte, size)
		for i := range whole {
			whole[i] = byte(i * 7)
		}
		hits := 0
		base := replayBase(func(r *http.Request) (*http.Response, error) {
			defer r.Body.Close()
			hits++
			n := size
			if hits <= len(cuts) {
				n = cuts[hits-1]
			}
			got := make([]byte, 0, n)
			for len(got) < n {
				k, err := r.Body.Read(got[len(got):min(len(got)+chunk, n)])
				got = got[:len(got)+k]
				if err != nil {
					break
				}
			}
			if string(got) != string(whole[:n]) {
				t.Errorf("attempt %d had something else", hits)
			}
			if hits <= len(cuts) {
				return nil, io.ErrUnexpectedEOF
			}
			if k, err := r.Body.Read(make([]byte, 1)); k != 0 || err != io.EOF {
				t.Errorf("%d bytes, %v after the end", k, err)
			}
			return replayOK(r, 200, ""), nil
		})
		p := retryPolicy()
		p.Retry.Base, p.Retry.ReplayBody = 0, int64(limit)
		tr := retryTransport(t, base, p, nil)
		body := newReplayBody(string(whole))
		resp, err := tr.RoundTrip(retryRequest(t, http.MethodPut, "http://x.test/", body))
		if err == nil {
			_ = resp.Body.Close()
		}
		want := 1
		for i, most := 0, 0; i < len(cuts); i++ {
			if most = max(most, cuts[i]); most > limit {
				break
			}
			want++
		}
		if hits != want || (err == nil) != (want == 3) {
			t.Errorf("%d hits, want %d (%v)", hits, want, err)
		}
		if body.closes.Load() != 1 {
			t.Errorf("closed %d times", body.closes.Load())
		}
	})
}
