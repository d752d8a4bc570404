package transporttest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"strconv"
)

// serve takes the next step of the script for a request.
func (o *Origin) serve(w http.ResponseWriter, r *http.Request) {
	o.board.update(func() { o.running++ })
	defer o.board.update(func() { o.running-- })
	defer func() {
		v := recover()
		if v != nil && v != http.ErrAbortHandler {
			o.t.Errorf("transporttest: panic in the script of an Origin: %v\n%s", v, debug.Stack())
		}
		if v != nil {
			panic(http.ErrAbortHandler)
		}
	}()
	c, _ := connOf(r.Context())
	hit := o.add(r, r.RequestURI, c.number, int(c.requests.Add(1)))
	step := o.step(*hit)
	r.Body = &recording{r.Body, &o.hits, hit}
	if step.Handler != nil {
		step.Handler.ServeHTTP(w, r)
		return
	}
	if !step.Unread {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			panic(http.ErrAbortHandler)
		}
	}
	x := &exchange{step: &step, origin: o, w: w, r: r, conn: c}
	var stop context.CancelFunc
	x.ctx, stop = context.WithCancel(r.Context())
	defer stop()
	defer context.AfterFunc(o.ctx, stop)()
	x.play()
}

// exchange is a step that an Origin plays.
type exchange struct {
	step   *Step
	origin *Origin
	w      http.ResponseWriter
	r      *http.Request
	conn   *conn
	ctx    context.Context // ends when the client goes, or the Origin is closed
}

// abort ends the handler without ending the answer.
func abort() { panic(http.ErrAbortHandler) }

// must ends the handler when the client has gone.
func must(err error) {
	if err != nil {
		abort()
	}
}

func (x *exchange) play() {
	s := x.step
	if s.Raw != "" {
		x.raw()
		return
	}
	header := x.w.Header()
	for _, i := range s.Interim {
		must(sleep(x.ctx, nil, i.Delay))
		for name, values := range i.Header {
			header[http.CanonicalHeaderKey(name)] = values
		}
		x.w.WriteHeader(i.Status)
		clear(header)
	}
	must(sleep(x.ctx, nil, s.Delay))
	if s.headless() {
		x.fail()
	}
	x.header()
	if s.Pause > 0 || s.Fault != 0 || s.framing() != Fixed {
		x.flush() // net/http would find the length of a short body
	}
	x.body(x.w, x.flush)
	if s.Fault != 0 {
		x.flush()
		x.fail()
	}
	for name, values := range s.Trailer {
		if s.Unannounced {
			name = http.TrailerPrefix + name
		}
		header[http.CanonicalHeaderKey(name)] = values
	}
}

// header writes status and headers.
func (x *exchange) header() {
	s, h := x.step, x.w.Header()
	bodiless := s.status() < 200 || s.status() == http.StatusNoContent || s.status() == http.StatusNotModified
	switch {
	case bodiless:
	case s.framing() == Fixed:
		h.Set("Content-Length", strconv.FormatInt(s.length(), 10))
	case s.framing() == UntilClose && x.r.ProtoMajor == 1:
		h.Set("Transfer-Encoding", "identity")
	}
	for name := range s.Trailer {
		if !s.Unannounced {
			h.Add("Trailer", name)
		}
	}
	for name, values := range s.Header {
		h[http.CanonicalHeaderKey(name)] = values
	}
	x.w.WriteHeader(s.status())
}

// body writes what is sent of the body.
func (x *exchange) body(w io.Writer, flush func()) {
	if x.r.Method == http.MethodHead && x.step.Raw == "" {
		return
	}
	s := x.step
	content := content{step: s}
	buf := make([]byte, 32<<10)
	for {
		if content.due() {
			must(sleep(x.ctx, nil, s.Pause))
		}
		n, err := content.Read(buf)
		if err != nil {
			return
		}
		_, err = w.Write(buf[:n])
		must(err)
		if s.Chunk > 0 {
			flush()
		}
	}
}

func (x *exchange) flush() { must(http.NewResponseController(x.w).Flush()) }

// fail plays the fault; it does not return.
func (x *exchange) fail() {
	h1 := x.r.ProtoMajor == 1
	switch x.step.Fault {
	case Hang:
		<-x.ctx.Done()
	case Cut:
		x.cut(h1)
	case Reset:
		if h1 {
			x.conn.reset()
		}
	case GoAway:
		if h1 {
			panic("GoAway needs HTTP/2")
		}
		x.goAway()
		<-x.ctx.Done()
	default:
		panic(fmt.Sprintf("no such fault: %d", x.step.Fault))
	}
	abort()
}

// cut ends the connection once what was written has left.
func (x *exchange) cut(h1 bool) {
	if h1 {
		_, _, err := http.NewResponseController(x.w).Hijack()
		must(err)
		x.conn.cut()
		return
	}
	if !x.step.headless() {
		x.conn.settle()
	}
	_ = x.conn.CloseWrite()
	<-x.ctx.Done()
}

// goAway writes a frame of its own between those of net/http, which stands still.
func (x *exchange) goAway() {
	x.conn.settle()
	_, c := connOf(x.r.Context())
	_, err := c.Write([]byte{
		0, 0, 8, // length
		7, 0, // GOAWAY, no flags
		0, 0, 0, 0, // on the connection
		0, 0, 0, 0, // the last stream that was processed: none
		0, 0, 0, 0, // NO_ERROR
	})
	must(err)
}

// raw takes the connection and writes Raw.
func (x *exchange) raw() {
	if x.r.ProtoMajor != 1 {
		panic("Raw needs HTTP/1")
	}
	c, _, err := http.NewResponseController(x.w).Hijack()
	must(err)
	defer func() { _ = c.Close() }()
	raw := *x.step
	raw.Body = raw.Raw
	x.step = &raw
	must(sleep(x.ctx, nil, raw.Delay))
	if !raw.headless() {
		x.body(c, func() {})
	}
	switch raw.Fault {
	case Hang:
		stop := context.AfterFunc(x.origin.ctx, func() { _ = x.conn.Close() })
		defer stop()
		_, _ = io.Copy(io.Discard, x.conn)
	case Reset:
		x.conn.reset()
	default:
		x.conn.cut()
	}
}
