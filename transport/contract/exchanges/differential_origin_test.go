package exchanges_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/watertight-go/watertight/transport/transporttest"
)

// origin is what an exchange is played with.
type origin int

const (
	originPlain     origin = iota // HTTP/1.1 in the clear
	originEncrypted               // HTTP/1.1 over TLS
	originHTTP2                   // HTTP/2 over TLS, which plays the steps of the exchange
)

// turn is what an origin that speaks HTTP/1.1 does with one request; the zero answer
// is a short one.
type turn struct {
	interim string // sent when it has the request's headers
	unread  bool   // it does not read the request's body
	answer  string // the raw response
	end     end
}

// end is what an origin does after its answer.
type end int

const (
	endKeep   end = iota // serves the next request
	endCut               // closes the connection
	endReset             // resets it
	endEcho              // sends back what it gets
	endTunnel            // leads on to the encrypted origin, as a proxy
)

// server is the origin of one play, and all else that it dials.
type server struct {
	p      *play
	url    string
	plain  net.Listener
	secure *transporttest.Origin // TLS on top of the same
	h2     *transporttest.Origin
	served sync.WaitGroup

	mu     sync.Mutex // guards what follows
	turns  int        // taken
	conns  []*strings.Builder
	dialed []*dialed
}

func newServer(p *play) *server {
	s := &server{p: p, url: "http://origin.test"}
	switch {
	case p.x.frames != nil:
		s.h2 = transporttest.NewOrigin(p.t, transporttest.H2C(), transporttest.ServeConn(s.frames))
		return s
	case p.x.origin == originHTTP2:
		s.h2 = transporttest.NewOrigin(p.t, transporttest.TLS("h2"))
		s.h2.Script(p.x.steps...)
		s.url = "https://origin.test"
		return s
	case p.x.origin == originEncrypted:
		s.url = "https://origin.test"
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		p.t.Fatal(err)
	}
	s.plain = l
	s.secure = transporttest.NewOrigin(p.t, transporttest.TLS("http/1.1"), transporttest.ServeConn(s.conn))
	s.accept(l)
	return s
}

// accept serves the connections of a listener, until that is closed.
func (s *server) accept(l net.Listener) {
	s.served.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.served.Go(func() { s.conn(c) })
		}
	})
}

// transport is http.DefaultTransport, but for where it dials.
func (s *server) transport() *http.Transport {
	if s.h2 != nil {
		base := s.h2.Base()
		dial := base.DialContext
		base.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := dial(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return s.watch(c), nil
		}
		return base
	}
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.Proxy = nil
	base.ExpectContinueTimeout = 10 * time.Second
	base.TLSClientConfig = s.secure.TLSClientConfig()
	base.DialContext = s.dial
	return base
}

// dial leads port 443 to the encrypted origin and all others to the plain one.
func (s *server) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	host, port, _ := net.SplitHostPort(addr)
	switch host {
	case "refused.test":
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	case "unknown.test":
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}}
	}
	to := s.plain.Addr().String()
	if port == "443" {
		to = strings.TrimPrefix(s.secure.URL, "https://")
	}
	if host == "localhost" { // by way of the resolver
		_, port, _ = net.SplitHostPort(to)
		to = net.JoinHostPort(host, port)
	}
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp4", to)
	if err != nil {
		return nil, err
	}
	return s.watch(c), nil
}

// watch notes a connection that the client has.
func (s *server) watch(c net.Conn) net.Conn {
	d := &dialed{Conn: c, closed: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dialed = append(s.dialed, d)
	return d
}

// dialed is a connection that tells when the client has closed it.
type dialed struct {
	net.Conn
	once   sync.Once
	closed chan struct{}
}

func (d *dialed) Close() error {
	d.once.Do(func() { close(d.closed) })
	return d.Conn.Close()
}

// awaitClosed waits until the client has closed its nth connection.
func (s *server) awaitClosed(n int) {
	s.mu.Lock()
	d := s.dialed[n-1]
	s.mu.Unlock()
	select {
	case <-d.closed:
	case <-time.After(10 * time.Second):
		s.p.t.Errorf("connection %d is still open", n)
	}
}

// unix makes the plain origin listen on a Unix socket too, and returns its path.
func (s *server) unix() string {
	dir, err := os.MkdirTemp("", "contract")
	if err != nil {
		s.p.t.Fatal(err)
	}
	s.p.t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "origin.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		s.p.t.Fatal(err)
	}
	_ = s.plain.Close()
	s.plain = l
	s.accept(l)
	return path
}

// close ends the origin, once the client has closed its connections.
func (s *server) close(closeIdle func()) {
	if s.plain != nil {
		_ = s.plain.Close()
	}
	gone := func() bool {
		for _, o := range []*transporttest.Origin{s.secure, s.h2} {
			if o != nil {
				if _, open := o.Connections(); open > 0 {
					return false
				}
			}
		}
		return true
	}
	ended := make(chan struct{})
	go func() { s.served.Wait(); close(ended) }()
	stackWait(s.p.t, "the connections to close", func() bool {
		closeIdle() // which a stream that is just ending forestalls
		select {
		case <-ended:
			return gone()
		case <-time.After(time.Millisecond):
			return false
		}
	})
}

// seen is what came in.
func (s *server) seen() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	for i, c := range s.conns {
		fmt.Fprintf(&b, "connection %d:\n%s", i+1, c)
	}
	if s.h2 != nil {
		for _, h := range s.h2.Hits() {
			fmt.Fprintf(&b, "%d.%d %s %s %s %s %v %d %q\n", h.Conn, h.OnConn, h.Proto, h.Method, h.Host, h.Path, h.Header, h.BodySize, h.Body)
		}
	}
	return b.String()
}

// note writes down what came in on a connection.
func (s *server) note(to *strings.Builder, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(to, format, args...)
}

// notes begins the notes on a connection.
func (s *server) notes() *strings.Builder {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := &strings.Builder{}
	s.conns = append(s.conns, b)
	return b
}

// turn is what is to be done with the next request.
func (s *server) turn() turn {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turns++
	x := s.p.x
	t := turn{x.interim, x.unread, x.answer, x.end}
	if n := s.turns - 2; n >= 0 && len(x.then) > 0 {
		t = x.then[min(n, len(x.then)-1)]
	}
	if t.answer == "" && t.end == endKeep {
		t.answer = answerOK
	}
	return t
}

const answerOK = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

// conn plays the origin on one connection.
func (s *server) conn(c net.Conn) {
	defer c.Close()
	var raw bytes.Buffer
	br := bufio.NewReader(io.TeeReader(c, &raw))
	var notes *strings.Builder
	for {
		raw.Reset()
		if b, err := br.Peek(1); err != nil {
			return
		} else if b[0] == 5 && s.socks(c, br) != nil { // SOCKS
			return
		} else if b[0] == 5 {
			continue
		}
		req, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		if notes == nil { // not for connections that were never used
			notes = s.notes()
		}
		t := s.turn()
		head, _, _ := strings.Cut(raw.String(), "\r\n\r\n")
		s.note(notes, "%s\n\n", head)
		_, _ = io.WriteString(c, t.interim)
		if !t.unread { // but where it is cut into chunks is nobody's business
			b, err := io.ReadAll(req.Body)
			s.note(notes, "%s%v", b, req.Trailer)
			if err != nil {
				return
			}
		}
		s.p.got()
		_, _ = io.WriteString(c, t.answer)
		switch {
		case t.end == endEcho:
			_, _ = io.Copy(c, br)
		case t.end == endTunnel:
			s.tunnel(c, br)
		case t.end == endReset:
			if linger, ok := c.(interface{ SetLinger(int) error }); ok {
				_ = linger.SetLinger(0)
			}
		case t.unread && t.end == endKeep && req.Header["Expect"] == nil:
			_, _ = io.Copy(io.Discard, br)
		case t.end == endKeep:
			continue
		}
		return
	}
}

// tunnel joins a connection with the encrypted origin.
func (s *server) tunnel(c net.Conn, br *bufio.Reader) {
	onward, err := net.Dial("tcp", strings.TrimPrefix(s.secure.URL, "https://"))
	if err != nil {
		return
	}
	go func() {
		_, _ = io.Copy(c, onward)
		_ = c.Close()
	}()
	_, _ = io.Copy(onward, br)
	_ = onward.Close()
}

// socks answers the greeting and the request of a SOCKS5 client.
func (s *server) socks(c net.Conn, br *bufio.Reader) error {
	greeting := make([]byte, 2)
	if _, err := io.ReadFull(br, greeting); err != nil {
		return err
	}
	methods := make([]byte, greeting[1])
	if _, err := io.ReadFull(br, methods); err != nil {
		return err
	}
	notes := s.notes()
	method := methods[len(methods)-1]
	_, _ = c.Write([]byte{5, method})
	if method == 2 { // a name and a password
		b := make([]byte, 2)
		_, _ = io.ReadFull(br, b)
		name := make([]byte, b[1]+1)
		_, _ = io.ReadFull(br, name)
		password := make([]byte, name[b[1]])
		_, _ = io.ReadFull(br, password)
		s.note(notes, "SOCKS as %s %s\n", name[:b[1]], password)
		_, _ = c.Write([]byte{1, 0})
	}
	b := make([]byte, 5)
	if _, err := io.ReadFull(br, b); err != nil {
		return err
	}
	rest := make([]byte, b[4]+2)
	_, err := io.ReadFull(br, rest)
	s.note(notes, "SOCKS to %v %s\n", b, rest)
	_, _ = c.Write([]byte{5, 0, 0, 1, 0, 0, 0, 0, 0, 0})
	return err
}
