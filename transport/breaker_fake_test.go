package transport_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
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
	for i, e := range d.told(transport.EventTransition) {
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

// breakerPolicy has a breaker, and as many permits as are asked for, so that they
// are counted.
func breakerPolicy(b policy.Breaker) policy.Policy {
	return policy.Policy{Breaker: b, Bulkhead: policy.Bulkhead{MaxConcurrent: 10_000}}
}
