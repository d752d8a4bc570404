package bench_test

import (
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
)

// broken calls through a breaker as gobreaker's example does: an error is a failure,
// and the body is read inside.
func broken(cb *gobreaker.CircuitBreaker[[]byte], base http.RoundTripper) http.RoundTripper {
	return answer(func(req *http.Request) (*http.Response, error) {
		_, err := cb.Execute(func() ([]byte, error) {
			resp, err := base.RoundTrip(req)
			if err != nil {
				return nil, err
			}
			defer func() { _ = resp.Body.Close() }()
			return io.ReadAll(resp.Body)
		})
		if err != nil {
			return nil, err
		}
		return status(req, http.StatusOK), nil
	})
}

// gobreaker: by default, callers who give up trip its breaker (IsExcluded is to leave
// them out).
func TestGobreakerCountsCallersWhoLeave(t *testing.T) {
	rt := broken(gobreaker.NewCircuitBreaker[[]byte](gobreaker.Settings{}), patient)
	if err := leave(t, rt, 6); !errors.Is(err, gobreaker.ErrOpenState) {
		t.Errorf("gobreaker forgives by now: %v", err)
	}
	forgives(t)
}

// gobreaker: used as its example has it, a 503 is a success.
func TestGobreakerTakesA503ForASuccess(t *testing.T) {
	down := &base{answer: func(req *http.Request, _ int64) (*http.Response, error) {
		return status(req, http.StatusServiceUnavailable), nil
	}}
	rt := broken(gobreaker.NewCircuitBreaker[[]byte](gobreaker.Settings{}), down)
	for range 100 {
		if err := exchange(rt, request(t, host), make([]byte, 512)); err != nil {
			t.Fatalf("gobreaker sees it by now: %v", err)
		}
	}
	p := policy.Default()
	p.Retry = policy.Retry{}
	tr := stack(t, down, p)
	for range p.Breaker.MinCalls {
		_ = exchange(tr, request(t, host), make([]byte, 512))
	}
	if _, err := tr.RoundTrip(request(t, host)); !errors.Is(err, transport.ErrBreakerOpen) {
		t.Errorf("watertight: %v", err)
	}
}

// gobreaker: calls that hang are no evidence while they do: any number of them goes
// in, and the breaker stays closed.
func TestGobreakerLearnsNothingOfAHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cb, release := gobreaker.NewCircuitBreaker[[]byte](gobreaker.Settings{}), make(chan struct{})
		origin := answer(func(req *http.Request) (*http.Response, error) {
			<-release
			return nil, io.ErrUnexpectedEOF
		})
		rt := broken(cb, origin)
		for range 100 {
			req := request(t, host)
			go func() { _, _ = rt.RoundTrip(req) }()
		}
		time.Sleep(time.Hour)
		if s := cb.State(); s != gobreaker.StateClosed {
			t.Errorf("gobreaker is %v by now", s)
		}
		close(release)
		learns(t)
	})
}
