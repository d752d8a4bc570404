package transport_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
)

// breakerDep is a dependency behind the stack: a base that answers as it is told,
// and a record of the events.
type breakerDep struct {
	t    testing.TB
	tr   *transport.Transport
	hits atomic.Int64

	mu     sync.Mutex // guards what follows
	answer breakerAnswer
	events []transport.Event
	listen func(transport.Event) // called without mu
}

type breakerAnswer func(*http.Request) (*http.Response, error)

func newBreakerDep(t testing.TB, p policy.Policy) *breakerDep {
	t.Helper()
	d := &breakerDep{t: t, answer: breakerStatus(200)}
	tr, err := transport.New(transport.Config{
		Default: p, Base: breakerBase{d}, Observer: d, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	d.tr = tr
	return d
}

type breakerBase struct{ d *breakerDep }

func (b breakerBase) RoundTrip(req *http.Request) (*http.Response, error) {
	b.d.hits.Add(1)
	b.d.mu.Lock()
	answer := b.d.answer
	b.d.mu.Unlock()
	return answer(req)
}

func (d *breakerDep) Start(ctx context.Context, _ transport.Start) context.Context { return ctx }

func (d *breakerDep) Observe(_ context.Context, e transport.Event) {
	d.mu.Lock()
	d.events = append(d.events, e)
	listen := d.listen
	d.mu.Unlock()
	if listen != nil {
		listen(e)
	}
}

// does sets how the dependency answers from now on.
func (d *breakerDep) does(answer breakerAnswer) {
	d.mu.Lock()
	d.answer = answer
	d.mu.Unlock()
}

func (d *breakerDep) listens(listen func(transport.Event)) {
	d.mu.Lock()
	d.listen = listen
	d.mu.Unlock()
}

// told returns the events of a kind.
func (d *breakerDep) told(kind transport.EventKind) []transport.Event {
	d.mu.Lock()
	defer d.mu.Unlock()
	var of []transport.Event
	for _, e := range d.events {
		if e.Kind == kind {
			of = append(of, e)
		}
	}
	return of
}

// moves are the transitions that were told, in order.
func (d *breakerDep) moves() string {
	var all []string
	for i, e := range d.told(transport.TransitionEvent) {
		if i == 0 {
			all = append(all, e.Transition.From.String())
		}
		all = append(all, e.Transition.To.String())
	}
	return strings.Join(all, " ")
}

func breakerRequest(ctx context.Context) *http.Request {
	req, err := http.NewRequestWithContext(ctx, "GET", "http://dep.test/path", nil)
	if err != nil {
		panic(err)
	}
	return req
}

// get makes a call, and reads and closes its body.
func (d *breakerDep) get() (int, error) { return d.do(breakerRequest(context.Background())) }

func (d *breakerDep) do(req *http.Request) (int, error) {
	resp, err := d.tr.RoundTrip(req)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	return resp.StatusCode, err
}

// gets makes one call for each letter: '.' is a 200, 'n' a 404, 'f' a 503, 'e' a
// connection error, 's' a 200 after the given time.
func (d *breakerDep) gets(calls string, slow time.Duration) {
	for _, c := range calls {
		switch c {
		case '.':
			d.does(breakerStatus(200))
		case 'n':
			d.does(breakerStatus(404))
		case 'f':
			d.does(breakerStatus(503))
		case 'e':
			d.does(breakerError)
		case 's':
			d.does(breakerAfter(slow, breakerStatus(200)))
		}
		_, _ = d.get()
	}
}

func (d *breakerDep) snap() transport.HostSnapshot {
	d.t.Helper()
	all := d.tr.Snapshot()
	if len(all) != 1 {
		d.t.Fatalf("%d hosts, want 1", len(all))
	}
	return all[0]
}

func (d *breakerDep) wantState(want transport.State) {
	d.t.Helper()
	if got := d.snap().State; got != want {
		d.t.Fatalf("the breaker is %v, want %v", got, want)
	}
}

// wantRefused makes a call that must not reach the dependency.
func (d *breakerDep) wantRefused() *transport.Error {
	d.t.Helper()
	before := d.hits.Load()
	_, err := d.get()
	var e *transport.Error
	if !errors.Is(err, transport.ErrBreakerOpen) || !errors.As(err, &e) || d.hits.Load() != before {
		d.t.Fatalf("%v, and the dependency was asked %d times; want a refusal", err, d.hits.Load()-before)
	}
	return e
}

// wantIdle checks that nothing is held.
func (d *breakerDep) wantIdle() {
	d.t.Helper()
	for _, h := range d.tr.Snapshot() {
		if h.InFlight != 0 || h.Waiting != 0 {
			d.t.Errorf("%s: %d permits held, %d calls wait, want none", h.Host, h.InFlight, h.Waiting)
		}
	}
}

// halfOpen trips the breaker, and lets its wait pass.
func (d *breakerDep) halfOpen() {
	d.t.Helper()
	d.does(breakerStatus(503))
	for range 1000 {
		if _, err := d.get(); err != nil {
			break
		}
	}
	d.wantState(transport.Open)
	time.Sleep(d.snap().RetryIn)
	d.wantState(transport.HalfOpen)
	d.does(breakerStatus(200))
}

func breakerResponse(req *http.Request, status int, body io.ReadCloser) *http.Response {
	return &http.Response{
		StatusCode: status, Status: fmt.Sprintf("%d %s", status, http.StatusText(status)),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{}, Body: body, ContentLength: -1, Request: req,
	}
}

func breakerStatus(status int) breakerAnswer {
	return func(req *http.Request) (*http.Response, error) {
		return breakerResponse(req, status, io.NopCloser(strings.NewReader("body"))), nil
	}
}

func breakerRetryAfter(value string) breakerAnswer {
	return func(req *http.Request) (*http.Response, error) {
		resp, _ := breakerStatus(503)(req)
		resp.Header.Set("Retry-After", value)
		return resp, nil
	}
}

var errBreakerReset = errors.New("connection reset")

func breakerError(*http.Request) (*http.Response, error) { return nil, errBreakerReset }

// breakerHang answers nothing until it is given up.
func breakerHang(req *http.Request) (*http.Response, error) {
	<-req.Context().Done()
	return nil, req.Context().Err()
}

func breakerAfter(d time.Duration, then breakerAnswer) breakerAnswer {
	return func(req *http.Request) (*http.Response, error) {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return then(req)
		case <-req.Context().Done():
			return nil, req.Context().Err()
		}
	}
}

// breakerBody answers 200 with a body that sends "head", and after a time ends
// with err; it is cut off when the attempt is given up.
func breakerBody(status int, after time.Duration, err error) breakerAnswer {
	return func(req *http.Request) (*http.Response, error) {
		return breakerResponse(req, status, &breakerTail{ctx: req.Context(), after: after, err: err}), nil
	}
}

type breakerTail struct {
	ctx   context.Context
	sent  bool
	after time.Duration
	err   error
}

func (b *breakerTail) Read(p []byte) (int, error) {
	if !b.sent {
		b.sent = true
		return copy(p, "head"), nil
	}
	timer := time.NewTimer(b.after)
	defer timer.Stop()
	select {
	case <-timer.C:
		return 0, b.err
	case <-b.ctx.Done():
		return 0, b.ctx.Err()
	}
}

func (b *breakerTail) Close() error { return nil }

// breakerPolicy has a breaker and nothing else.
func breakerPolicy(b policy.Breaker) policy.Policy { return policy.Policy{Breaker: b} }

func TestBreakerTripsAtEachThresholdAndNotBelowIt(t *testing.T) {
	const slow = time.Second
	for _, test := range []struct {
		name    string
		b       policy.Breaker
		calls   string // the last one trips
		trigger string
	}{
		{"failure rate at MinCalls", policy.Breaker{FailureRate: 0.5, MinCalls: 10}, ".....fffff", "failure_rate"},
		{"failure rate after MinCalls", policy.Breaker{FailureRate: 0.5, MinCalls: 10}, "......ffffff", "failure_rate"},
		{"failures only", policy.Breaker{FailureRate: 0.5, MinCalls: 10}, "ffffffffff", "failure_rate"},
		{"failure rate of one", policy.Breaker{FailureRate: 1, MinCalls: 3}, "eee", "failure_rate"},
		{"failure rate of 7 %", policy.Breaker{FailureRate: 0.07, MinCalls: 100}, strings.Repeat(".", 93) + "fffffff", "failure_rate"},
		{"a success is the last of MinCalls", policy.Breaker{FailureRate: 0.5, MinCalls: 4}, "fff.", "failure_rate"},
		{"4xx are not in the denominator", policy.Breaker{FailureRate: 0.5, MinCalls: 4}, "nnnn..nnnfnnnf", "failure_rate"},
		{"slow rate at MinCalls", policy.Breaker{SlowCall: slow, SlowRate: 0.5, MinCalls: 10}, ".....sssss", "slow_call_rate"},
		{"slow calls only", policy.Breaker{SlowCall: slow, SlowRate: 0.5, MinCalls: 10}, "ssssssssss", "slow_call_rate"},
		{"4xx are in the slow rate's denominator", policy.Breaker{SlowCall: slow, SlowRate: 0.5, MinCalls: 6}, "nnnsss", "slow_call_rate"},
		{"a 4xx is the last of MinCalls", policy.Breaker{SlowCall: slow, SlowRate: 0.5, MinCalls: 4}, "sssn", "slow_call_rate"},
		{"consecutive failures", policy.Breaker{ConsecutiveFailures: 3}, "ff.ff.fef", "consecutive_failures"},
		{"4xx do not end a row", policy.Breaker{ConsecutiveFailures: 3}, "fnnfnnnf", "consecutive_failures"},
		{"one failure is enough", policy.Breaker{ConsecutiveFailures: 1}, "..f", "consecutive_failures"},
		{"failures in the window", policy.Breaker{FailuresInWindow: 3}, "f....f....nnn.e", "failures_in_window"},
		{"triggers stand alone", policy.Breaker{FailureRate: 0.9, SlowCall: slow, SlowRate: 0.9, ConsecutiveFailures: 5, FailuresInWindow: 4}, "f.f.f.f", "failures_in_window"},
		{"window of calls", policy.Breaker{FailureRate: 0.5, MinCalls: 4, WindowCalls: 4}, "......ff", "failure_rate"},
		{"window of calls, slow", policy.Breaker{SlowCall: slow, SlowRate: 0.5, MinCalls: 4, WindowCalls: 4}, "......ss", "slow_call_rate"},
		{"failures in a window of calls", policy.Breaker{FailuresInWindow: 3, WindowCalls: 5}, "f...ff...fff", "failures_in_window"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newBreakerDep(t, breakerPolicy(test.b))
				last := len(test.calls) - 1
				for i := range last {
					d.gets(test.calls[i:i+1], slow)
					if got := d.snap(); got.State != transport.Closed {
						t.Fatalf("open after %q: %v", test.calls[:i+1], got.Trip)
					}
				}
				d.gets(test.calls[last:], slow)
				d.wantState(transport.Open)
				if got := d.snap().Trip.Trigger; got != test.trigger {
					t.Errorf("tripped by %s, want %s", got, test.trigger)
				}
				d.wantRefused()
				d.wantIdle()
			})
		})
	}
}

func TestBreakerStaysClosedBelowEachThreshold(t *testing.T) {
	const slow = time.Second
	for _, test := range []struct {
		name  string
		b     policy.Breaker
		calls string
	}{
		{"below the failure rate", policy.Breaker{FailureRate: 0.5, MinCalls: 10}, strings.Repeat("..f", 40)},
		{"below MinCalls", policy.Breaker{FailureRate: 0.5, MinCalls: 10}, "fffffffff"},
		{"below the slow rate", policy.Breaker{SlowCall: slow, SlowRate: 0.5, MinCalls: 10}, strings.Repeat(".s.", 10)},
		{"slow calls below MinCalls", policy.Breaker{SlowCall: slow, SlowRate: 0.5, MinCalls: 10}, "sssssssss"},
		{"no row", policy.Breaker{ConsecutiveFailures: 3}, strings.Repeat("ff.", 40)},
		{"few failures in the window", policy.Breaker{FailuresInWindow: 3}, strings.Repeat(".", 1000) + "ff"},
		{"a slow rate without SlowCall", policy.Breaker{SlowRate: 0.1, MinCalls: 1, FailuresInWindow: 9}, "ssss"},
		{"SlowCall without a slow rate", policy.Breaker{SlowCall: slow, FailuresInWindow: 9}, "ssss"},
		{"4xx only", policy.Breaker{FailureRate: 0.01, MinCalls: 1, ConsecutiveFailures: 1, FailuresInWindow: 1}, strings.Repeat("n", 100)},
		{"no trigger", policy.Breaker{OpenFor: time.Second, MinCalls: 1}, strings.Repeat("f", 100)},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newBreakerDep(t, breakerPolicy(test.b))
				d.gets(test.calls, slow)
				d.wantState(transport.Closed)
				if got := d.hits.Load(); got != int64(len(test.calls)) {
					t.Errorf("%d calls went out, want %d", got, len(test.calls))
				}
				d.wantIdle()
			})
		})
	}
}

// A slow trickle is an outage too: a row of failures has no window.
func TestBreakerCountsARowOfFailuresHoweverFarApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newBreakerDep(t, breakerPolicy(policy.Breaker{Window: 10 * time.Second, ConsecutiveFailures: 5}))
		for range 4 {
			d.gets("f", 0)
			time.Sleep(15 * time.Second)
		}
		d.wantState(transport.Closed)
		d.gets("f", 0)
		d.wantState(transport.Open)
	})
}

func TestBreakerForgetsWhatHasLeftTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newBreakerDep(t, breakerPolicy(policy.Breaker{Window: 10 * time.Second, FailuresInWindow: 3}))
		d.gets("f", 0)
		time.Sleep(5 * time.Second)
		d.gets("f", 0)
		time.Sleep(5 * time.Second) // the first has expired
		d.gets("f", 0)
		d.wantState(transport.Closed)
		if got := d.snap().Window.Failures; got != 2 {
			t.Errorf("%d failures in the window, want 2", got)
		}
		time.Sleep(5*time.Second - 1) // the second is about to
		d.gets("f", 0)
		d.wantState(transport.Open)
	})
}

// The trip point must not depend on how long the process has been up, nor on
// where the edge of a window falls.
func TestBreakerFindsAnOutageBehindTenThousandGoodCalls(t *testing.T) {
	for _, b := range []policy.Breaker{policy.Default().Breaker, func() policy.Breaker {
		b := policy.Default().Breaker
		b.WindowCalls = 1000
		return b
	}()} {
		synctest.Test(t, func(t *testing.T) {
			d := newBreakerDep(t, breakerPolicy(b))
			for range 10_000 {
				d.gets(".", 0)
			}
			time.Sleep(b.SlowCall)
			for range b.MinCalls - 1 {
				d.gets("e", 0)
			}
			d.wantState(transport.Closed)
			d.gets("e", 0)
			d.wantState(transport.Open)
			if trip := d.snap().Trip; trip.Calls != b.MinCalls || trip.Failures != b.MinCalls || trip.Window != b.SlowCall {
				t.Errorf("%+v, want %d failures in %v", trip, b.MinCalls, b.SlowCall)
			}
		})
	}
}

func TestBreakerStaysClosedWhenFewFailuresLieAcrossAnEdge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newBreakerDep(t, breakerPolicy(policy.Breaker{Window: 10 * time.Second, MinCalls: 20, FailureRate: 0.1}))
		for i := range 3000 { // 9 in a hundred, over three windows
			if i%100%11 == 10 {
				d.gets("f", 0)
			} else {
				d.gets(".", 0)
			}
			time.Sleep(time.Millisecond)
			if i%100 == 99 {
				time.Sleep(900 * time.Millisecond)
			}
		}
		d.wantState(transport.Closed)
	})
}

// The promise: SlowCall plus the time that MinCalls need to arrive.
func TestBreakerOpensOnAHangAfterSlowCallWhateverTheHistory(t *testing.T) {
	const minCalls = 20
	hangs := map[string]breakerAnswer{
		"no headers":     breakerHang,
		"a stalled body": breakerBody(200, time.Hour, io.EOF),
	}
	for _, windowCalls := range []int{0, 100} {
		for what, hang := range hangs {
			for _, test := range []struct {
				slowCall, every time.Duration
			}{
				{2 * time.Second, 0},
				{2 * time.Second, 20 * time.Millisecond},
				{2 * time.Second, 70 * time.Millisecond},
				{2 * time.Second, 105 * time.Millisecond},
				{500 * time.Millisecond, 10 * time.Millisecond},
				{1500 * time.Millisecond, 0},
			} {
				t.Run(fmt.Sprintf("%s, SlowCall %v, a call each %v, WindowCalls %d", what, test.slowCall, test.every, windowCalls), func(t *testing.T) {
					for offset := time.Duration(0); offset < time.Second; offset += 330 * time.Millisecond {
						synctest.Test(t, func(t *testing.T) {
							breakerHangs(t, hang, offset, test.slowCall, test.every, minCalls, windowCalls)
						})
					}
				})
			}
		}
	}
}

func breakerHangs(t *testing.T, hang breakerAnswer, offset, slowCall, every time.Duration, minCalls, windowCalls int) {
	p := breakerPolicy(policy.Breaker{MinCalls: minCalls, FailureRate: 0.5, SlowCall: slowCall, SlowRate: 0.5, WindowCalls: windowCalls})
	p.Timeout.Attempt = slowCall * 3 / 2
	d := newBreakerDep(t, p)
	time.Sleep(offset)
	for range 300 {
		d.gets(".", 0)
		time.Sleep(10 * time.Millisecond)
	}
	d.does(hang)
	start := time.Now()
	var calls sync.WaitGroup
	for range minCalls {
		calls.Go(func() { _, _ = d.get() })
		time.Sleep(every)
	}
	due := slowCall + time.Duration(minCalls-1)*every
	time.Sleep(time.Until(start.Add(due)))
	synctest.Wait()
	calls.Wait()
	s := d.snap()
	if s.Trip == nil {
		t.Fatal("the breaker has not opened")
	}
	opened := s.Transitions[0].At.Sub(start)
	if s.Trip.Trigger != "slow_call_rate" || s.Trip.Timed < minCalls || opened < slowCall || opened > due {
		t.Errorf("%v into a second: opened after %v by %v, want %v to %v", offset, opened, s.Trip, slowCall, due)
	}
	d.wantIdle()
}

// Little's law: no more than the bulkhead's permits are ever out, and they are
// out once.
func TestBreakerAndBulkheadHoldAHangToItsPermits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := policy.Service()
		p.Retry = policy.Retry{}
		p.Timeout.Read = time.Second
		p.Breaker.SlowCall, p.Breaker.SlowRate = 0, 0
		d := newBreakerDep(t, p)
		d.does(breakerHang)
		start := time.Now()
		var calls sync.WaitGroup
		for range 500 {
			calls.Go(func() {
				if _, err := d.get(); err == nil {
					t.Error("a call was answered")
				}
			})
		}
		synctest.Wait()
		if got := d.snap().InFlight; got != 20 || d.hits.Load() != 20 {
			t.Errorf("%d in flight, %d sent; want 20", got, d.hits.Load())
		}
		calls.Wait()
		if got := time.Since(start); got != time.Second {
			t.Errorf("the hang was over after %v, want 1 s", got)
		}
		d.wantState(transport.Open)
		d.wantRefused()
		if got := d.hits.Load(); got != 20 {
			t.Errorf("%d calls went out, want 20", got)
		}
		d.wantIdle()
	})
}

func TestBreakerJudgesEachOutcome(t *testing.T) {
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
			req.Cancel = gone //nolint:staticcheck // callers still do
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
				ends := d.told(transport.AttemptEnd)
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

// A caller's own deadline says nothing about the host, unless the host had taken
// longer than SlowCall by then.
func TestBreakerTakesACallersDeadlineForSlowFromSlowCallOn(t *testing.T) {
	for _, test := range []struct {
		name     string
		deadline time.Duration
		slow     int
	}{
		{"below", 2*time.Second - 1, 0},
		{"at", 2 * time.Second, 1},
		{"above", 2*time.Second + 1, 1},
	} {
		for _, answer := range []breakerAnswer{breakerHang, breakerBody(200, time.Hour, io.EOF)} {
			t.Run(test.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					d := newBreakerDep(t, breakerPolicy(policy.Breaker{SlowCall: 2 * time.Second, SlowRate: 1, MinCalls: 2}))
					d.does(answer)
					ctx, cancel := context.WithTimeout(context.Background(), test.deadline)
					defer cancel()
					if _, err := d.do(breakerRequest(ctx)); !errors.Is(err, context.DeadlineExceeded) {
						t.Error(err)
					}
					if s := d.snap(); s.Window.Slow != test.slow || s.Window.Calls != 0 || s.Counts.Neutral != 1 {
						t.Errorf("%+v, %+v; want %d slow and neutral", s.Window, s.Counts, test.slow)
					}
				})
			})
		}
	}
}

func TestBreakerCountsSlowTheMomentACallIsSlowAndOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := breakerPolicy(policy.Breaker{SlowCall: 2 * time.Second, SlowRate: 1, MinCalls: 100})
		p.Timeout.Attempt = 3 * time.Second
		d := newBreakerDep(t, p)
		d.does(breakerHang)
		done := make(chan struct{})
		go func() { _, _ = d.get(); close(done) }()
		check := func(wait time.Duration, timed, slow, calls, failures int) {
			t.Helper()
			time.Sleep(wait)
			synctest.Wait()
			if w := d.snap().Window; w.Timed != timed || w.Slow != slow || w.Calls != calls || w.Failures != failures {
				t.Errorf("%+v, want timed %d, slow %d, calls %d, failures %d", w, timed, slow, calls, failures)
			}
		}
		check(2*time.Second-1, 0, 0, 0, 0)
		check(1, 1, 1, 0, 0)
		check(time.Second-1, 1, 1, 0, 0)
		check(1, 1, 1, 1, 1)
		<-done
		check(58*time.Second, 1, 1, 1, 1) // the bucket where it was slow is 59 s back
		check(time.Second, 0, 0, 0, 0)
		d.wantIdle()
	})
}

func TestBreakerSlowIsTheHostsTimeNotTheCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newBreakerDep(t, breakerPolicy(policy.Breaker{SlowCall: 2 * time.Second, SlowRate: 1, MinCalls: 100}))
		d.does(breakerBody(200, 1900*time.Millisecond, io.EOF))
		resp, err := d.tr.RoundTrip(breakerRequest(context.Background()))
		if err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 10)
		_, _ = resp.Body.Read(buf)
		time.Sleep(time.Minute) // the caller thinks
		if _, err := resp.Body.Read(buf); err != io.EOF {
			t.Error(err)
		}
		resp.Body.Close()
		if w := d.snap().Window; w.Slow != 0 || w.Calls != 1 {
			t.Errorf("%+v, want a call that is not slow", w)
		}
	})
}

// A long download that was given its headers in another window and stalls in this
// one is one slow call of one, not of none.
func TestBreakerCountsALateSlowCallInItsDenominatorToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newBreakerDep(t, breakerPolicy(policy.Breaker{Window: 10 * time.Second, SlowCall: 2 * time.Second, SlowRate: 1, MinCalls: 100}))
		d.does(breakerBody(200, time.Hour, io.EOF))
		var calls []*http.Response
		for range 5 {
			resp, err := d.tr.RoundTrip(breakerRequest(context.Background()))
			if err != nil {
				t.Fatal(err)
			}
			_, _ = resp.Body.Read(make([]byte, 10))
			calls = append(calls, resp)
		}
		time.Sleep(time.Minute)
		for _, resp := range calls {
			go func() { _, _ = resp.Body.Read(make([]byte, 10)) }()
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if w := d.snap().Window; w.Slow != 5 || w.Timed != 5 {
			t.Errorf("%d slow of %d, want 5 of 5", w.Slow, w.Timed)
		}
		for _, resp := range calls {
			resp.Body.Close()
		}
		d.wantIdle()
	})
}

func TestBreakerCountsA5xxAtItsHeaders(t *testing.T) {
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
		if got := d.told(transport.AttemptEnd)[0].Verdict; got != policy.Failure || d.snap().Counts.Failure != 1 {
			t.Errorf("told %v of %+v", got, d.snap().Counts)
		}
	})
}

func TestBreakerWaitsWithJitter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newBreakerDep(t, breakerPolicy(policy.Breaker{ConsecutiveFailures: 1, OpenFor: 10 * time.Second}))
		seen := map[time.Duration]bool{}
		for range 50 {
			d.gets("f", 0)
			wait := d.snap().RetryIn
			if wait < 9*time.Second || wait > 11*time.Second {
				t.Fatalf("open for %v, want 10 s +-10 %%", wait)
			}
			seen[wait] = true
			if e := d.wantRefused(); e.RetryIn != wait {
				t.Errorf("the refusal says %v, the snapshot %v", e.RetryIn, wait)
			}
			time.Sleep(wait - 1)
			d.wantRefused()
			d.tr.Host("http://dep.test").Reset()
		}
		if len(seen) < 40 {
			t.Errorf("%d different waits of 50: a fleet would probe in lockstep", len(seen))
		}
	})
}

func TestBreakerWaitDoublesWithEachReopenUpToItsCap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newBreakerDep(t, breakerPolicy(policy.Breaker{ConsecutiveFailures: 1, OpenFor: 10 * time.Second, OpenForMax: 60 * time.Second, HalfOpenProbes: 1}))
		want := func(wait time.Duration) {
			t.Helper()
			d.gets("f", 0)
			got := d.snap().RetryIn
			if got < wait-wait/10 || got > wait+wait/10 {
				t.Errorf("open for %v, want %v +-10 %%", got, wait)
			}
			time.Sleep(got)
		}
		for _, wait := range []time.Duration{10, 20, 40, 60, 60} {
			want(wait * time.Second)
		}
		d.gets(".", 0) // the host is well again: back to the base
		d.wantState(transport.Closed)
		want(10 * time.Second)
		want(20 * time.Second)
	})
}

func TestBreakerWaitDoesNotDoubleWithoutACap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newBreakerDep(t, breakerPolicy(policy.Breaker{ConsecutiveFailures: 1, OpenFor: 10 * time.Second}))
		for range 5 {
			d.gets("f", 0)
			if got := d.snap().RetryIn; got < 9*time.Second || got > 11*time.Second {
				t.Errorf("open for %v, want 10 s +-10 %%", got)
			}
			time.Sleep(d.snap().RetryIn)
		}
	})
}

func TestBreakerRespectsRetryAfterUpToItsCap(t *testing.T) {
	for _, test := range []struct {
		value       string
		least, most time.Duration
	}{
		{"30", 30 * time.Second, 33 * time.Second},
		{"3600", 60 * time.Second, 66 * time.Second},
		{"1", 9 * time.Second, 11 * time.Second},
		{"-5", 9 * time.Second, 11 * time.Second},
		{"soon", 9 * time.Second, 11 * time.Second},
		{"Sat, 01 Jan 2000 00:00:40 GMT", 40 * time.Second, 44 * time.Second}, // a bubble begins at midnight
	} {
		synctest.Test(t, func(t *testing.T) {
			d := newBreakerDep(t, breakerPolicy(policy.Breaker{ConsecutiveFailures: 1, OpenFor: 10 * time.Second, OpenForMax: 60 * time.Second}))
			d.does(breakerRetryAfter(test.value))
			_, _ = d.get()
			if got := d.snap().RetryIn; got < test.least || got > test.most {
				t.Errorf("Retry-After %s: open for %v, want %v to %v", test.value, got, test.least, test.most)
			}
		})
	}
}

func TestBreakerRefusalSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newBreakerDep(t, breakerPolicy(policy.Breaker{FailureRate: 0.5, MinCalls: 4, OpenFor: 10 * time.Second}))
		time.Sleep(time.Minute)
		d.gets("..ff", 0)
		opened := time.Now()
		wait := d.snap().RetryIn
		time.Sleep(time.Second)
		e := d.wantRefused()
		if e.Host != "dep.test:80" || e.Layer != transport.LayerBreaker || e.State != transport.Open || e.Attempts != 0 ||
			!e.Opened.Equal(opened) || e.RetryIn != wait-time.Second {
			t.Errorf("%+v", e)
		}
		if got, want := *e.Evidence, (transport.Evidence{Trigger: "failure_rate", Window: time.Second, Calls: 4, Failures: 2,
			Timed: 4, Consecutive: 2, Threshold: 0.5, Last: "status 503"}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		want := "watertight: circuit breaker of dep.test:80 is open: 2 of 4 calls failed in 1s (limit 50 %), last: status 503; next probe in " +
			(wait - time.Second).Round(time.Millisecond).String()
		if e.Error() != want {
			t.Errorf("%q, want %q", e, want)
		}
		if e.Timeout() || !e.Temporary() || errors.Is(e, context.DeadlineExceeded) || errors.Is(e, transport.ErrBulkheadFull) {
			t.Error("a refusal is temporary, and nothing else")
		}
		if got := d.snap().Counts; got.RefusedOpen != 1 || got.RefusedHalfOpen != 0 || got.Attempts != 4 {
			t.Errorf("%+v", got)
		}
		if told := d.told(transport.Refusal); len(told) != 1 || told[0].Reason != "open" || told[0].Err != e || told[0].Shadow {
			t.Errorf("told %+v", told)
		}
	})
}

func TestBreakerRefusalClosesTheRequestBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newBreakerDep(t, breakerPolicy(policy.Breaker{ConsecutiveFailures: 1}))
		d.tr.Host("dep.test").ForceOpen()
		closed := 0
		req := breakerRequest(context.Background())
		req.Method, req.Body = "POST", breakerCloser{strings.NewReader("x"), &closed}
		if _, err := d.do(req); !errors.Is(err, transport.ErrBreakerOpen) || closed != 1 {
			t.Errorf("%v, body closed %d times", err, closed)
		}
	})
}

type breakerCloser struct {
	io.Reader
	closed *int
}

func (c breakerCloser) Close() error { *c.closed++; return nil }

// A dashboard must not show a breaker as open when the next call would be let
// through; and looking must change nothing.
func TestBreakerSnapshotTellsWhatTheNextCallWouldFind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newBreakerDep(t, breakerPolicy(policy.Breaker{ConsecutiveFailures: 1}))
		d.gets("f", 0)
		until := time.Now().Add(d.snap().RetryIn)
		time.Sleep(time.Until(until) - 1)
		d.wantState(transport.Open)
		time.Sleep(1)
		for range 3 {
			if s := d.snap(); s.State != transport.HalfOpen || s.RetryIn != 0 || !s.Since.Equal(until) {
				t.Errorf("%v since %v, retry in %v; want half_open since %v", s.State, s.Since, s.RetryIn, until)
			}
		}
		time.Sleep(time.Hour)
		if got := d.moves(); got != "closed open" {
			t.Errorf("told %s without any traffic", got)
		}
		d.gets(".", 0)
		if got := d.moves(); got != "closed open half_open" {
			t.Errorf("told %s", got)
		}
	})
}

func TestBreakerIgnoresLateResultsOfEarlierStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newBreakerDep(t, breakerPolicy(policy.Breaker{ConsecutiveFailures: 3, HalfOpenProbes: 2}))
		release := map[int]chan struct{}{500: make(chan struct{}), 200: make(chan struct{}), 503: make(chan struct{})}
		var calls sync.WaitGroup
		for status, ch := range release {
			d.does(func(req *http.Request) (*http.Response, error) {
				<-ch
				return breakerStatus(status)(req)
			})
			for range 20 {
				calls.Go(func() { _, _ = d.get() })
			}
			synctest.Wait()
		}
		d.gets("fff", 0)
		before := d.snap()
		close(release[500]) // late failures of the closed state, while open
		synctest.Wait()
		after := d.snap()
		if after.State != transport.Open || after.RetryIn != before.RetryIn || after.Window != before.Window || len(after.Transitions) != 1 {
			t.Errorf("%+v became %+v", before, after)
		}
		time.Sleep(before.RetryIn)
		d.gets(".", 0)
		close(release[200]) // late successes, while half-open: not the second probe
		synctest.Wait()
		if got := d.moves(); got != "closed open half_open" {
			t.Errorf("told %s", got)
		}
		d.gets(".", 0)
		d.wantState(transport.Closed)
		close(release[503]) // late failures of the closed state before this one
		synctest.Wait()
		if s := d.snap(); s.State != transport.Closed || s.Window.Calls != 0 || s.Window.Consecutive != 0 {
			t.Errorf("%v, %+v", s.State, s.Window)
		}
		calls.Wait()
		d.wantIdle()
	})
}

func TestBreakerTripsAtTheSameCallInEachCycle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newBreakerDep(t, breakerPolicy(policy.Breaker{FailuresInWindow: 3, HalfOpenProbes: 1}))
		for cycle := range 10 {
			d.gets(".ff", 0)
			d.wantState(transport.Closed)
			d.gets("f", 0)
			d.wantState(transport.Open)
			time.Sleep(d.snap().RetryIn)
			d.gets(".", 0)
			if got := d.snap(); got.State != transport.Closed || got.Window.Failures != 0 {
				t.Fatalf("cycle %d: %v with %+v", cycle, got.State, got.Window)
			}
		}
		d.does(breakerAfter(time.Millisecond, breakerStatus(503)))
		for range 10 { // and with a crowd
			var crowd sync.WaitGroup
			for range 50 {
				crowd.Go(func() { _, _ = d.get() })
			}
			crowd.Wait()
			d.wantState(transport.Open)
			time.Sleep(d.snap().RetryIn)
		}
		d.wantIdle()
	})
}

func TestBreakerIsOneForAllSpellingsOfAHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newBreakerDep(t, breakerPolicy(policy.Breaker{FailuresInWindow: 5}))
		d.does(breakerStatus(503))
		for _, u := range []string{"http://EXAMPLE.test/", "http://example.test/", "http://Example.Test:80/", "http://example.test./", "http://u:p@example.TEST/"} {
			d.wantStateIfAny(transport.Closed)
			req, err := http.NewRequest("GET", u, nil)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = d.do(req)
		}
		d.wantState(transport.Open)
		if got := d.moves(); got != "closed open" {
			t.Errorf("told %s, want that it opened once", got)
		}
	})
}

func (d *breakerDep) wantStateIfAny(want transport.State) {
	d.t.Helper()
	for _, s := range d.tr.Snapshot() {
		if s.State != want {
			d.t.Fatalf("the breaker is %v, want %v", s.State, want)
		}
	}
}

func TestBreakerIsControlledByHand(t *testing.T) {
	for name, b := range map[string]policy.Breaker{
		"with triggers":    {ConsecutiveFailures: 2},
		"without triggers": {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := breakerPolicy(b)
				p.Timeout.Read = time.Second
				d := newBreakerDep(t, p)
				h := d.tr.Host("http://DEP.test:80")
				h.ForceOpen()
				h.ForceOpen() // once is enough
				if e := d.wantRefused(); e.State != transport.ForcedOpen || e.RetryIn != 0 ||
					e.Error() != "watertight: circuit breaker of dep.test:80 is forced_open: forced" {
					t.Errorf("%v, %+v", e, e)
				}
				time.Sleep(24 * time.Hour)
				d.wantRefused()
				h.ForceClosed()
				d.gets("ffffffffff", 0)
				d.wantState(transport.ForcedClosed)
				h.Reset()
				d.wantState(transport.Closed)
				d.gets("f", 0)
				d.wantState(transport.Closed) // what happened while forced is forgotten
				if got := d.moves(); got != "closed forced_open forced_closed closed" {
					t.Errorf("told %s", got)
				}
				h.ForceOpen()
				h.Reset()
				d.wantState(transport.Closed)
				d.wantIdle()
			})
		})
	}
}

func TestBreakerResetEndsAnOpenStateAndForgetsItsEvidence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newBreakerDep(t, breakerPolicy(policy.Breaker{FailuresInWindow: 3, ConsecutiveFailures: 3}))
		d.gets("fff", 0)
		d.wantState(transport.Open)
		d.tr.Host("http://dep.test").Reset()
		d.gets("ff", 0)
		d.wantState(transport.Closed)
		d.gets("f", 0)
		d.wantState(transport.Open)
	})
}

// Reset of a breaker that is closed moves nothing, and still forgets.
func TestBreakerResetOfAClosedOneForgetsItsEvidence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newBreakerDep(t, breakerPolicy(policy.Breaker{FailuresInWindow: 3, ConsecutiveFailures: 3}))
		d.does(breakerAfter(time.Second, breakerStatus(503)))
		late := make(chan struct{})
		go func() { _, _ = d.get(); close(late) }()
		synctest.Wait()
		d.gets("ff", 0)
		d.tr.Host("http://dep.test").Reset()
		if w := d.snap().Window; w.Failures != 0 || w.Consecutive != 0 || w.Last != "" {
			t.Errorf("the window holds %+v", w)
		}
		<-late // began before
		d.gets("ff", 0)
		d.wantState(transport.Closed)
		d.gets("f", 0)
		if got := d.moves(); got != "closed open" {
			t.Errorf("told %s", got)
		}
	})
}

func TestBreakerShadowCountsAndTellsAndLetsThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newBreakerDep(t, breakerPolicy(policy.Breaker{ConsecutiveFailures: 2, OpenFor: time.Second, HalfOpenProbes: 1, Shadow: true}))
		d.gets("ff", 0)
		d.wantState(transport.Open)
		d.gets("....", 0)
		if s := d.snap(); s.Counts.RefusedOpen != 4 || d.hits.Load() != 6 {
			t.Errorf("%d calls sent, %d of them would have been refused; want 6, 4", d.hits.Load(), s.Counts.RefusedOpen)
		}
		time.Sleep(2 * time.Second)
		d.gets(".", 0)
		d.wantState(transport.Closed)
		if got := d.moves(); got != "closed open half_open closed" {
			t.Errorf("told %s", got)
		}
		for _, e := range append(d.told(transport.TransitionEvent), d.told(transport.Refusal)...) {
			if !e.Shadow {
				t.Errorf("%+v does not say that it is a shadow", e)
			}
		}
		d.tr.Host("http://dep.test").ForceOpen()
		if status, err := d.get(); status != 200 || err != nil {
			t.Errorf("%d, %v", status, err)
		}
	})
}

func TestBreakerSaysOnceThatItIsBlind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newBreakerDep(t, breakerPolicy(policy.Breaker{SlowCall: 2 * time.Second, SlowRate: 0.5, FailureRate: 0.5, MinCalls: 10}))
		leave := func(n int) {
			d.does(breakerHang)
			for range n {
				ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
				_, _ = d.do(breakerRequest(ctx))
				cancel()
			}
		}
		d.gets(strings.Repeat(".", 20), 0)
		leave(20)
		if got := d.told(transport.Blind); len(got) != 0 {
			t.Fatalf("told %+v when half of the calls were judged", got)
		}
		leave(20)
		if got := d.told(transport.Blind); len(got) != 1 || got[0].Host != "dep.test:80" || got[0].Layer != transport.LayerBreaker || got[0].Reason == "" {
			t.Fatalf("told %+v, want it once", got)
		}
		d.gets(strings.Repeat(".", 1000), 0)
		leave(1) // it sees again
		time.Sleep(2 * time.Minute)
		leave(10)
		if got := d.told(transport.Blind); len(got) != 2 {
			t.Errorf("told %d times, want once more", len(got))
		}
		d.wantState(transport.Closed)
	})
}

func TestBreakerIsNotBlindToCallersWhoCancelOrWaitLongEnough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newBreakerDep(t, breakerPolicy(policy.Breaker{SlowCall: 2 * time.Second, SlowRate: 1, MinCalls: 10, FailuresInWindow: 100}))
		d.does(breakerHang)
		for range 30 {
			ctx, cancel := context.WithCancel(context.Background())
			time.AfterFunc(time.Millisecond, cancel)
			_, _ = d.do(breakerRequest(ctx))
		}
		for range 9 {
			ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
			_, _ = d.do(breakerRequest(ctx))
			cancel()
		}
		if got := d.told(transport.Blind); len(got) != 0 {
			t.Errorf("told %+v", got)
		}
	})
}

// Listeners run outside all locks, so that they may do what they like.
func TestBreakerListenersMayCallAnyMethod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newBreakerDep(t, breakerPolicy(policy.Breaker{ConsecutiveFailures: 2, HalfOpenProbes: 1}))
		host := d.tr.Host("http://dep.test")
		var states []string
		d.listens(func(e transport.Event) {
			if e.Kind != transport.TransitionEvent {
				return
			}
			states = append(states, e.Transition.From.String()+">"+e.Transition.To.String())
			_ = d.tr.Snapshot()
			_ = host.Snapshot()
			d.tr.CloseIdleConnections()
			_, _ = d.get() // refused, or a call within the call
			switch e.Transition.To {
			case transport.Open:
				host.ForceOpen()
			case transport.ForcedOpen:
				host.ForceClosed()
			case transport.ForcedClosed:
				host.Reset()
			}
		})
		d.gets("ff", 0)
		if got := strings.Join(states, " "); got != "closed>open open>forced_open forced_open>forced_closed forced_closed>closed" {
			t.Errorf("told %s", got)
		}
		d.wantState(transport.Closed)
		d.wantIdle()
	})
}

func TestBreakerSurvivesListenersThatPanicOrEndTheirGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newBreakerDep(t, breakerPolicy(policy.Breaker{ConsecutiveFailures: 1, HalfOpenProbes: 1}))
		d.listens(func(e transport.Event) {
			if e.Kind == transport.TransitionEvent && e.Transition.To == transport.HalfOpen {
				panic("listener")
			}
			if e.Kind == transport.TransitionEvent && e.Transition.To == transport.Open {
				breakerGoexit()
			}
		})
		for range 3 {
			done := make(chan struct{})
			go func() { defer close(done); d.gets("f", 0) }()
			<-done
			d.wantState(transport.Open)
			time.Sleep(d.snap().RetryIn)
			d.gets(".", 0)
			d.wantState(transport.Closed)
		}
		if got := d.moves(); got != "closed"+strings.Repeat(" open half_open closed", 3) {
			t.Errorf("told %s", got)
		}
	})
}

// breakerTransitions checks that they follow one another, by lawful steps.
func breakerTransitions(t *testing.T, all []transport.Event, forced bool) {
	t.Helper()
	lawful := map[transport.State][]transport.State{
		transport.Closed:   {transport.Open},
		transport.Open:     {transport.HalfOpen},
		transport.HalfOpen: {transport.Closed, transport.Open},
	}
	state := transport.Closed
	for i, e := range all {
		from, to := e.Transition.From, e.Transition.To
		if from != state {
			t.Fatalf("transition %d is from %v, the one before was to %v", i, from, state)
		}
		if !forced && !slices.Contains(lawful[from], to) {
			t.Fatalf("transition %d is %v to %v", i, from, to)
		}
		state = to
	}
}

func TestBreakerMovesLawfullyUnderACrowd(t *testing.T) {
	for _, forced := range []bool{false, true} {
		t.Run(fmt.Sprintf("forced %v", forced), func(t *testing.T) {
			d := newBreakerDep(t, breakerPolicy(policy.Breaker{
				FailureRate: 0.5, MinCalls: 5, ConsecutiveFailures: 4, SlowCall: 500 * time.Microsecond, SlowRate: 0.9,
				OpenFor: 200 * time.Microsecond, OpenForMax: time.Millisecond, HalfOpenProbes: 2,
			}))
			host := d.tr.Host("http://dep.test")
			var n atomic.Int64
			d.does(func(req *http.Request) (*http.Response, error) {
				switch i := n.Add(1); {
				case i/500%2 == 0:
					return breakerStatus(200)(req)
				case i%5 == 0:
					return breakerAfter(time.Millisecond, breakerStatus(200))(req)
				case i%3 == 0:
					return nil, errBreakerReset
				}
				return breakerStatus(503)(req)
			})
			stop := time.Now().Add(400 * time.Millisecond)
			var crowd sync.WaitGroup
			for g := range 64 {
				crowd.Go(func() {
					for i := 0; time.Now().Before(stop); i++ {
						ctx, cancel := context.WithCancel(context.Background())
						if i%7 == 0 {
							time.AfterFunc(100*time.Microsecond, cancel)
						}
						_, err := d.do(breakerRequest(ctx))
						cancel()
						if err != nil && errors.Is(err, transport.ErrBreakerOpen) {
							time.Sleep(50 * time.Microsecond)
						}
						if g == 0 && i%20 == 0 {
							_ = d.tr.Snapshot()
						}
						if forced && g < 3 && i%10 == 0 {
							[]func(){host.ForceOpen, host.ForceClosed, host.Reset}[g]()
						}
					}
				})
			}
			crowd.Wait()
			told := d.told(transport.TransitionEvent)
			if len(told) < 6 {
				t.Fatalf("%d transitions only", len(told))
			}
			breakerTransitions(t, told, forced)
			recent := d.snap().Transitions
			for i, tr := range recent {
				if tr != *told[len(told)-len(recent)+i].Transition {
					t.Errorf("the snapshot's transitions are not the ones told")
					break
				}
			}
			d.wantIdle()
		})
	}
}

// On real sockets: a host whose bodies always break looks healthy at its headers.
func TestBreakerOpensOnBodiesThatAreCutByTheirHost(t *testing.T) {
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
