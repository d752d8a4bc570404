package transporttest_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/watertight-go/watertight/transport/transporttest"
)

// flavours are the ways in which an Origin can be spoken to.
var flavours = []struct {
	name  string
	proto string
	opts  []Option
}{
	{"h1", "HTTP/1.1", nil},
	{"h2c", "HTTP/2.0", []Option{H2C()}},
	{"TLS h1", "HTTP/1.1", []Option{TLS("http/1.1")}},
	{"TLS h2", "HTTP/2.0", []Option{TLS()}},
}

func each(t *testing.T, test func(t *testing.T, o *Origin, c *http.Client, proto string)) {
	for _, f := range flavours {
		t.Run(f.name, func(t *testing.T) {
			o := NewOrigin(t, f.opts...)
			test(t, o, &http.Client{Transport: o.Base()}, f.proto)
		})
	}
}

func get(c *http.Client, url string) (*http.Response, string, error) {
	resp, err := c.Get(url)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp, string(b), err
}

func TestOriginAnswersAndRecords(t *testing.T) {
	each(t, func(t *testing.T, o *Origin, c *http.Client, proto string) {
		o.Script(Step{Status: 201, Header: http.Header{"X-A": {"1", "2"}, "Date": nil}, Body: "hello"})
		for range 2 {
			resp, err := c.Post(o.URL+"/p?q=1", "text/plain", strings.NewReader("request"))
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || string(b) != "hello" || resp.StatusCode != 201 || resp.ContentLength != 5 || len(resp.Header["X-A"]) != 2 || resp.Header["Date"] != nil || resp.Proto != proto {
				t.Fatal(resp, string(b), err)
			}
		}
		hits := o.WaitHits(2)
		h := hits[1]
		if len(hits) != 2 || h.Number != 2 || h.Method != "POST" || h.Path != "/p?q=1" || string(h.Body) != "request" || h.BodySize != 7 || h.Conn == 0 || h.Conn == 1 && h.OnConn != 2 || h.Proto != proto || h.Time.Before(hits[0].Time) {
			t.Fatalf("%+v", h)
		}
		// net/http may dial an HTTP/2 connection too many, and close it unused.
		if opened, open := o.Connections(); (opened != 1 || open != 1) && proto == "HTTP/1.1" || open == 0 {
			t.Fatal(opened, open)
		}
		c.CloseIdleConnections()
		o.WaitOpen(0)
	})
}

func TestOriginFaults(t *testing.T) {
	resetErr := func(err error, proto string) bool {
		if proto == "HTTP/2.0" {
			return err != nil && strings.Contains(err.Error(), "INTERNAL_ERROR")
		}
		return errors.Is(err, syscall.ECONNRESET)
	}
	each(t, func(t *testing.T, o *Origin, c *http.Client, proto string) {
		for _, fault := range []Fault{Hang, Cut, Reset} {
			for _, at := range []int{0, HeadersOnly, 5} {
				o.Script(Step{Size: 20_000, Fault: fault, At: at})
				ctx, cancel := context.WithCancel(t.Context())
				req, _ := http.NewRequestWithContext(ctx, "GET", o.URL, nil)
				if fault == Hang && at == 0 {
					n := len(o.Hits())
					go func() {
						o.WaitHits(n + 1)
						cancel()
					}()
				}
				resp, err := c.Do(req)
				n := 0
				if err == nil {
					want := max(at, 0)
					n, err = io.ReadFull(resp.Body, make([]byte, want))
					if n != want {
						t.Fatal(fault, at, n, err)
					}
					if fault == Hang {
						cancel()
					}
					_, err = resp.Body.Read(make([]byte, 1))
					resp.Body.Close()
				} else if at != 0 {
					t.Fatal(fault, at, err)
				}
				cancel()
				switch {
				case fault == Hang && !errors.Is(err, context.Canceled),
					fault == Cut && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF),
					fault == Reset && !resetErr(err, proto):
					t.Error(fault, at, err)
				}
			}
		}
		o.Script()
		if _, _, err := get(c, o.URL); err != nil {
			t.Error(err)
		}
	})
}

func TestOriginIsClosedWhileItHangs(t *testing.T) {
	each(t, func(t *testing.T, _ *Origin, _ *http.Client, _ string) {
		CheckLeaks(t)
		o := NewOrigin(t)
		c := &http.Client{Transport: o.Base()}
		o.Script(Step{Fault: Hang})
		done := make(chan error)
		go func() {
			_, _, err := get(c, o.URL)
			done <- err
		}()
		o.WaitHits(1)
		o.Close()
		if err := <-done; err == nil {
			t.Fatal("answered")
		}
		if _, err := net.DialTimeout("tcp", strings.TrimPrefix(o.URL, "http://"), time.Second); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatal(err)
		}
	})
}
