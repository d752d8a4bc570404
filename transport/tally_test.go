package transport

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/watertight-go/watertight/policy"
)

// tallied is a breaker with the default window: a minute in sixty buckets.
func tallied(t *testing.T) *breaker {
	t.Helper()
	tr := Must(New(Config{}))
	t.Cleanup(func() { _ = tr.Close() })
	return &tr.newHost(hostKey{"http", "a.test", "80"}, "a.test", &tr.policies.fallback, false).breaker
}

// governed is an attempt that the breaker has let through.
func governed(b *breaker) *attempt {
	a := &attempt{}
	a.init(&call{h: b.h, opts: &noCall, ctx: context.Background(), req: &http.Request{}})
	a.call.sent++
	a.started = true
	b.admit(a)
	return a
}

func (b *breaker) counted(now time.Duration) look {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.takeOver(now)
	return b.whole(now)
}

func TestTallyLosesNothing(t *testing.T) {
	b, ok := tallied(t), &http.Response{StatusCode: 200}
	const callers, each = 8, 2000
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for i := range each {
				now := time.Duration(i) * time.Millisecond
				a := governed(b)
				b.answered(a, now)
				b.settle(a, policy.Success, ok, nil, now)
			}
		})
	}
	over := make(chan struct{})
	go func() { // whoever looks takes the lock
		defer close(over)
		for range 500 {
			b.counted(each * time.Millisecond)
		}
	}()
	all.Wait()
	<-over
	if got := b.counted(each * time.Millisecond); got.success != callers*each || got.timed != callers*each {
		t.Errorf("%d successes, %d with headers; want %d of both", got.success, got.timed, callers*each)
	}
}

func TestATimerThatComesWithTheHeadersCountsOnce(t *testing.T) {
	b := tallied(t)
	for range 2000 {
		a := governed(b)
		var both sync.WaitGroup
		both.Go(func() { b.answered(a, time.Second) })
		both.Go(func() { b.slow(a, time.Second) })
		both.Wait()
		got := b.counted(time.Second)
		if got.timed != 1 || got.slow != 1 {
			t.Fatalf("%d with headers, %d of them slow; want 1 of both", got.timed, got.slow)
		}
		b.mu.Lock()
		b.forget()
		b.mu.Unlock()
	}
}

// TestWhatIsNotedCountsWhenItWas: nobody takes the lock for more than a window, and the
// successes of its beginning are no evidence any more when somebody does.
func TestWhatIsNotedCountsWhenItWas(t *testing.T) {
	b, ok := tallied(t), &http.Response{StatusCode: 200}
	for range 30 {
		a := governed(b)
		b.answered(a, time.Second)
		b.settle(a, policy.Success, ok, nil, time.Second)
	}
	if got := b.counted(67 * time.Second); got.success != 0 || got.timed != 0 {
		t.Errorf("%d successes, %d with headers, after more than a window", got.success, got.timed)
	}
}

func TestANoteOfAnEarlierStateIsDropped(t *testing.T) {
	b, ok := tallied(t), &http.Response{StatusCode: 200}
	before := governed(b)
	b.answered(before, 0)
	b.force(ForcedOpen, "forced")
	b.force(Closed, "reset")
	b.settle(before, policy.Success, ok, nil, 0)
	if got := b.counted(0); got.success != 0 || got.timed != 0 {
		t.Errorf("%d successes, %d with headers", got.success, got.timed)
	}
}

// TestASuccessCanBeTheOneThatTrips: the window lacked but one call to be judged by.
func TestASuccessCanBeTheOneThatTrips(t *testing.T) {
	b, ok := tallied(t), &http.Response{StatusCode: 200}
	for i := range b.policy.MinCalls {
		v, resp := policy.Failure, &http.Response{StatusCode: 500}
		if i == b.policy.MinCalls-1 {
			v, resp = policy.Success, ok
		}
		if s := b.state(); s != Closed {
			t.Fatalf("%v after %d calls", s, i)
		}
		b.settle(governed(b), v, resp, nil, 0)
	}
	if s, _ := b.load(); s != Open {
		t.Errorf("%v", s)
	}
}

// Readings of the clock reach the lock out of order: the tally does not go back for that,
// nor is what was noted lost in a bucket that is taken for an older one.
func TestALateReadingOfTheClockLosesNothing(t *testing.T) {
	b, ok := tallied(t), &http.Response{StatusCode: 200}
	success := func(now time.Duration) {
		a := governed(b)
		b.answered(a, now)
		b.settle(a, policy.Success, ok, nil, now)
	}
	success(13 * time.Second)
	b.counted(13 * time.Second) // there is a window, of that bucket
	for range 1000 {
		success(15 * time.Second)
	}
	success(14900 * time.Millisecond) // an end whose clock was read before
	success(15500 * time.Millisecond)
	if got := b.counted(16 * time.Second); got.success != 1003 || got.timed != 1003 {
		t.Errorf("%d successes, %d with headers; want 1003 of both", got.success, got.timed)
	}
}

// Time passes while many note, and whoever looks takes over and no more.
func TestTallyLosesNothingFromBucketToBucket(t *testing.T) {
	b, ok := tallied(t), &http.Response{StatusCode: 200}
	const callers, each = 4, 3000
	began := time.Now()
	now := func() time.Duration { return 40 * time.Second * time.Since(began) / time.Second }
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for range each {
				a := governed(b)
				b.answered(a, now())
				b.settle(a, policy.Success, ok, nil, now())
			}
		})
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		for range 2000 {
			b.mu.Lock()
			b.takeOver(now())
			b.mu.Unlock()
		}
	}()
	all.Wait()
	<-over
	at := now()
	if at > 55*time.Second {
		t.Skip("the machine was too slow for one window")
	}
	if got := b.counted(at); got.success != callers*each || got.timed != callers*each {
		t.Errorf("%d successes, %d with headers; want %d of both", got.success, got.timed, callers*each)
	}
}

// The clock of a Transport that was made outside of a bubble of testing/synctest is below
// zero inside, and its window holds what happens there all the same.
func TestAWindowHoldsWhatHappensInAnotherTime(t *testing.T) {
	b, ok := tallied(t), &http.Response{StatusCode: 200}
	for _, at := range []time.Duration{5 * time.Second, -26 * 365 * 24 * time.Hour, 6 * time.Second} {
		for range 30 {
			a := governed(b)
			b.answered(a, at)
			b.settle(a, policy.Success, ok, nil, at)
		}
		late := governed(b)
		b.answered(late, at)
		b.slow(late, at)
		b.settle(late, policy.Success, ok, nil, at)
		if got := b.counted(at); got.success != 31 || got.timed != 31 || got.slow != 1 {
			t.Errorf("at %v: %+v", at, got.bucket)
		}
		b.force(ForcedClosed, "forced")
		b.force(Closed, "reset")
	}
}
