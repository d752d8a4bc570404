package policy_test

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"reflect"
	"testing"
	"time"

	"github.com/watertight-go/watertight/policy"
)

// An aggressive profile: a payment that failed three times in ten seconds is not
// tried a fourth time.
func ExampleBreaker_aggressive() {
	p := policy.Service()
	p.Breaker.FailuresInWindow, p.Breaker.Window = 3, 10*time.Second

	b := p.Breaker.WithDefaults(p.Bulkhead.MaxConcurrent)
	fmt.Printf("%d failures in %v, in %d buckets, open for %v\n", b.FailuresInWindow, b.Window, b.Buckets, b.OpenFor)
	fmt.Println(p.Validate())
	// Output:
	// 3 failures in 10s, in 10 buckets, open for 10s
	// <nil>
}

// A lenient profile: telemetry may fail now and then; only 20 failures within a
// minute open the breaker, whatever their share.
func ExampleBreaker_lenient() {
	p := policy.Service()
	p.Breaker = policy.Breaker{FailuresInWindow: 20, Window: time.Minute, OpenFor: 5 * time.Second}

	b := p.Breaker.WithDefaults(p.Bulkhead.MaxConcurrent)
	fmt.Printf("%d failures in %v, in %d buckets, open for %v\n", b.FailuresInWindow, b.Window, b.Buckets, b.OpenFor)
	fmt.Println(p.Validate())
	// Output:
	// 20 failures in 1m0s, in 60 buckets, open for 5s
	// <nil>
}

func ExampleBreaker_OpenDelay() {
	b := policy.Default().Breaker
	for reopens := range 5 {
		fmt.Println(b.OpenDelay(reopens, 0, 0.5))
	}
	// Output:
	// 10s
	// 20s
	// 40s
	// 1m0s
	// 1m0s
}

func TestBreakerIsOnWithAnyTrigger(t *testing.T) {
	for _, test := range []struct {
		name string
		b    policy.Breaker
		want bool
	}{
		{"zero", policy.Breaker{}, false},
		{"no trigger", policy.Breaker{Window: 1, Buckets: 1, WindowCalls: 1, MinCalls: 1, OpenFor: 1, OpenForMax: 1, HalfOpenProbes: 1}, false},
		{"failure rate", policy.Breaker{FailureRate: 0.5}, true},
		{"slow rate without an age", policy.Breaker{SlowRate: 0.5}, false},
		{"age without a slow rate", policy.Breaker{SlowCall: 1}, false},
		{"slow rate", policy.Breaker{SlowRate: 0.5, SlowCall: 1}, true},
		{"consecutive failures", policy.Breaker{ConsecutiveFailures: 1}, true},
		{"failures in the window", policy.Breaker{FailuresInWindow: 1}, true},
		{"NaN", policy.Breaker{FailureRate: math.NaN()}, false},
	} {
		if got := test.b.Enabled(); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}

func TestBreakerDefaultsFillZeroFields(t *testing.T) {
	got := policy.Breaker{}.WithDefaults(0)
	want := policy.Breaker{Window: time.Minute, Buckets: 60, MinCalls: 20, OpenFor: 10 * time.Second, HalfOpenProbes: 3}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestBreakerDefaultsLeaveSetFieldsAlone(t *testing.T) {
	b := policy.Breaker{
		Window: time.Second, Buckets: 7, WindowCalls: 5, MinCalls: 4, FailureRate: 0.1, SlowCall: 2, SlowRate: 0.2,
		ConsecutiveFailures: 3, FailuresInWindow: 2, OpenFor: 9, OpenForMax: 10, HalfOpenProbes: 1, Shadow: true,
	}
	if got := b.WithDefaults(1); !reflect.DeepEqual(got, b) {
		t.Errorf("%+v, want %+v", got, b)
	}
}

func TestBreakerHasABucketForEachSecondAndTwoForEachSlowCall(t *testing.T) {
	for _, test := range []struct {
		window, slowCall time.Duration
		want             int
	}{
		{time.Nanosecond, 0, 1},
		{999 * time.Millisecond, 0, 1},
		{1500 * time.Millisecond, 0, 1},
		{10 * time.Second, 0, 10},
		{10 * time.Minute, 0, 600},
		{time.Hour, 0, 600},
		{math.MaxInt64, 0, 600},
		{10 * time.Second, 2 * time.Second, 10},
		{10 * time.Second, time.Hour, 10},
		{10 * time.Second, 1999 * time.Millisecond, 11},
		{10 * time.Second, time.Second, 20},
		{10 * time.Second, 500 * time.Millisecond, 40},
		{10 * time.Second, 600 * time.Millisecond, 34}, // not 33, the last of which would be longer
		{10 * time.Second, 1, 10},
		{10 * time.Second, 2, 600},
		{3, 2, 3},
	} {
		b := policy.Breaker{Window: test.window, SlowCall: test.slowCall}
		if got := b.WithDefaults(0).Buckets; got != test.want {
			t.Errorf("a window of %v with SlowCall %v has %d buckets, want %d", test.window, test.slowCall, got, test.want)
		}
	}
}

// Evidence that can never be gathered is a breaker that never opens.
func TestBreakerAsksForNoMoreEvidenceThanThereCanBe(t *testing.T) {
	for _, test := range []struct{ windowCalls, maxConcurrent, want int }{
		{0, 0, 20},
		{0, 256, 20},
		{0, 8, 8},
		{10, 0, 10},
		{100, 0, 20},
		{10, 8, 8},
		{8, 10, 8},
	} {
		if got := (policy.Breaker{WindowCalls: test.windowCalls}).WithDefaults(test.maxConcurrent).MinCalls; got != test.want {
			t.Errorf("MinCalls of a window of %d calls and %d permits: %d, want %d", test.windowCalls, test.maxConcurrent, got, test.want)
		}
	}
}

func TestOpenDelayDoublesUpToItsMaximum(t *testing.T) {
	s := time.Second
	for _, test := range []struct {
		openFor, openForMax time.Duration
		reopens             int
		want                time.Duration
	}{
		{10 * s, 60 * s, 0, 10 * s},
		{10 * s, 60 * s, 1, 20 * s},
		{10 * s, 60 * s, 2, 40 * s},
		{10 * s, 60 * s, 3, 60 * s},
		{10 * s, 60 * s, math.MaxInt, 60 * s},
		{10 * s, 60 * s, -1, 10 * s},
		{10 * s, 0, 5, 10 * s},
		{10 * s, 10 * s, 5, 10 * s},
		{0, 0, 5, 10 * s},
		{0, 60 * s, 1, 20 * s},
		{0, 60 * s, math.MaxInt, 60 * s},
	} {
		b := policy.Breaker{OpenFor: test.openFor, OpenForMax: test.openForMax}
		if got := b.OpenDelay(test.reopens, 0, 0.5); got != test.want {
			t.Errorf("%v up to %v, re-opened %d times: %v, want %v", test.openFor, test.openForMax, test.reopens, got, test.want)
		}
	}
}

func TestOpenDelayIsJitteredByATenthEitherWay(t *testing.T) {
	b := policy.Breaker{OpenFor: 10 * time.Second}
	almost1 := math.Nextafter(1, 0)
	for _, test := range []struct {
		random float64
		want   time.Duration
	}{
		{0, 9 * time.Second},
		{0.25, 9500 * time.Millisecond},
		{0.5, 10 * time.Second},
		{almost1, 11*time.Second - 1},
	} {
		if got := b.OpenDelay(0, 0, test.random); got != test.want {
			t.Errorf("random %v: %v, want %v", test.random, got, test.want)
		}
	}
}

// A host that asks for 30 s is not probed after 27; its clients still do not come
// back in lockstep.
func TestOpenDelayNeverUndercutsARetryAfter(t *testing.T) {
	s := time.Second
	for _, test := range []struct {
		name                     string
		openForMax, after        time.Duration
		least, middle, mostBelow time.Duration
	}{
		{"none", 60 * s, 0, 9 * s, 10 * s, 11 * s},
		{"negative", 60 * s, -s, 9 * s, 10 * s, 11 * s},
		{"below the jitter", 60 * s, 5 * s, 9 * s, 10 * s, 11 * s},
		{"within the jitter", 60 * s, 10 * s, 10 * s, 10500 * time.Millisecond, 11 * s},
		{"above the jitter", 60 * s, 30 * s, 30 * s, 31500 * time.Millisecond, 33 * s},
		{"above the maximum", 60 * s, time.Hour, 60 * s, 63 * s, 66 * s},
		{"without a maximum", 0, 30 * s, 9 * s, 10 * s, 11 * s},
	} {
		b := policy.Breaker{OpenFor: 10 * s, OpenForMax: test.openForMax}
		if got := b.OpenDelay(0, test.after, 0); got != test.least {
			t.Errorf("%s: at least %v, want %v", test.name, got, test.least)
		}
		if got := b.OpenDelay(0, test.after, 0.5); got != test.middle {
			t.Errorf("%s: in the middle %v, want %v", test.name, got, test.middle)
		}
		if got := b.OpenDelay(0, test.after, math.Nextafter(1, 0)); got >= test.mostBelow || got < test.mostBelow-time.Microsecond {
			t.Errorf("%s: at most %v, want just below %v", test.name, got, test.mostBelow)
		}
	}
}

func TestOpenDelayNeverOverflows(t *testing.T) {
	values := []time.Duration{math.MinInt64, -1, 0, 1, time.Second, math.MaxInt64/2 + 1, math.MaxInt64}
	for _, openFor := range values {
		for _, openForMax := range values {
			for _, after := range values {
				for _, reopens := range []int{0, 1, 62, 63, 64, math.MaxInt} {
					b := policy.Breaker{OpenFor: openFor, OpenForMax: openForMax}
					for _, random := range []float64{0, math.Nextafter(1, 0)} {
						got := b.OpenDelay(reopens, after, random)
						if got < 0 || got > math.MaxInt64/2 {
							t.Fatalf("%v up to %v, re-opened %d times, Retry-After %v: %v", openFor, openForMax, reopens, after, got)
						}
					}
				}
			}
		}
	}
}

func TestJudgeTellsTheHostsFaultsFromTheRequests(t *testing.T) {
	fault := errors.New("reset")
	for _, test := range []struct {
		status int // 0: no response
		err    error
		want   policy.Verdict
	}{
		{101, nil, policy.Success},
		{200, nil, policy.Success},
		{304, nil, policy.Success},
		{399, nil, policy.Success},
		{400, nil, policy.Neutral},
		{404, nil, policy.Neutral},
		{408, nil, policy.Neutral},
		{429, nil, policy.Neutral},
		{499, nil, policy.Neutral},
		{500, nil, policy.Failure},
		{503, nil, policy.Failure},
		{599, nil, policy.Failure},
		{0, fault, policy.Failure},
		{0, nil, policy.Failure},
		{200, fault, policy.Failure}, // its body was cut short
		{404, fault, policy.Failure},
	} {
		var resp *http.Response
		if test.status != 0 {
			resp = &http.Response{StatusCode: test.status}
		}
		if got := (policy.Breaker{}).Judge(resp, test.err); got != test.want {
			t.Errorf("%d, %v: %v, want %v", test.status, test.err, got, test.want)
		}
	}
}

func TestClassifyOverrulesTheVerdict(t *testing.T) {
	for _, test := range []struct{ says, want policy.Verdict }{
		{policy.Success, policy.Success},
		{policy.Failure, policy.Failure},
		{policy.Neutral, policy.Neutral},
		{policy.Unclassified, policy.Failure}, // the rule's
		{policy.Verdict(99), policy.Failure},  // no verdict: the rule's
	} {
		b := policy.Breaker{Classify: func(*http.Response, error) policy.Verdict { return test.says }}
		if got := b.Judge(&http.Response{StatusCode: 500}, nil); got != test.want {
			t.Errorf("Classify says %v: %v, want %v", test.says, got, test.want)
		}
	}
}

func TestClassifySeesTheResponseAndTheError(t *testing.T) {
	resp, fault := &http.Response{StatusCode: 200}, errors.New("cut short")
	b := policy.Breaker{Classify: func(r *http.Response, err error) policy.Verdict {
		if r != resp || err != fault {
			t.Errorf("Classify was given %v, %v", r, err)
		}
		return policy.Unclassified
	}}
	b.Judge(resp, fault)
}

func TestVerdictsHaveNames(t *testing.T) {
	for v, want := range map[policy.Verdict]string{
		policy.Unclassified: "unclassified",
		policy.Success:      "success",
		policy.Failure:      "failure",
		policy.Neutral:      "neutral",
		99:                  "unclassified",
	} {
		if got := v.String(); got != want {
			t.Errorf("Verdict(%d) is %q, want %q", uint8(v), got, want)
		}
	}
}
