package transporttest

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// listener counts the connections of an Origin.
type listener struct {
	net.Listener
	origin *Origin
}

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	o := l.origin
	n := &conn{duplex: c.(duplex), origin: o, gone: make(chan struct{})}
	o.board.update(func() {
		o.opened++
		n.number = o.opened
		o.conns = append(o.conns, n)
	})
	if o.ctx.Err() != nil { // Close has not seen it
		_ = n.Close()
	}
	return n, nil
}

// duplex is what a *net.TCPConn can do, and a pipe.
type duplex interface {
	net.Conn
	CloseWrite() error
	SetLinger(sec int) error
}

// conn is the Origin's end of a connection, below TLS.
type conn struct {
	duplex
	origin   *Origin
	number   int
	requests atomic.Int64
	wrote    atomic.Int64
	muted    atomic.Bool
	gone     chan struct{} // closed by Close
	once     sync.Once
}

func (c *conn) Read(p []byte) (int, error) {
	for {
		n, err := c.duplex.Read(p)
		if !c.muted.Load() || errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		if err != nil {
			<-c.gone
			return 0, err
		}
	}
}

func (c *conn) Write(p []byte) (int, error) {
	if c.muted.Load() {
		return len(p), nil
	}
	n, err := c.duplex.Write(p)
	c.wrote.Add(int64(n))
	return n, err
}

func (c *conn) Close() error {
	err := net.ErrClosed
	c.once.Do(func() {
		close(c.gone)
		err = c.duplex.Close()
		o := c.origin
		o.board.update(func() {
			o.conns = slices.DeleteFunc(o.conns, func(other *conn) bool { return other == c })
		})
	})
	return err
}

// reset closes with RST.
func (c *conn) reset() {
	_ = c.SetLinger(0)
	_ = c.Close()
}

// cut ends the connection with FIN. It reads on until the client has gone, since
// closing with data unread would send RST.
func (c *conn) cut() {
	_ = c.CloseWrite()
	_, _ = io.Copy(io.Discard, c)
	_ = c.Close()
}

// settle waits until what net/http has for the connection was written: after a
// flush its HTTP/2 server does that on another goroutine, and does not tell.
func (c *conn) settle() {
	for quiet, last := 0, c.wrote.Load(); quiet < 2; quiet++ {
		time.Sleep(4 * time.Millisecond)
		if now := c.wrote.Load(); now != last {
			quiet, last = -1, now
		}
	}
}

type connKey struct{}

// withConn lets a handler find its connection.
func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

func connOf(ctx context.Context) (*conn, net.Conn) {
	c, _ := ctx.Value(connKey{}).(net.Conn)
	if secure, ok := c.(*tls.Conn); ok {
		return secure.NetConn().(*conn), secure
	}
	return c.(*conn), c
}
