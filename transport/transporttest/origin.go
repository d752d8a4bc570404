package transporttest

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"testing"
)

// Origin is an HTTP server that plays a script, on a loopback socket or in memory.
// It is safe for concurrent use.
type Origin struct {
	URL  string // without a trailing slash
	Addr string // host:port of it

	script
	hits
	t        testing.TB
	opts     options
	server   *http.Server
	listener *listener
	ctx      context.Context // ends with Close
	stop     context.CancelFunc

	// Under hits.board.
	conns     []*conn // that are open
	opened    int
	onDial    DialHook
	dials     int
	dialling  int
	mostDials int
	bases     []*http.Transport
	running   int // handlers, and what accepts or serves connections
}

type options struct {
	tls       bool
	protocols []string
	h2c       bool
	serve     func(net.Conn)
}

// Option configures an Origin.
type Option func(*options)

// TLS makes the Origin speak TLS, with the protocols that ALPN may choose from:
// "h2", "http/1.1", or by default both. Its certificate is valid for names below
// .test and for loopback addresses.
func TLS(protocols ...string) Option {
	if len(protocols) == 0 {
		protocols = []string{"h2", "http/1.1"}
	}
	return func(o *options) { o.tls, o.protocols = true, protocols }
}

// H2C makes the Origin, and what its Base returns, speak unencrypted HTTP/2.
func H2C() Option { return func(o *options) { o.h2c = true } }

// ServeConn lets serve have each connection, after the TLS handshake if there is
// one, in place of the script. It should return when the connection fails, which
// it does when the Origin is closed.
func ServeConn(serve func(net.Conn)) Option { return func(o *options) { o.serve = serve } }

// NewOrigin starts a server on a loopback socket that speaks HTTP/1.1, unless
// options say otherwise. It is closed when the test ends.
func NewOrigin(t testing.TB, opts ...Option) *Origin {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("transporttest: %v", err)
	}
	return start(t, l, opts)
}

// NewNet starts a server behind pipes in memory, which are reached through Base
// only. All of net/http runs in a bubble of testing/synctest with it; it must be
// made inside. Requests go to handler or, if that is nil, through the script.
func NewNet(t testing.TB, handler http.Handler, opts ...Option) *Origin {
	t.Helper()
	o := start(t, newMemory(), opts)
	if handler != nil {
		o.Script(Step{Handler: handler})
	}
	return o
}

func start(t testing.TB, l net.Listener, opts []Option) *Origin {
	o := &Origin{t: t}
	for _, opt := range opts {
		opt(&o.opts)
	}
	o.ctx, o.stop = context.WithCancel(context.Background())
	o.listener = &listener{Listener: l, origin: o}
	o.server = &http.Server{
		Handler:     http.HandlerFunc(o.serve),
		ErrorLog:    log.New(io.Discard, "", 0),
		Protocols:   new(http.Protocols),
		ConnContext: withConn,
	}
	o.server.Protocols.SetHTTP1(!o.opts.h2c)
	o.server.Protocols.SetUnencryptedHTTP2(o.opts.h2c)
	scheme, host := "http", l.Addr().String()
	if o.opts.tls {
		scheme = "https"
		o.server.Protocols = new(http.Protocols)
		for _, p := range o.opts.protocols {
			switch p {
			case "h2":
				o.server.Protocols.SetHTTP2(true)
			case "http/1.1":
				o.server.Protocols.SetHTTP1(true)
			default:
				t.Fatalf("transporttest: protocol %q: must be h2 or http/1.1", p)
			}
		}
		o.server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{certificate().pair}, NextProtos: o.opts.protocols}
	}
	o.URL, o.Addr = scheme+"://"+host, host
	switch {
	case o.opts.serve != nil:
		o.run(func() { o.accept() })
	case o.opts.tls:
		o.run(func() { _ = o.server.ServeTLS(o.listener, "", "") })
	default:
		o.run(func() { _ = o.server.Serve(o.listener) })
	}
	t.Cleanup(o.Close)
	return o
}

// run has f counted as running.
func (o *Origin) run(f func()) {
	o.board.update(func() { o.running++ })
	go func() {
		defer o.board.update(func() { o.running-- })
		f()
	}()
}

// accept hands connections to the function of ServeConn.
func (o *Origin) accept() {
	for {
		c, err := o.listener.Accept()
		if err != nil {
			return
		}
		o.run(func() {
			defer func() { _ = c.Close() }()
			if !o.opts.tls {
				o.opts.serve(c)
				return
			}
			secure := tls.Server(c, o.server.TLSConfig)
			if secure.HandshakeContext(o.ctx) == nil {
				o.opts.serve(secure)
			}
		})
	}
}

// Close stops the Origin: the script, its connections and the listener. It waits
// for handlers, and reports one that does not end. The test's end calls it.
func (o *Origin) Close() {
	var conns []*conn
	var bases []*http.Transport
	o.stop() // first, so that no connection is missed
	o.board.update(func() { conns, bases = slices.Clone(o.conns), o.bases })
	_ = o.listener.Close()
	_ = o.server.Close()
	for _, c := range conns {
		_ = c.Close()
	}
	for _, b := range bases {
		b.CloseIdleConnections()
	}
	o.await(func() bool { return o.running == 0 }, func() string { return fmt.Sprintf("%d handlers to end", o.running) })
}

// Connections returns how many connections were accepted, and how many of them
// are open at the Origin's end.
func (o *Origin) Connections() (opened, open int) {
	o.board.mu.Lock()
	defer o.board.mu.Unlock()
	return o.opened, len(o.conns)
}

// WaitHits waits for the n-th request and returns all of them. It fails the test
// if that takes more than 10 seconds, and must be called from the test's goroutine.
func (o *Origin) WaitHits(n int) []Hit {
	o.t.Helper()
	o.await(func() bool { return len(o.all) >= n }, func() string { return fmt.Sprintf("%d hits, have %d", n, len(o.all)) })
	return o.Hits()
}

// WaitOpen waits until exactly n connections are open, as WaitHits does.
func (o *Origin) WaitOpen(n int) {
	o.t.Helper()
	o.await(func() bool { return len(o.conns) == n }, func() string { return fmt.Sprintf("%d open connections, have %d", n, len(o.conns)) })
}

func (o *Origin) await(done func() bool, what func() string) {
	o.t.Helper()
	o.board.await(o.t, done, what)
}

// Mute makes the peer of all connections that are open now one whose machine has
// gone: nothing comes from it any more, not even the end. New connections work.
func (o *Origin) Mute() {
	o.board.mu.Lock()
	defer o.board.mu.Unlock()
	for _, c := range o.conns {
		c.muted.Store(true)
	}
}

// TLSClientConfig returns a configuration that trusts the Origin.
func (o *Origin) TLSClientConfig() *tls.Config {
	return &tls.Config{RootCAs: certificate().pool}
}

// Base returns a new http.Transport that dials the Origin whatever name it is
// asked for, trusts it, and speaks what it speaks. Use it as transport.Config.Base.
func (o *Origin) Base() *http.Transport {
	b := &http.Transport{DialContext: o.dial, TLSClientConfig: o.TLSClientConfig(), ForceAttemptHTTP2: true}
	if o.opts.h2c {
		b.Protocols = new(http.Protocols)
		b.Protocols.SetUnencryptedHTTP2(true)
	}
	o.board.update(func() { o.bases = append(o.bases, b) })
	return b
}
