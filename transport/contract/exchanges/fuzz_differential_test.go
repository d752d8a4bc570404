package exchanges_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/transporttest"
)

// FuzzDifferential makes exchanges up, and plays them with and without the stack as
// TestExchangesAreTheSameWithTheStack does, over pipes in a bubble, where time costs
// nothing: one to four requests of a client, each answered as a step of an Origin.
func FuzzDifferential(f *testing.F) {
	for _, seed := range chanceSeeds {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c := &chance{data: data}
		m := c.madeUp()
		want := m.play(t, nil)
		retried := slices.ContainsFunc(want.Answers, func(a answer) bool { return a.Retried })
		for which, p := range stacks(m.calls[0].method, retried) {
			want, got := want, m.play(t, &p)
			if which == withCopies { // Close may read what is kept to its end
				got.Hooks, got.Origin, want.Hooks, want.Origin = nil, "", nil, ""
			}
			for _, told := range []*tale{&want, &got} {
				told.Answers = slices.Clone(told.Answers)
				for i := range told.Answers {
					told.Answers[i].unsure(m.calls[i])
				}
			}
			if diff := want.diff(got); diff != "" {
				t.Errorf("%s:\n%s\n%s", which, m, diff)
			}
		}
	})
}

// chanceSeeds are exchanges of all kinds, so that they are played without fuzzing too.
var chanceSeeds = func() (seeds [][]byte) {
	for first := range 12 { // the protocol and the number of requests
		for kind := range 9 + first%3*9 { // as different as a few bytes can be; more of HTTP/2
			seed := []byte{byte(first)}
			for i := range 64 {
				seed = append(seed, byte(kind*(i+3)*7+i*first))
			}
			seeds = append(seeds, seed)
		}
	}
	return seeds
}()

// chance draws from bytes; when there are no more it draws zeros.
type chance struct{ data []byte }

func (c *chance) below(n int) int {
	if len(c.data) == 0 {
		return 0
	}
	b := c.data[0]
	c.data = c.data[1:]
	return int(b) % n
}

// one in n.
func (c *chance) one(n int) bool { return c.below(n) == n-1 }

func draw[T any](c *chance, from ...T) T { return from[c.below(len(from))] }

// madeUp is an exchange that was drawn.
type madeUp struct {
	h2    bool
	calls []madeUpCall
}

// madeUpCall is one request of it.
type madeUpCall struct {
	method   string
	header   http.Header
	body     string // kind of the request's body
	size     int    // of it
	trailer  bool
	deadline time.Duration // of the caller; zero: none
	read     int           // bytes that are read of the answer; negative: all
	pause    time.Duration // of the caller before it reads on
	step     transporttest.Step
}

func (m madeUp) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "HTTP/2 %v\n", m.h2)
	for _, c := range m.calls {
		s := c.step
		fmt.Fprintf(&b, "  %s %v body %s of %d, trailer %v, deadline %v, reads %d after %v\n    answered %d %v %d+%d bytes, framing %d, trailer %v (unannounced %v), interim %d, chunks of %d every %v, after %v, unread %v, fault %d at %d\n",
			c.method, c.header, c.body, c.size, c.trailer, c.deadline, c.read, c.pause,
			s.Status, s.Header, len(s.Body), s.Size, s.Framing, s.Trailer, s.Unannounced, len(s.Interim), s.Chunk, s.Pause, s.Delay, s.Unread, s.Fault, s.At)
	}
	return b.String()
}

// turnsAway reports whether the caller does not read all. A connection is used again if
// the end of the answer was there by chance, to be read ahead to.
func (m madeUp) turnsAway() bool {
	return slices.ContainsFunc(m.calls, func(c madeUpCall) bool { return c.read >= 0 })
}

func (c *chance) madeUp() madeUp {
	first := c.below(12)
	m := madeUp{h2: first%3 == 2}
	for range 1 + first/3 {
		m.calls = append(m.calls, c.call(m.h2))
	}
	return m
}

func (c *chance) call(h2 bool) madeUpCall {
	call := madeUpCall{
		method: draw(c, "GET", "POST", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS", "PURGE", "get"),
		body:   draw(c, "nil", "none", "known", "unknown", "counted", "slow"),
		size:   draw(c, 0, 1, 5, 511, 4096, 70_000),
		header: http.Header{},
		read:   draw(c, -1, -1, -1, -1, -1, -1, -1, 0, 1, 10, 5000),
	}
	for range c.below(4) {
		name := draw(c, "Accept-Encoding", "Range", "Authorization", "Cookie", "X-A", "Idempotency-Key", "Connection", "User-Agent", "Cache-Control", "If-None-Match")
		call.header[name] = append(call.header[name], draw(c, "", "gzip", "bytes=0-9", "a=1", "close", "no-store", `"1"`))
	}
	if h2 {
		delete(call.header, "Connection") // some values of which it refuses
	}
	call.trailer = call.body == "unknown" && c.one(3)
	if c.one(8) {
		call.deadline = 2533 * time.Millisecond // at which nothing else is due
	}
	if c.one(6) && call.deadline == 0 { // what has come by then may be read, or not
		call.pause = 3 * time.Second
	}
	call.step = c.step(h2, call)
	return call
}

func (c *chance) step(h2 bool, call madeUpCall) transporttest.Step {
	s := transporttest.Step{
		Status:  draw(c, 0, 0, 0, 201, 204, 205, 206, 299, 301, 304, 307, 400, 404, 418, 429, 500, 503, 599),
		Size:    int64(draw(c, 0, 1, 10, 511, 4096, 70_000)),
		Framing: draw(c, transporttest.Fixed, transporttest.Chunked, transporttest.UntilClose),
		Header:  http.Header{},
	}
	for range c.below(4) {
		name := draw(c, "Cache-Control", "Etag", "Vary", "Content-Type", "Set-Cookie", "Location", "Connection", "Age", "X-B", "Retry-After")
		s.Header[name] = append(s.Header[name], draw(c, "", "max-age=60", "no-store", "*", "text/event-stream", "/b", "close", `"1"`, "5"))
	}
	if h2 || s.Framing == transporttest.UntilClose {
		delete(s.Header, "Connection")
	}
	if c.one(4) {
		s.Body = zip("hello, hello, hello")
		s.Header["Content-Encoding"] = []string{"gzip"}
	}
	if !h2 && (s.Status == http.StatusNoContent || s.Status == http.StatusNotModified) { // the origin would break off
		s.Size, s.Body = 0, ""
	}
	if c.one(5) && s.Framing == transporttest.Chunked {
		s.Trailer, s.Unannounced = http.Header{"X-Sum": {"1", "2"}}, c.one(2)
	}
	for range c.below(3) {
		s.Interim = append(s.Interim, transporttest.Step{Status: draw(c, 103, 102, 199), Header: http.Header{"Link": {"</a>"}}})
	}
	if c.one(4) {
		s.Chunk = draw(c, 1000, 7000, 50_000)
		s.Pause = draw(c, 0, 100*time.Millisecond)
	}
	s.Delay = draw(c, 0, 0, 0, time.Second, 4*time.Second)
	s.Unread = !h2 && call.size < 4096 && c.one(6)
	if c.one(8) {
		s.Fault = draw(c, transporttest.Cut, transporttest.Hang)
		if h2 && s.Fault == transporttest.Cut { // may overtake the answer
			s.Fault = transporttest.Reset
		}
		s.At = draw(c, 0, transporttest.HeadersOnly, 1, 300)
	}
	return s
}

// play does the exchange with the stack, or without a policy through net/http alone.
func (m madeUp) play(t *testing.T, p *policy.Policy) (told tale) {
	synctest.Test(t, func(t *testing.T) {
		var opts []transporttest.Option
		if m.h2 {
			opts = append(opts, transporttest.H2C())
		}
		o := transporttest.NewNet(t, nil, opts...)
		o.ScriptFunc(func(h transporttest.Hit) transporttest.Step {
			for i, call := range m.calls {
				if h.Path == fmt.Sprint("/", i) {
					return call.step
				}
			}
			return transporttest.Step{}
		})
		base := o.Base()
		var rt http.RoundTripper = base
		var tr *transport.Transport
		if p != nil {
			tr = stackNew(t, transport.Config{Default: *p, Base: base})
			rt = tr
		}
		var hooks hooks
		hung := false
		for i, call := range m.calls {
			told.Answers = append(told.Answers, call.do(t, rt, fmt.Sprint(o.URL, "/", i), &hooks))
			hung = hung || call.step.Fault == transporttest.Hang || call.deadline > 0
			synctest.Wait() // what has ended is tidied up
		}
		time.Sleep(10 * time.Second) // the body of a request that was given up may still be read
		if tr != nil {
			transporttest.CheckPermits(t, tr)
			_ = tr.Close()
		}
		base.CloseIdleConnections()
		var seen strings.Builder
		for _, h := range o.Hits() {
			if !m.turnsAway() {
				fmt.Fprintf(&seen, "%d.%d ", h.Conn, h.OnConn)
			}
			fmt.Fprintf(&seen, "%s %s %s %v", h.Proto, h.Method, h.Path, h.Header)
			if !hung { // how much of it has come when its caller leaves is open
				fmt.Fprintf(&seen, " %d %.20q", h.BodySize, h.Body)
			}
			seen.WriteByte('\n')
		}
		told.Origin = seen.String()
		switch {
		case m.turnsAway():
		case m.h2:
			told.Hooks = tale{Hooks: hooks.told()}.unordered(hung).Hooks
		default:
			told.Hooks = hooks.told()
		}
	})
	return told
}

// unsure forgets what is not compared: the body of a redirect notes Timeout.Total, and
// a zipped body may have read ahead to its trailers when its caller turns away, or not.
func (a *answer) unsure(c madeUpCall) {
	if a.Header["Location"] != nil {
		a.Kind = ""
	}
	if c.read >= 0 {
		a.Trailer = nil
	}
}

// do does one request.
func (c madeUpCall) do(t *testing.T, rt http.RoundTripper, url string, hooks *hooks) answer {
	ctx, cancel := context.WithCancel(httptrace.WithClientTrace(t.Context(), hooks.trace()))
	defer cancel()
	if c.deadline > 0 {
		ctx, cancel = context.WithTimeout(ctx, c.deadline)
		defer cancel()
	}
	ctx, cancel = context.WithTimeout(ctx, 30*time.Second+time.Millisecond) // on an origin that hangs
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, c.method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Repeat("abcdefghij", c.size/10+1)[:c.size]
	switch c.body {
	case "none":
		req.Body = http.NoBody
	case "known":
		askBody(c.method, known(text), 0)(nil, req)
	case "unknown":
		askBody(c.method, unknown(text), -1)(nil, req)
	case "counted":
		if c.size > 0 {
			askBody(c.method, unknown(text), int64(c.size))(nil, req)
		}
	case "slow":
		askBody(c.method, slowly(text), -1)(nil, req)
	}
	if c.trailer {
		req.Trailer = http.Header{"X-Sum": {"1"}}
	}
	req.Header = c.header.Clone()
	resp, err := rt.RoundTrip(req)
	a := answer{Err: errorClass(err), Retried: err != nil || policy.Idempotent(req) && policy.Default().Retry.Status(resp.StatusCode)}
	if err != nil {
		return a
	}
	time.Sleep(c.pause)
	a.take(&play{x: exchange{read: func(*play, *http.Response) ([]byte, error) {
		if c.read >= 0 {
			return readSome(c.read)(nil, resp)
		}
		return io.ReadAll(resp.Body)
	}}}, req, resp)
	return a
}

// slowly is a body whose reader takes its time before the first byte and before the
// end; in how many pieces it is read is net/http's to say.
func slowly(s string) func() io.Reader {
	return func() io.Reader {
		r := strings.NewReader(s)
		return &stackFuncs{OnClose: func() error { return nil }, OnRead: func(p []byte) (int, error) {
			if r.Len() == 0 || r.Len() == len(s) {
				time.Sleep(700 * time.Millisecond)
			}
			return r.Read(p)
		}}
	}
}
