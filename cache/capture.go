package cache

import (
	"bytes"
	"slices"
	"sync"
)

const chunkSize = 32 << 10

type chunk [chunkSize]byte

// Capture collects the body of an answer while its caller reads it, and stores both when the body is known to
// be whole (RFC 9111 section 3.3). Every method may be called on a nil Capture, at any time, from any
// goroutine; once it is settled, by Complete, Discard, Trailers or too long a body, the rest does nothing. It is settled
// before the [Store] is called, so that one that blocks or panics holds up nobody else.
type Capture struct {
	asked []field // see selectable; never changes

	mu sync.Mutex // guards all below; the Store is not called under it

	entry  *Entry // without its body; nil once settled
	told   func(Settlement)
	size   int64 // bytes of body seen
	length int64 // Content-Length, or -1
	limit  int64

	// prior is the stored body that this one has so far been equal to. Most answers are the same as the last
	// time, and comparing is cheaper than copying, but what is kept never depends on it.
	prior  []byte
	buf    []byte   // when the length is known
	chunks []*chunk // when it is not
}

// Settlement is what has become of a Capture.
type Settlement uint8

// What becomes of a Capture.
const (
	// Kept: the answer is stored, and fresh.
	Kept Settlement = iota + 1
	// Useless: it is not stored, or is stale from the start. The next one will be likewise.
	Useless
	// Dropped: its body has not been read to its end. Another may.
	Dropped
)

// Settled calls told, once, when c is settled, after the Store was called: on whichever goroutine settles it, or at once if c is
// settled, or nil, as one that is Useless.
func (c *Capture) Settled(told func(Settlement)) {
	if c != nil {
		c.mu.Lock()
		if c.entry != nil {
			c.told = told
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
	}
	told(Useless)
}

// Write copies p, the next piece of the body. It never fails and always reports len(p).
func (c *Capture) Write(p []byte) (int, error) {
	if c == nil {
		return len(p), nil
	}
	over, tell := c.write(p)
	defer tell()
	if over != nil {
		over.owner.replace(over, c.asked)
	}
	return len(p), nil
}

// write is Write but for the Store. It returns the entry of a good answer that is too long to be stored, which removes
// the older one like any other.
func (c *Capture) write(p []byte) (over *Entry, tell func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entry == nil {
		return nil, untold
	}
	at := c.size
	c.size += int64(len(p))
	switch {
	case c.size > c.limit:
		return c.settle(Useless)
	case c.length >= 0 && c.size > c.length:
		_, tell = c.settle(Useless)
		return nil, tell
	case c.prior != nil:
		if c.size <= int64(len(c.prior)) && bytes.Equal(c.prior[at:c.size], p) {
			break
		}
		same := c.prior[:at]
		c.prior = nil
		c.keep(same, 0)
		c.keep(p, at)
	default:
		c.keep(p, at)
	}
	return nil, untold
}

// keep appends p, which begins at offset at.
func (c *Capture) keep(p []byte, at int64) {
	if c.length >= 0 {
		if c.buf == nil {
			c.buf = slices.Grow(c.buf, int(c.length))
		}
		c.buf = append(c.buf, p...)
		return
	}
	for len(p) > 0 {
		off := at % chunkSize
		if off == 0 {
			c.chunks = append(c.chunks, c.entry.owner.chunk())
		}
		n := copy(c.chunks[len(c.chunks)-1][off:], p)
		p, at = p[n:], at+int64(n)
	}
}

// whole is the body that was kept.
func (c *Capture) whole() []byte {
	switch {
	case c.prior != nil && c.size == int64(len(c.prior)):
		return c.prior
	case c.prior != nil:
		return append([]byte(nil), c.prior[:c.size]...)
	case c.length >= 0:
		return c.buf
	}
	b := slices.Grow([]byte(nil), int(c.size))
	for _, chunk := range c.chunks {
		b = append(b, chunk[:min(chunkSize, c.size-int64(len(b)))]...)
	}
	return b
}

// NeedsEnd reports whether a caller's Close comes before anyone can know that the body is whole: its
// length is unknown and no limit is passed. Reading on for a moment (4 KiB, 25 ms) is worthwhile then: JSON
// decoders stop at the last brace.
func (c *Capture) NeedsEnd() bool {
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.entry != nil && c.length < 0
}

// Complete stores the answer. Without eof, which is to say the caller closed the body early, only if a known
// Content-Length was reached.
func (c *Capture) Complete(eof bool) {
	if c == nil {
		return
	}
	e, tell := c.complete(eof)
	defer tell()
	if e != nil {
		e.owner.commit(e, c.asked)
	}
}

// complete is Complete but for the Store. It returns the entry with its body, or nil if that is not whole.
func (c *Capture) complete(eof bool) (e *Entry, tell func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entry == nil {
		return nil, untold
	}
	if c.size != c.length && !(eof && c.length < 0) {
		_, tell = c.settle(Dropped)
		return nil, tell
	}
	how := Kept
	if c.entry.control.noCache || c.entry.ttlAt(c.entry.owner.now()) <= 0 {
		how = Useless
	}
	body := c.whole()
	e, tell = c.settle(how)
	e.body = body
	return e, tell
}

// Discard forgets the answer, for any error, and for a stream, of which a recording is no answer: that a body is one is for
// the caller to know. What was stored before stays.
func (c *Capture) Discard() {
	_, tell := c.detach(Dropped)
	tell()
}

// Trailers tells that trailers arrived after the body. An answer is not whole without its trailers, and they are not
// stored, so the answer is not either; it still removes what it supersedes.
func (c *Capture) Trailers() {
	e, tell := c.detach(Useless)
	defer tell()
	if e != nil {
		e.owner.replace(e, c.asked)
	}
}

// detach settles c and returns its entry, nil if it was settled already.
func (c *Capture) detach(how Settlement) (e *Entry, tell func()) {
	if c == nil {
		return nil, untold
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.settle(how)
}

// settle lets go of all that c holds and returns the entry, and who is to be told.
func (c *Capture) settle(how Settlement) (e *Entry, tell func()) {
	e, tell = c.entry, untold
	if told := c.told; told != nil {
		tell = func() { told(how) }
	}
	for _, chunk := range c.chunks {
		e.owner.chunks.Put(chunk)
	}
	c.entry, c.told, c.prior, c.buf, c.chunks = nil, nil, nil, nil, nil
	return e, tell
}

func untold() {}
