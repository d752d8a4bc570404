package transport

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

// replay gives each attempt of a call a request body that has no GetBody, from a
// buffer that is filled while the first attempt streams, and used only once that
// attempt has let go of the body. Nothing is read ahead. Nil stands for a request
// that needs none of this.
type replay struct {
	t     *Transport
	src   io.ReadCloser // the caller's body
	limit int64

	mu      sync.Mutex // guards what follows
	buf     []byte
	over    bool // more was read than buf holds
	end     error
	turn    int           // the attempt that may read
	reading bool          // it is inside src.Read
	closed  bool          // it has closed the body
	letGo   chan struct{} // closed when it has let go; made by ready
	sealed  bool          // there will be no further attempt
	done    bool          // src is closed, or about to be
}

// errReplayGone is what an attempt reads that has been given up.
var errReplayGone = errors.New("request body of an attempt that was given up")

// letGoTime is how long what an attempt has in use may take to let go when the
// attempt is over: of its request's body, and of the caller's httptrace hooks.
const letGoTime = 50 * time.Millisecond

// await gives what ends soon some time, and reports whether it has ended.
func await(done <-chan struct{}, most time.Duration) bool {
	select {
	case <-done:
		return true
	default:
	}
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// newReplay takes charge of the body of req, which is our own copy.
func newReplay(t *Transport, req *http.Request, limit int64) *replay {
	if req.Body == nil || req.Body == http.NoBody || req.GetBody != nil {
		return nil
	}
	r := &replay{t: t, src: req.Body, limit: limit}
	req.Body = &replayReader{r: r}
	return r
}

// next is the body of another attempt at the caller's request.
func (r *replay) next(req *http.Request) (io.ReadCloser, error) {
	switch {
	case r != nil:
		r.mu.Lock()
		defer r.mu.Unlock()
		r.turn++
		r.closed, r.letGo = false, nil
		return &replayReader{r: r, turn: r.turn}, nil
	case req.GetBody != nil && req.Body != nil && req.Body != http.NoBody:
		return bodyAgain(req.GetBody, req.ContentLength)
	}
	return req.Body, nil
}

var errNoBody = errors.New("GetBody returned neither a body nor an error")

// bodyAgain is another body from a GetBody, whose request is said to have one of that
// length. Without it HTTP/2 would send the request as if it never had any.
func bodyAgain(getBody func() (io.ReadCloser, error), length int64) (io.ReadCloser, error) {
	body, err := getBody()
	if err == nil && (body == nil || body == http.NoBody && length > 0) {
		return nil, errNoBody
	}
	return body, err
}

// lost reports whether the body can surely not be sent again.
func (r *replay) lost() bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.over
}

// nextAfter is next, and closes the response of the attempt before if the caller's
// GetBody panics.
func (r *replay) nextAfter(resp *http.Response, req *http.Request) (io.ReadCloser, error) {
	returned := false
	defer func() {
		if !returned && resp != nil {
			_ = resp.Body.Close()
		}
	}()
	body, err := r.next(req)
	returned = true
	return body, err
}

// ready reports whether the body can be sent again; it gives the attempt that has
// failed some time to let go of it.
func (r *replay) ready() bool {
	if r == nil {
		return true
	}
	r.mu.Lock()
	if r.closed && !r.reading {
		defer r.mu.Unlock()
		return !r.over
	}
	letGo := make(chan struct{})
	r.letGo = letGo
	r.mu.Unlock()
	return await(letGo, letGoTime-time.Millisecond) && !r.lost() // before it is taken away
}

// seal says that there will be no further attempt.
func (r *replay) seal() {
	if r == nil {
		return
	}
	r.mu.Lock()
	r.sealed = true
	last := r.settle()
	r.mu.Unlock()
	if last {
		_ = r.src.Close()
	}
}

// settle tells that the body was let go, and reports whether it is to be closed
// for good, once. mu is held.
func (r *replay) settle() (last bool) {
	if !r.closed {
		return false
	}
	if r.letGo != nil && !r.reading {
		close(r.letGo)
		r.letGo = nil
	}
	last = r.sealed && !r.done
	r.done = r.done || last
	return last
}

// replayReader is the body of one attempt.
type replayReader struct {
	r    *replay
	turn int
	off  int
}

func (b *replayReader) Read(p []byte) (int, error) {
	r := b.r
	r.mu.Lock()
	if b.turn != r.turn || r.closed {
		r.mu.Unlock()
		return 0, errReplayGone
	}
	if b.off < len(r.buf) {
		n := copy(p, r.buf[b.off:])
		b.off += n
		r.mu.Unlock()
		return n, nil
	}
	if r.end != nil {
		r.mu.Unlock()
		return 0, r.end
	}
	r.reading = true
	r.mu.Unlock()
	n, err := r.src.Read(p)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reading = false
	switch {
	case n == 0 || r.over:
	case r.sealed || int64(len(r.buf)+n) > r.limit:
		r.over, r.buf = true, nil
	default:
		r.buf = append(r.buf, p[:n]...)
		b.off = len(r.buf)
	}
	if err != nil {
		r.end = err
	}
	_ = r.settle() // what closed the body has closed it for good
	return n, err
}

// Close lets go of the body; it is closed when no attempt can need it any more. One
// that is being read is closed so that the read returns, which HTTP/2 waits for: at
// once if it could not be sent again anyway, else after letGoTime.
func (b *replayReader) Close() error {
	r := b.r
	r.mu.Lock()
	last := false
	if b.turn == r.turn && !r.closed {
		r.closed = true
		last = r.settle()
		switch {
		case last || !r.reading:
		case r.limit <= 0 || r.over:
			last = r.spoil()
		default:
			time.AfterFunc(letGoTime, b.interrupt)
		}
	}
	r.mu.Unlock()
	if last {
		return r.src.Close()
	}
	return nil
}

// interrupt closes the body if it is still in the read during which it was let go.
func (b *replayReader) interrupt() {
	r := b.r
	r.mu.Lock()
	last := b.turn == r.turn && r.reading && r.spoil()
	r.mu.Unlock()
	if last {
		r.t.survive("Request.Body.Close", func() { _ = r.src.Close() })
	}
}

// spoil gives up sending the body again, and reports whether it is to be closed for
// that. mu is held.
func (r *replay) spoil() (last bool) {
	r.over, r.buf = true, nil
	last = !r.done
	r.done = true
	return last
}
