package transporttest

import (
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"time"
)

const (
	pieceSize   = 32 << 10
	queueSize   = 64 << 10  // of what a lane holds
	delayedSize = 4 << 20   // with a Delay
	socketSize  = 128 << 10 // of each buffer of a socket
)

// link is a connection of a Relay: one to the client, one to the server, and a lane
// for each direction.
type link struct {
	relay    *Relay
	up, down *lane
	over     chan struct{} // closed when it is over
	once     sync.Once
}

// lane is one direction of a link. Its life, under the Relay's board: it receives
// until the sender's end is known (ended), and delivers until that is delivered,
// or a final fault has struck (struck).
type lane struct {
	flow     *Flow
	link     *link
	src, dst *net.TCPConn
	wake     chan struct{} // there may be something to do

	// Under relay.board.
	queue  []*piece
	held   int       // bytes in queue
	next   time.Time // when a portion may follow the last one
	ended  bool      // the sender has
	told   bool      // the receiver was told of it
	struck bool      // nothing that is received will be delivered
	final  final     // the last that struck

	striking bool // final is yet to be done
}

// piece is bytes on their way, or the end.
type piece struct {
	at   time.Time // when it came
	data []byte
	end  final // cut or reset, after data

	forged bool // nobody has sent it
}

func newLink(r *Relay, client, server *net.TCPConn) *link {
	for _, c := range []*net.TCPConn{client, server} {
		_ = c.SetReadBuffer(socketSize)
		_ = c.SetWriteBuffer(socketSize)
	}
	k := &link{relay: r, over: make(chan struct{})}
	k.up = &lane{flow: r.Up, link: k, src: client, dst: server, wake: make(chan struct{}, 1)}
	k.down = &lane{flow: r.Down, link: k, src: server, dst: client, wake: make(chan struct{}, 1)}
	return k
}

func (k *link) laneOf(f *Flow) *lane {
	if f == k.relay.Up {
		return k.up
	}
	return k.down
}

// close ends the link; what is in socket buffers is still delivered.
func (k *link) close() {
	k.once.Do(func() {
		close(k.over)
		var abrupt [2]bool
		lanes := [2]*lane{k.up, k.down}
		k.relay.board.update(func() {
			delete(k.relay.links, k)
			for i, l := range lanes {
				abrupt[i] = l.final == finalReset
			}
		})
		for i, l := range lanes {
			if abrupt[i] { // strike may be about to
				sendReset(l.dst)
			}
			_ = l.dst.Close()
		}
	})
}

// back is the other direction.
func (l *lane) back() *lane {
	if l == l.link.up {
		return l.link.down
	}
	return l.link.up
}

// receive takes from the sender what it sends.
func (l *lane) receive() {
	buf := make([]byte, pieceSize)
	for l.room() {
		n, err := l.src.Read(buf)
		p := piece{at: time.Now(), data: append([]byte(nil), buf[:n]...)}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed):
			p.end = finalCut
		default:
			p.end = finalReset
		}
		l.enqueue(p)
		if err != nil {
			return
		}
	}
}

// room waits until there is room for another piece; false when the link is over.
func (l *lane) room() bool {
	b := &l.flow.relay.board
	for {
		b.mu.Lock()
		size := queueSize
		if l.flow.delay > 0 {
			size = delayedSize
		}
		free := l.struck || l.held < size
		changed := b.next()
		b.mu.Unlock()
		if free {
			return true
		}
		select {
		case <-changed:
		case <-l.link.over:
			return false
		}
	}
}

// enqueue takes a piece; one that will not be delivered is dropped.
func (l *lane) enqueue(p piece) {
	l.flow.relay.board.update(func() {
		l.flow.taken += int64(len(p.data))
		l.ended = l.ended || p.end != finalNone
		if l.struck {
			p.data = nil
		}
		if len(p.data) > 0 || p.end != finalNone {
			l.queue = append(l.queue, &p)
			l.held += len(p.data)
		}
	})
	l.poke()
}

func (l *lane) poke() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// mark has the lane feel a change of its Flow, also in the middle of a write. It is
// called under board; strike is to follow.
func (l *lane) mark() {
	_ = l.dst.SetWriteDeadline(time.Unix(1, 0)) // until deliver has seen the change
	f := l.flow
	if f.final == finalNone || f.final == l.final {
		return
	}
	l.struck, l.final, l.striking = true, f.final, true
	l.drop()
	if f.final == finalGarbage && len(f.garbage) > 0 {
		l.queue = append([]*piece{{data: f.garbage, forged: true}}, l.queue...)
		l.held += len(f.garbage)
	}
}

// strike does to the receiver what mark has left to do.
func (l *lane) strike() {
	final := finalNone
	l.flow.relay.board.update(func() {
		if l.striking {
			final, l.striking = l.final, false
		}
	})
	switch final {
	case finalCut:
		_ = l.dst.CloseWrite()
	case finalReset:
		sendReset(l.dst)
	}
	l.poke()
}

func sendReset(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}

// drop forgets the bytes in the queue. It is called under board.
func (l *lane) drop() {
	for _, p := range l.queue {
		p.data = nil
	}
	l.queue = slices.DeleteFunc(l.queue, func(p *piece) bool { return p.end == finalNone })
	l.held = 0
}

// deliver gives the receiver what is due, until the link is over.
func (l *lane) deliver() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		p, data, wait := l.due(time.Now())
		switch {
		case len(data) > 0:
			n, err := l.dst.Write(data)
			l.delivered(p, n)
			if err != nil && !timedOut(err) { // the receiver has gone, and the sender will be told
				l.lost()
			}
			continue
		case p != nil:
			l.tell(p.end)
			continue
		}
		timer.Reset(wait)
		select {
		case <-l.wake:
		case <-timer.C:
		case <-l.link.over:
			return
		}
	}
}

// catchUp is how late a portion may be that is made up for.
const catchUp = time.Second

// forLong is how long a lane sleeps that has nothing to wait for.
const forLong = time.Hour

// due is the piece that is to be delivered now, and what of its bytes; none if only
// its end is left. Without one it is how long it takes until there may be.
func (l *lane) due(now time.Time) (p *piece, data []byte, wait time.Duration) {
	b, f := &l.flow.relay.board, l.flow
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(l.queue) == 0 || f.hole && !l.struck {
		return nil, nil, forLong
	}
	p = l.queue[0]
	data = p.data
	if !l.struck {
		wait = p.at.Add(f.delay).Sub(now)
		if len(data) > 0 && f.portion > 0 {
			wait = max(wait, l.next.Sub(now))
			data = data[:min(len(data), f.portion)]
		}
	}
	if wait > 0 {
		return nil, nil, wait
	}
	if len(data) == 0 {
		l.queue = l.queue[1:]
		return p, nil, 0
	}
	if p.at.After(l.next) || now.Sub(l.next) > catchUp {
		l.next = now
	}
	l.next = l.next.Add(f.every) // counted from when it was due, or a busy machine would be a slower network
	_ = l.dst.SetWriteDeadline(time.Time{})
	return p, data, 0
}

// delivered takes what was written from the queue, unless it was dropped meanwhile.
func (l *lane) delivered(p *piece, n int) {
	l.flow.relay.board.update(func() {
		if !p.forged {
			l.flow.given += int64(n)
		}
		if n == 0 || len(l.queue) == 0 || l.queue[0] != p || len(p.data) < n {
			return
		}
		p.data = p.data[n:]
		l.held -= n
		if len(p.data) == 0 && p.end == finalNone {
			l.queue = l.queue[1:]
		}
	})
}

// lost drops what cannot be delivered, and has the sender's side learn that the
// receiver has gone.
func (l *lane) lost() {
	l.flow.relay.board.update(func() {
		l.struck = true
		l.drop()
	})
	l.back().enqueue(piece{at: time.Now(), end: finalReset})
}

// tell tells the receiver how the sender has ended.
func (l *lane) tell(end final) {
	over, abrupt := false, false
	l.flow.relay.board.update(func() {
		l.told = true
		over, abrupt = l.back().told, l.final == finalReset
	})
	switch {
	case abrupt: // it was told something else
	case end == finalReset:
		sendReset(l.dst)
		over = true
	case !over:
		_ = l.dst.CloseWrite()
	}
	if over {
		l.link.close()
	}
}

func timedOut(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }
