package soak

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// origin is all hosts: a server for each way to speak, on loopback sockets.
type origin struct {
	run      *run
	servers  [protos]*http.Server
	addrs    [protos]string
	roots    *x509.CertPool
	open     atomic.Int64 // connections, at this end
	conns    sync.Map     // *conn
	requests [hosts]atomic.Int64
	retries  [hosts]atomic.Int64 // requests that said they were one
	dials    [hosts]atomic.Int64
	once     [callers]deliveries
	well     atomic.Bool // the run is over: every host answers
	serving  sync.WaitGroup
}

// deliveries are the last requests of one caller that may not be sent twice.
type deliveries struct {
	mu      sync.Mutex // guards what follows
	seen    [64]string
	retries [128]string
}

// retried counts a request that is said to be a retry, once: net/http may send what
// it may repeat a second time over another connection.
func (o *origin) retried(host, caller, slot int, id, attempt string) {
	if attempt <= "1" {
		return
	}
	d := &o.once[caller]
	d.mu.Lock()
	defer d.mu.Unlock()
	id += attempt
	last := &d.retries[(slot+int(attempt[0]%2))%len(d.retries)]
	if *last != id {
		o.retries[host].Add(1)
	}
	*last = id
}

type connKey struct{}

func newOrigin(r *run) (*origin, error) {
	o := &origin{run: r, roots: x509.NewCertPool()}
	cert, err := o.certificate()
	if err != nil {
		return nil, err
	}
	for p := range protos {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		s := &http.Server{
			Handler: o, ErrorLog: log.New(io.Discard, "", 0), TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}},
			Protocols: new(http.Protocols), ConnContext: func(ctx context.Context, c net.Conn) context.Context {
				return context.WithValue(ctx, connKey{}, c)
			},
			// A client keeps room for the largest frame that it has sent on each connection: by default 512 KiB,
			// and the heap would grow with them for minutes.
			HTTP2: &http.HTTP2Config{MaxReadFrameSize: 16 << 10},
		}
		s.Protocols.SetHTTP1(p != tls2)
		s.Protocols.SetHTTP2(p == tls2)
		o.servers[p], o.addrs[p] = s, l.Addr().String()
		o.serving.Go(func() {
			if p == plain1 {
				_ = s.Serve(&listener{l, o})
			} else {
				_ = s.ServeTLS(&listener{l, o}, "", "")
			}
		})
	}
	return o, nil
}

func (o *origin) certificate() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"*.test"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return tls.Certificate{}, err
	}
	o.roots.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

func (o *origin) close() {
	for _, s := range o.servers {
		_ = s.Close()
	}
	o.serving.Wait()
}

// listener counts the connections that are open.
type listener struct {
	net.Listener
	o *origin
}

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.o.open.Add(1)
	n := &conn{Conn: c, since: time.Now()}
	n.closed = sync.OnceFunc(func() { l.o.open.Add(-1); l.o.conns.Delete(n) })
	l.o.conns.Store(n, true)
	return n, nil
}

type conn struct {
	net.Conn
	closed   func()
	since    time.Time
	got, put atomic.Int64
	last     atomic.Value // the last request
}

func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.got.Add(int64(n))
	return n, err
}

func (c *conn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.put.Add(int64(n))
	return n, err
}

// opened tells of the connections that are open at the origin's end.
func (o *origin) opened() string {
	var all []string
	o.conns.Range(func(k, _ any) bool {
		c := k.(*conn)
		all = append(all, fmt.Sprintf("%v to %v for %v, %d bytes read, %d written, last request %v", c.RemoteAddr(), c.LocalAddr(),
			time.Since(c.since).Round(time.Millisecond), c.got.Load(), c.put.Load(), c.last.Load()))
		return true
	})
	return strings.Join(all, "; ")
}

func (c *conn) Close() error {
	c.closed()
	return c.Conn.Close()
}

// reset ends the connection with RST.
func (c *conn) reset() {
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

// connOf is the connection of a request, below TLS.
func connOf(r *http.Request) *conn {
	c := r.Context().Value(connKey{}).(net.Conn)
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	return c.(*conn)
}

// transport is one that reaches all hosts.
func (o *origin) transport() *http.Transport {
	return &http.Transport{DialContext: o.dial, TLSClientConfig: &tls.Config{RootCAs: o.roots}, ForceAttemptHTTP2: true}
}

func (o *origin) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	host := hostOf(addr)
	if host < 0 {
		return nil, fmt.Errorf("dial of %q, which is no host", addr)
	}
	d := o.run.plan.dial(host, int(o.dials[host].Add(1)))
	if d.lost {
		d.delay = time.Hour
	}
	if o.well.Load() {
		d = dialling{}
	}
	if err := wait(ctx, d.delay); err != nil {
		return nil, err
	}
	if d.refused {
		return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
	}
	var dialer net.Dialer
	return dialer.DialContext(ctx, network, o.addrs[protoOf(host)])
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

const (
	idHeader      = "Soak-Request-Id" // the cache knows that such a header tells nobody apart
	onceHeader    = "Soak-Once"
	attemptHeader = "Soak-Attempt"
	hostHeader    = "Soak-Host"
)

// note keeps the origin's own books of a request.
func (o *origin) note(host int, r *http.Request) {
	id := r.Header.Get(idHeader)
	caller, step, ok := strings.Cut(id, "-")
	c, err := strconv.Atoi(caller)
	n, err2 := strconv.Atoi(step)
	if !ok || errors.Join(err, err2) != nil || c >= callers {
		o.run.fail("requests arrive as they were sent", "id %q", id)
		return
	}
	hop := len(r.URL.Path) / 4 // "/landed" beside "/a"
	o.retried(host, c, 4*n+2*hop, id+r.Host+r.URL.Path, r.Header.Get(attemptHeader))
	if r.Header.Get(onceHeader) == "" || r.Method != http.MethodPost && r.Method != http.MethodPatch { // a redirect may have made it a GET
		return
	}
	id += r.Host + r.URL.Path // the hops of a redirect are another request
	d := &o.once[c]
	d.mu.Lock()
	defer d.mu.Unlock()
	slot := &d.seen[(2*n+hop)%len(d.seen)]
	if *slot == id {
		o.run.fail("no POST is delivered twice", "%s to %s, attempt %q", id, r.Host, r.Header.Get(attemptHeader))
	}
	*slot = id
}

// ServeHTTP plays the host's next reply.
func (o *origin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	host := hostOf(r.Host)
	if host < 0 {
		o.run.fail("requests arrive as they were sent", "host %q", r.Host)
		return
	}
	o.note(host, r)
	s := o.run.plan.reply(host, int(o.requests[host].Add(1)))
	connOf(r).last.Store(fmt.Sprintf("%s %s %s %+v", r.Method, r.Host, r.Proto, s))
	if r.URL.Path == "/landed" && s.kind == redirect {
		s.kind = answer
	}
	if o.well.Load() {
		s = reply{kind: answer}
	}
	if s.kind != early {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			panic(http.ErrAbortHandler)
		}
	}
	most := 20 * time.Second // so that a limit that is late is seen to be
	if s.kind == early {
		most = 4 * time.Second // what has not read the request does not see the client go
	}
	ctx, stop := context.WithTimeout(r.Context(), most)
	defer stop()
	if wait(ctx, s.delay) != nil {
		return
	}
	if r.Header.Get("Upgrade") != "" && r.ProtoMajor == 1 && s.kind < failing {
		o.tunnel(w)
		return
	}
	h := w.Header()
	h.Set(hostHeader, nameOf(host))
	h.Set("Cache-Control", "max-age=0")
	if reuses(host) {
		h.Set("Cache-Control", "max-age=1, stale-while-revalidate=2")
	}
	if s.noStore {
		h.Set("Cache-Control", "no-store")
	}
	switch s.kind {
	case interim:
		h.Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		s.length = false // over HTTP/2, headers that are on their way must not be changed, although the client may have gone
	case redirect:
		h.Set("Location", urlOf(sibling(host, s.to), "/landed"))
		w.WriteHeader([]int{302, 303, 307, 308}[s.to%4])
		return
	case failing:
		if s.retryAfter != "" {
			h.Set("Retry-After", s.retryAfter)
		}
		w.WriteHeader(s.status)
	case hanging:
		<-ctx.Done()
		panic(http.ErrAbortHandler)
	case resetting:
		connOf(r).reset()
		return
	case aborting:
		panic(http.ErrAbortHandler)
	case stream:
		h.Set("Content-Type", "text/event-stream")
	}
	o.body(ctx, w, r, s)
}

// sibling is a host of the same group.
func sibling(host, to int) int {
	for groupOf(to) != groupOf(host) {
		to = (to + 1) % hosts
	}
	return to
}

// bodyEnd is how a whole body ends.
const bodyEnd = ";end"

// filler is what bodies are made of.
var filler = bytes.Repeat([]byte{'x'}, 512<<10)

func (o *origin) body(ctx context.Context, w http.ResponseWriter, r *http.Request, s reply) {
	head := fmt.Appendf(nil, "who=%s;nostore=%v;", r.Header.Get("Authorization"), s.noStore) // tells whose it is
	if s.length && s.kind != trailing && s.kind != stream {
		w.Header().Set("Content-Length", strconv.Itoa(len(head)+s.size+len(bodyEnd)))
	}
	if s.kind == trailing {
		w.Header().Set("Trailer", "Soak-Sum")
	}
	flush := http.NewResponseController(w).Flush
	_, _ = w.Write(head)
	switch s.kind {
	case stalling, cutting:
		_, _ = w.Write(filler[:s.size])
		_ = flush()
		if s.kind == stalling {
			<-ctx.Done()
		}
		panic(http.ErrAbortHandler)
	case slow, stream:
		for i := range 4 {
			_, _ = w.Write(filler[i*s.size/4 : (i+1)*s.size/4])
			if flush() != nil || wait(ctx, 30*time.Millisecond+s.delay/4) != nil {
				panic(http.ErrAbortHandler)
			}
		}
	default:
		_, _ = w.Write(filler[:s.size])
	}
	_, _ = io.WriteString(w, bodyEnd)
	if s.kind == trailing {
		w.Header().Set("Soak-Sum", "1")
	}
}

// tunnel switches protocols to an echo, for a while.
func (o *origin) tunnel(w http.ResponseWriter) {
	w.Header().Set("Connection", "upgrade")
	w.Header().Set("Upgrade", "echo")
	w.WriteHeader(http.StatusSwitchingProtocols)
	c, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(2 * time.Second))
	if line, err := rw.ReadString('\n'); err == nil {
		_, _ = io.WriteString(c, line)
	}
}
