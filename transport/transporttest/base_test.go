package transporttest_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/watertight-go/watertight/transport/transporttest"
)

func TestBasePlaysItsScript(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		b := NewBase(
			Step{Delay: time.Second, Status: 201, Header: http.Header{"X-A": {"1", "2"}}, Body: "abcd", Chunk: 2, Pause: time.Minute},
			Step{Err: broken},
			Step{Fault: Cut}, Step{Fault: Reset},
			Step{Body: "abcd", Fault: Cut, At: 3}, Step{Body: "abcd", Fault: Reset, At: HeadersOnly},
			Step{Body: "last", Trailer: http.Header{"X-Sum": {"1"}}},
		)
		c := &http.Client{Transport: b}
		start := time.Now()
		resp, body, err := get(c, "http://a.test/p?q")
		if err != nil || body != "abcd" || resp.Status != "201 Created" || len(resp.Header["X-A"]) != 2 || time.Since(start) != time.Second+2*time.Minute {
			t.Fatal(resp, body, err, time.Since(start))
		}
		for _, want := range []struct {
			body string
			err  error
		}{{"", broken}, {"", io.EOF}, {"", syscall.ECONNRESET}, {"abc", io.ErrUnexpectedEOF}, {"", syscall.ECONNRESET}, {"last", nil}, {"last", nil}} {
			resp, body, err = get(c, "http://a.test/")
			if body != want.body || !errors.Is(err, want.err) {
				t.Fatal(want, body, err)
			}
		}
		if resp.Trailer.Get("X-Sum") != "1" || resp.ContentLength != -1 {
			t.Fatal(resp)
		}
		if now, most := b.InFlight(); now != 0 || most != 1 {
			t.Fatal(now, most)
		}
		if h := b.Hits(); len(h) != 8 || h[0].Path != "/p?q" || h[0].Host != "a.test" {
			t.Fatal(h)
		}
	})
}

func TestBaseHangsUntilTheRequestEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBase(Step{Fault: Hang}, Step{Body: "abcd", Fault: Hang, At: 2})
		c := &http.Client{Transport: b}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		start := time.Now()
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				req, _ := http.NewRequestWithContext(ctx, "POST", "http://a.test", strings.NewReader("request"))
				resp, err := c.Do(req)
				if err == nil {
					_, err = io.ReadAll(resp.Body)
				}
				if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Hour {
					t.Error(err, time.Since(start))
				}
			})
		}
		synctest.Wait()
		if now, most := b.InFlight(); now != 2 || most != 2 {
			t.Error(now, most)
		}
		wg.Wait()
		if now, _ := b.InFlight(); now != 0 || string(b.Hits()[1].Body) != "request" {
			t.Error(now, b.Hits())
		}
	})
}

func TestBaseBodyEndsWithClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBase(Step{Body: "abcd", Fault: Hang, At: 2})
		req, _ := http.NewRequest("GET", "http://a.test", nil)
		resp, err := b.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error)
		go func() {
			_, err := io.ReadAll(resp.Body)
			done <- err
		}()
		synctest.Wait()
		resp.Body.Close()
		if err := <-done; err == nil {
			t.Error("no error")
		}
		if now, _ := b.InFlight(); now != 0 {
			t.Error(now)
		}
	})
}
