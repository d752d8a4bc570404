package bench_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/failsafe-go/failsafe-go/bulkhead"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/failsafe-go/failsafe-go/timeout"

	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
)

// failsafe-go: its bulkhead gives the permit back at the headers, so that more bodies
// are open at once than there are permits.
func TestFailsafeGivesThePermitBackAtTheHeaders(t *testing.T) {
	base := answer(func(req *http.Request) (*http.Response, error) { return respond(req, 200, text("hello")), nil })
	rt := failsafehttp.NewRoundTripper(base, bulkhead.New[*http.Response](1))
	for range 2 {
		resp, err := rt.RoundTrip(request(t, host))
		if err != nil {
			t.Fatalf("failsafe-go holds its permit by now: %v", err)
		}
		defer func() { _ = resp.Body.Close() }()
	}

	p := policy.Policy{Bulkhead: policy.Bulkhead{MaxConcurrent: 1}}
	tr := stack(t, base, p)
	resp, err := tr.RoundTrip(request(t, host))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tr.RoundTrip(request(t, host)); !errors.Is(err, transport.ErrBulkheadFull) {
		t.Errorf("watertight, with a body open: %v", err)
	}
	_ = resp.Body.Close()
}

// failsafe-go: its timeout ends at the headers: a body that stalls is waited for until
// its caller gives up.
func TestFailsafeTimeoutEndsAtTheHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := answer(func(req *http.Request) (*http.Response, error) {
			return respond(req, 200, silent{req.Context()}), nil
		})
		read := func(rt http.RoundTripper) (time.Duration, error) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour) // the caller's own
			defer cancel()
			began := time.Now()
			err := exchange(rt, request(t, host).WithContext(ctx), make([]byte, 512))
			return time.Since(began), err
		}
		if d, err := read(failsafehttp.NewRoundTripper(base, timeout.New[*http.Response](time.Second))); d != time.Hour {
			t.Errorf("failsafe-go ends the body by now, after %v: %v", d, err)
		}
		tr := stack(t, base, policy.Policy{Timeout: policy.Timeout{Attempt: time.Second}})
		if d, err := read(tr); d != time.Second || !errors.Is(err, transport.ErrAttemptTimeout) {
			t.Errorf("watertight, after %v: %v", d, err)
		}
	})
}

// failsafe-go: its retry policy for HTTP repeats a POST that may have been acted upon.
func TestFailsafeRepeatsAPost(t *testing.T) {
	over := func(base http.RoundTripper) http.RoundTripper {
		return failsafehttp.NewRoundTripper(base, failsafehttp.NewRetryPolicyBuilder().Build())
	}
	if n := posts(t, over); n != 3 {
		t.Errorf("failsafe-go sends a POST %d times by now", n)
	}
	postsOnce(t)
}

// failsafe-go: the response bodies of attempts that are repeated stay open, and each
// retry takes a new connection.
func TestFailsafeLeavesFailedBodiesOpen(t *testing.T) {
	connections := func(over func(http.RoundTripper) http.RoundTripper) int64 {
		var calls, conns atomic.Int64
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if calls.Add(1) == 1 {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			_, _ = io.WriteString(w, "hello")
		}))
		server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
			if s == http.StateNew {
				conns.Add(1)
			}
		}
		server.Start()
		defer server.Close()
		base := &http.Transport{}
		defer base.CloseIdleConnections()
		rt := over(base)
		defer end(rt)
		req, err := http.NewRequest(http.MethodGet, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := exchange(rt, req, make([]byte, 512)); err != nil || calls.Load() != 2 {
			t.Errorf("%d attempts: %v", calls.Load(), err)
		}
		return conns.Load()
	}
	if n := connections(func(base http.RoundTripper) http.RoundTripper {
		return failsafehttp.NewRoundTripper(base, failsafehttp.NewRetryPolicyBuilder().Build())
	}); n != 2 {
		t.Errorf("failsafe-go takes %d connections by now", n)
	}
	if n := connections(func(base http.RoundTripper) http.RoundTripper {
		return stack(t, base, policy.Policy{Retry: policy.Retry{MaxAttempts: 2}})
	}); n != 1 {
		t.Errorf("watertight took %d connections", n)
	}
}

// failsafe-go: a request body is read into memory as a whole before anything is sent.
func TestFailsafeBuffersAnUpload(t *testing.T) {
	n := buffered(t, func(base http.RoundTripper) http.RoundTripper {
		return failsafehttp.NewRoundTripper(base, failsafehttp.NewRetryPolicyBuilder().Build())
	})
	if n != 8<<20 {
		t.Errorf("failsafe-go buffers %d bytes by now", n)
	}
	streams(t)
}

// seekable is a body that can be rewound, as a file can.
type seekable struct {
	*strings.Reader
	body
}

func (s *seekable) Read(p []byte) (int, error) { return s.Reader.Read(p) }

// failsafe-go: a request body that can seek, such as a file, is never closed.
func TestFailsafeLeavesAFileOpen(t *testing.T) {
	base := answer(func(req *http.Request) (*http.Response, error) {
		_, err := io.Copy(io.Discard, req.Body)
		_ = req.Body.Close() // as RoundTrip must
		return status(req, http.StatusOK), err
	})
	closed := func(rt http.RoundTripper) bool {
		file := &seekable{Reader: strings.NewReader("hello")}
		req, err := http.NewRequest(http.MethodPut, "http://"+host, file)
		if err != nil {
			t.Fatal(err)
		}
		if err := exchange(rt, req, make([]byte, 512)); err != nil {
			t.Error(err)
		}
		return file.closed.Load()
	}
	if closed(failsafehttp.NewRoundTripper(base, failsafehttp.NewRetryPolicyBuilder().Build())) {
		t.Error("failsafe-go closes it by now")
	}
	if !closed(stack(t, base, policy.Default())) {
		t.Error("watertight left it open")
	}
}

// failsafe-go: a Retry-After that is a date is not understood: the retry goes out at
// once.
func TestFailsafeIgnoresADate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		date := time.Now().Add(5 * time.Second).UTC().Format(http.TimeFormat)
		if d := waits(t, func(base http.RoundTripper) http.RoundTripper {
			return failsafehttp.NewRoundTripper(base, failsafehttp.NewRetryPolicyBuilder().Build())
		}, date); d != 0 {
			t.Errorf("failsafe-go waits %v by now", d)
		}
		date = time.Now().Add(5 * time.Second).UTC().Format(http.TimeFormat)
		heeds(t, date, 5*time.Second, 6*time.Second)
	})
}

// failsafe-go: a Retry-After of a day holds its caller for a day.
func TestFailsafeWaitsForADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if d := waits(t, func(base http.RoundTripper) http.RoundTripper {
			return failsafehttp.NewRoundTripper(base, failsafehttp.NewRetryPolicyBuilder().Build())
		}, "86400"); d != 24*time.Hour {
			t.Errorf("failsafe-go waits %v by now", d)
		}
		heeds(t, "86400", 0, 0)
	})
}

// failsafe-go: by default, callers who give up trip its breaker (HandleIf is to leave
// them out).
func TestFailsafeCountsCallersWhoLeave(t *testing.T) {
	rt := failsafehttp.NewRoundTripper(patient, circuitbreaker.NewWithDefaults[*http.Response]())
	if err := leave(t, rt, 1); !errors.Is(err, circuitbreaker.ErrOpen) {
		t.Errorf("failsafe-go forgives by now: %v", err)
	}
	forgives(t)
}

// failsafe-go: its breaker learns of a hang when its timeout is over, and lets calls
// into it until then.
func TestFailsafeLearnsOfAHangWhenItIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := &hanging{}
		rt := failsafehttp.NewRoundTripper(origin,
			circuitbreaker.NewBuilder[*http.Response]().WithFailureRateThreshold(0.5, 20, time.Minute).Build(),
			timeout.New[*http.Response](10*time.Second))
		for range 20 {
			req := request(t, host)
			go func() { _, _ = rt.RoundTrip(req) }()
		}
		time.Sleep(9 * time.Second)
		go func() { _, _ = rt.RoundTrip(request(t, host)) }()
		synctest.Wait()
		if n := origin.ever.Load(); n != 21 {
			t.Errorf("failsafe-go lets %d calls through by now", n)
		}
		time.Sleep(11 * time.Second)
		learns(t)
	})
}

// failsafe-go: retries around an open breaker, in the order that it recommends, wait
// and repeat the refusal, so that failing fast takes as long as failing.
func TestFailsafeRetriesRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := answer(func(req *http.Request) (*http.Response, error) { return status(req, 200), nil })
		breaker := circuitbreaker.NewBuilder[*http.Response]().WithDelay(time.Hour).Build()
		breaker.Open()
		rt := failsafehttp.NewRoundTripper(base,
			failsafehttp.NewRetryPolicyBuilder().WithBackoff(time.Second, 10*time.Second).Build(), breaker)
		began := time.Now()
		if _, err := rt.RoundTrip(request(t, host)); !errors.Is(err, circuitbreaker.ErrOpen) {
			t.Errorf("failsafe-go: %v", err)
		}
		if d := time.Since(began); d != 3*time.Second {
			t.Errorf("failsafe-go refuses after %v by now", d)
		}
		tr := stack(t, base, policy.Default())
		tr.Host(host).ForceOpen()
		began = time.Now()
		if _, err := tr.RoundTrip(request(t, host)); !errors.Is(err, transport.ErrBreakerOpen) || time.Since(began) != 0 {
			t.Errorf("watertight, after %v: %v", time.Since(began), err)
		}
	})
}
