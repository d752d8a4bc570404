package faults_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/transporttest"
)

// world is all that one cell needs: an origin, maybe a proxy, the relay that the
// first connection goes through, and the stack.
type world struct {
	cell
	t       *testing.T
	url     string
	origin  *transporttest.Origin
	proxy   *transporttest.Origin
	relay   *transporttest.Relay
	tr      *transport.Transport
	seen    transporttest.Recorder
	reached chan struct{} // the first attempt is at the point where the fault strikes
	struck  chan struct{} // the fault has
	once    sync.Once

	dials   atomic.Int64
	open    atomic.Int64 // connections at the client's end
	spoiled atomic.Int64 // of which go through the relay
	hits    atomic.Int64 // requests of the call that have arrived
	whole   atomic.Int64 // of which the origin got all

	mu     sync.Mutex // guards bodies
	bodies []*sent
}

const (
	attemptField = "X-Attempt"
	firstHalf    = "first half, "
	secondHalf   = "second half"
)

// padding makes a request more than any frame that HTTP/2 sends on its own account.
var padding = func() string {
	p := make([]byte, 900)
	_, _ = rand.Read(p)
	return base64.RawURLEncoding.EncodeToString(p)
}()

func newWorld(t *testing.T, c cell) *world {
	w := &world{cell: c, t: t, reached: make(chan struct{}), struck: make(chan struct{})}
	var opts []transporttest.Option
	scheme := "https"
	switch c.proto {
	case plain:
		scheme = "http"
	case encrypted:
		opts = append(opts, transporttest.TLS("http/1.1"))
	case h2:
		opts = append(opts, transporttest.TLS("h2"))
	}
	w.origin = transporttest.NewOrigin(t, opts...)
	w.origin.Script(transporttest.Step{Handler: http.HandlerFunc(w.serve)})
	target := w.origin.Addr
	base := w.origin.Base()
	if c.point == tunnelling {
		w.proxy = transporttest.NewOrigin(t)
		w.proxy.Script(transporttest.Step{Handler: http.HandlerFunc(w.tunnel)})
		target = w.proxy.Addr
		base.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: "proxy.test:3128"})
	}
	// An HTTP/2 connection on which a call has timed out may carry others. If it is
	// dead, even a write may stand still on it for ever; its pings find out.
	base.HTTP2 = &http.HTTP2Config{SendPingTimeout: 2 * limit, PingTimeout: limit}
	w.relay = transporttest.NewRelay(t, target)
	base.DialContext = w.dial(target)
	w.tr = transport.Must(transport.New(transport.Config{
		Base: base,
		Default: policy.Policy{
			Timeout:  policy.Timeout{Connect: limit, TLSHandshake: limit, Read: limit, Attempt: attempt, Total: 2 * attempt},
			Bulkhead: policy.Bulkhead{MaxConcurrent: 1},
			Breaker:  policy.Breaker{ConsecutiveFailures: 4},
			Retry:    policy.Retry{MaxAttempts: 2, Base: time.Millisecond, Max: time.Millisecond, ReplayBody: replayBody},
		},
		Observer: w,
		Logger:   slog.New(slog.DiscardHandler),
	}))
	t.Cleanup(func() { _ = w.tr.Close() })
	w.url = scheme + "://service.test/"
	return w
}

// dial sends the first connection through the relay, and all others around it.
func (w *world) dial(target string) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		addr, relayed := target, w.dials.Add(1) == 1 || w.lasting
		n := &counted{among: []*atomic.Int64{&w.open}}
		if relayed {
			addr = w.relay.Addr
			n.among = append(n.among, &w.spoiled)
		}
		n.count(1)
		var err error
		defer func() {
			if err != nil {
				n.count(-1)
			}
		}()
		if relayed && w.point == connecting {
			d := map[fault]time.Duration{late: short, tooLate: long}[w.fault]
			if err = transporttest.DialDelay(d)(ctx, addr); err != nil {
				return nil, err
			}
		}
		if n.Conn, err = new(net.Dialer).DialContext(ctx, network, addr); err != nil {
			return nil, err
		}
		_ = n.Conn.(*net.TCPConn).SetWriteBuffer(256 << 10) // so that a large body does not fit
		return n, nil
	}
}

// counted is a connection that is counted from its dial until it is closed.
type counted struct {
	net.Conn
	among []*atomic.Int64
	once  sync.Once
}

func (c *counted) Close() error {
	c.once.Do(func() { c.count(-1) })
	return c.Conn.Close()
}

func (c *counted) count(n int64) {
	for _, among := range c.among {
		among.Add(n)
	}
}

// Start marks each attempt, so that the origin can tell which one it got.
func (w *world) Start(ctx context.Context, s transport.Start) context.Context {
	if s.Header != nil && s.Request.URL.Path == "/" {
		s.Header.Set(attemptField, string(rune('0'+s.Attempt)))
	}
	return w.seen.Start(ctx, s)
}

func (w *world) Observe(ctx context.Context, e transport.Event) { w.seen.Observe(ctx, e) }

// arrive tells that the first attempt is where the fault strikes, and waits until
// it has.
func (w *world) arrive() {
	w.once.Do(func() { close(w.reached) })
	<-w.struck
}

// serve is the origin.
func (w *world) serve(rw http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/" {
		return
	}
	w.hits.Add(1)
	first := r.Header.Get(attemptField) == "1"
	if first && w.point == writing {
		if _, err := io.CopyN(io.Discard, r.Body, arrived); err != nil {
			panic(http.ErrAbortHandler)
		}
		w.arrive()
	}
	n, err := io.Copy(io.Discard, r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if first && w.point == writing {
		n += arrived
	}
	if int(n) != w.bodySize() {
		w.t.Errorf("%v: a body of %d bytes has arrived", w.cell, n)
	}
	w.whole.Add(1)
	if first && w.point == awaiting {
		w.arrive()
	}
	_, _ = io.WriteString(rw, firstHalf)
	if http.NewResponseController(rw).Flush() != nil {
		return
	}
	if first && w.point == receiving {
		<-w.struck
	}
	_, _ = io.WriteString(rw, secondHalf)
}

// tunnel is the proxy.
func (w *world) tunnel(rw http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodConnect {
		w.t.Errorf("%v: %s to a proxy", w.cell, r.Method)
		return
	}
	out, err := net.Dial("tcp", w.origin.Addr)
	if err != nil {
		w.t.Error(err)
		return
	}
	defer func() { _ = out.Close() }()
	in, _, err := http.NewResponseController(rw).Hijack()
	if err != nil {
		return
	}
	defer func() { _ = in.Close() }()
	_, _ = io.WriteString(in, "HTTP/1.1 200 Connection established\r\n\r\n")
	ended := make(chan struct{}, 2)
	for _, way := range [][2]net.Conn{{in, out}, {out, in}} {
		go func() {
			_, _ = io.Copy(way[0], way[1])
			ended <- struct{}{}
		}()
	}
	<-ended
	_ = in.Close()
	_ = out.Close()
	<-ended
}

// sent is a request body that knows whether it was closed.
type sent struct {
	io.Reader
	closed atomic.Bool
}

func (s *sent) Close() error { s.closed.Store(true); return nil }

func (w *world) body() io.ReadCloser {
	s := &sent{Reader: bytes.NewReader(make([]byte, w.bodySize()))}
	w.mu.Lock()
	w.bodies = append(w.bodies, s)
	w.mu.Unlock()
	return s
}

func (w *world) closed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.bodies {
		if !s.closed.Load() {
			return false
		}
	}
	return true
}

var errConnection = errors.New("connection error")
