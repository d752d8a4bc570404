package soak

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/watertight-go/watertight/cache"
	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
)

// slack is what a call may take beyond its limits and the lag of the machine
// meanwhile, under the race detector.
const slack = time.Second

// mostLag is the lag during a call beyond which it is not held to its bound: a machine
// that is so late puts off each of its steps.
const mostLag = time.Second

// caller goes on errands until the run is over.
type caller struct {
	run  *run
	id   int
	step int
	busy atomic.Int64 // since when it is in a call, in nanoseconds of the run; zero: it is not
	lag  atomic.Int64 // of the machine then, in nanoseconds
}

func (c *caller) live(ctx context.Context) {
	for ; ctx.Err() == nil; c.step++ {
		e := c.run.plan.errand(c.id, c.step)
		if wait(ctx, e.think) != nil {
			return
		}
		c.run.control(e)
		c.lag.Store(int64(c.run.lag.now()))
		c.busy.Store(int64(time.Since(c.run.start)))
		done := make(chan struct{})
		go func() { // which it may end, or panic on
			defer close(done)
			defer func() {
				if v := recover(); v != nil && v != planned {
					c.run.fail("nothing panics but what was to", "%v", v)
				}
			}()
			c.call(e)
		}()
		<-done
		c.busy.Store(0)
	}
}

// planned is what bodies and callers panic with.
const planned = "planned"

func (c *caller) who() string { return fmt.Sprintf("caller-%d", c.id) }

// call goes on one errand.
func (c *caller) call(e errand) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel() // of those who go without closing the body too: that is their way out
	switch e.read {
	case forget, forgetHalfRead, exitReading, panicReading:
		ctx = context.WithoutCancel(ctx) // unless they forget that as well
	}
	var leave <-chan struct{}
	switch e.leave {
	case leftBefore:
		done, cancel := context.WithCancel(ctx)
		cancel()
		ctx = done
	case cancels:
		gone, cancel := context.WithCancel(ctx)
		timer := time.AfterFunc(e.leaveAfter, cancel)
		defer timer.Stop()
		ctx = gone
	case hasDeadline:
		late, cancel := context.WithTimeout(ctx, e.leaveAfter)
		defer time.AfterFunc(e.leaveAfter, cancel)
		ctx = late
	case closesCancel:
		legacy := make(chan struct{})
		time.AfterFunc(e.leaveAfter, func() { close(legacy) })
		leave = legacy
	}
	o, total := overrideOf(e)
	ctx = transport.WithCall(ctx, o)
	if e.exit {
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GetConn: func(string) { runtime.Goexit() }})
	}
	body := c.run.newBody(e)
	req, err := http.NewRequestWithContext(ctx, e.method, urlOf(e.host, e.path), nil)
	if err != nil {
		c.run.fail("nothing panics but what was to", "%v", err)
		return
	}
	body.into(req)
	req.Cancel = leave //nolint:staticcheck // it is the legacy that is to work
	if !e.anonymous {
		req.Header.Set("Authorization", c.who())
	}
	req.Header.Set(idHeader, fmt.Sprintf("%d-%d", c.id, c.step))
	if e.key {
		req.Header.Set("Idempotency-Key", `"1"`)
	}
	if (e.method == http.MethodPost || e.method == http.MethodPatch) && !e.key && !o.Idempotent {
		req.Header.Set(onceHeader, "1")
	}
	if e.upgrade {
		req.Header.Set("Connection", "upgrade")
		req.Header.Set("Upgrade", "echo")
	}
	visit := &visit{run: c.run, body: body, total: total}
	resp, err := c.run.clientOf(e.host, visit).Do(req)
	if err != nil {
		c.run.tally(err)
		return
	}
	c.run.tallies.answers.Add(1)
	c.read(e, resp, visit)
}

// overrideOf is the Call of an errand, and how long it may take.
func overrideOf(e errand) (o transport.Call, total time.Duration) {
	total = policyOf(e.host).Timeout.Total
	switch e.override {
	case shorter:
		o.Timeout = policy.Timeout{Read: 100 * time.Millisecond, Attempt: 200 * time.Millisecond, Total: 300 * time.Millisecond}
	case longer:
		o.Timeout = policy.Timeout{Read: 2 * time.Second, Attempt: 2 * time.Second, Total: 4 * time.Second}
		o.SlowCall = 1500 * time.Millisecond
	case streaming:
		o.Streaming = true
	case idempotent:
		o.Idempotent = true
	case noStale:
		o.NoStale = true
	}
	if o.Timeout.Total > 0 {
		total = o.Timeout.Total
	}
	return o, total
}

// visit is one call of http.Client's, with its hops: what goes between the client
// and the stack, and keeps the time.
type visit struct {
	http.RoundTripper
	run    *run
	body   *body
	total  time.Duration
	rested time.Duration // of the caller's, while he reads
	said   []string
	lag    time.Duration // of the machine, when it began
	began  time.Time
}

// RoundTrip counts answers and errors, and how long they took.
func (v *visit) RoundTrip(req *http.Request) (*http.Response, error) {
	t := &v.run.tallies
	t.trips.Add(1)
	if v.began.IsZero() {
		v.began, v.lag = time.Now(), v.run.lag.now()
	}
	counted := false
	defer func() {
		if !counted {
			t.tripsEnded.Add(1)       // by a panic, or runtime.Goexit
			v.body.given.Store(false) // net/http, too, leaves it open then
		}
	}()
	resp, err := v.RoundTripper.RoundTrip(req)
	counted = true
	switch {
	case (resp == nil) == (err == nil):
		v.run.fail("requests = answers + errors", "%v and %v", resp, err)
	case err != nil:
		t.tripErrors.Add(1)
	default:
		t.tripAnswers.Add(1)
	}
	v.inTime(req.URL.Host)
	if resp != nil {
		v.said = append(v.said, fmt.Sprintf("%s %s: %d", req.Method, req.URL.Host, resp.StatusCode))
	} else {
		v.said = append(v.said, fmt.Sprintf("%s %s: %v", req.Method, req.URL.Host, err))
	}
	said := strings.Join(v.said, "; ")
	v.body.said.Store(&said)
	return resp, err
}

func (v *visit) CloseIdleConnections() {}

// inTime checks the bound on a call, at any moment of it that a late machine does not
// hide.
func (v *visit) inTime(host string) {
	took := time.Since(v.began) - v.rested - v.body.rested()
	lag := v.run.lag.now() - v.lag
	if lag > mostLag {
		v.run.tallies.untimed.Add(1)
		return
	}
	v.run.tallies.timed.Add(1)
	if most := v.total + v.body.earned() + slack + lag; took > most {
		v.run.fail("every call ends within its bound", "%s: %v without the caller's own pauses, bound %v", host, took, most)
	}
}

// read does with an answer what the errand says.
func (c *caller) read(e errand, resp *http.Response, v *visit) {
	if w, ok := resp.Body.(io.ReadWriteCloser); ok && resp.StatusCode == http.StatusSwitchingProtocols {
		c.tunnel(e, w)
		return
	}
	var text []byte
	var err error
	buf := make([]byte, 1024)
	stream := resp.Header.Get("Content-Type") == "text/event-stream" || e.override == streaming
	begin := time.Now()
	for pieces := 0; err == nil; pieces++ {
		switch {
		case stream && time.Since(begin) > streamFor: // it has no other end while something comes
			_ = resp.Body.Close()
			c.run.tallies.closedEarly.Add(1)
			return
		case e.read == closeAtOnce, e.read == readSome && pieces == 1:
			_ = resp.Body.Close()
			c.run.tallies.closedEarly.Add(1)
			return
		case e.read == forget, e.read == forgetHalfRead && pieces == 1:
			c.run.tallies.forgotten.Add(1)
			return
		case e.read == exitReading && pieces == 1:
			c.run.tallies.forgotten.Add(1)
			runtime.Goexit()
		case e.read == panicReading && pieces == 1:
			c.run.tallies.forgotten.Add(1)
			panic(planned)
		case e.read == readSlowly && pieces < 4:
			begin := time.Now()
			time.Sleep(40 * time.Millisecond)
			v.rested += time.Since(begin)
		}
		var n int
		n, err = resp.Body.Read(buf)
		text = append(text, buf[:n]...)
	}
	if !stream {
		v.inTime(resp.Request.URL.Host)
	}
	if err != io.EOF {
		c.run.tallies.bodyErrors.Add(1)
	} else {
		c.check(e, resp, string(text))
	}
	_ = resp.Body.Close()
}

// check reads an answer that is said to be whole.
func (c *caller) check(e errand, resp *http.Response, text string) {
	host := resp.Header.Get(hostHeader)
	if host == "" || resp.Request.Method == http.MethodHead { // not the host's own
		return
	}
	info, stored := cache.FromResponse(resp)
	asked, _, _ := strings.Cut(resp.Request.URL.Host, ":")
	want := c.who()
	if e.anonymous || asked != nameOf(e.host) { // http.Client does not tell another host who asks
		want = ""
	}
	who, rest, ok := strings.Cut(strings.TrimPrefix(text, "who="), ";")
	switch {
	case !ok && text == "" && redirected(resp):
	case host != asked:
		c.run.fail("an answer is that of its host", "%s, stored %v, from %s", asked, stored, host)
	case who != want:
		c.run.fail("nobody gets another caller's answer", "%q got that of %q, stored %v", want, who, stored)
	case !strings.HasSuffix(text, bodyEnd):
		c.run.fail("what was cut is never taken for whole", "%s: %d bytes, status %d, stored %v", host, len(text), resp.StatusCode, stored)
	case stored && info.Stale && strings.HasPrefix(rest, "nostore=true"):
		c.run.fail("what must not be stored is never served again", "%s: %+v", host, info)
	}
	if stored {
		c.run.tallies.stale.Add(1)
	}
}

// redirected reports whether an answer is a redirect that http.Client did not
// follow, which has no body.
func redirected(resp *http.Response) bool { return resp.StatusCode >= 300 && resp.StatusCode < 400 }

// tunnel talks through an upgraded connection, or forgets it.
func (c *caller) tunnel(e errand, w io.ReadWriteCloser) {
	c.run.tallies.tunnels.Add(1)
	if e.read == forget {
		return
	}
	_, _ = io.WriteString(w, "echo\n")
	text, err := io.ReadAll(w)
	if err == nil && string(text) != "echo\n" {
		c.run.fail("tunnels carry what is written", "%q", text)
	}
	_ = w.Close()
}

// body is the request body of an errand, with all that is made of it by GetBody.
type body struct {
	run   *run
	kind  bodyKind
	of    errand
	made  atomic.Int64
	text  []byte
	own   atomic.Int64 // time in Read that is the caller's
	bytes atomic.Int64
	given atomic.Bool            // to a RoundTrip that has returned, or will
	said  atomic.Pointer[string] // what became of its hops
}

func (r *run) newBody(e errand) *body {
	b := &body{run: r, kind: e.body, of: e, text: filler[:e.size]}
	b.given.Store(true)
	if e.body == large {
		b.text = filler[:256<<10]
	}
	return b
}

// into gives a request its body.
func (b *body) into(req *http.Request) {
	switch b.kind {
	case noBody:
	case inMemory:
		req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(b.text)), int64(len(b.text))
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.text)), nil }
		if len(b.text) == 0 {
			req.Body = http.NoBody
		}
	default:
		req.Body, req.ContentLength = b.reader(), -1
		switch b.kind {
		case again, paused, large:
			req.GetBody = func() (io.ReadCloser, error) { return b.reader(), nil }
		case getPanics:
			req.GetBody = func() (io.ReadCloser, error) { panic(planned) }
		case getExits:
			req.GetBody = func() (io.ReadCloser, error) { runtime.Goexit(); return nil, nil }
		}
	}
}

func (b *body) rested() time.Duration { return time.Duration(b.own.Load()) }

// earned is the time that the bytes of the body may take.
func (b *body) earned() time.Duration {
	return time.Duration(b.bytes.Load()) * time.Second / (256 << 10)
}

func (b *body) reader() io.ReadCloser {
	r := &bodyReader{b: b, left: bytes.NewReader(b.text), number: b.made.Add(1)}
	b.run.bodies.Store(r, time.Now())
	return r
}

// bodyReader is one sending of a body.
type bodyReader struct {
	b      *body
	left   *bytes.Reader
	number int64 // of those made of the body
}

var errBody = errors.New("the caller's body is broken")

func (r *bodyReader) Read(p []byte) (int, error) {
	half := r.left.Len() <= len(r.b.text)/2
	switch {
	case r.b.kind == broken && half:
		return 0, errBody
	case r.b.kind == readPanics && half:
		panic(planned)
	case r.b.kind == readExits && half:
		runtime.Goexit()
	case r.b.kind == paused:
		begin := time.Now()
		time.Sleep(20 * time.Millisecond)
		r.b.own.Add(int64(time.Since(begin)))
		p = p[:min(len(p), 1024)]
	}
	n, err := r.left.Read(p)
	r.b.bytes.Add(int64(n))
	return n, err
}

func (r *bodyReader) Close() error {
	r.b.run.bodies.Delete(r)
	if r.b.kind == closePanics {
		panic(planned)
	}
	return nil
}
