package transporttest_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/watertight-go/watertight/transport/transporttest"
)

func TestOriginFramesAndTrailers(t *testing.T) {
	each(t, func(t *testing.T, o *Origin, c *http.Client, proto string) {
		trailer := http.Header{"X-Sum": {"1"}}
		h1 := proto == "HTTP/1.1"
		for _, row := range []struct {
			step   Step
			length int64
			te     bool // chunked is seen by an HTTP/1 client
			close  bool
		}{
			{Step{Body: "body"}, 4, false, false},
			{Step{Body: "body", Framing: Chunked}, -1, true, false},
			{Step{Body: "body", Framing: UntilClose}, -1, false, true},
			{Step{Body: "body", Trailer: trailer}, -1, true, false},
			{Step{Body: "body", Trailer: trailer, Unannounced: true}, -1, true, false},
		} {
			o.Script(row.step)
			resp, err := c.Get(o.URL)
			if err != nil {
				t.Fatal(err)
			}
			announced := len(resp.Trailer) > 0
			b, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || string(b) != "body" {
				t.Error(row.step, string(b), err)
			}
			if resp.ContentLength != row.length && (h1 || row.step.Framing == Fixed && row.step.Trailer == nil) ||
				h1 && (len(resp.TransferEncoding) > 0) != row.te || h1 && resp.Close != row.close {
				t.Error(row.step, resp)
			}
			if got := resp.Trailer.Get("X-Sum"); (got == "1") != (row.step.Trailer != nil) || announced != (row.step.Trailer != nil && !row.step.Unannounced) {
				t.Error(row.step, resp.Trailer, announced)
			}
		}
	})
}

func TestOriginSendsInterimAnswers(t *testing.T) {
	each(t, func(t *testing.T, o *Origin, c *http.Client, _ string) {
		o.Script(Step{Interim: []Step{{Status: 103, Header: http.Header{"Link": {"</a>"}}}, {Status: 103}}, Status: 204})
		var got []string
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
			Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
				got = append(got, fmt.Sprint(code, h.Get("Link")))
				return nil
			},
		})
		req, _ := http.NewRequestWithContext(ctx, "GET", o.URL, nil)
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if fmt.Sprint(got) != "[103</a> 103]" || resp.StatusCode != 204 || resp.Header.Get("Link") != "" {
			t.Fatal(got, resp)
		}
	})
}

func TestOriginDripsAndLeavesRequestsUnread(t *testing.T) {
	each(t, func(t *testing.T, o *Origin, c *http.Client, _ string) {
		o.Script(Step{Unread: true, Status: 503, Body: "abcdef", Chunk: 2, Pause: 2 * time.Millisecond})
		start := time.Now()
		resp, err := c.Post(o.URL, "", strings.NewReader("request"))
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || string(b) != "abcdef" || time.Since(start) < 6*time.Millisecond {
			t.Fatal(string(b), err, time.Since(start))
		}
		if h := o.Hits()[0]; h.BodySize != 0 {
			t.Fatal(h)
		}
	})
}

func TestOriginSendsRawBytes(t *testing.T) {
	for _, opts := range [][]Option{nil, {TLS("http/1.1")}} {
		o := NewOrigin(t, opts...)
		c := &http.Client{Transport: o.Base()}
		o.Script(
			Step{Raw: "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", Chunk: 10, Pause: time.Millisecond},
			Step{Raw: "garbage\r\n"},
			Step{Raw: "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nok", Fault: Reset, At: 100},
			Step{Raw: "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", Fault: Hang, At: 100},
		)
		if _, b, err := get(c, o.URL); err != nil || b != "ok" {
			t.Fatal(b, err)
		}
		o.WaitOpen(0)
		if _, _, err := get(c, o.URL); err == nil || !strings.Contains(err.Error(), "malformed") {
			t.Fatal(err)
		}
		if _, _, err := get(c, o.URL); !errors.Is(err, syscall.ECONNRESET) {
			t.Fatal(err)
		}
		if _, b, err := get(c, o.URL); err != nil || b != "ok" {
			t.Fatal(b, err)
		}
	}
}

func TestOriginSaysGoAway(t *testing.T) {
	for _, opt := range []Option{H2C(), TLS()} {
		o := NewOrigin(t, opt)
		c := &http.Client{Transport: o.Base()}
		o.Script(Step{Fault: GoAway}, Step{Body: "second"})
		resp, err := c.Post(o.URL, "", strings.NewReader("request"))
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if hits := o.Hits(); err != nil || string(b) != "second" || len(hits) != 2 || hits[1].Conn != 2 || string(hits[1].Body) != "request" {
			t.Fatalf("%s %v %+v", b, err, hits)
		}
	}
}

func TestOriginPicksByRequest(t *testing.T) {
	o := NewOrigin(t)
	c := &http.Client{Transport: o.Base()}
	o.ScriptFunc(func(h Hit) Step {
		if h.OnConn > 1 {
			return Step{Fault: Cut} // what the client took for an idle connection
		}
		return Step{Body: h.Path}
	})
	for _, path := range []string{"/a", "/b?c"} {
		if _, b, err := get(c, o.URL+path); err != nil || b != path {
			t.Fatal(b, err)
		}
	}
	if hits := o.Hits(); len(hits) != 3 || hits[2].Conn != 2 {
		t.Fatalf("%+v", hits)
	}
}

func TestOriginHandsOverToAHandler(t *testing.T) {
	o := NewOrigin(t)
	o.Script(Step{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		io.Copy(c, rw)
	})})
	req, _ := http.NewRequest("GET", o.URL, nil)
	req.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"echo"}}
	resp, err := o.Base().RoundTrip(req)
	if err != nil || resp.StatusCode != 101 {
		t.Fatal(resp, err)
	}
	rw := resp.Body.(io.ReadWriteCloser)
	io.WriteString(rw, "echo\n")
	if line, err := bufio.NewReader(rw).ReadString('\n'); err != nil || line != "echo\n" {
		t.Fatal(line, err)
	}
	rw.Close()
	o.WaitOpen(0)
}

func TestOriginServesBareConnections(t *testing.T) {
	o := NewOrigin(t, TLS(), ServeConn(func(c net.Conn) {
		if c.(*tls.Conn).ConnectionState().NegotiatedProtocol != "h2" {
			t.Error("not h2")
		}
		io.WriteString(c, strings.Repeat("garbage", 10))
		io.Copy(io.Discard, c)
	}))
	if _, _, err := get(&http.Client{Transport: o.Base()}, o.URL); err == nil {
		t.Fatal("answered")
	}
	o.WaitOpen(0)
}

func TestOriginMutesItsConnections(t *testing.T) {
	each(t, func(t *testing.T, o *Origin, c *http.Client, _ string) {
		if _, _, err := get(c, o.URL); err != nil {
			t.Fatal(err)
		}
		o.Mute()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		defer cancel()
		req, _ := http.NewRequestWithContext(ctx, "GET", o.URL, nil)
		if _, err := c.Do(req); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		c.CloseIdleConnections()
		if n := len(o.Hits()); n != 1 {
			t.Fatal(n)
		}
		if _, _, err := get(&http.Client{Transport: o.Base()}, o.URL); err != nil {
			t.Fatal(err)
		}
	})
}

func TestDialHooks(t *testing.T) {
	o := NewOrigin(t)
	c := &http.Client{Transport: o.Base()}
	o.OnDial(Refuse)
	if _, _, err := get(c, "http://any.test"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	o.OnDial(func(ctx context.Context, addr string) error {
		if addr != "any.test:80" {
			t.Error(addr)
		}
		cancel()
		return BlackHole(ctx, addr)
	})
	req, _ := http.NewRequestWithContext(ctx, "GET", "http://any.test", nil)
	if _, err := c.Do(req); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	o.OnDial(DialDelay(time.Millisecond))
	if _, _, err := get(c, "http://any.test"); err != nil {
		t.Fatal(err)
	}
	if begun, _, _ := o.Dials(); begun != 3 {
		t.Fatal(begun)
	}
}

func TestPanicInAScriptFailsTheTest(t *testing.T) {
	f := &fakeT{TB: t}
	o := NewOrigin(f)
	o.ScriptFunc(func(Hit) Step { panic("oops") })
	_, _, _ = get(&http.Client{Transport: o.Base()}, o.URL)
	o.Close()
	if f.failed() == 0 {
		t.Fatal("passed")
	}
}
