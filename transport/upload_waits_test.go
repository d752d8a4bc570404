package transport_test

import (
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/transporttest"
)

// Request bodies that wait for their caller in a Read, as pipes and sockets do.

// waiting is a request whose body gives one piece, and then waits for its caller.
func waiting(t *testing.T, method, url string) (*http.Request, *io.PipeWriter) {
	t.Helper()
	body, say := io.Pipe()
	go func() { _, _ = io.WriteString(say, "begin") }()
	return retryRequest(t, method, url, body), say
}

// An HTTP/2 stream that ends while its request body waits is an error at once, or
// after the moment that a body has which could yet be sent again.
func TestUploadThatWaitsEndsWithItsStream(t *testing.T) {
	const delay = 10 * time.Millisecond
	none, service := policy.Service(), policy.Service()
	none.Retry = policy.Retry{}
	for _, fault := range []transporttest.Fault{transporttest.Reset, transporttest.GoAway, transporttest.Cut} {
		for name, c := range map[string]struct {
			policy policy.Policy
			method string
			most   time.Duration
		}{
			"no retry":       {none, http.MethodPut, 0},
			"not idempotent": {service, http.MethodPost, 0},
			"idempotent":     {service, http.MethodPut, 50 * time.Millisecond},
		} {
			t.Run(fault.String()+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					origin := transporttest.NewNet(t, nil, transporttest.TLS("h2"))
					origin.Script(transporttest.Step{Unread: true, Delay: delay, Fault: fault})
					tr := under(t, transport.Config{Base: origin.Base(), Default: c.policy})
					req, say := waiting(t, c.method, origin.URL)
					unblock := time.AfterFunc(time.Minute, func() { _ = say.Close() })
					defer unblock.Stop()
					start := time.Now()
					resp, err := tr.RoundTrip(req)
					if err == nil {
						_ = resp.Body.Close()
						t.Fatal("no error")
					}
					if d := time.Since(start); d < delay || d > delay+c.most+10*time.Millisecond {
						t.Errorf("took %v, want %v at most", d, delay+c.most)
					}
					if s := tr.Snapshot()[0]; s.InFlight != 0 || s.Counts.Attempts != 1 {
						t.Errorf("%d in flight, %d attempts; want none, and one", s.InFlight, s.Counts.Attempts)
					}
					if _, err := say.Write([]byte("x")); err != io.ErrClosedPipe {
						t.Errorf("the body is open: %v", err)
					}
				})
			})
		}
	}
}

// A read that ends soon after its attempt costs nobody the retry.
func TestUploadThatIsReadWhenItsAttemptFailsIsSentAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		body := &replayBody{}
		body.r = replayFunc(func(p []byte) (int, error) {
			time.Sleep(20 * time.Millisecond)
			if body.closes.Load() > 0 {
				return 0, io.ErrClosedPipe
			}
			return copy(p, "whole"), io.EOF
		})
		hits := 0
		base := replayBase(func(r *http.Request) (*http.Response, error) {
			defer r.Body.Close()
			if hits++; hits == 1 {
				go func() { _, _ = r.Body.Read(make([]byte, 10)) }()
				time.Sleep(time.Millisecond)
				return nil, io.ErrUnexpectedEOF
			}
			b, err := io.ReadAll(r.Body)
			return replayOK(r, 200, string(b)), err
		})
		tr := retryTransport(t, base, retryPolicy(), nil)
		status, got := retryDo(t, tr, retryRequest(t, http.MethodPut, "http://x.test/", body))
		if status != 200 || got != "whole" || hits != 2 {
			t.Errorf("%d %q after %d attempts, want the whole body in the second", status, got, hits)
		}
		time.Sleep(time.Minute)
		if n := body.closes.Load(); n != 1 || body.overlap.Load() {
			t.Errorf("closed %d times, two readers: %v; want once", n, body.overlap.Load())
		}
	})
}
