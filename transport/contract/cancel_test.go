package contract_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/transporttest"
)

// A caller who leaves is heard at once, wherever the call is, however he says so,
// and with the error that net/http has for him.
func TestCancelEndsACallWhereverItIs(t *testing.T) {
	hang := transporttest.Step{Fault: transporttest.Hang}
	cut := transporttest.Step{Size: 1 << 20, Fault: transporttest.Hang, At: 10}
	busy := transporttest.Step{Status: 503, Body: "busy"}
	for where, row := range map[string]struct {
		step   transporttest.Step
		dial   transporttest.DialHook
		method string
		ours   bool // there is no such place in net/http
		hold   bool // the only permit is taken
		open   bool // the request body never ends; over HTTP/2 net/http then does not heed its caller
	}{
		"in the queue":           {ours: true, hold: true},
		"in backoff":             {step: busy, ours: true},
		"dialling":               {dial: transporttest.BlackHole},
		"sending":                {step: transporttest.Step{Unread: true, Fault: transporttest.Hang}, method: http.MethodPut},
		"awaiting the headers":   {step: hang},
		"reading the body":       {step: cut},
		"reading a stream":       {step: transporttest.Step{Header: http.Header{"Content-Type": {"text/event-stream"}}, Size: 1 << 20, Fault: transporttest.Hang, At: 10}},
		"reading a failed body":  {step: transporttest.Step{Status: 501, Size: 1 << 20, Fault: transporttest.Hang, At: 10}},
		"reading a body of POST": {step: cut, method: http.MethodPost},
		"reading while sending": {step: transporttest.Step{Unread: true, Size: 1 << 20, Fault: transporttest.Hang, At: 10},
			method: http.MethodPost, open: true},
	} {
		for how, leave := range map[string]func(*http.Request, *http.Client) (*http.Request, func()){
			"Request.Cancel": func(r *http.Request, _ *http.Client) (*http.Request, func()) {
				c := make(chan struct{})
				r.Cancel = c //nolint:staticcheck // the point
				return r, func() { close(c) }
			},
			"the context": func(r *http.Request, _ *http.Client) (*http.Request, func()) {
				ctx, cancel := context.WithCancel(r.Context())
				return r.WithContext(ctx), cancel
			},
			"a cause": func(r *http.Request, _ *http.Client) (*http.Request, func()) {
				ctx, cancel := context.WithCancelCause(r.Context())
				return r.WithContext(ctx), func() { cancel(errCancelCause) }
			},
			"a deadline": func(r *http.Request, _ *http.Client) (*http.Request, func()) {
				ctx, cancel := context.WithTimeout(r.Context(), time.Second)
				return r.WithContext(ctx), cancel
			},
			"Client.Timeout": func(r *http.Request, c *http.Client) (*http.Request, func()) {
				c.Timeout = time.Second
				return r, func() {}
			},
		} {
			if where == "in backoff" && (how == "a deadline" || how == "Client.Timeout") {
				continue // which is not begun when the deadline would end it
			}
			for kind, opts := range stackProtocols {
				if row.open && (kind != "HTTP/2" || how == "Request.Cancel") { // which net/http does not heed then
					continue
				}
				t.Run(where+", by "+how+", "+kind, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						o := transporttest.NewNet(t, nil, opts...)
						p := policy.Policy{
							Timeout:  policy.Timeout{Connect: time.Hour, TLSHandshake: time.Hour, Read: time.Hour, Attempt: time.Hour, Total: 2 * time.Hour},
							Bulkhead: policy.Bulkhead{MaxConcurrent: 1, MaxWait: time.Hour},
							Breaker:  policy.Breaker{ConsecutiveFailures: 2},
							Retry:    policy.Retry{MaxAttempts: 3, Base: time.Hour, Max: time.Hour},
							Fallback: policy.Fallback{MaxStale: time.Hour},
						}
						var rec transporttest.Recorder
						tr := stackNew(t, transport.Config{Base: o.Base(), Default: p, Observer: &rec})
						base := o.Base()
						defer base.CloseIdleConnections()
						play := func(rt http.RoundTripper) error {
							client := &http.Client{Transport: rt}
							req := stackRequest(t, t.Context(), http.MethodGet, o.URL)
							if row.method != "" {
								req = stackRequest(t, t.Context(), row.method, o.URL)
								req.Body, req.ContentLength = io.NopCloser(io.LimitReader(contractZeros{}, 4<<20)), 4<<20
							}
							if row.open {
								pr, pw := io.Pipe()
								defer pw.Close()
								req.Body, req.ContentLength = pr, -1
							}
							req, gone := leave(req, client)
							if how != "a deadline" {
								time.AfterFunc(time.Second, gone)
							}
							defer cancelLater(how, gone)()
							start := time.Now()
							resp, err := client.Do(req)
							if err == nil {
								_, err = io.Copy(io.Discard, resp.Body)
								_ = resp.Body.Close()
							}
							if took := time.Since(start); took != time.Second {
								t.Errorf("%T took %v", rt, took)
							}
							return err
						}
						var held *http.Response
						if row.hold {
							o.Script(cut)
							held = stackGet(t, tr, o.URL)
						}
						o.Script(row.step)
						o.OnDial(row.dial)
						got := play(tr)
						if got == nil {
							t.Fatal("no error")
						}
						want := context.Canceled
						if how == "a deadline" || how == "Client.Timeout" {
							want = context.DeadlineExceeded
						}
						if row.open && !errors.Is(got, want) {
							t.Errorf("got %v, want %v", got, want)
						}
						if !row.ours && !row.open {
							want := play(base)
							if !cancelSame(got, want, how) {
								t.Errorf("got  %v\nwant %v", got, want)
							}
						}
						if held != nil {
							_ = held.Body.Close()
						}
						time.Sleep(time.Second)
						stackInFlight(t, tr, 0)
						s := tr.Snapshot()[0]
						failed := row.step.Status >= 500
						if s.State != transport.Closed || s.Counts.Retries != 0 || s.Waiting != 0 || (s.Counts.Failure > 0) != failed || s.Counts.Stale != 0 {
							t.Errorf("%+v", s)
						}
						if n, m := rec.Count(transport.EventCallEnd), len(rec.Starts()); n == 0 || rec.Count(transport.EventTimeout) != 0 {
							t.Errorf("%d calls ended of %d, %d timeouts", n, m, rec.Count(transport.EventTimeout))
						}
					})
				})
			}
		}
	}
}

var errCancelCause = errors.New("the caller's own reason")

// cancelLater ends what only a deadline would have ended.
func cancelLater(how string, gone func()) func() {
	if how == "a deadline" {
		return gone
	}
	return func() {}
}

// cancelSame reports whether two errors are the same to a caller.
func cancelSame(a, b error, how string) bool {
	for _, target := range []error{context.Canceled, context.DeadlineExceeded, errCancelCause, io.EOF, io.ErrUnexpectedEOF} {
		if errors.Is(a, target) != errors.Is(b, target) {
			return false
		}
	}
	var at, bt interface{ Timeout() bool }
	if (errors.As(a, &at) && at.Timeout()) != (errors.As(b, &bt) && bt.Timeout()) {
		return false
	}
	if how == "Client.Timeout" { // net/http cancels by several means at once, for bases that it does not know
		return true
	}
	return strings.Contains(a.Error(), "request canceled") == strings.Contains(b.Error(), "request canceled")
}
