package transport_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/transporttest"
)

// counted is a body that knows how often it was closed.
type counted struct {
	io.Reader
	closed atomic.Int32
}

func (c *counted) Close() error { c.closed.Add(1); return nil }

func TestUploadOfTheWrongLengthIsTheCallersFault(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		length int64
		body   string
	}{
		"short":        {11, "0123456789"},
		"one too many": {10, "0123456789a"},
		"long":         {5, "0123456789"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				origin := transporttest.NewNet(t, nil)
				origin.Script(transporttest.Step{Fault: transporttest.Hang}) // an answer may come before net/http sees what is wrong
				p := policy.Service()
				p.Breaker.ConsecutiveFailures = 1
				tr := under(t, transport.Config{Base: origin.Base(), Default: p})
				req := put(t, origin.URL, c.body)
				req.ContentLength = c.length
				_, err := fetch(tr.Client(), req)
				if err == nil {
					t.Fatal("no error")
				}
				if s := tr.Snapshot()[0]; s.State != transport.Closed || s.Counts.Neutral != 1 || s.Counts.Attempts != 1 {
					t.Errorf("%v, %+v: %v", s.State, s.Counts, err)
				}
			})
		})
	}
}

var errBody = errors.New("the caller's own")

func TestUploadThatFailsIsTheCallersFault(t *testing.T) {
	t.Parallel()
	for _, real := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			var base http.RoundTripper = transporttest.NewBase()
			url := "http://a.test"
			if real {
				origin := transporttest.NewNet(t, nil)
				base, url = origin.Base(), origin.URL
			}
			p := policy.Service()
			p.Breaker.ConsecutiveFailures = 1
			tr := under(t, transport.Config{Base: base, Default: p})
			body := &counted{Reader: io.MultiReader(strings.NewReader("some"), broken{})}
			req := get(t, url)
			req.Method, req.Body = http.MethodPut, body
			_, err := fetch(tr.Client(), req)
			if !errors.Is(err, errBody) {
				t.Errorf("got %v", err)
			}
			if s := tr.Snapshot()[0]; s.State != transport.Closed || s.Counts.Neutral != 1 || s.Counts.Attempts != 1 {
				t.Errorf("%v, %+v", s.State, s.Counts)
			}
			synctest.Wait()
			if body.closed.Load() == 0 {
				t.Error("the body was not closed")
			}
		})
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errBody }

func TestUploadGoesOnAfterItsAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		taken := make(chan string, 1)
		origin := transporttest.NewNet(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).EnableFullDuplex()
			_, _ = w.Write([]byte("early"))
			_ = http.NewResponseController(w).Flush()
			b, _ := io.ReadAll(r.Body)
			taken <- string(b)
		}), transporttest.TLS("h2"))
		tr := bounded(t, origin.Base(), strict())
		body, say := io.Pipe()
		req := get(t, origin.URL)
		req.Method, req.Body = http.MethodPut, body
		resp, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(resp.Body, make([]byte, 5)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		_, _ = io.WriteString(say, "late")
		_ = say.Close()
		if got := <-taken; got != "late" {
			t.Errorf("the origin got %q", got)
		}
		if _, err := io.ReadAll(resp.Body); err != nil {
			t.Error(err)
		}
		_ = resp.Body.Close()
	})
}

func TestUploadHasTheWholeOfReadForItsHeadersOnceItIsTaken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const size = 1 << 20
		origin := transporttest.NewNet(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(800 * time.Millisecond)
			n, err := io.Copy(io.Discard, r.Body)
			if n != size || err != nil {
				t.Errorf("%d bytes, %v", n, err)
			}
			time.Sleep(800 * time.Millisecond)
		}))
		tr := bounded(t, origin.Base(), policy.Timeout{Read: time.Second})
		req, err := http.NewRequest(http.MethodPut, origin.URL, bytes.NewReader(make([]byte, size)))
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if _, err := fetch(tr.Client(), req); err != nil {
			t.Fatal(err)
		}
		mustTake(t, start, 1600*time.Millisecond)
	})
}

func TestUploadThatWaitsForContinueIsNotReadBefore(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		step  transporttest.Step
		sent  bool
		after time.Duration
	}{
		"refused": {transporttest.Step{Unread: true, Status: http.StatusUnauthorized, Header: http.Header{"Connection": {"close"}}}, false, 0},
		"silent": {transporttest.Step{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(2 * time.Second)
			_, _ = io.Copy(io.Discard, r.Body)
		})}, true, 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				origin := transporttest.NewNet(t, nil)
				origin.Script(c.step)
				base := origin.Base()
				base.ExpectContinueTimeout = 500 * time.Millisecond
				p := policy.Service()
				tr := under(t, transport.Config{Base: base, Default: p})
				body := &counted{Reader: strings.NewReader(strings.Repeat("x", 1<<20))}
				read := &atomic.Int64{}
				req, err := http.NewRequest(http.MethodPut, origin.URL, io.NopCloser(io.TeeReader(body, tally{read})))
				if err != nil {
					t.Fatal(err)
				}
				req.ContentLength = 1 << 20
				req.Header.Set("Expect", "100-continue")
				start := time.Now()
				resp, err := tr.Client().Do(req)
				if err != nil {
					t.Fatal(err)
				}
				_ = resp.Body.Close()
				mustTake(t, start, c.after)
				if n := read.Load(); c.sent != (n == 1<<20) || !c.sent && n != 0 {
					t.Errorf("%d bytes were read", n)
				}
			})
		})
	}
}

type tally struct{ n *atomic.Int64 }

func (t tally) Write(p []byte) (int, error) { t.n.Add(int64(len(p))); return len(p), nil }

func TestUploadIsClosedWhenALimitFires(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		origin := transporttest.NewNet(t, nil)
		origin.Script(transporttest.Step{Unread: true, Fault: transporttest.Hang})
		tr := bounded(t, origin.Base(), policy.Timeout{Read: time.Second})
		body := &counted{Reader: bytes.NewReader(make([]byte, 4<<20))}
		req := get(t, origin.URL)
		req.Method, req.Body = http.MethodPut, body
		_, err := fetch(tr.Client(), req)
		mustTimeOut(t, err, transport.ErrReadTimeout, "write", "Timeout.Read", time.Second)
		synctest.Wait()
		if body.closed.Load() == 0 {
			t.Error("the body was not closed")
		}
	})
}

func TestUploadWithoutABodyStaysOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		origin := transporttest.NewNet(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.ContentLength != 0 || r.TransferEncoding != nil {
				t.Errorf("length %d, %v", r.ContentLength, r.TransferEncoding)
			}
		}))
		tr := under(t, transport.Config{Base: origin.Base(), Default: policy.Service()})
		req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, origin.URL, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fetch(tr.Client(), req); err != nil {
			t.Error(err)
		}
	})
}
