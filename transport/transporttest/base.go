package transporttest

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Base is a RoundTripper that plays a script without any network, for
// transport.Config.Base. What takes time in it ends with the request's context,
// and takes no time at all in a bubble of testing/synctest. It is safe for
// concurrent use.
type Base struct {
	script
	hits
	now, most int // under hits.board
}

// NewBase returns a Base with a script, as [Base.Script] sets it.
func NewBase(steps ...Step) *Base {
	b := &Base{}
	b.Script(steps...)
	return b
}

// InFlight returns how many requests are with the Base now, and how many were at
// the most. A request is from its start to the end of its response body: EOF, an
// error or Close.
func (b *Base) InFlight() (now, most int) {
	b.board.mu.Lock()
	defer b.board.mu.Unlock()
	return b.now, b.most
}

// RoundTrip takes the next step of the script. It reads the request body itself,
// so that one that blocks is not cut short by the request's context.
func (b *Base) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		defer func() { _ = req.Body.Close() }()
	}
	b.board.update(func() {
		b.now++
		b.most = max(b.most, b.now)
	})
	left := sync.OnceFunc(func() { b.board.update(func() { b.now-- }) })
	answered := false
	defer func() {
		if !answered {
			left()
		}
	}()
	hit := b.add(req, req.URL.RequestURI(), 0, 0)
	step := b.step(*hit)
	if req.Body != nil && !step.Unread {
		if _, err := io.Copy(io.Discard, &recording{req.Body, &b.hits, hit}); err != nil {
			return nil, err
		}
	}
	resp, err := step.answer(req, left)
	answered = err == nil
	return resp, err
}

// answer plays a step in memory. What it returns calls left when it has ended.
func (s *Step) answer(req *http.Request, left func()) (*http.Response, error) {
	ctx := req.Context()
	for _, i := range s.Interim {
		if err := sleep(ctx, nil, i.Delay); err != nil {
			return nil, err
		}
		if trace := httptrace.ContextClientTrace(ctx); trace != nil && trace.Got1xxResponse != nil {
			if err := trace.Got1xxResponse(i.Status, textproto.MIMEHeader(i.Header.Clone())); err != nil {
				return nil, err
			}
		}
	}
	if err := sleep(ctx, nil, s.Delay); err != nil {
		return nil, err
	}
	switch {
	case s.Err != nil:
		return nil, s.Err
	case s.headless() && s.Fault == Cut:
		return nil, io.EOF
	case s.headless():
		return nil, s.fail(ctx, nil)
	}
	resp := &http.Response{
		Status:     fmt.Sprintf("%d %s", s.status(), http.StatusText(s.status())),
		StatusCode: s.status(),
		Proto:      "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header:        http.Header{},
		Body:          http.NoBody,
		ContentLength: s.length(),
		Request:       req,
	}
	for name, values := range s.Header {
		if len(values) > 0 {
			resp.Header[http.CanonicalHeaderKey(name)] = slices.Clone(values)
		}
	}
	if s.framing() != Fixed {
		resp.ContentLength = -1
	}
	bodiless := req.Method == http.MethodHead || s.status() == http.StatusNoContent || s.status() == http.StatusNotModified
	if bodiless || s.Fault == 0 && s.length() == 0 && len(s.Trailer) == 0 {
		left()
		return resp, nil
	}
	if len(s.Trailer) > 0 && !s.Unannounced {
		resp.Trailer = http.Header{}
		for name := range s.Trailer {
			resp.Trailer[http.CanonicalHeaderKey(name)] = nil
		}
	}
	resp.Body = &body{content: content{step: s}, ctx: ctx, resp: resp, left: left, closed: make(chan struct{})}
	return resp, nil
}

// fail plays the fault of a step where it strikes.
func (s *Step) fail(ctx context.Context, closed <-chan struct{}) error {
	switch s.Fault {
	case Hang:
		return sleep(ctx, closed, forever)
	case Cut:
		return io.ErrUnexpectedEOF
	case Reset:
		return reset("read", "tcp")
	}
	return fmt.Errorf("transporttest: a Base cannot play fault %d", s.Fault)
}

// reset is the error of a connection that its peer has reset.
func reset(op, network string) error {
	return &net.OpError{Op: op, Net: network, Err: os.NewSyscallError(op, syscall.ECONNRESET)}
}

// body is the response body of a Base.
type body struct {
	content content
	ctx     context.Context
	resp    *http.Response
	left    func()
	closed  chan struct{}
	once    sync.Once
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.read(p)
	if err != nil {
		b.left()
	}
	return n, err
}

func (b *body) read(p []byte) (int, error) {
	pause := time.Duration(0)
	if b.content.due() {
		pause = b.content.step.Pause
	}
	if err := sleep(b.ctx, b.closed, pause); err != nil {
		return 0, err
	}
	n, err := b.content.Read(p)
	if err == nil {
		return n, nil
	}
	step := b.content.step
	if step.Fault != 0 {
		return 0, step.fail(b.ctx, b.closed)
	}
	if len(step.Trailer) > 0 {
		if b.resp.Trailer == nil {
			b.resp.Trailer = http.Header{}
		}
		maps.Copy(b.resp.Trailer, step.Trailer.Clone())
	}
	return 0, io.EOF
}

// Close ends the body, and a Read that waits.
func (b *body) Close() error {
	b.once.Do(func() { close(b.closed) })
	b.left()
	return nil
}

// forever is longer than any test.
const forever = time.Duration(1) << 60

// sleep returns after d, or with the error of a request or a body that ends first.
func sleep(ctx context.Context, closed <-chan struct{}, d time.Duration) error {
	var after <-chan time.Time
	switch {
	case d == forever:
	case d > 0:
		timer := time.NewTimer(d)
		defer timer.Stop()
		after = timer.C
	default:
		now := make(chan time.Time)
		close(now)
		after = now
	}
	select {
	case <-closed:
		return http.ErrBodyReadAfterClose
	default:
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	select {
	case <-after:
		return nil
	case <-closed:
		return http.ErrBodyReadAfterClose
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

var _ http.RoundTripper = (*Base)(nil)
