package transporttest_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/watertight-go/watertight/transport/transporttest"
)

// inBubble runs test over HTTP/1, HTTP/2 and TLS in memory.
func inBubble(t *testing.T, test func(t *testing.T, n *Origin, c *http.Client)) {
	for _, f := range flavours {
		t.Run(f.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := NewNet(t, nil, f.opts...)
				test(t, n, &http.Client{Transport: n.Base()})
			})
		})
	}
}

func TestNetTakesNoTime(t *testing.T) {
	inBubble(t, func(t *testing.T, n *Origin, c *http.Client) {
		n.OnDial(DialDelay(time.Second))
		n.Script(Step{Delay: time.Minute, Body: "abcd", Chunk: 2, Pause: time.Hour})
		start := time.Now()
		if _, b, err := get(c, n.URL); err != nil || b != "abcd" {
			t.Fatal(b, err)
		}
		if d := time.Since(start); d != 2*time.Hour+time.Minute+time.Second {
			t.Fatal(d)
		}
	})
}

func TestNetCarriesMoreThanItsBuffers(t *testing.T) {
	inBubble(t, func(t *testing.T, n *Origin, c *http.Client) {
		n.Script(Step{Size: 100_000})
		resp, err := c.Post(n.URL, "", bytes.NewReader(make([]byte, 100_000)))
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || len(b) != 100_000 || n.Hits()[0].BodySize != 100_000 {
			t.Fatal(len(b), err)
		}
	})
}

func TestNetHangsAndBreaks(t *testing.T) {
	inBubble(t, func(t *testing.T, n *Origin, c *http.Client) {
		n.Script(Step{Body: "abcd", Fault: Hang, At: 2})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		req, _ := http.NewRequestWithContext(ctx, "GET", n.URL, nil)
		start := time.Now()
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if string(b) != "ab" || !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Hour {
			t.Fatal(string(b), err)
		}
		n.Script(Step{Body: "abcd", Fault: Cut, At: 2}, Step{Body: "abcd", Fault: Reset, At: 2})
		for range 2 {
			_, b, err := get(c, n.URL)
			if b != "ab" || err == nil {
				t.Fatal(b, err)
			}
		}
		n.OnDial(BlackHole)
		c.CloseIdleConnections()
		ctx, cancel = context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		req, _ = http.NewRequestWithContext(ctx, "GET", "http://other.test", nil)
		if _, err := c.Do(req); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
	})
}

func TestNetServesAHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := NewNet(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) }))
		c := &http.Client{Transport: n.Base()}
		resp, err := c.Post("http://any.test/", "", strings.NewReader("echo"))
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if h := n.Hits(); err != nil || string(b) != "echo" || len(h) != 1 || string(h[0].Body) != "echo" || h[0].Host != "any.test" {
			t.Fatal(string(b), err, h)
		}
		n.Close()
		if _, _, err := get(c, n.URL); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatal(err)
		}
	})
}

func TestNetHonoursDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := NewNet(t, nil, ServeConn(func(c net.Conn) {
			start := time.Now()
			c.SetReadDeadline(start.Add(time.Hour))
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(start) != time.Hour {
				t.Error(err)
			}
			c.SetWriteDeadline(start.Add(2 * time.Hour))
			if _, err := c.Write(make([]byte, 1<<20)); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(start) != 2*time.Hour {
				t.Error(err)
			}
			c.SetDeadline(time.Time{})
		}))
		c, err := n.Base().DialContext(t.Context(), "tcp", "x:1")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		time.Sleep(3 * time.Hour)
		if b, err := io.ReadAll(c); err != nil || len(b) != 64<<10 {
			t.Fatal(len(b), err)
		}
		if _, err := c.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
			t.Fatal(err)
		}
	})
}

// A peer that closes its end as soon as ours is closed does not make the end of what we
// read look like the end that the peer meant.
func TestNetReadsEndWithTheirOwnClose(t *testing.T) {
	o := NewNet(t, nil, ServeConn(func(c net.Conn) {
		_, _ = io.Copy(io.Discard, c)
		_ = c.Close()
	}))
	base := o.Base()
	var wg sync.WaitGroup
	for range 8 { // so that the scheduler comes in between
		wg.Go(func() {
			for range 3000 {
				c, err := base.DialContext(t.Context(), "tcp", "origin.test:80")
				if err != nil {
					t.Error(err)
					return
				}
				ended := make(chan error)
				go func() {
					_, err := c.Read(make([]byte, 1))
					ended <- err
				}()
				runtime.Gosched()
				_ = c.Close()
				if err := <-ended; !errors.Is(err, net.ErrClosed) {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}
