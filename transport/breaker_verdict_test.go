package transport_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/transporttest"
)

func TestBreakerJudgesEachOutcome(t *testing.T) {
	t.Parallel()
	p := breakerPolicy(policy.Breaker{FailuresInWindow: 1000})
	p.Timeout.Read = time.Second
	for _, test := range []struct {
		name                      string
		answer                    breakerAnswer
		call                      func(*breakerDep)
		success, failure, neutral int64
	}{
		{"200", breakerStatus(200), nil, 1, 0, 0},
		{"302", breakerStatus(302), nil, 1, 0, 0},
		{"304", breakerStatus(304), nil, 1, 0, 0},
		{"400", breakerStatus(400), nil, 0, 0, 1},
		{"401", breakerStatus(401), nil, 0, 0, 1},
		{"404", breakerStatus(404), nil, 0, 0, 1},
		{"408", breakerStatus(408), nil, 0, 0, 1},
		{"429", breakerStatus(429), nil, 0, 0, 1},
		{"500", breakerStatus(500), nil, 0, 1, 0},
		{"503", breakerStatus(503), nil, 0, 1, 0},
		{"599", breakerStatus(599), nil, 0, 1, 0},
		{"connection error", breakerError, nil, 0, 1, 0},
		{"hang", breakerHang, nil, 0, 1, 0},
		{"body cut", breakerBody(200, 0, io.ErrUnexpectedEOF), nil, 0, 1, 0},
		{"body of a 404 cut", breakerBody(404, 0, io.ErrUnexpectedEOF), nil, 0, 1, 0},
		{"body stalled", breakerBody(200, time.Hour, io.EOF), nil, 0, 1, 0},
		{"neither response nor error", func(*http.Request) (*http.Response, error) { return nil, nil }, nil, 0, 1, 0},
		{"closed early", breakerBody(200, time.Hour, io.EOF), breakerCloseEarly, 1, 0, 0},
		{"404 closed early", breakerBody(404, time.Hour, io.EOF), breakerCloseEarly, 0, 0, 1},
		{"500 closed early", breakerBody(500, time.Hour, io.EOF), breakerCloseEarly, 0, 1, 0},
		{"cancelled before headers", breakerHang, breakerCancelled(func(c context.CancelFunc) { time.AfterFunc(time.Millisecond, c) }), 0, 0, 1},
		{"cancelled in the body", breakerBody(200, time.Hour, io.EOF), breakerCancelled(func(c context.CancelFunc) { time.AfterFunc(time.Millisecond, c) }), 0, 0, 1},
		{"cancelled while the body is cut", breakerBody(200, 2*time.Millisecond, io.ErrUnexpectedEOF), breakerCancelled(func(c context.CancelFunc) { time.AfterFunc(time.Millisecond, c) }), 0, 0, 1},
		{"cancelled and answered with an error of its own", func(req *http.Request) (*http.Response, error) {
			<-req.Context().Done()
			return nil, errBreakerReset
		}, breakerCancelled(func(c context.CancelFunc) { time.AfterFunc(time.Millisecond, c) }), 0, 0, 1},
		{"cancelled by Request.Cancel", breakerAfter(2*time.Millisecond, breakerError), func(d *breakerDep) {
			req := breakerRequest(context.Background())
			gone := make(chan struct{})
			req.Cancel = gone
			time.AfterFunc(time.Millisecond, func() { close(gone) })
			_, _ = d.do(req)
		}, 0, 0, 1},
		{"faulty request body", breakerUpload, func(d *breakerDep) {
			req := breakerRequest(context.Background())
			req.Method, req.Body = "POST", io.NopCloser(breakerFaultyReader{})
			_, _ = d.do(req)
		}, 0, 0, 1},
		{"panic", func(*http.Request) (*http.Response, error) { panic("base") }, func(d *breakerDep) {
			defer func() { _ = recover() }()
			_, _ = d.get()
		}, 0, 0, 1},
		{"event stream", func(req *http.Request) (*http.Response, error) {
			resp, _ := breakerBody(200, time.Second, io.ErrUnexpectedEOF)(req)
			resp.Header.Set("Content-Type", "text/event-stream")
			return resp, nil
		}, nil, 1, 0, 0},
		{"expired before it began", breakerStatus(500), func(d *breakerDep) {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			_, _ = d.get()
			_, _ = d.do(breakerRequest(ctx))
		}, 0, 1, 0}, // of the call that makes the host known
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newBreakerDep(t, p)
				d.does(test.answer)
				if test.call == nil {
					test.call = func(d *breakerDep) { _, _ = d.get() }
				}
				test.call(d)
				s := d.snap()
				if c := s.Counts; c.Success != test.success || c.Failure != test.failure || c.Neutral != test.neutral {
					t.Errorf("%d successes, %d failures, %d neutral; want %d, %d, %d", c.Success, c.Failure, c.Neutral, test.success, test.failure, test.neutral)
				}
				if w := s.Window; int64(w.Failures) != test.failure || int64(w.Calls) != test.success+test.failure {
					t.Errorf("the window holds %+v", w)
				}
				ends := d.told(transport.EventAttemptEnd)
				verdict := policy.Neutral
				if test.success > 0 {
					verdict = policy.Success
				} else if test.failure > 0 {
					verdict = policy.Failure
				}
				if len(ends) != 1 || ends[0].Verdict != verdict {
					t.Errorf("told %v, want one end that is a %v", ends, verdict)
				}
				d.wantIdle()
			})
		})
	}
}

// breakerCloseEarly is a JSON decoder that stops at the last brace.
func breakerCloseEarly(d *breakerDep) {
	resp, err := d.tr.RoundTrip(breakerRequest(context.Background()))
	if err != nil {
		d.t.Fatal(err)
	}
	_, _ = resp.Body.Read(make([]byte, 4))
	resp.Body.Close()
	resp.Body.Close()
}

func breakerCancelled(when func(context.CancelFunc)) func(*breakerDep) {
	return func(d *breakerDep) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		when(cancel)
		_, _ = d.do(breakerRequest(ctx))
	}
}

// breakerUpload reads the request's body before it answers.
func breakerUpload(req *http.Request) (*http.Response, error) {
	_, err := io.Copy(io.Discard, req.Body)
	req.Body.Close()
	if err != nil {
		return nil, fmt.Errorf("write: %w", err)
	}
	return breakerStatus(200)(req)
}

type breakerFaultyReader struct{}

func (breakerFaultyReader) Read([]byte) (int, error) { return 0, errors.New("the disk is gone") }

func TestBreakerIgnoresCallersWhoLeave(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newBreakerDep(t, policy.Default())
		d.does(breakerHang)
		ctx, cancel := context.WithCancel(context.Background())
		var calls sync.WaitGroup
		for range 100 {
			calls.Go(func() {
				if _, err := d.do(breakerRequest(ctx)); !errors.Is(err, context.Canceled) {
					t.Errorf("%v, want the caller's own error", err)
				}
			})
		}
		time.Sleep(time.Second)
		cancel()
		calls.Wait()
		s := d.snap()
		if s.State != transport.Closed || s.Counts.Neutral != 100 || s.Window.Failures != 0 || s.Window.Calls != 0 || s.Window.Slow != 0 {
			t.Errorf("%v, %+v, %+v", s.State, s.Counts, s.Window)
		}
		d.wantIdle()
	})
}

func TestBreakerCountsA5xxAtItsHeaders(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newBreakerDep(t, breakerPolicy(policy.Breaker{FailuresInWindow: 2}))
		d.does(breakerStatus(500))
		for i := range 2 {
			resp, err := d.tr.RoundTrip(breakerRequest(context.Background()))
			if err != nil {
				t.Fatal(err)
			}
			if got := d.snap().Counts.Failure; got != int64(i+1) {
				t.Errorf("%d failures while the body is open, want %d", got, i+1)
			}
			if body, err := io.ReadAll(resp.Body); string(body) != "body" || err != nil {
				t.Errorf("body %q, %v", body, err)
			}
			resp.Body.Close()
		}
		if s := d.snap(); s.State != transport.Open || s.Counts.Failure != 2 {
			t.Errorf("%v after %d failures, want open after 2", s.State, s.Counts.Failure)
		}
	})
}

func TestBreakerClassifyOverrulesAndIsAskedOnceItHasSaidFailure(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name             string
		answer           breakerAnswer
		classify         func(*http.Response, error) policy.Verdict
		failure, success int64
		asked            int64
	}{
		{"a 200 that fails", breakerStatus(200), func(*http.Response, error) policy.Verdict { return policy.Failure }, 1, 0, 1},
		{"a 503 that succeeds", breakerStatus(503), func(*http.Response, error) policy.Verdict { return policy.Success }, 0, 1, 2},
		{"a 503 that is left alone", breakerStatus(503), func(*http.Response, error) policy.Verdict { return policy.Unclassified }, 1, 0, 1},
		{"a 503 that is neutral", breakerStatus(503), func(*http.Response, error) policy.Verdict { return policy.Neutral }, 0, 0, 2},
		{"a 429 that fails", breakerStatus(429), func(resp *http.Response, _ error) policy.Verdict {
			if resp.StatusCode == 429 {
				return policy.Failure
			}
			return policy.Unclassified
		}, 1, 0, 1},
		{"an error that is neutral", breakerError, func(*http.Response, error) policy.Verdict { return policy.Neutral }, 0, 0, 1},
		{"a nonsense verdict on a 503", breakerStatus(503), func(*http.Response, error) policy.Verdict { return 99 }, 1, 0, 1},
		{"a panic about a 503", breakerStatus(503), func(*http.Response, error) policy.Verdict { panic("classify") }, 1, 0, 1},
		{"a panic about a 200", breakerStatus(200), func(*http.Response, error) policy.Verdict { panic("classify") }, 0, 1, 2},
		{"a nil dereference in an error", breakerError, func(resp *http.Response, _ error) policy.Verdict {
			if resp.StatusCode == 200 {
				return policy.Success
			}
			return policy.Failure
		}, 1, 0, 1},
		{"a body that is cut", breakerBody(200, 0, io.ErrUnexpectedEOF), func(_ *http.Response, err error) policy.Verdict {
			if err != nil {
				return policy.Success
			}
			return policy.Unclassified
		}, 0, 1, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var asked atomic.Int64
				d := newBreakerDep(t, breakerPolicy(policy.Breaker{FailuresInWindow: 10, Classify: func(resp *http.Response, err error) policy.Verdict {
					asked.Add(1)
					return test.classify(resp, err)
				}}))
				d.does(test.answer)
				_, _ = d.get()
				if c := d.snap().Counts; c.Failure != test.failure || c.Success != test.success {
					t.Errorf("%d failures, %d successes; want %d, %d", c.Failure, c.Success, test.failure, test.success)
				}
				if got := asked.Load(); got != test.asked {
					t.Errorf("asked %d times, want %d", got, test.asked)
				}
				d.wantIdle()
			})
		})
	}
}

// An observer must be told the verdict that was counted.
func TestBreakerTellsTheVerdictThatItCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		first := true
		d := newBreakerDep(t, breakerPolicy(policy.Breaker{FailuresInWindow: 10, Classify: func(*http.Response, error) policy.Verdict {
			if first {
				first = false
				return policy.Failure
			}
			return policy.Success
		}}))
		_, _ = d.get()
		if got := d.told(transport.EventAttemptEnd)[0].Verdict; got != policy.Failure || d.snap().Counts.Failure != 1 {
			t.Errorf("told %v of %+v", got, d.snap().Counts)
		}
	})
}

// On real sockets: a host whose bodies always break looks healthy at its headers.
func TestBreakerOpensOnBodiesThatAreCutByTheirHost(t *testing.T) {
	transporttest.CheckLeaks(t)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "1000")
		_, _ = w.Write(make([]byte, 500))
		if r.URL.Path == "/cut" {
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
		_, _ = w.Write(make([]byte, 500))
	}))
	defer s.Close()
	p := policy.Default()
	p.Retry = policy.Retry{}
	tr := transport.Must(transport.New(transport.Config{Default: p, Logger: slog.New(slog.DiscardHandler)}))
	defer tr.Close()
	get := func(path string, read int64) error {
		resp, err := tr.Client().Get(s.URL + path)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		_, err = io.CopyN(io.Discard, resp.Body, read)
		return err
	}
	for i := range 30 { // by its own choice, the caller stops early
		if err := get("/whole", 400); err != nil {
			t.Fatalf("call %d: %v", i, err)
		}
	}
	if got := tr.Snapshot()[0]; got.State != transport.Closed || got.Counts.Success != 30 || got.Counts.Failure != 0 {
		t.Fatalf("%v after %+v", got.State, got.Counts)
	}
	cut := 0
	for !errors.Is(get("/cut", 1000), transport.ErrBreakerOpen) {
		if cut++; cut > 30 {
			t.Fatal("still closed after 30 cut bodies")
		}
	}
	if got := tr.Snapshot()[0]; got.Trip.Trigger != "failure_rate" || got.InFlight != 0 {
		t.Errorf("%+v, %d in flight", got.Trip, got.InFlight)
	}
}
