package transporttest

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
)

// faultLayer injects into what goes on to next.
type faultLayer struct {
	faults *Faults
	next   http.RoundTripper
}

func (l *faultLayer) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL == nil {
		return l.next.RoundTrip(req) // its error
	}
	step := l.faults.draw(req.URL)
	switch {
	case step == nil:
		return l.next.RoundTrip(req)
	case step.goesOn():
		return step.spoil(req, l.next)
	}
	return step.instead(req)
}

// goesOn reports whether the request is the Base's to answer.
func (s *Step) goesOn() bool { return s.Status == 0 && s.Err == nil && !s.headless() }

// spoil does what is to happen to the true answer.
func (s *Step) spoil(req *http.Request, next http.RoundTripper) (*http.Response, error) {
	resp, err := next.RoundTrip(req)
	if err != nil || resp == nil {
		return resp, err
	}
	ctx, stop := lifeOf(req)
	if err := sleep(ctx, nil, s.Delay); err != nil {
		stop()
		if resp.Body != nil {
			_ = resp.Body.Close()
		}
		return nil, err
	}
	if resp.Body == nil || resp.Body == http.NoBody || s.Fault == 0 && s.Pause == 0 {
		stop()
		return resp, nil
	}
	b := &spoilt{true: resp.Body, step: s, ctx: ctx, stop: stop, closed: make(chan struct{})}
	resp.Body = b
	if w, ok := b.true.(io.Writer); ok { // of a protocol upgrade
		resp.Body = spoiltTunnel{b, w}
	}
	return resp, nil
}

// spoilt is the body of a true answer, read through a Step.
type spoilt struct {
	true   io.ReadCloser
	step   *Step
	ctx    context.Context
	stop   func()
	off    int64
	err    error // what came after the last byte
	closed chan struct{}
	once   sync.Once
}

type spoiltTunnel struct {
	*spoilt
	io.Writer
}

func (b *spoilt) Read(p []byte) (int, error) {
	if b.err != nil || len(p) == 0 {
		return 0, b.err
	}
	s := b.step
	if s.Fault != 0 {
		left := int64(max(s.At, 0)) - b.off
		if left <= 0 {
			b.err = s.fail(b.ctx, b.closed)
			_ = b.true.Close() // its connection is gone
			b.stop()
			return 0, b.err
		}
		p = p[:min(int64(len(p)), left)]
	}
	chunk := int64(s.Chunk)
	if b.off == 0 || chunk > 0 && b.off%chunk == 0 {
		if err := sleep(b.ctx, b.closed, s.Pause); err != nil {
			return 0, err
		}
	}
	if chunk > 0 {
		p = p[:min(int64(len(p)), chunk-b.off%chunk)]
	}
	n, err := b.true.Read(p)
	b.off += int64(n)
	if b.err = err; err != nil {
		b.stop()
	}
	return n, err
}

// Close closes the true body, and ends a Read that waits.
func (b *spoilt) Close() error {
	b.once.Do(func() { close(b.closed) })
	b.stop()
	return b.true.Close()
}

// instead is an exchange that never reaches the Base. Of the hooks of httptrace it calls
// those that tell how far an exchange has come: GetConn, GotConn, WroteRequest and
// GotFirstResponseByte.
func (s *Step) instead(req *http.Request) (*http.Response, error) {
	ctx, stop := lifeOf(req)
	answered := false
	defer func() {
		if !answered {
			stop()
		}
	}()
	trace := cmp.Or(httptrace.ContextClientTrace(ctx), &httptrace.ClientTrace{})
	if trace.GetConn != nil {
		trace.GetConn(authority(req))
	}
	if neverConnected(s.Err) {
		closeRequest(req)
		if err := sleep(ctx, nil, s.Delay); err != nil {
			return nil, err
		}
		return nil, s.Err
	}
	if trace.GotConn != nil {
		here, there := net.Pipe()
		_, _ = here.Close(), there.Close()
		trace.GotConn(httptrace.GotConnInfo{Conn: here})
	}
	err := s.take(ctx, req)
	if trace.WroteRequest != nil {
		trace.WroteRequest(httptrace.WroteRequestInfo{Err: err})
	}
	if err != nil {
		return nil, err
	}
	resp, err := s.answer(req.WithContext(ctx), stop)
	if err != nil {
		return nil, err
	}
	answered = true
	resp.Request = req
	if trace.GotFirstResponseByte != nil {
		trace.GotFirstResponseByte()
	}
	return resp, nil
}

// take reads the request body, as a peer does that wants all of it, and closes it.
// It does not wait for a body that is slower than the request's context; what such
// a body panics with then is nobody's.
func (s *Step) take(ctx context.Context, req *http.Request) error {
	if req.Body == nil || s.Unread {
		closeRequest(req)
		return nil
	}
	var err error
	var panicked any
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { panicked = recover() }()
		defer func() { _ = req.Body.Close() }()
		err = errBodyEnded // by runtime.Goexit
		_, err = io.Copy(io.Discard, req.Body)
	}()
	select {
	case <-done:
		if panicked != nil {
			panic(panicked)
		}
		return err
	case <-ctx.Done():
		_ = req.Body.Close()
		return context.Cause(ctx)
	}
}

var errBodyEnded = errors.New("transporttest: the request body ended its goroutine")

func closeRequest(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
}

// neverConnected reports whether an error says that nothing was sent.
func neverConnected(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && (op.Op == "dial" || op.Op == "proxyconnect")
}

// authority is where a request goes, as net/http names it.
func authority(req *http.Request) string {
	if req.URL.Port() != "" {
		return req.URL.Host
	}
	port := "80"
	if req.URL.Scheme == "https" {
		port = "443"
	}
	return net.JoinHostPort(req.URL.Hostname(), port)
}

var errCanceled = errors.New("net/http: request canceled")

// lifeOf is the request's context, which its legacy Cancel ends too. What is
// returned with it lets go of that.
func lifeOf(req *http.Request) (ctx context.Context, stop func()) {
	if req.Cancel == nil {
		return req.Context(), func() {}
	}
	ctx, cancel := context.WithCancelCause(req.Context())
	go func() {
		select {
		case <-req.Cancel:
			cancel(errCanceled)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(context.Canceled) }
}
