package transport

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// upload is a request body that tells the attempt's clock when time is the
// caller's, and how much the peer has taken.
type upload struct {
	a     *attempt
	src   io.ReadCloser
	known bool        // its length is
	left  int64       // of a known length; negative if there is more
	done  atomic.Bool // closed: errors are no longer the caller's
	once  sync.Once   // closes src

	unhook  func() bool // undoes that stop runs; guarded by a.mu
	stopped bool        // not to be read on; guarded by a.mu
}

// sending is how far a base is with a request body.
type sending uint8

const (
	uploadOver sending = iota // there is none, or it is closed
	uploadOpen                // it may be read on
	uploadRead                // it has ended, and is yet to be closed
)

// smallBody is what a peer takes into its buffers without being asked.
const smallBody = 64 << 10

// watchUpload puts the clock around the request's body; req is our own copy. A
// small body in memory is left as it is: no time is spent in it, it has the size
// it is said to have, and net/http sends it in one piece with the headers. A second
// body, from GetBody, is watched as the first.
func (a *attempt) watchUpload(req *http.Request) {
	watched := watchable(req.Body, req.ContentLength)
	a.mu.Lock()
	a.stream = exempt(req)
	if a.call.h.t.pooled == nil { // phases of a foreign base are not seen
		p := phaseHeader
		if watched {
			p = phaseWrite
		}
		a.clock.shift(a.clock.start, p, false)
	}
	if a.ticket.done != nil {
		a.needRare().lease = a.clock.start + a.leaseTime()
		a.watch(a.clock.start)
	}
	a.mu.Unlock()
	getBody := req.GetBody
	if !watched && getBody == nil {
		return
	}
	wrap := func(src io.ReadCloser) io.ReadCloser {
		if !watchable(src, req.ContentLength) {
			return src
		}
		u := &upload{a: a, src: src, known: req.ContentLength > 0, left: req.ContentLength}
		unhook := context.AfterFunc(a, u.stop)
		a.mu.Lock()
		defer a.mu.Unlock()
		a.sending, a.upload, u.unhook = uploadOpen, u, unhook
		return u
	}
	req.Body = wrap(req.Body)
	if getBody != nil {
		req.GetBody = func() (io.ReadCloser, error) {
			src, err := a.rewind(getBody, req.ContentLength)
			if err != nil {
				return nil, err
			}
			return wrap(src), nil
		}
	}
}

// watchable reports whether a body of a request of that length is to be watched.
func watchable(body io.Reader, length int64) bool {
	small := length > 0 && length <= smallBody && inMemory(body) == length
	return body != nil && body != http.NoBody && !small
}

var nopCloserTypes = [...]reflect.Type{
	reflect.TypeOf(io.NopCloser(nil)),
	reflect.TypeOf(io.NopCloser(struct {
		io.Reader
		io.WriterTo
	}{})),
}

// inMemory is the size of a body that takes no time to read, as do those that
// http.NewRequest makes; negative for others.
func inMemory(r io.Reader) int64 {
	switch r := r.(type) {
	case *bytes.Reader:
		return int64(r.Len())
	case *bytes.Buffer:
		return int64(r.Len())
	case *strings.Reader:
		return int64(r.Len())
	}
	if t := reflect.TypeOf(r); t == nopCloserTypes[0] || t == nopCloserTypes[1] {
		if inner, ok := reflect.ValueOf(r).Field(0).Interface().(io.Reader); ok {
			return inMemory(inner)
		}
	}
	return -1
}

// errUnread is a read of a request body that has ended its goroutine.
var errUnread = errors.New("reading the request body did not return")

// Read reads on, on the caller's time; not once the attempt has been stopped.
func (u *upload) Read(p []byte) (n int, err error) {
	a := u.a
	a.mu.Lock()
	if u.stopped {
		a.mu.Unlock()
		if u.known && u.left == 0 { // net/http only asks whether that was all
			return 0, io.EOF
		}
		return 0, a.Err()
	}
	a.clock.shift(a.call.h.t.now(), a.clock.phase, true)
	a.mu.Unlock()
	err = errUnread
	defer func() { u.got(n, err) }() // also when the caller's Read calls runtime.Goexit
	return u.src.Read(p)
}

// got takes what a Read of the caller's body returned.
func (u *upload) got(n int, err error) {
	if u.known {
		u.left -= int64(n)
	}
	a := u.a
	a.mu.Lock()
	defer a.mu.Unlock()
	next := a.clock.phase
	if next == phaseWrite && a.pool == nil && (err == io.EOF || u.known && u.left <= 0) { // net/http says itself when it has written
		next = phaseHeader
	}
	a.clock.shift(a.call.h.t.now(), next, false)
	a.clock.bytes += int64(n)
	if err != nil && a.upload == u && a.sending == uploadOpen {
		a.sending = uploadRead
	}
	short, long := err == io.EOF && u.known && u.left > 0, u.known && u.left < 0
	switch {
	case u.done.Load(): // closed while it was read
	case short, long, err != nil && err != io.EOF && err != errReplayGone:
		a.faulty, a.needRare().fault = true, err
	}
}

// Close closes the caller's body.
func (u *upload) Close() error {
	u.done.Store(true)
	u.a.mu.Lock()
	unhook := u.unhook
	u.a.mu.Unlock()
	if unhook != nil {
		unhook()
	}
	defer u.over() // also when the caller's Close panics
	var err error
	u.once.Do(func() { err = u.src.Close() })
	return err
}

// over says that the request body is closed.
func (u *upload) over() {
	a := u.a
	a.mu.Lock()
	last := a.upload == u // else another one has taken its place
	if last {
		a.sending = uploadOver
	}
	stop := last && a.ended
	a.mu.Unlock()
	if stop {
		a.stop()
	}
}

// stop runs when the attempt's context has ended, and has the body closed if the base
// does not do so soon. Over HTTP/1 nothing else makes a read of the caller's body
// return, and RoundTrip waits for that; and what net/http has never begun to send it
// may not close. A read that only takes its time is waited for, since not all bodies
// can be closed under one.
func (u *upload) stop() {
	u.a.mu.Lock()
	u.stopped = true
	u.a.mu.Unlock()
	time.AfterFunc(letGoTime, u.interrupt)
}

func (u *upload) interrupt() {
	if !u.done.Load() {
		u.a.call.h.t.survive("Request.Body.Close", func() { _ = u.Close() })
	}
}
