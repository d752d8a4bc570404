package transporttest

import (
	"context"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// memory is a listener whose connections are pipes.
type memory struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newMemory() *memory {
	return &memory{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (m *memory) dial(ctx context.Context) (net.Conn, error) {
	client, server := newPipe()
	select {
	case m.conns <- server:
		return client, nil
	case <-m.closed:
		return nil, Refuse(ctx, "")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (m *memory) Accept() (net.Conn, error) {
	select {
	case c := <-m.conns:
		return c, nil
	case <-m.closed:
		return nil, net.ErrClosed
	}
}

func (m *memory) Close() error {
	m.once.Do(func() { close(m.closed) })
	return nil
}

func (m *memory) Addr() net.Addr { return pipeAddr{} }

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "origin.test" }

// pipe is one end of a connection in memory. Unlike net.Pipe it has buffers, as
// sockets have, which net/http counts on; and it can be reset.
type pipe struct {
	in, out *stream
	abrupt  atomic.Bool
}

func newPipe() (client, server *pipe) {
	a, b := newStream(), newStream()
	return &pipe{in: a, out: b}, &pipe{in: b, out: a}
}

func (p *pipe) Read(b []byte) (int, error) {
	n, err := p.in.read(b)
	return n, opError("read", err)
}

func (p *pipe) Write(b []byte) (int, error) {
	n, err := p.out.write(b)
	return n, opError("write", err)
}

func opError(op string, err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	return &net.OpError{Op: op, Net: "pipe", Source: pipeAddr{}, Addr: pipeAddr{}, Err: err}
}

// Close ends both directions; after SetLinger(0) the peer sees a reset. Our own reads
// end before the peer hears of it, whose answer would be their end otherwise.
func (p *pipe) Close() error {
	if !p.abrupt.Load() {
		p.in.end(net.ErrClosed, syscall.EPIPE)
		p.out.end(io.EOF, net.ErrClosed)
		return nil
	}
	p.in.end(net.ErrClosed, syscall.ECONNRESET)
	p.out.end(syscall.ECONNRESET, net.ErrClosed)
	return nil
}

func (p *pipe) CloseWrite() error {
	p.out.end(io.EOF, syscall.EPIPE)
	return nil
}

func (p *pipe) SetLinger(sec int) error {
	p.abrupt.Store(sec == 0)
	return nil
}

func (p *pipe) LocalAddr() net.Addr  { return pipeAddr{} }
func (p *pipe) RemoteAddr() net.Addr { return pipeAddr{} }

func (p *pipe) SetDeadline(t time.Time) error {
	p.in.reads.set(p.in, t)
	p.out.writes.set(p.out, t)
	return nil
}

func (p *pipe) SetReadDeadline(t time.Time) error {
	p.in.reads.set(p.in, t)
	return nil
}

func (p *pipe) SetWriteDeadline(t time.Time) error {
	p.out.writes.set(p.out, t)
	return nil
}

// stream is one direction of a connection. A writer stalls when its reader leaves
// room bytes unread.
type stream struct {
	mu       sync.Mutex // guards what follows
	cond     sync.Cond
	buf      []byte
	readErr  error // what readers get once buf is empty, but at once for their own close; nil: it is open
	writeErr error
	reads    deadline
	writes   deadline
}

const room = 64 << 10

func newStream() *stream {
	s := &stream{}
	s.cond.L = &s.mu
	return s
}

func (s *stream) read(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.readErr == net.ErrClosed:
			return 0, s.readErr
		case s.reads.passed():
			return 0, os.ErrDeadlineExceeded
		case len(s.buf) > 0 || len(b) == 0:
			n := copy(b, s.buf)
			s.buf = s.buf[n:]
			s.cond.Broadcast()
			return n, nil
		case s.readErr != nil:
			return 0, s.readErr
		}
		s.cond.Wait()
	}
}

func (s *stream) write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for {
		switch {
		case s.writeErr != nil:
			return n, s.writeErr
		case s.writes.passed():
			return n, os.ErrDeadlineExceeded
		case n == len(b):
			return n, nil
		case len(s.buf) < room:
			m := min(len(b)-n, room-len(s.buf))
			s.buf = append(s.buf, b[n:n+m]...)
			n += m
			s.cond.Broadcast()
			continue
		}
		s.cond.Wait()
	}
}

// end sets what readers and writers get from now on; the first end of each side
// counts, but for the end by the reader's or writer's own close.
func (s *stream) end(read, write error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.readErr == nil || read == net.ErrClosed {
		s.readErr = read
	}
	if s.writeErr == nil || write == net.ErrClosed {
		s.writeErr = write
	}
	s.cond.Broadcast()
}

// deadline is one of net.Conn's, under its stream's mu.
type deadline struct {
	at    time.Time // zero: none
	timer *time.Timer
}

func (d *deadline) passed() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

func (d *deadline) set(s *stream, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	d.at = at
	if wait := time.Until(at); !at.IsZero() && wait > 0 {
		d.timer = time.AfterFunc(wait, func() {
			s.mu.Lock()
			s.cond.Broadcast()
			s.mu.Unlock()
		})
	}
	s.cond.Broadcast()
}
