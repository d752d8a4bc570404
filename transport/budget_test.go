package transport_test

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

// budgetPolicy is retryPolicy with a budget that only successes refill.
func budgetPolicy() policy.Policy {
	p := retryPolicy()
	p.Retry.MaxAttempts = 2
	p.Retry.Budget = policy.Budget{Ratio: 0.2}
	return p
}

// tokens is what is left of the only host's budget.
func budgetTokens(tr *transport.Transport) float64 { return tr.Snapshot()[0].RetryBudget }

// drain takes so many tokens out of the budget: each call fails, and so does its
// retry.
func budgetDrain(t *testing.T, tr *transport.Transport, base *transporttest.Base, n int) {
	t.Helper()
	base.Script(transporttest.Step{Status: 503})
	for range n {
		retryDo(t, tr, retryRequest(t, http.MethodGet, "http://x.test/", nil))
	}
}

func TestBudgetDrainedReturnsTheLastAnswerAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base, rec := transporttest.NewBase(), &transporttest.Recorder{}
		tr := retryTransport(t, base, budgetPolicy(), rec)
		budgetDrain(t, tr, base, policy.BudgetBurst)
		if n := len(base.Hits()); n != 2*policy.BudgetBurst {
			t.Fatalf("%d hits, want %d", n, 2*policy.BudgetBurst)
		}

		base.Script(transporttest.Step{Status: 503, Body: "sorry"})
		start := time.Now()
		status, body := retryDo(t, tr, retryRequest(t, http.MethodGet, "http://x.test/", nil))
		if status != 503 || body != "sorry" || time.Since(start) != 0 {
			t.Errorf("%d %q after %v, want the 503 at once", status, body, time.Since(start))
		}
		base.Script(transporttest.Step{Err: io.ErrUnexpectedEOF})
		if _, err := tr.RoundTrip(retryRequest(t, http.MethodGet, "http://x.test/", nil)); err != io.ErrUnexpectedEOF || time.Since(start) != 0 {
			t.Errorf("%v after %v, want the error as it is, at once", err, time.Since(start))
		}
		if n := len(base.Hits()); n != 2*policy.BudgetBurst+2 {
			t.Errorf("%d hits with an empty budget, want %d", n, 2*policy.BudgetBurst+2)
		}
		for _, e := range rec.Events(transport.EventRetrySuppressed)[policy.BudgetBurst:] {
			if e.Reason != "budget" {
				t.Errorf("suppressed because of %s, want budget", e.Reason)
			}
		}
	})
}

func TestBudgetIsRefilledBySuccesses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := transporttest.NewBase()
		tr := retryTransport(t, base, budgetPolicy(), nil)
		budgetDrain(t, tr, base, policy.BudgetBurst)
		base.Script()
		for range 20 { // a fifth of which are 4 tokens
			retryDo(t, tr, retryRequest(t, http.MethodGet, "http://x.test/", nil))
		}
		if n := budgetTokens(tr); n < 3.99 || n > 4.01 {
			t.Fatalf("%v tokens after 20 successes, want 4", n)
		}
		base.Script(transporttest.Step{Status: 503}, transporttest.Step{})
		if status, _ := retryDo(t, tr, retryRequest(t, http.MethodGet, "http://x.test/", nil)); status != 200 {
			t.Errorf("status %d, want the 200 of the retry", status)
		}
	})
}

// A host that fails in a way that is not retried must not earn retries by it.
func TestBudgetIsNotRefilledByFailures(t *testing.T) {
	t.Parallel()
	for name, step := range map[string]transporttest.Step{
		"status that is retried":     {Status: 503},
		"status that is not retried": {Status: 501},
		"error":                      {Err: io.ErrUnexpectedEOF},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := transporttest.NewBase()
				tr := retryTransport(t, base, budgetPolicy(), nil)
				budgetDrain(t, tr, base, policy.BudgetBurst)
				base.Script(step)
				for range 20 {
					if resp, err := tr.RoundTrip(retryRequest(t, http.MethodGet, "http://x.test/", nil)); err == nil {
						_ = resp.Body.Close()
					}
				}
				if n := budgetTokens(tr); n != 0 {
					t.Errorf("%v tokens, want 0", n)
				}
			})
		})
	}
}

func TestBudgetIsRefilledByTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := transporttest.NewBase()
		p := budgetPolicy()
		p.Retry.Base = 0
		p.Retry.Budget = policy.Budget{MinPerSecond: 0.5}
		tr := retryTransport(t, base, p, nil)
		budgetDrain(t, tr, base, policy.BudgetBurst)
		time.Sleep(2*time.Second - 1)
		base.Script(transporttest.Step{Status: 503}, transporttest.Step{Status: 503}, transporttest.Step{})
		if status, _ := retryDo(t, tr, retryRequest(t, http.MethodGet, "http://x.test/", nil)); status != 503 {
			t.Errorf("status %d before the token was whole, want 503", status)
		}
		time.Sleep(2 * time.Nanosecond)
		if status, _ := retryDo(t, tr, retryRequest(t, http.MethodGet, "http://x.test/", nil)); status != 200 {
			t.Errorf("status %d with a token, want the 200 of the retry", status)
		}
		time.Sleep(time.Hour)
		if n := budgetTokens(tr); n != policy.BudgetBurst {
			t.Errorf("%v tokens after an hour, want %d", n, policy.BudgetBurst)
		}
	})
}

func TestBudgetIsPerHost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := transporttest.NewBase()
		tr := retryTransport(t, base, budgetPolicy(), nil)
		budgetDrain(t, tr, base, policy.BudgetBurst)
		base.Script(transporttest.Step{Status: 503}, transporttest.Step{})
		if status, _ := retryDo(t, tr, retryRequest(t, http.MethodGet, "http://y.test/", nil)); status != 200 {
			t.Errorf("status %d at another host, want the 200 of the retry", status)
		}
	})
}

// Whatever keeps a retry from being sent, its token comes back.
func TestBudgetGivesBackTheTokenOfARetryThatWasNotSent(t *testing.T) {
	t.Parallel()
	fails := transporttest.Step{Status: 503}
	// The retry finds the bulkhead full: another call has taken the permit in the
	// wait, and keeps it until the end of the test.
	occupy := func(t *testing.T, tr *transport.Transport, base *transporttest.Base) {
		base.Script(transporttest.Step{Size: 10, Fault: transporttest.Hang, At: transporttest.HeadersOnly})
		resp, err := tr.RoundTrip(retryRequest(t, http.MethodGet, "http://x.test/", nil))
		if err != nil {
			t.Error(err)
			return
		}
		time.AfterFunc(time.Minute, func() { _ = resp.Body.Close() })
	}
	tests := map[string]struct {
		change func(*policy.Policy)
		// during runs in the wait before the retry.
		during func(t *testing.T, tr *transport.Transport, base *transporttest.Base, cancel context.CancelFunc)
		req    func(*http.Request)
	}{
		"caller gone in the wait": {
			during: func(_ *testing.T, _ *transport.Transport, _ *transporttest.Base, cancel context.CancelFunc) { cancel() },
		},
		"breaker opened in the wait": {
			during: func(_ *testing.T, tr *transport.Transport, _ *transporttest.Base, _ context.CancelFunc) {
				tr.Host("x.test").ForceOpen()
			},
		},
		"bulkhead full": {
			change: func(p *policy.Policy) { p.Bulkhead.MaxConcurrent = 1 },
			during: func(t *testing.T, tr *transport.Transport, base *transporttest.Base, _ context.CancelFunc) {
				occupy(t, tr, base)
			},
		},
		"queue of the bulkhead too long": {
			change: func(p *policy.Policy) { p.Bulkhead = policy.Bulkhead{MaxConcurrent: 1, MaxWait: time.Second} },
			during: func(t *testing.T, tr *transport.Transport, base *transporttest.Base, _ context.CancelFunc) {
				occupy(t, tr, base)
			},
		},
		"caller gone in the queue of the bulkhead": {
			change: func(p *policy.Policy) { p.Bulkhead = policy.Bulkhead{MaxConcurrent: 1, MaxWait: time.Minute} },
			during: func(t *testing.T, tr *transport.Transport, base *transporttest.Base, cancel context.CancelFunc) {
				occupy(t, tr, base)
				time.AfterFunc(time.Second, cancel)
			},
		},
		"total timeout in the queue of the bulkhead": {
			change: func(p *policy.Policy) {
				p.Bulkhead = policy.Bulkhead{MaxConcurrent: 1, MaxWait: time.Minute}
				p.Timeout.Total = 2 * time.Second
			},
			during: func(t *testing.T, tr *transport.Transport, base *transporttest.Base, _ context.CancelFunc) {
				occupy(t, tr, base)
			},
		},
		"GetBody fails": {
			req: func(r *http.Request) {
				r.Body, r.ContentLength = io.NopCloser(strings.NewReader("x")), 1
				r.GetBody = func() (io.ReadCloser, error) { return nil, errors.New("gone") }
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := transporttest.NewBase(fails)
				p := budgetPolicy()
				if test.change != nil {
					test.change(&p)
				}
				tr := retryTransport(t, base, p, nil)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				req := retryRequest(t, http.MethodPut, "http://x.test/", nil).WithContext(ctx)
				if test.req != nil {
					test.req(req)
				}
				if test.during != nil {
					time.AfterFunc(50*time.Millisecond, func() { test.during(t, tr, base, cancel) })
				}
				resp, err := tr.RoundTrip(req)
				if err == nil {
					_ = resp.Body.Close()
				}
				if n := tr.Snapshot()[0].Counts.Retries; n != 0 {
					t.Fatalf("%d retries sent, want 0", n)
				}
				// The call that has taken the permit was a success, of a full budget.
				if n := budgetTokens(tr); n < policy.BudgetBurst-0.001 {
					t.Errorf("%v tokens, want %d (%v, %v)", n, policy.BudgetBurst, resp, err)
				}
				time.Sleep(2 * time.Minute)
				transporttest.CheckPermits(t, tr)
			})
		})
	}
}

func TestBudgetCountsRetriesThatWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := transporttest.NewBase(transporttest.Step{Status: 503})
		tr := retryTransport(t, base, budgetPolicy(), nil)
		for range 2 * policy.BudgetBurst {
			go retryDo(t, tr, retryRequest(t, http.MethodGet, "http://x.test/", nil))
		}
		synctest.Wait() // half of them have returned, half wait
		if n := budgetTokens(tr); n != 0 {
			t.Errorf("%v tokens while retries wait, want 0", n)
		}
		if n := tr.Snapshot()[0].Counts.RetriesSuppressed; n != policy.BudgetBurst {
			t.Errorf("%d calls returned at once, want %d", n, policy.BudgetBurst)
		}
		time.Sleep(time.Minute)
		if n := tr.Snapshot()[0].Counts.Retries; n != policy.BudgetBurst {
			t.Errorf("%d retries, want %d", n, policy.BudgetBurst)
		}
	})
}

func TestBudgetNeverAddsMoreThanAFifth(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		pick func(n int) transporttest.Step
		most int // retries, of 2,000 calls
	}{
		"every first attempt fails": {func(n int) transporttest.Step {
			return transporttest.Step{Status: 200 + 303*(n%2)}
		}, 2_000/5 + policy.BudgetBurst},
		"every attempt fails": {func(int) transporttest.Step { return transporttest.Step{Status: 503} }, policy.BudgetBurst},
		"errors": {func(n int) transporttest.Step {
			if n%2 == 1 {
				return transporttest.Step{Err: io.ErrUnexpectedEOF}
			}
			return transporttest.Step{}
		}, 2_000/5 + policy.BudgetBurst},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := transporttest.NewBase()
				base.ScriptFunc(func(h transporttest.Hit) transporttest.Step { return test.pick(h.Number) })
				tr := retryTransport(t, base, budgetPolicy(), nil)
				for range 2_000 {
					resp, err := tr.RoundTrip(retryRequest(t, http.MethodGet, "http://x.test/", nil))
					if err == nil {
						_ = resp.Body.Close()
					}
				}
				if n := tr.Snapshot()[0].Counts.Retries; n > int64(test.most) || n < policy.BudgetBurst {
					t.Errorf("%d retries of 2,000 calls, want %d at most", n, test.most)
				}
			})
		})
	}
}
