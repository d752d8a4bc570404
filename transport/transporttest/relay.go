package transporttest

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"
	"time"
)

// Relay stands between a client and a server and spoils what passes, in either
// direction and while it passes: a bad network for tests, in front of an Origin, a
// database, or whatever else speaks over TCP.
//
// A fault is set for all connections, those that are open too, and strikes at once:
// all bytes that are still with the Relay are subject to it. Those that it has
// written to a socket have arrived.
//
// It is reached at Addr, or whatever the name by its DialContext: the Base of an
// Origin dials the Origin itself, past a Relay before it, unless it is given that.
//
//	base := origin.Base()
//	base.DialContext = relay.DialContext
//
// It is a network, not a proxy: how one side ends its connection, the other side
// learns in the same form, FIN or RST, subject to the same faults as bytes are. Its
// sockets and its time are real: a bubble of testing/synctest is no place for it. It
// is safe for concurrent use.
type Relay struct {
	Addr string // host:port, where clients find it
	Up   *Flow  // from the client to the server
	Down *Flow  // from the server to the client

	t      testing.TB
	target string
	ctx    context.Context // ends with Close
	stop   context.CancelFunc
	board  board

	// Under board.
	listener *net.TCPListener // nil while it refuses
	door     door
	fillers  []net.Conn // of the queue of a listener that ignores
	resting  bool       // nothing is accepted until the door turns
	links    map[*link]struct{}
	opened   int
	running  int
	closed   bool

	turning sync.Mutex // held while the door is turned
}

// door is what becomes of new connections.
type door uint8

const (
	doorOpen door = iota
	doorRefuses
	doorIgnores
)

// NewRelay starts a Relay on a loopback socket that connects to target, a
// host:port, for each connection it is asked for. It is closed when the test ends.
// A client whose target is not there is reset, which the test's log tells of.
func NewRelay(t testing.TB, target string) *Relay {
	t.Helper()
	if _, port, err := net.SplitHostPort(target); err != nil || port == "" {
		t.Fatalf("transporttest: NewRelay: target %q: must be host:port, such as 127.0.0.1:5432", target)
	}
	r := &Relay{t: t, target: target, links: map[*link]struct{}{}}
	r.ctx, r.stop = context.WithCancel(context.Background())
	r.Up, r.Down = &Flow{relay: r}, &Flow{relay: r}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("transporttest: %v", err)
	}
	r.Addr = l.Addr().String()
	r.listen(l.(*net.TCPListener))
	t.Cleanup(r.Close)
	return r
}

// DialContext connects to the Relay, whatever the address, for an http.Transport.
func (r *Relay) DialContext(ctx context.Context, network, _ string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, network, r.Addr)
}

// Pass ends all faults: what was held back arrives, and connections are accepted.
// Those that were cut or reset stay so.
func (r *Relay) Pass() {
	r.set((*Flow).pass, r.Up, r.Down)
	r.turn(doorOpen)
}

// BlackHole is BlackHole in both directions.
func (r *Relay) BlackHole() { r.set((*Flow).blackHole, r.Up, r.Down) }

// Cut is Cut in both directions: each side is told that the other has ended.
func (r *Relay) Cut() { r.set((*Flow).cut, r.Up, r.Down) }

// Reset is Reset in both directions.
func (r *Relay) Reset() { r.set((*Flow).reset, r.Up, r.Down) }

// Refuse keeps new connections from being made until Pass: nobody listens. Those
// that are open stay.
func (r *Relay) Refuse() { r.turn(doorRefuses) }

// Ignore leaves new connections without an answer until Pass: to connect takes
// for ever. Those that are open stay. A client that still waits at Pass gets
// through when its system asks again, after a second or more. It takes Linux,
// where a listener whose queue is full answers nobody; elsewhere the test is
// skipped.
func (r *Relay) Ignore() { r.turn(doorIgnores) }

// Connections returns how many connections were made, and how many of them the
// client has not ended, so far as the Relay was told.
func (r *Relay) Connections() (opened, open int) {
	r.board.mu.Lock()
	defer r.board.mu.Unlock()
	return r.opened, r.open()
}

// WaitOpen waits until exactly n connections are open. It fails the test if that
// takes more than 10 seconds, and must be called from the test's goroutine.
func (r *Relay) WaitOpen(n int) {
	r.t.Helper()
	r.board.await(r.t, func() bool { return r.open() == n },
		func() string { return fmt.Sprintf("%d open connections, have %d", n, r.open()) })
}

// Close ends the Relay and its connections, with FIN where all is delivered. The
// test's end calls it.
func (r *Relay) Close() {
	r.stop()
	r.board.update(func() { r.closed = true })
	r.turn(doorRefuses)
	var links []*link
	r.board.update(func() { links = slices.Collect(maps.Keys(r.links)) })
	for _, k := range links {
		k.close()
	}
	r.board.await(r.t, func() bool { return r.running == 0 },
		func() string { return fmt.Sprintf("%d goroutines of a Relay to end", r.running) })
}

// open is called under board.
func (r *Relay) open() int {
	n := 0
	for k := range r.links {
		if !k.up.ended {
			n++
		}
	}
	return n
}

// run has f counted as running.
func (r *Relay) run(f func()) {
	r.board.update(func() { r.running++ })
	go func() {
		defer r.board.update(func() { r.running-- })
		f()
	}()
}

// turn opens or closes the door.
func (r *Relay) turn(to door) {
	r.t.Helper()
	r.turning.Lock()
	defer r.turning.Unlock()
	var from door
	var l *net.TCPListener
	var fillers []net.Conn
	r.board.update(func() {
		if r.closed {
			to = doorRefuses
		}
		from, r.door, l, fillers = r.door, to, r.listener, slices.Clone(r.fillers)
		if to == doorRefuses {
			r.listener, r.fillers = nil, nil
		}
	})
	if from == to {
		return
	}
	if from == doorIgnores {
		for _, c := range fillers {
			_ = c.Close()
		}
	}
	switch {
	case to == doorRefuses:
		_ = l.Close()
		return
	case from == doorRefuses:
		l = r.reopen()
		r.listen(l)
	}
	if to == doorIgnores {
		r.fill(l)
		return
	}
	_ = setBacklog(l, backlog)
	_ = l.SetDeadline(time.Time{})
}

const backlog = 128

// reopen listens where the Relay has listened before.
func (r *Relay) reopen() *net.TCPListener {
	r.t.Helper()
	var l net.Listener
	var err error
	if !eventually(func() bool { // a connection of some other program may have the port
		l, err = net.Listen("tcp", r.Addr)
		return err == nil
	}) {
		r.t.Fatalf("transporttest: %v", err)
	}
	return l.(*net.TCPListener)
}

// fill makes the queue of a listener full: nothing is accepted, and what comes
// then is not answered.
func (r *Relay) fill(l *net.TCPListener) {
	r.t.Helper()
	_ = l.SetDeadline(time.Unix(1, 0))
	r.board.await(r.t, func() bool { return r.resting }, func() string { return "a Relay to accept nothing" }) // or it takes one that fills
	if err := setBacklog(l, 0); err != nil {
		r.t.Skipf("transporttest: Relay.Ignore: %v", err)
	}
	var fillers []net.Conn
	for range 8 {
		c, err := net.DialTimeout("tcp", r.Addr, 50*time.Millisecond)
		if err != nil {
			break
		}
		fillers = append(fillers, c)
	}
	r.board.update(func() { r.fillers = fillers })
}

// filler reports whether a connection is one of those that have filled the queue.
func (r *Relay) filler(c net.Conn) bool {
	from := c.RemoteAddr().String()
	found := false
	r.board.update(func() {
		r.fillers = slices.DeleteFunc(r.fillers, func(f net.Conn) bool {
			same := f.LocalAddr().String() == from
			found = found || same
			return same
		})
	})
	return found
}

// listen accepts connections until l is closed.
func (r *Relay) listen(l *net.TCPListener) {
	r.board.update(func() { r.listener = l })
	r.run(func() {
		for {
			c, err := l.AcceptTCP()
			switch {
			case err == nil && r.filler(c):
				_ = c.Close()
			case err == nil:
				r.run(func() { r.connect(c) })
			case !timedOut(err) || !r.doorTurned(l):
				return
			}
		}
	})
}

// doorTurned waits while the door ignores, and reports whether l is still in use.
func (r *Relay) doorTurned(l *net.TCPListener) bool {
	for {
		r.board.mu.Lock()
		here, ignores := r.listener == l, r.door == doorIgnores
		if rests := here && ignores; rests != r.resting {
			r.resting = rests
			r.board.wake()
		}
		changed := r.board.next()
		r.board.mu.Unlock()
		if !here || !ignores {
			return here
		}
		<-changed
	}
}

// connect links a client to the target.
func (r *Relay) connect(client *net.TCPConn) {
	var d net.Dialer
	c, err := d.DialContext(r.ctx, "tcp", r.target)
	if err != nil {
		if r.ctx.Err() == nil {
			r.t.Logf("transporttest: Relay: its target: %v", err)
		}
		sendReset(client)
		return
	}
	k := newLink(r, client, c.(*net.TCPConn))
	closed := false
	r.board.update(func() {
		if closed = r.closed; closed {
			return
		}
		r.opened++
		r.links[k] = struct{}{}
		k.up.mark()
		k.down.mark()
	})
	if closed {
		k.close()
		return
	}
	for _, l := range []*lane{k.up, k.down} {
		l.strike()
		r.run(l.receive)
		r.run(l.deliver)
	}
}
