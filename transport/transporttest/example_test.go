package transporttest_test

import (
	"errors"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/transporttest"
)

// payments is the policy that the program under test has for its dependency.
func payments() policy.Policy {
	p := policy.Service()
	p.Timeout.Attempt = 800 * time.Millisecond
	p.Breaker.SlowCall = 500 * time.Millisecond
	return p
}

// aHangOfPaymentsOpensItsBreaker is TestAHangOfPaymentsOpensItsBreaker in a
// program of yours. It takes no time: the clock of a bubble moves on when all its
// goroutines wait.
func aHangOfPaymentsOpensItsBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := payments()
		base := transporttest.NewBase(transporttest.Step{Fault: transporttest.Hang})
		seen := &transporttest.Recorder{}
		tr := transport.Must(transport.New(transport.Config{Default: p, Base: base, Observer: seen, Logger: slog.New(slog.DiscardHandler)}))
		call := func() error {
			resp, err := tr.Client().Get("http://payments.test/")
			if err == nil {
				resp.Body.Close()
			}
			return err
		}

		// The dependency hangs: as many callers as it may hold go and wait.
		for range p.Bulkhead.MaxConcurrent {
			go call()
		}
		synctest.Wait()
		if err := call(); !errors.Is(err, transport.ErrBulkheadFull) {
			t.Errorf("one too many: %v", err)
		}

		// Nobody waits for a timeout: the breaker opens as soon as they are slow.
		time.Sleep(p.Breaker.SlowCall)
		synctest.Wait()
		if err := call(); !errors.Is(err, transport.ErrBreakerOpen) {
			t.Errorf("after %v: %v", p.Breaker.SlowCall, err)
		}
		if _, most := base.InFlight(); most != p.Bulkhead.MaxConcurrent {
			t.Errorf("%d calls at a time", most)
		}

		// The dependency is well again: probes find out, and close the breaker.
		base.Script(transporttest.Step{Status: http.StatusOK})
		time.Sleep(2 * p.Breaker.OpenFor)
		for range p.Breaker.HalfOpenProbes {
			if err := call(); err != nil {
				t.Errorf("probe: %v", err)
			}
		}
		if s := tr.Snapshot()[0]; s.State != transport.Closed {
			t.Errorf("still %v", s.State)
		}
		for _, e := range seen.Events(transport.EventTransition) {
			t.Logf("%v -> %v: %v", e.Transition.From, e.Transition.To, &e.Transition.Evidence)
		}
		transporttest.CheckPermits(t, tr)
	})
}

// Watch your own policy trip, and recover, before an outage shows whether it does.
func Example() {
	var t *testing.T // of your test
	aHangOfPaymentsOpensItsBreaker(t)
}
