package bench_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	hystrixgo "github.com/afex/hystrix-go/hystrix"
	"github.com/gojek/heimdall/v7/hystrix"

	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
)

// hystrixOver is its client with what its README sets, and what a test adds. What it
// starts outlives it, so that none of these tests is in a bubble.
func hystrixOver(t *testing.T, base http.RoundTripper, options ...hystrix.Option) http.RoundTripper {
	return answer(hystrix.NewClient(append([]hystrix.Option{
		hystrix.WithHTTPClient(&http.Client{Transport: base}),
		hystrix.WithCommandName(fmt.Sprintf("%s %p", t.Name(), &options)),
	}, options...)...).Do)
}

// opens calls until the breaker refuses; hystrix-go counts a moment later, which on a
// machine with much to do may be long.
func opens(t *testing.T, call func() error) bool {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); {
		if errors.Is(call(), hystrixgo.ErrCircuitOpen) {
			return true
		}
		time.Sleep(time.Millisecond)
	}
	return false
}

// heimdall-hystrix: with a fallback that succeeds, a call that fails returns neither an
// answer nor an error.
func TestHystrixReturnsNothingAtAll(t *testing.T) {
	base := answer(func(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF })
	rt := hystrixOver(t, base, hystrix.WithFallbackFunc(func(error) error { return nil }))
	if resp, err := rt.RoundTrip(request(t, host)); resp != nil || err != nil {
		t.Errorf("heimdall returns something by now: %v, %v", resp, err)
	}
	p := policy.Policy{Fallback: policy.Fallback{Degraded: func(*http.Request, error) *http.Response { return nil }}}
	if resp, err := stack(t, base, p).RoundTrip(request(t, host)); resp != nil || err == nil {
		t.Errorf("watertight: %v, %v", resp, err)
	}
}

// heimdall-hystrix: a call that has timed out goes on with its goroutine and its
// connection, whatever WithHTTPTimeout says: that sets nothing.
func TestHystrixTimeoutEndsNothing(t *testing.T) {
	ended := func(do func(*http.Request) (*http.Response, error), within time.Duration) bool {
		release, gone := make(chan struct{}), make(chan struct{})
		server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			select {
			case <-r.Context().Done(): // the connection was closed
				close(gone)
			case <-release:
			}
		}))
		defer server.Close()
		defer close(release)
		req, err := http.NewRequest(http.MethodGet, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := do(req); err == nil {
			t.Error("answered")
		}
		select {
		case <-gone:
			return true
		case <-time.After(within):
			return false
		}
	}
	const limit = 100 * time.Millisecond
	if ended(hystrix.NewClient(
		hystrix.WithCommandName(t.Name()),
		hystrix.WithHTTPTimeout(limit),
		hystrix.WithHystrixTimeout(limit),
	).Do, 2*limit) {
		t.Error("heimdall ends the request by now")
	}
	if !ended(stack(t, nil, policy.Policy{Timeout: policy.Timeout{Attempt: limit}}).RoundTrip, 10*time.Second) {
		t.Error("watertight let the request go on")
	}
}

// heimdall-hystrix: refusals of a full bulkhead count as failures and open the breaker
// of a host that has answered every call.
func TestHystrixRefusalsOpenTheBreaker(t *testing.T) {
	held := func() (base http.RoundTripper, entered, release chan struct{}) {
		entered, release = make(chan struct{}), make(chan struct{})
		return answer(func(req *http.Request) (*http.Response, error) {
			close(entered)
			<-release
			return status(req, http.StatusOK), nil
		}), entered, release
	}
	base, entered, release := held()
	rt := hystrixOver(t, base, hystrix.WithMaxConcurrentRequests(1), hystrix.WithSleepWindow(60_000))
	go func() { _ = exchange(rt, request(t, host), make([]byte, 512)) }()
	<-entered
	if !opens(t, func() error { _, err := rt.RoundTrip(request(t, host)); return err }) {
		t.Error("hystrix-go forgives by now")
	}
	close(release)

	base, entered, release = held()
	p := policy.Default()
	p.Bulkhead.MaxConcurrent, p.Breaker.MinCalls = 1, 1
	tr := stack(t, base, p)
	gone := make(chan struct{})
	go func() {
		_ = exchange(tr, request(t, host), make([]byte, 512))
		close(gone)
	}()
	<-entered
	for range 100 {
		if _, err := tr.RoundTrip(request(t, host)); !errors.Is(err, transport.ErrBulkheadFull) {
			t.Errorf("watertight: %v", err)
		}
	}
	close(release)
	<-gone
	if s := tr.Snapshot()[0].State; s != transport.Closed {
		t.Errorf("watertight is %v", s)
	}
}

// heimdall-hystrix: callers who give up trip its breaker.
func TestHystrixCountsCallersWhoLeave(t *testing.T) {
	rt := hystrixOver(t, patient, hystrix.WithSleepWindow(60_000))
	if !opens(t, func() error {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		_, err := rt.RoundTrip(request(t, host).WithContext(context.WithValue(ctx, leaving{}, cancel)))
		return err
	}) {
		t.Error("hystrix-go forgives by now")
	}
	forgives(t)
}

// heimdall-hystrix: a POST that may have been acted upon is repeated.
func TestHystrixRepeatsAPost(t *testing.T) {
	if n := posts(t, func(base http.RoundTripper) http.RoundTripper {
		return hystrixOver(t, base, hystrix.WithRetryCount(2))
	}); n != 3 {
		t.Errorf("heimdall sends a POST %d times by now", n)
	}
	postsOnce(t)
}
