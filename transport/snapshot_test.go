package transport_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/transporttest"
)

func TestSnapshotIsEmptyBeforeAnyCall(t *testing.T) {
	tr := transport.Must(transport.New(transport.Config{Base: newStub(1), Logger: quiet()}))
	if s := tr.Snapshot(); len(s) != 0 {
		t.Errorf("%+v", s)
	}
	if s := tr.Host("a.test").Snapshot(); len(s) != 0 {
		t.Errorf("asking made a state: %+v", s)
	}
}

func TestSnapshotCountsWhatHappened(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := policy.Policy{
			Timeout:  policy.Timeout{Read: time.Second},
			Bulkhead: policy.Bulkhead{MaxConcurrent: 2, BodyIdle: time.Minute},
			Breaker:  policy.Breaker{Window: time.Hour, SlowCall: 500 * time.Millisecond, ConsecutiveFailures: 6, OpenFor: time.Hour},
			Retry:    policy.Retry{MaxAttempts: 2, Base: time.Nanosecond, Max: time.Nanosecond, Budget: policy.Budget{Ratio: 1}},
			Fallback: policy.Fallback{MaxStale: time.Hour, FailFast503: true},
		}
		r := newFallbackRig(t, p)
		r.fill("/", good("old"))                                   // call 1: a success
		_, _, _ = r.get("/")                                       // call 2: two failures, stale
		_, _, _ = r.do(fallbackRequest("POST", "http://a.test/p")) // call 3: a retry, as nothing was sent; fail-fast
		r.base.Script(transporttest.Step{Status: 404})
		_, _, _ = r.get("/none") // call 4: neutral
		r.base.Script(transporttest.Step{Fault: transporttest.Hang})
		_, _, _ = r.do(fallbackRequest("POST", "http://a.test/p")) // call 5: slow and failed; not retried
		r.base.Script(transporttest.Step{Body: "abc"})
		first := hostHold(t, r, "http://a.test/1") // calls 6 and 7 hold both permits
		second := hostHold(t, r, "http://a.test/2")
		_, _, _ = r.get("/nothing") // call 8: rejected, fail-fast
		s := r.Snapshot()[0]
		if s.Scheme != "http" || s.Host != "a.test:80" || s.State != transport.Closed || !s.Since.IsZero() || s.RetryIn != 0 ||
			s.InFlight != 2 || s.MaxConcurrent != 2 || s.Waiting != 0 || s.Trip != nil || len(s.Transitions) != 0 {
			t.Errorf("%+v", s)
		}
		if !reflect.DeepEqual(s.Policy.Timeout, p.Timeout) || s.RetryBudget <= 0 {
			t.Errorf("policy %+v, budget %v", s.Policy, s.RetryBudget)
		}
		if w := s.Window; w.Window != time.Hour || w.Calls != 6 || w.Failures != 5 || w.Timed != 5 || w.Slow != 1 || w.Consecutive != 5 || w.Last != "read timeout" {
			t.Errorf("window %+v", w)
		}
		_ = first.Close()
		time.Sleep(2 * time.Minute) // the second is forgotten
		_ = second
		r.base.Script(transporttest.Step{Status: 503})
		for range 5 {
			_, _, _ = r.do(fallbackRequest("POST", "http://a.test/p")) // calls 9 to 13: failures, not retried
		}
		_, _, _ = r.get("/") // call 14: opens the breaker, which stands against a retry; stale
		_, _, _ = r.get("/") // call 15: refused; stale
		s = r.Snapshot()[0]
		c := s.Counts
		timeouts := map[string]int64{"queue": 0, "write": 0, "connect": 0, "tls": 0, "response_header": 1, "body": 0, "attempt": 0, "total": 0, "stream": 0}
		if !reflect.DeepEqual(c.Timeouts, timeouts) {
			t.Errorf("timeouts %v", c.Timeouts)
		}
		c.Timeouts = nil
		want := transport.Counts{
			Calls: 15, Attempts: 1 + 2 + 2 + 1 + 1 + 2 + 5 + 1, Retries: 2, RetriesSuppressed: 1 + 1 + 1 + 5 + 1,
			Success: 3, Failure: 2 + 2 + 1 + 5 + 1, Neutral: 1, RefusedOpen: 1, Rejected: 1, Stale: 3, FailFast: 3, Leaked: 1,
		}
		if !reflect.DeepEqual(c, want) {
			t.Errorf("counts\n%+v, want\n%+v", c, want)
		}
		if s.InFlight != 0 || s.State != transport.Open || s.Trip.Consecutive != 6 {
			t.Errorf("%+v", s)
		}
	})
}

func TestSnapshotTellsOfAnOpenBreakerWithoutMovingIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		seen := &transporttest.Recorder{}
		base := transporttest.NewBase(transporttest.Step{Status: 503})
		tr := transport.Must(transport.New(transport.Config{Base: base, Observer: seen, Logger: quiet(), Default: policy.Policy{
			Breaker: policy.Breaker{ConsecutiveFailures: 3, OpenFor: 10 * time.Second, HalfOpenProbes: 1}}}))
		for range 3 {
			_ = hostCall(tr, "http://a.test")
		}
		opened := time.Now()
		s := tr.Snapshot()[0]
		if s.State != transport.Open || !s.Since.Equal(opened) || s.RetryIn < 9*time.Second || s.RetryIn > 11*time.Second ||
			s.Trip == nil || s.Trip.Trigger != "consecutive_failures" || len(s.Transitions) != 1 || !s.Transitions[0].Until.Equal(opened.Add(s.RetryIn)) {
			t.Errorf("%+v", s)
		}
		until := opened.Add(s.RetryIn)
		time.Sleep(s.RetryIn)
		for range 10 {
			time.Sleep(time.Minute)
			s = tr.Snapshot()[0]
			if s.State != transport.HalfOpen || !s.Since.Equal(until) || s.RetryIn != 0 || len(s.Transitions) != 1 || seen.Count(transport.EventTransition) != 1 {
				t.Errorf("%+v", s)
			}
		}
		base.Script(transporttest.Step{})
		if err := hostCall(tr, "http://a.test"); err != nil {
			t.Fatal(err)
		}
		s = tr.Snapshot()[0]
		if s.State != transport.Closed || s.Trip == nil || s.Trip.Trigger != "consecutive_failures" || len(s.Transitions) != 3 || seen.Count(transport.EventTransition) != 3 {
			t.Errorf("%+v", s)
		}
		if s.Window.Calls != 0 || s.Window.Failures != 0 || s.Window.Consecutive != 0 {
			t.Errorf("window after closing: %+v", s.Window)
		}
	})
}

func TestSnapshotKeepsTheLastTransitions(t *testing.T) {
	tr := transport.Must(transport.New(transport.Config{Base: newStub(1), Logger: quiet()}))
	h := tr.Host("http://a.test")
	if err := hostCall(tr, "http://a.test"); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		h.ForceOpen()
		h.ForceClosed()
	}
	h.Reset()
	s := h.Snapshot()[0]
	if len(s.Transitions) != 16 || s.Transitions[15].To != transport.Closed || s.Transitions[14].To != transport.ForcedClosed || s.Transitions[13].To != transport.ForcedOpen {
		t.Errorf("%+v", s.Transitions)
	}
	for i := 1; i < len(s.Transitions); i++ {
		if s.Transitions[i].From != s.Transitions[i-1].To || s.Transitions[i].At.Before(s.Transitions[i-1].At) {
			t.Errorf("%+v does not follow %+v", s.Transitions[i], s.Transitions[i-1])
		}
	}
}

func TestSnapshotIsNotChangedByWhatHappensLater(t *testing.T) {
	tr := transport.Must(transport.New(transport.Config{Base: newStub(1), Logger: quiet()}))
	h := tr.Host("http://a.test")
	if err := hostCall(tr, "http://a.test"); err != nil {
		t.Fatal(err)
	}
	h.ForceOpen()
	s := h.Snapshot()[0]
	trigger := s.Trip.Trigger
	h.Reset()
	h.ForceClosed()
	_ = hostCall(tr, "http://a.test")
	if len(s.Transitions) != 1 || s.Transitions[0].To != transport.ForcedOpen || s.State != transport.ForcedOpen || s.Counts.Calls != 1 || s.Trip.Trigger != trigger {
		t.Errorf("%+v", s)
	}
	s.Transitions[0].To = transport.HalfOpen
	s.Counts.Timeouts["body"] = 100
	if again := h.Snapshot()[0]; again.Transitions[0].To != transport.ForcedOpen || again.Counts.Timeouts["body"] != 0 {
		t.Error("a snapshot shares what it holds with the next")
	}
}

func TestSnapshotCountsThoseWhoWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := transporttest.NewBase(transporttest.Step{Body: "x"})
		tr := transport.Must(transport.New(transport.Config{Base: base, Logger: quiet(), Default: policy.Policy{
			Bulkhead: policy.Bulkhead{MaxConcurrent: 1, MaxWait: time.Minute}}}))
		held := hostHold(t, tr, "http://a.test")
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				if err := hostCall(tr, "http://a.test"); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if s := tr.Snapshot()[0]; s.InFlight != 1 || s.Waiting != 3 {
			t.Errorf("%d in flight, %d waiting", s.InFlight, s.Waiting)
		}
		_ = held.Close()
		all.Wait()
		if s := tr.Snapshot()[0]; s.InFlight != 0 || s.Waiting != 0 {
			t.Errorf("%d in flight, %d waiting", s.InFlight, s.Waiting)
		}
	})
}

func TestSnapshotRacesWithNothing(t *testing.T) {
	base := transporttest.NewBase()
	base.ScriptFunc(func(h transporttest.Hit) transporttest.Step {
		return transporttest.Step{Status: []int{200, 503, 404, 200}[h.Number%4], Body: "x"}
	})
	p := policy.Service()
	p.Retry.Base, p.Retry.Max = time.Microsecond, time.Microsecond
	p.Breaker.ConsecutiveFailures, p.Breaker.OpenFor, p.Breaker.OpenForMax = 2, time.Microsecond, 0
	p.Fallback.MaxStale = time.Hour
	tr := transport.Must(transport.New(transport.Config{Base: base, Default: p, MaxHosts: 3, Logger: quiet(), Observer: &transporttest.Recorder{}}))
	var calls, reads sync.WaitGroup
	ctx, stop := context.WithCancel(context.Background())
	for range 2 {
		reads.Go(func() {
			for ctx.Err() == nil {
				for _, s := range tr.Snapshot() {
					if s.InFlight < 0 || s.Waiting < 0 || s.Window.Failures > s.Window.Calls || s.Window.Slow > s.Window.Timed {
						t.Errorf("%+v", s)
					}
				}
			}
		})
	}
	for g := range 4 {
		calls.Go(func() {
			for range 200 {
				err := hostCall(tr, "http://"+string(rune('a'+g))+".test")
				if err != nil && !errors.Is(err, transport.ErrBreakerOpen) {
					t.Error(err)
				}
			}
		})
	}
	calls.Wait()
	stop()
	reads.Wait()
	transporttest.CheckPermits(t, tr)
}

func TestSnapshotCountsTheRefusalsThatCallersSaw(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := transporttest.NewBase(transporttest.Step{Body: "x", Delay: time.Second})
		seen := &transporttest.Recorder{}
		tr := transport.Must(transport.New(transport.Config{Base: base, Observer: seen, Logger: quiet(), Default: policy.Policy{
			Bulkhead: policy.Bulkhead{MaxConcurrent: 2}}}))
		var all sync.WaitGroup
		var refused atomic.Int64
		for range 10 {
			all.Go(func() {
				if err := hostCall(tr, "http://a.test"); errors.Is(err, transport.ErrBulkheadFull) {
					refused.Add(1)
				}
			})
		}
		all.Wait()
		_, most := base.InFlight()
		if n := tr.Snapshot()[0].Counts.Rejected; n != 8 || refused.Load() != 8 || seen.Count(transport.EventRefusal) != 8 || most != 2 {
			t.Errorf("%d counted, %d told, %d seen by callers, %d in flight at most", n, seen.Count(transport.EventRefusal), refused.Load(), most)
		}
		observerBalance(t, seen)
	})
}

func TestSnapshotIsJSONWithStatesAsWords(t *testing.T) {
	p := policy.Service()
	p.Breaker.ConsecutiveFailures = 1
	p.Breaker.Classify = func(*http.Response, error) policy.Verdict { return policy.Unclassified }
	p.Fallback.Degraded = func(*http.Request, error) *http.Response { return nil }
	tr := transport.Must(transport.New(transport.Config{Base: transporttest.NewBase(transporttest.Step{Status: 503}), Default: p, Logger: quiet()}))
	_ = hostCall(tr, "http://a.test")
	text, err := json.Marshal(tr.Snapshot())
	if err != nil {
		t.Fatal(err)
	}
	var got []struct {
		Host, State string
		Trip        struct{ Trigger string }
		Transitions []struct{ From, To string }
		Counts      struct{ Timeouts map[string]int }
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	if len(got) != 1 || got[0].Host != "a.test:80" || got[0].State != "open" || got[0].Trip.Trigger != "consecutive_failures" ||
		len(got[0].Transitions) != 1 || got[0].Transitions[0].From != "closed" || got[0].Transitions[0].To != "open" || len(got[0].Counts.Timeouts) == 0 {
		t.Errorf("%s", text)
	}
	for want, v := range map[string]any{
		`["closed","open","half_open","forced_open","forced_closed"]`: []transport.State{transport.Closed, transport.Open, transport.HalfOpen, transport.ForcedOpen, transport.ForcedClosed},
		`{"v":"failure"}`: map[string]policy.Verdict{"v": policy.Failure},
		`{"v":"success"}`: map[string]policy.Verdict{"v": policy.Success},
		`{"v":"neutral"}`: map[string]policy.Verdict{"v": policy.Neutral},
	} {
		if text, err := json.Marshal(v); err != nil || string(text) != want {
			t.Errorf("%s, %v; want %s", text, err, want)
		}
	}
}

func TestSnapshotCountsVerdictsWithoutABreaker(t *testing.T) {
	base := transporttest.NewBase()
	base.ScriptFunc(func(h transporttest.Hit) transporttest.Step {
		return map[string]transporttest.Step{"/fails": {Status: 500}, "/none": {Status: 404}}[h.Path]
	})
	tr := transport.Must(transport.New(transport.Config{Base: base, MaxHosts: 1, Logger: quiet(), Default: policy.Policy{Timeout: policy.Timeout{Read: time.Second}}}))
	held := hostHoldOpen(t, tr, base)
	for _, host := range []string{"a", "other"} { // the second has the shared state
		for _, path := range []string{"/", "/", "/", "/fails", "/fails", "/none"} {
			if err := hostCall(tr, "http://"+host+".test"+path); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = held.Close()
	for _, s := range tr.Snapshot() {
		if s.Host == "a.test:80" {
			s.Counts.Success-- // the one that was held
		}
		if c := s.Counts; c.Success != 3 || c.Failure != 2 || c.Neutral != 1 {
			t.Errorf("%s: %+v", s.Host, c)
		}
	}
	if got := hostNames(tr); got != "http://a.test:80 overflow" {
		t.Errorf("states %s", got)
	}
}

// hostHoldOpen keeps a.test in use.
func hostHoldOpen(t *testing.T, tr *transport.Transport, base *transporttest.Base) io.Closer {
	t.Helper()
	pick := func(h transporttest.Hit) transporttest.Step {
		return map[string]transporttest.Step{"/fails": {Status: 500}, "/none": {Status: 404}, "/held": {Body: "x"}}[h.Path]
	}
	base.ScriptFunc(pick)
	return hostHold(t, tr, "http://a.test/held")
}
