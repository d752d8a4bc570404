package policy_test

import (
	"fmt"
	"math"
	"math/big"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/watertight-go/watertight/policy"
)

func ExampleRetryAfter() {
	now := time.Date(1994, time.November, 6, 8, 49, 7, 0, time.UTC)
	for _, value := range []string{"120", "Sun, 06 Nov 1994 08:49:37 GMT", "-5"} {
		fmt.Println(policy.RetryAfter(http.Header{"Retry-After": {value}}, now))
	}
	// Output:
	// 2m0s true
	// 30s true
	// 0s false
}

func ExampleRetry_Delay() {
	r := policy.Default().Retry
	for retry := range 5 {
		fmt.Println(r.Delay(retry, 0.5))
	}
	// Output:
	// 150ms
	// 250ms
	// 450ms
	// 850ms
	// 1.05s
}

func TestRetryIsOnFromTheSecondAttempt(t *testing.T) {
	for attempts, want := range map[int]bool{-1: false, 0: false, 1: false, 2: true, 3: true} {
		if got := (policy.Retry{MaxAttempts: attempts}).Enabled(); got != want {
			t.Errorf("%d attempts: %v, want %v", attempts, got, want)
		}
	}
}

func TestRetryStatusesDefaultToThoseThatPass(t *testing.T) {
	retried := map[int]bool{408: true, 429: true, 500: true, 502: true, 503: true, 504: true}
	for code := range 600 {
		if got := (policy.Retry{}).Status(code); got != retried[code] {
			t.Errorf("%d: %v, want %v", code, got, retried[code])
		}
	}
}

func TestRetryStatusesReplaceTheDefault(t *testing.T) {
	for _, test := range []struct {
		name     string
		statuses []int
		code     int
		want     bool
	}{
		{"listed", []int{425, 503}, 425, true},
		{"not listed", []int{425, 503}, 500, false},
		{"an empty list retries none", []int{}, 503, false},
	} {
		if got := (policy.Retry{Statuses: test.statuses}).Status(test.code); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}

func TestDelayIsBetweenHalfTheBaseAndItsDoubles(t *testing.T) {
	almost1 := math.Nextafter(1, 0)
	r := policy.Retry{Base: 200 * time.Millisecond, Max: 2 * time.Second}
	for _, test := range []struct {
		retry       int
		least, most time.Duration
	}{
		{-1, 100 * time.Millisecond, 200 * time.Millisecond},
		{0, 100 * time.Millisecond, 200 * time.Millisecond},
		{1, 100 * time.Millisecond, 400 * time.Millisecond},
		{3, 100 * time.Millisecond, 1600 * time.Millisecond},
		{4, 100 * time.Millisecond, 2 * time.Second},
		{math.MaxInt, 100 * time.Millisecond, 2 * time.Second},
	} {
		if got := r.Delay(test.retry, 0); got != test.least {
			t.Errorf("retry %d waits at least %v, want %v", test.retry, got, test.least)
		}
		if got := r.Delay(test.retry, almost1); got != test.most-1 {
			t.Errorf("retry %d waits at most %v, want just below %v", test.retry, got, test.most)
		}
	}
}

func TestDelayTakesOddSettings(t *testing.T) {
	for _, test := range []struct {
		name  string
		r     policy.Retry
		retry int
		least time.Duration
		most  time.Duration
	}{
		{"no base", policy.Retry{Max: time.Second}, 3, 0, 0},
		{"negative base", policy.Retry{Base: -1}, 3, 0, 0},
		{"no cap", policy.Retry{Base: time.Second}, 10, time.Second / 2, 1024*time.Second - 1},
		{"cap below the base", policy.Retry{Base: 4, Max: 3}, 5, 2, 2},
		{"cap below half the base", policy.Retry{Base: 10, Max: 3}, 5, 3, 3},
		{"one nanosecond", policy.Retry{Base: 1}, 0, 0, 0},
	} {
		if got := test.r.Delay(test.retry, 0); got != test.least {
			t.Errorf("%s: at least %v, want %v", test.name, got, test.least)
		}
		if got := test.r.Delay(test.retry, math.Nextafter(1, 0)); got < test.most-time.Microsecond || got > test.most {
			t.Errorf("%s: at most %v, want %v", test.name, got, test.most)
		}
	}
}

func FuzzDelay(f *testing.F) {
	f.Add(int64(200*time.Millisecond), int64(2*time.Second), 0, 0.5)
	f.Add(int64(time.Second), int64(0), 62, math.Nextafter(1, 0))
	f.Add(int64(math.MaxInt64), int64(0), math.MaxInt, math.Nextafter(1, 0))
	f.Add(int64(math.MaxInt64), int64(math.MaxInt64), 1, 0.0)
	f.Add(int64(1), int64(math.MaxInt64), 63, 0.999)
	f.Add(int64(10), int64(3), -1, 0.5)
	f.Fuzz(func(t *testing.T, base, most int64, retry int, random float64) {
		if !(random >= 0 && random < 1) || most < 0 {
			t.Skip()
		}
		got := big.NewInt(int64(policy.Retry{Base: time.Duration(base), Max: time.Duration(most)}.Delay(retry, random)))
		base = max(base, 0)
		upper := new(big.Int).Lsh(big.NewInt(base), uint(min(max(retry, 0), 64)))
		if limit := big.NewInt(most); most > 0 && upper.Cmp(limit) > 0 {
			upper = limit
		}
		lower := big.NewInt(base / 2)
		if lower.Cmp(upper) > 0 { // Max below Base/2, which Validate refuses
			lower = upper
		}
		if got.Cmp(lower) < 0 || got.Cmp(upper) > 0 {
			t.Errorf("Base %d, Max %d, retry %d, random %v: %v is not in [%v, %v]", base, most, retry, random, got, lower, upper)
		}
	})
}

// A server must not be able to choose a wait of hours.
func TestRetryAfterRaisesTheDelayUpToItsLimit(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	service := policy.Service().Retry
	for _, test := range []struct {
		name         string
		r            policy.Retry
		delay, after time.Duration
		random       float64
		want         time.Duration
		ok           bool
	}{
		{"none", service, 150 * ms, 0, 0.5, 150 * ms, true},
		{"below the delay", service, 1500 * ms, s, 0.5, 1500 * ms, true},
		{"equal to the delay", service, s, s, 0.5, s, true},
		{"above the delay", service, 150 * ms, s, 0, s, true},
		{"with jitter", service, 150 * ms, s, 0.5, s + 100*ms, true},
		{"at the limit", service, 150 * ms, 2 * s, 0, 2 * s, true},
		{"beyond the limit", service, 150 * ms, 2*s + 1, 0, 0, false},
		{"an hour", service, 150 * ms, time.Hour, 0, 0, false},
		{"no limit but Max", policy.Retry{Base: ms, Max: s}, 0, s, 0, s, true},
		{"beyond Max", policy.Retry{Base: ms, Max: s}, 0, s + 1, 0, 0, false},
		{"neither limit nor Max", policy.Retry{Base: ms}, ms, s, 0, 0, false},
		{"neither, and none asked for", policy.Retry{Base: ms}, ms, 0, 0, ms, true},
		{"no base, no jitter", policy.Retry{MaxRetryAfter: s}, 0, s, 0.9, s, true},
	} {
		got, ok := test.r.RetryAfterDelay(test.delay, test.after, test.random)
		if got != test.want || ok != test.ok {
			t.Errorf("%s: %v, %v; want %v, %v", test.name, got, ok, test.want, test.ok)
		}
	}
}

func TestRetryAfterDelayNeverOverflows(t *testing.T) {
	r := policy.Retry{Base: math.MaxInt64, MaxRetryAfter: math.MaxInt64}
	for _, after := range []time.Duration{math.MinInt64, 0, 1, math.MaxInt32 * time.Second, math.MaxInt64} {
		if got, ok := r.RetryAfterDelay(0, after, math.Nextafter(1, 0)); !ok || got < 0 {
			t.Errorf("Retry-After %v: %v, %v", after, got, ok)
		}
	}
}

func TestRetryAfterReadsSecondsAndDates(t *testing.T) {
	now := time.Date(1994, time.November, 6, 8, 49, 7, 0, time.UTC)
	const longest = math.MaxInt32 * time.Second
	for _, test := range []struct {
		name   string
		values []string
		want   time.Duration
	}{
		{"seconds", []string{"120"}, 2 * time.Minute},
		{"space around", []string{" \t120 "}, 2 * time.Minute},
		{"leading zeros", []string{"0000000000000000000000005"}, 5 * time.Second},
		{"largest", []string{"2147483647"}, longest},
		{"saturated", []string{"2147483648"}, longest},
		{"beyond 64 bits", []string{"99999999999999999999999"}, longest},
		{"IMF-fixdate", []string{"Sun, 06 Nov 1994 08:49:37 GMT"}, 30 * time.Second},
		{"RFC 850 date", []string{"Sunday, 06-Nov-94 08:49:37 GMT"}, 30 * time.Second},
		{"asctime date", []string{"Sun Nov  6 08:49:37 1994"}, 30 * time.Second},
		{"a second ahead", []string{"Sun, 06 Nov 1994 08:49:08 GMT"}, time.Second},
		{"far date", []string{"Fri, 31 Dec 9999 23:59:59 GMT"}, longest},
		{"repeated alike", []string{"7", " 7"}, 7 * time.Second},

		{"missing", nil, 0},
		{"empty", []string{""}, 0},
		{"blank", []string{" "}, 0},
		{"zero", []string{"0"}, 0},
		{"negative", []string{"-5"}, 0},
		{"signed", []string{"+5"}, 0},
		{"fraction", []string{"1.5"}, 0},
		{"word", []string{"abc"}, 0},
		{"unit", []string{"5s"}, 0},
		{"list", []string{"5, 5"}, 0},
		{"digits of another script", []string{"５"}, 0},
		{"date in the past", []string{"Sun, 06 Nov 1994 08:49:06 GMT"}, 0},
		{"now", []string{"Sun, 06 Nov 1994 08:49:07 GMT"}, 0},
		{"date long past", []string{"Mon, 01 Jan 0001 00:00:00 GMT"}, 0},
		{"another zone", []string{"Sun, 06 Nov 1994 08:49:37 EST"}, 0},
		{"another zone, RFC 850", []string{"Sunday, 06-Nov-94 08:49:37 EST"}, 0},
		{"an offset, RFC 850", []string{"Sunday, 06-Nov-94 08:49:37 GMT-5"}, 0},
		{"no such day", []string{"Sun, 31 Nov 1994 08:49:37 GMT"}, 0},
		{"RFC 3339", []string{"1994-11-06T08:49:37Z"}, 0},
		{"repeated differently", []string{"7", "8"}, 0},
	} {
		got, ok := policy.RetryAfter(http.Header{"Retry-After": test.values}, now)
		if got != test.want || ok != (test.want > 0) {
			t.Errorf("%s: %v, %v; want %v, %v", test.name, got, ok, test.want, test.want > 0)
		}
	}
}

func TestRetryAfterKeepsTheFractionOfTheClock(t *testing.T) {
	now := time.Date(1994, time.November, 6, 8, 49, 36, 600e6, time.UTC)
	got, ok := policy.RetryAfter(http.Header{"Retry-After": {"Sun, 06 Nov 1994 08:49:37 GMT"}}, now)
	if got != 400*time.Millisecond || !ok {
		t.Errorf("%v, %v; want 400ms", got, ok)
	}
}

func FuzzRetryAfter(f *testing.F) {
	for _, v := range []string{
		"120", "0", "-5", "abc", "", " 7 ", "2147483648", "99999999999999999999",
		"Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994",
		"Sunday, 06-Nov-94 08:49:37 EST", "Fri, 31 Dec 9999 23:59:59 GMT", "Sun, 06 Nov 1994 08:49:37.5 GMT",
	} {
		f.Add(v, int64(784111747))
		f.Add(v, int64(math.MinInt64))
	}
	f.Fuzz(func(t *testing.T, value string, unix int64) {
		now := time.Unix(unix%(1<<40), 0)
		got, ok := policy.RetryAfter(http.Header{"Retry-After": {value}}, now)
		if got < 0 || got > math.MaxInt32*time.Second || ok != (got > 0) {
			t.Fatalf("%q at %v: %v, %v", value, now, got, ok)
		}
		if want := referenceRetryAfter(value, now); got != want {
			t.Errorf("%q at %v: %v, want %v", value, now, got, want)
		}
	})
}

var (
	deltaSeconds = regexp.MustCompile(`^[0-9]+$`)
	inGMT        = regexp.MustCompile(` GMT$`)
)

// referenceRetryAfter is RFC 9110 section 10.2.3 in numbers without a limit.
func referenceRetryAfter(value string, now time.Time) time.Duration {
	value = strings.TrimSpace(value)
	nanos := new(big.Int)
	if deltaSeconds.MatchString(value) {
		nanos.SetString(value, 10)
		nanos.Mul(nanos, big.NewInt(1e9))
	} else if at, err := time.ParseInLocation(time.ANSIC, value, time.UTC); err == nil {
		nanos = between(now, at)
	} else if at, err := time.ParseInLocation(time.RFC850, value, time.UTC); err == nil && inGMT.MatchString(value) {
		nanos = between(now, at)
	} else if at, err := time.ParseInLocation(http.TimeFormat, value, time.UTC); err == nil {
		nanos = between(now, at)
	}
	if nanos.Sign() < 0 {
		return 0
	}
	if most := big.NewInt(math.MaxInt32 * 1e9); nanos.Cmp(most) > 0 {
		nanos = most
	}
	return time.Duration(nanos.Int64())
}

func between(from, to time.Time) *big.Int {
	n := big.NewInt(to.Unix() - from.Unix())
	n.Mul(n, big.NewInt(1e9))
	return n.Add(n, big.NewInt(int64(to.Nanosecond()-from.Nanosecond())))
}

func TestIdempotentRequestsMayBeSentTwice(t *testing.T) {
	for _, test := range []struct {
		method string
		header http.Header
		want   bool
	}{
		{"", nil, true},
		{"GET", nil, true},
		{"HEAD", nil, true},
		{"OPTIONS", nil, true},
		{"TRACE", nil, true},
		{"PUT", nil, true},
		{"DELETE", nil, true},
		{"POST", nil, false},
		{"PATCH", nil, false},
		{"CONNECT", nil, false},
		{"get", nil, false}, // methods are case-sensitive
		{"POST", http.Header{"Idempotency-Key": {"k"}}, true},
		{"POST", http.Header{"Idempotency-Key": {}}, true},
		{"POST", http.Header{"Idempotency-Key": nil}, true}, // not sent, but replayable
		{"PATCH", http.Header{"X-Idempotency-Key": {"k"}}, true},
		{"POST", http.Header{"Idempotent": {"k"}}, false},
	} {
		if got := policy.Idempotent(&http.Request{Method: test.method, Header: test.header}); got != test.want {
			t.Errorf("%s %v: %v, want %v", test.method, test.header, got, test.want)
		}
	}
}

func TestBudgetIsOnWithEitherField(t *testing.T) {
	for b, want := range map[policy.Budget]bool{
		{}:                              false,
		{Ratio: 0.2}:                    true,
		{MinPerSecond: 0.2}:             true,
		{Ratio: 0.2, MinPerSecond: 0.2}: true,
	} {
		if got := b.Enabled(); got != want {
			t.Errorf("%+v: %v, want %v", b, got, want)
		}
	}
}

func TestBudgetRefillsBySuccessAndTime(t *testing.T) {
	b := policy.Budget{Ratio: 0.25, MinPerSecond: 0.5}
	for _, test := range []struct {
		name      string
		tokens    float64
		successes int
		elapsed   time.Duration
		want      float64
	}{
		{"nothing happened", 3, 0, 0, 3},
		{"four successes", 0, 4, 0, 1},
		{"three seconds", 0, 0, 3 * time.Second, 1.5},
		{"half a second", 0, 0, 500 * time.Millisecond, 0.25},
		{"both", 1, 4, 2 * time.Second, 3},
		{"no more than the burst", 9.5, 4, 0, policy.BudgetBurst},
		{"a clock that went back", 3, 0, -time.Hour, 3},
		{"all successes there are", 0, math.MaxInt, 0, policy.BudgetBurst},
		{"all time there is", 0, 0, math.MaxInt64, policy.BudgetBurst},
		{"a clock at its end", 3, 0, math.MinInt64, 3},
	} {
		if got := b.Refill(test.tokens, test.successes, test.elapsed); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}

func TestBudgetRefillStaysFinite(t *testing.T) {
	b := policy.Budget{Ratio: 1, MinPerSecond: math.MaxFloat64}
	if got := b.Refill(0, math.MaxInt, math.MaxInt64); got != policy.BudgetBurst {
		t.Errorf("%v, want %v", got, policy.BudgetBurst)
	}
	if got := b.Refill(1, 0, 0); got != 1 {
		t.Errorf("%v, want 1", got)
	}
}

// However many calls ask for one, retries add no more than a fifth of the calls
// that succeed, and the burst.
func TestBudgetBoundsRetriesToItsShare(t *testing.T) {
	b := policy.Budget{Ratio: 0.2}
	tokens, retries := float64(policy.BudgetBurst), 0
	for range 10_000 {
		tokens = b.Refill(tokens, 1, 0)
		for tokens >= 1 {
			tokens--
			retries++
		}
	}
	if want := 10_000/5 + policy.BudgetBurst; retries > want || retries < want-1 {
		t.Errorf("%d retries for 10,000 successes, want %d", retries, want)
	}
}
