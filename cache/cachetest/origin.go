package cachetest

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// origin is the RoundTripper below the cache. It answers by a script, as net/http would hand the answers on, and remembers what it
// was asked. It is safe for concurrent use.
type origin struct {
	mu     sync.Mutex // guards all below
	script func(*http.Request) answer
	asked  []*http.Request
}

// answer is what the origin says to a request.
type answer struct {
	status  int      // zero: 200
	fields  []string // name and value in turn; Date is that of the answer if it is not among them
	body    string
	framing framing
	trailer http.Header
	zips    bool // net/http gets the body in gzip, or its caller does, if he asks for that

	cut   int  // how many bytes are missing at the end of the body
	quiet bool // the loss looks like an end

	delay  time.Duration   // before the answer
	begin  <-chan struct{} // the answer comes when this is closed, at most patience later
	finish <-chan struct{} // the last byte of the body comes when this is closed, at most patience later
	err    error           // instead of all that
}

// patience ends what a cache waits for in vain, so that a wrong one fails instead of standing still.
const patience = time.Hour

var errPatience = errors.New("cachetest: the cache waits for what comes only after it has answered")

// framing is how the end of a body is told.
type framing uint8

const (
	fixed      framing = iota // Content-Length
	chunked                   // a last chunk
	untilClose                // the end of the connection (RFC 9112 section 8)
)

// says is a 200 with a body and the given fields.
func says(body string, fields ...string) answer { return answer{body: body, fields: fields} }

// fresh is a 200 that may be reused for a minute.
func fresh(body string, fields ...string) answer {
	return says(body, append([]string{"Cache-Control", "max-age=60"}, fields...)...)
}

// answers plays a script. The last answer is repeated.
func (o *origin) answers(script ...answer) {
	next := 0
	o.answersBy(func(*http.Request) answer {
		a := script[min(next, len(script)-1)]
		next++
		return a
	})
}

// answersBy has pick choose the answers, one at a time.
func (o *origin) answersBy(pick func(*http.Request) answer) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.script = pick
}

// count is how many requests there were.
func (o *origin) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.asked)
}

// last is a copy of the last request.
func (o *origin) last() *http.Request {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.asked[len(o.asked)-1]
}

// RoundTrip takes the next answer of the script.
func (o *origin) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		_, _ = io.Copy(io.Discard, req.Body)
		_ = req.Body.Close()
	}
	a := o.take(req)
	if err := a.wait(req.Context()); err != nil {
		return nil, err
	}
	if a.err != nil {
		return nil, a.err
	}
	return a.response(req), nil
}

func (o *origin) take(req *http.Request) answer {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked = append(o.asked, req.Clone(context.Background()))
	return o.script(req)
}

// wait passes the time until the answer.
func (a answer) wait(ctx context.Context) error {
	if a.delay > 0 {
		late := make(chan struct{})
		defer time.AfterFunc(a.delay, func() { close(late) }).Stop()
		if err := await(ctx, late, nil); err != nil {
			return err
		}
	}
	if a.begin != nil {
		return await(ctx, a.begin, nil)
	}
	return ctx.Err()
}

// await waits for what is to come, or for a reason not to.
func await(ctx context.Context, come, closed <-chan struct{}) error {
	enough := time.NewTimer(patience)
	defer enough.Stop()
	select {
	case <-come:
		return nil
	case <-closed:
		return http.ErrBodyReadAfterClose
	case <-ctx.Done():
		return ctx.Err()
	case <-enough.C:
		return errPatience
	}
}

func (a answer) response(req *http.Request) *http.Response {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	resp := &http.Response{
		Status:     strconv.Itoa(a.status) + " " + http.StatusText(a.status),
		StatusCode: a.status,
		Proto:      "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header:  http.Header{},
		Body:    http.NoBody,
		Request: req,
	}
	for i := 0; i < len(a.fields); i += 2 {
		resp.Header.Add(a.fields[i], a.fields[i+1])
	}
	if len(resp.Header["Date"]) == 0 {
		resp.Header.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	}
	if a.zips {
		a.zip(req, resp)
	}
	bodiless := a.status == http.StatusNoContent || a.status == http.StatusNotModified
	if bodiless {
		return resp
	}
	a.frame(resp)
	if req.Method == http.MethodHead || a.body == "" && len(a.trailer) == 0 && a.framing == fixed {
		return resp
	}
	if len(a.trailer) > 0 {
		resp.Trailer = http.Header{}
		for name := range a.trailer {
			resp.Trailer[name] = nil
		}
	}
	resp.Body = &body{answer: a, ctx: req.Context(), resp: resp, closed: make(chan struct{})}
	return resp
}

// zip does what net/http does with a body that came in gzip: it is unpacked for a caller who has not asked for that coding.
func (a *answer) zip(req *http.Request, resp *http.Response) {
	resp.Header.Add("Vary", "Accept-Encoding")
	if req.Header.Get("Accept-Encoding") == "" && req.Header.Get("Range") == "" && req.Method != http.MethodHead {
		resp.Uncompressed = true
		return
	}
	if strings.Contains(req.Header.Get("Accept-Encoding"), "gzip") {
		resp.Header.Set("Content-Encoding", "gzip")
		a.body = zipped(a.body)
	}
}

func zipped(s string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write([]byte(s))
	_ = w.Close()
	return b.String()
}

// frame says how the body ends.
func (a answer) frame(resp *http.Response) {
	resp.ContentLength = -1
	switch {
	case resp.Uncompressed:
	case a.framing == chunked || len(a.trailer) > 0:
		resp.TransferEncoding = []string{"chunked"}
	case a.framing == untilClose:
		resp.Close = true
	default:
		resp.ContentLength = int64(len(a.body))
		resp.Header.Set("Content-Length", strconv.Itoa(len(a.body)))
	}
}

// body is read in small pieces, and its end with none of them.
type body struct {
	answer answer
	ctx    context.Context
	resp   *http.Response
	at     int

	once   sync.Once
	closed chan struct{}
}

func (b *body) Read(p []byte) (int, error) {
	select {
	case <-b.closed:
		return 0, http.ErrBodyReadAfterClose
	default:
	}
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	left := len(b.answer.body) - b.answer.cut - b.at
	if left <= 0 {
		return 0, b.end()
	}
	if left == 1 && b.answer.finish != nil {
		if err := await(b.ctx, b.answer.finish, b.closed); err != nil {
			return 0, err
		}
	}
	n := copy(p, b.answer.body[b.at:b.at+max(1, min(left-1, 1000))])
	b.at += n
	return n, nil
}

func (b *body) end() error {
	if b.answer.cut > 0 && !b.answer.quiet {
		return io.ErrUnexpectedEOF
	}
	for name, values := range b.answer.trailer {
		b.resp.Trailer[name] = values
	}
	return io.EOF
}

// Close ends a Read that waits.
func (b *body) Close() error {
	b.once.Do(func() { close(b.closed) })
	return nil
}
