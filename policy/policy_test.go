package policy_test

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/watertight-go/watertight/policy"
)

func ExampleDefault() {
	p := policy.Default()
	fmt.Println(p.Timeout.Attempt, p.Timeout.Total, p.Bulkhead.MaxConcurrent, p.Retry.MaxAttempts)
	// Output: 10s 30s 256 3
}

// A payments host: fail early, and open after three failures in ten seconds.
func ExampleService() {
	payments := policy.Service()
	payments.Timeout.Attempt = 800 * time.Millisecond
	payments.Breaker.SlowCall = 500 * time.Millisecond
	payments.Breaker.FailuresInWindow, payments.Breaker.Window = 3, 10*time.Second

	fmt.Println(payments.Timeout.Attempt, payments.Timeout.Total, payments.Breaker.SlowCall, payments.Breaker.FailuresInWindow)
	fmt.Println(payments.Validate())
	// Output:
	// 800ms 10s 500ms 3
	// <nil>
}

// All problems are reported at once.
func ExamplePolicy_Validate() {
	p := policy.Service()
	p.Timeout.Attempt = 800 * time.Millisecond // SlowCall is still 2 s
	p.Breaker.FailureRate = 50
	p.Retry.Statuses = []int{503, 200}

	err := p.Validate()
	fmt.Println(err)
	if field, ok := errors.AsType[*policy.FieldError](err); ok {
		fmt.Println("first:", field.Path, field.Value)
	}
	// Output:
	// Breaker.FailureRate: 50: must be a fraction from 0 (off) to 1; 0.5 is 50 %
	// Retry.Statuses[1]: 200: must be a status code from 400 to 599
	// Breaker.SlowCall: 2s: must be below Timeout.Attempt (800ms), or no call could ever be counted as slow; two thirds of it is a good start
	// first: Breaker.FailureRate 50
}

// What the table does not list is zero.
func TestDefaultAndServiceAreTheTable(t *testing.T) {
	type row struct{ def, service any }
	same := func(v any) row { return row{v, v} }
	const s, kib = time.Second, int64(1 << 10)
	table := map[string]row{
		"Timeout.Connect":           {3 * s, 1 * s},
		"Timeout.TLSHandshake":      {3 * s, 1 * s},
		"Timeout.Read":              {10 * s, 3 * s},
		"Timeout.Attempt":           {10 * s, 3 * s},
		"Timeout.Total":             {30 * s, 10 * s},
		"Timeout.MinThroughput":     {8 * kib, 32 * kib},
		"Bulkhead.MaxConcurrent":    {256, 20},
		"Bulkhead.BodyIdle":         {5 * time.Minute, time.Minute},
		"Breaker.Window":            same(60 * s),
		"Breaker.MinCalls":          same(20),
		"Breaker.FailureRate":       same(0.5),
		"Breaker.SlowCall":          {5 * s, 2 * s},
		"Breaker.SlowRate":          same(0.5),
		"Breaker.OpenFor":           same(10 * s),
		"Breaker.OpenForMax":        same(60 * s),
		"Breaker.HalfOpenProbes":    same(3),
		"Retry.MaxAttempts":         same(3),
		"Retry.Base":                same(200 * time.Millisecond),
		"Retry.Max":                 same(2 * s),
		"Retry.Statuses":            same([]int{408, 429, 500, 502, 503, 504}),
		"Retry.MaxRetryAfter":       {10 * s, 2 * s},
		"Retry.ReplayBody":          same(64 * kib),
		"Retry.Budget.Ratio":        same(0.2),
		"Retry.Budget.MinPerSecond": {0.2, 1.0},
		"Fallback.StaleLimit":       same(24 * time.Hour),
	}
	def, service := fields(policy.Default()), fields(policy.Service())
	for path := range def {
		want, ok := table[path]
		if !ok {
			zero := reflect.Zero(reflect.TypeOf(def[path])).Interface()
			want = same(zero)
		}
		if got := def[path]; !reflect.DeepEqual(got, want.def) {
			t.Errorf("Default: %s is %v, want %v", path, got, want.def)
		}
		if got := service[path]; !reflect.DeepEqual(got, want.service) {
			t.Errorf("Service: %s is %v, want %v", path, got, want.service)
		}
		delete(table, path)
	}
	for path := range table {
		t.Errorf("there is no field %s", path)
	}
}

// fields flattens a policy into its leaves by path.
func fields(p policy.Policy) map[string]any {
	all := map[string]any{}
	var walk func(path string, v reflect.Value)
	walk = func(path string, v reflect.Value) {
		if v.Kind() != reflect.Struct {
			all[path] = v.Interface()
			return
		}
		for i := range v.NumField() {
			walk(strings.TrimPrefix(path+"."+v.Type().Field(i).Name, "."), v.Field(i))
		}
	}
	walk("", reflect.ValueOf(p))
	return all
}

func TestStatusesOfBothPoliciesAreTheSix(t *testing.T) {
	for name, p := range map[string]policy.Policy{"Default": policy.Default(), "Service": policy.Service()} {
		for _, code := range []int{408, 429, 500, 502, 503, 504} {
			if !p.Retry.Status(code) {
				t.Errorf("%s does not retry %d", name, code)
			}
		}
		if p.Retry.Statuses = append(p.Retry.Statuses, 425); !p.Retry.Status(503) {
			t.Errorf("adding a status to %s takes the others away", name)
		}
	}
}

func TestStartingPoliciesAreValid(t *testing.T) {
	for name, p := range map[string]policy.Policy{
		"Default": policy.Default(),
		"Service": policy.Service(),
		"zero":    {},
		"timeouts alone": {
			Timeout: policy.Timeout{Connect: time.Second, Read: 10 * time.Second},
		},
	} {
		if err := p.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestStartingPoliciesShareNoState(t *testing.T) {
	p := policy.Default()
	p.Breaker.Window = 1
	p.Retry.Statuses = append(p.Retry.Statuses, 425)
	if policy.Default().Breaker.Window == 1 || policy.Default().Retry.Status(425) {
		t.Error("a change to one Default shows in the next")
	}
}

func TestZeroPolicySwitchesEveryLayerOff(t *testing.T) {
	var p policy.Policy
	if p.Breaker.Enabled() || p.Retry.Enabled() || p.Retry.Budget.Enabled() || p.Fallback.Enabled() {
		t.Errorf("%+v switches something on", p)
	}
}

func TestValidateNamesFieldValueAndWhatWouldBeRight(t *testing.T) {
	const (
		off      = "0 (off) or a positive duration"
		count    = "0 (off) or a positive number"
		size     = "0 (off) or a positive number of bytes"
		share    = "a fraction from 0 (off) to 1; 0.5 is 50 %"
		finite   = "0 or a positive, finite number"
		statuses = "a status code from 400 to 599"
		buckets  = "0 (one a second) or a number up to 600"
		calls    = "0 (off) or a number up to 1000000"
		probes   = "0 (3) or a number up to 1000000"
		s        = time.Second
	)
	type change = func(*policy.Policy)
	for _, test := range []struct {
		change change
		path   string
		value  any
		want   string
	}{
		{func(p *policy.Policy) { p.Timeout.Connect = -1 }, "Timeout.Connect", time.Duration(-1), off},
		{func(p *policy.Policy) { p.Timeout.TLSHandshake = -1 }, "Timeout.TLSHandshake", time.Duration(-1), off},
		{func(p *policy.Policy) { p.Timeout.Read = -1 }, "Timeout.Read", time.Duration(-1), off},
		{func(p *policy.Policy) { p.Timeout.Attempt = -1 }, "Timeout.Attempt", time.Duration(-1), off},
		{func(p *policy.Policy) { p.Timeout.Total = -1 }, "Timeout.Total", time.Duration(-1), off},
		{func(p *policy.Policy) { p.Timeout.StreamIdle = -1 }, "Timeout.StreamIdle", time.Duration(-1), off},
		{func(p *policy.Policy) { p.Timeout.MinThroughput = -1 }, "Timeout.MinThroughput", int64(-1), size},
		{func(p *policy.Policy) { p.Timeout.Attempt = 31 * s }, "Timeout.Attempt", 31 * s, "at most Timeout.Total (30s), which would always fire first"},

		{func(p *policy.Policy) { p.Bulkhead.MaxConcurrent = -1 }, "Bulkhead.MaxConcurrent", -1, count},
		{func(p *policy.Policy) { p.Bulkhead.MaxWait = -1 }, "Bulkhead.MaxWait", time.Duration(-1), off},
		{func(p *policy.Policy) { p.Bulkhead.BodyIdle = -1 }, "Bulkhead.BodyIdle", time.Duration(-1), off},

		{func(p *policy.Policy) { p.Breaker.Window = -1 }, "Breaker.Window", time.Duration(-1), "0 (1m0s) or a positive duration"},
		{func(p *policy.Policy) { p.Breaker.SlowCall = -1 }, "Breaker.SlowCall", time.Duration(-1), off},
		{func(p *policy.Policy) { p.Breaker.OpenFor = -1 }, "Breaker.OpenFor", time.Duration(-1), "0 (10s) or a positive duration"},
		{func(p *policy.Policy) { p.Breaker.OpenForMax = -1 }, "Breaker.OpenForMax", time.Duration(-1), off},
		{func(p *policy.Policy) { p.Breaker.WindowCalls = -1 }, "Breaker.WindowCalls", -1, calls},
		{func(p *policy.Policy) { p.Breaker.WindowCalls = 1_000_001 }, "Breaker.WindowCalls", 1_000_001, calls},
		{func(p *policy.Policy) { p.Breaker.ConsecutiveFailures = -1 }, "Breaker.ConsecutiveFailures", -1, count},
		{func(p *policy.Policy) { p.Breaker.FailuresInWindow = -1 }, "Breaker.FailuresInWindow", -1, count},
		{func(p *policy.Policy) { p.Breaker.FailureRate = -0.1 }, "Breaker.FailureRate", -0.1, share},
		{func(p *policy.Policy) { p.Breaker.FailureRate = 50 }, "Breaker.FailureRate", 50.0, share},
		{func(p *policy.Policy) { p.Breaker.FailureRate = math.NaN() }, "Breaker.FailureRate", math.NaN(), share},
		{func(p *policy.Policy) { p.Breaker.FailureRate = math.Inf(1) }, "Breaker.FailureRate", math.Inf(1), share},
		{func(p *policy.Policy) { p.Breaker.SlowRate = math.Nextafter(1, 2) }, "Breaker.SlowRate", math.Nextafter(1, 2), share},
		{func(p *policy.Policy) { p.Breaker.SlowRate = math.NaN() }, "Breaker.SlowRate", math.NaN(), share},
		{func(p *policy.Policy) { p.Breaker.SlowRate = math.Inf(-1) }, "Breaker.SlowRate", math.Inf(-1), share},
		{func(p *policy.Policy) { p.Breaker.MinCalls = -1 }, "Breaker.MinCalls", -1, "0 (20) or a positive number"},
		{func(p *policy.Policy) { p.Breaker.HalfOpenProbes = -1 }, "Breaker.HalfOpenProbes", -1, probes},
		{func(p *policy.Policy) { p.Breaker.HalfOpenProbes = math.MaxInt }, "Breaker.HalfOpenProbes", math.MaxInt, probes},
		{func(p *policy.Policy) { p.Breaker.Buckets = -1 }, "Breaker.Buckets", -1, buckets},
		{func(p *policy.Policy) { p.Breaker.Buckets = 601 }, "Breaker.Buckets", 601, buckets},
		{func(p *policy.Policy) { p.Breaker.Window, p.Breaker.Buckets = 5, 6 }, "Breaker.Buckets", 6, "at most one for each nanosecond of Breaker.Window (5ns)"},
		{func(p *policy.Policy) { p.Breaker.WindowCalls = 19 }, "Breaker.MinCalls", 20, "at most Breaker.WindowCalls (19), which is all that the window can hold"},
		{func(p *policy.Policy) { p.Breaker.WindowCalls, p.Breaker.FailuresInWindow = 30, 31 }, "Breaker.FailuresInWindow", 31, "at most Breaker.WindowCalls (30), which is all that the window can hold"},
		{func(p *policy.Policy) { p.Breaker.OpenForMax = 9 * s }, "Breaker.OpenForMax", 9 * s, "0 (no doubling) or at least Breaker.OpenFor (10s)"},
		{func(p *policy.Policy) { p.Breaker.OpenFor, p.Breaker.OpenForMax = 0, 9*s }, "Breaker.OpenForMax", 9 * s, "0 (no doubling) or at least Breaker.OpenFor (10s)"},
		{func(p *policy.Policy) { p.Breaker.SlowCall = 10 * s }, "Breaker.SlowCall", 10 * s, "below Timeout.Attempt (10s), or no call could ever be counted as slow; two thirds of it is a good start"},
		{func(p *policy.Policy) { p.Timeout.Attempt, p.Breaker.SlowCall = 0, 30*s }, "Breaker.SlowCall", 30 * s, "below Timeout.Total (30s), or no call could ever be counted as slow; two thirds of it is a good start"},
		{func(p *policy.Policy) { p.Bulkhead.MaxConcurrent = 19 }, "Breaker.MinCalls", 20, "at most Bulkhead.MaxConcurrent (19), or a host that hangs could never be proved slow"},

		{func(p *policy.Policy) { p.Retry.MaxAttempts = -1 }, "Retry.MaxAttempts", -1, count},
		{func(p *policy.Policy) { p.Retry.Base = -1 }, "Retry.Base", time.Duration(-1), off},
		{func(p *policy.Policy) { p.Retry.Max = -1 }, "Retry.Max", time.Duration(-1), off},
		{func(p *policy.Policy) { p.Retry.Max = 99 * time.Millisecond }, "Retry.Max", 99 * time.Millisecond, "0 (no cap) or at least half of Retry.Base (200ms)"},
		{func(p *policy.Policy) { p.Retry.MaxRetryAfter = -1 }, "Retry.MaxRetryAfter", time.Duration(-1), off},
		{func(p *policy.Policy) { p.Retry.ReplayBody = -1 }, "Retry.ReplayBody", int64(-1), size},
		{func(p *policy.Policy) { p.Retry.Statuses = []int{503, 399} }, "Retry.Statuses[1]", 399, statuses},
		{func(p *policy.Policy) { p.Retry.Statuses = []int{600} }, "Retry.Statuses[0]", 600, statuses},
		{func(p *policy.Policy) { p.Retry.Budget.Ratio = 1.5 }, "Retry.Budget.Ratio", 1.5, share},
		{func(p *policy.Policy) { p.Retry.Budget.Ratio = math.NaN() }, "Retry.Budget.Ratio", math.NaN(), share},
		{func(p *policy.Policy) { p.Retry.Budget.MinPerSecond = -1 }, "Retry.Budget.MinPerSecond", -1.0, finite},
		{func(p *policy.Policy) { p.Retry.Budget.MinPerSecond = math.NaN() }, "Retry.Budget.MinPerSecond", math.NaN(), finite},
		{func(p *policy.Policy) { p.Retry.Budget.MinPerSecond = math.Inf(1) }, "Retry.Budget.MinPerSecond", math.Inf(1), finite},
		{func(p *policy.Policy) { p.Retry.Budget.MinPerSecond = math.Inf(-1) }, "Retry.Budget.MinPerSecond", math.Inf(-1), finite},

		{func(p *policy.Policy) { p.Fallback.MaxStale = -1 }, "Fallback.MaxStale", time.Duration(-1), off},
		{func(p *policy.Policy) { p.Fallback.StaleLimit = -1 }, "Fallback.StaleLimit", time.Duration(-1), "0 (24h0m0s) or a positive duration"},
		{func(p *policy.Policy) { p.Fallback.MaxStale = 25 * time.Hour }, "Fallback.MaxStale", 25 * time.Hour, "at most Fallback.StaleLimit (24h0m0s), which caps it"},
		{func(p *policy.Policy) { p.Fallback.MaxStale, p.Fallback.StaleLimit = 25*time.Hour, 0 }, "Fallback.MaxStale", 25 * time.Hour, "at most Fallback.StaleLimit (24h0m0s), which caps it"},
	} {
		p := policy.Default()
		test.change(&p)
		errs := problems(t, p.Validate())
		if len(errs) != 1 {
			t.Errorf("%s: %v has %d problems: %v", test.path, test.value, len(errs), errs)
			continue
		}
		e := errs[0]
		if e.Path != test.path || e.Want != test.want || !sameValue(e.Value, test.value) {
			t.Errorf("%q, %T(%v), %q; want %q, %T(%v), %q", e.Path, e.Value, e.Value, e.Want, test.path, test.value, test.value, test.want)
		}
		if got, want := e.Error(), fmt.Sprintf("%s: %v: must be %s", test.path, test.value, test.want); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// problems takes an error of Validate apart.
func problems(t *testing.T, err error) []*policy.FieldError {
	t.Helper()
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return nil
	}
	var all []*policy.FieldError
	for _, e := range joined.Unwrap() {
		field, ok := e.(*policy.FieldError)
		if !ok {
			t.Errorf("%T is no *FieldError: %v", e, e)
			continue
		}
		all = append(all, field)
	}
	return all
}

// sameValue is equality of type and value in which NaN equals itself.
func sameValue(a, b any) bool {
	x, isX := a.(float64)
	y, isY := b.(float64)
	return a == b || isX && isY && math.IsNaN(x) && math.IsNaN(y)
}

func TestValidateTakesValuesAtTheirLimits(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*policy.Policy)
	}{
		{"Attempt equal to Total", func(p *policy.Policy) { p.Timeout.Attempt = p.Timeout.Total }},
		{"Connect, TLSHandshake and Read above Attempt", func(p *policy.Policy) {
			p.Timeout.Connect, p.Timeout.TLSHandshake, p.Timeout.Read = time.Hour, time.Hour, time.Hour
		}},
		{"SlowCall just below Attempt", func(p *policy.Policy) { p.Breaker.SlowCall = p.Timeout.Attempt - 1 }},
		{"SlowCall just below Total, no Attempt", func(p *policy.Policy) { p.Timeout.Attempt, p.Breaker.SlowCall = 0, p.Timeout.Total-1 }},
		{"SlowCall without Attempt and Total", func(p *policy.Policy) { p.Timeout.Attempt, p.Timeout.Total, p.Breaker.SlowCall = 0, 0, time.Minute }},
		{"SlowCall above Attempt, no SlowRate", func(p *policy.Policy) { p.Breaker.SlowCall, p.Breaker.SlowRate = time.Minute, 0 }},
		{"Attempt without Total", func(p *policy.Policy) { p.Timeout.Total, p.Timeout.Attempt = 0, time.Hour }},
		{"MinCalls equal to MaxConcurrent", func(p *policy.Policy) { p.Bulkhead.MaxConcurrent = 20 }},
		{"MinCalls equal to WindowCalls", func(p *policy.Policy) { p.Breaker.WindowCalls = 20 }},
		{"MinCalls by default", func(p *policy.Policy) {
			p.Breaker.MinCalls, p.Breaker.WindowCalls, p.Bulkhead.MaxConcurrent = 0, 10, 5
		}},
		{"MinCalls that no trigger uses", func(p *policy.Policy) {
			p.Breaker.FailureRate, p.Breaker.SlowRate, p.Breaker.ConsecutiveFailures = 0, 0, 5
			p.Breaker.WindowCalls, p.Bulkhead.MaxConcurrent = 10, 5
		}},
		{"FailuresInWindow equal to WindowCalls", func(p *policy.Policy) { p.Breaker.WindowCalls, p.Breaker.FailuresInWindow = 20, 20 }},
		{"the most calls and probes", func(p *policy.Policy) { p.Breaker.WindowCalls, p.Breaker.HalfOpenProbes = 1_000_000, 1_000_000 }},
		{"the most buckets", func(p *policy.Policy) { p.Breaker.Buckets = 600 }},
		{"a bucket a nanosecond", func(p *policy.Policy) { p.Breaker.Window, p.Breaker.Buckets = 6, 6 }},
		{"OpenForMax equal to OpenFor", func(p *policy.Policy) { p.Breaker.OpenForMax = p.Breaker.OpenFor }},
		{"rates of one", func(p *policy.Policy) { p.Breaker.FailureRate, p.Breaker.SlowRate, p.Retry.Budget.Ratio = 1, 1, 1 }},
		{"Max half of Base", func(p *policy.Policy) { p.Retry.Max = p.Retry.Base / 2 }},
		{"Base without Max", func(p *policy.Policy) { p.Retry.Max = 0 }},
		{"statuses at both ends", func(p *policy.Policy) { p.Retry.Statuses = []int{400, 599} }},
		{"no statuses", func(p *policy.Policy) { p.Retry.Statuses = []int{} }},
		{"MaxStale equal to StaleLimit", func(p *policy.Policy) { p.Fallback.MaxStale = p.Fallback.StaleLimit }},
		{"hooks and shadows", func(p *policy.Policy) {
			p.Breaker.Classify = func(*http.Response, error) policy.Verdict { return policy.Neutral }
			p.Fallback.Degraded = func(*http.Request, error) *http.Response { return nil }
			p.Timeout.Shadow, p.Bulkhead.Shadow, p.Breaker.Shadow, p.Retry.Shadow, p.Fallback.Shadow = true, true, true, true, true
		}},
	} {
		p := policy.Default()
		test.change(&p)
		if err := p.Validate(); err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

func TestValidateReportsAllProblemsAtOnce(t *testing.T) {
	var p policy.Policy
	p.Timeout.Read = -1
	p.Bulkhead.MaxWait = -1
	p.Breaker.Window = -1
	p.Retry.Statuses = []int{1, 2}
	p.Fallback.MaxStale = -1
	var paths []string
	for _, e := range problems(t, p.Validate()) {
		paths = append(paths, e.Path)
	}
	want := []string{"Timeout.Read", "Bulkhead.MaxWait", "Breaker.Window", "Retry.Statuses[0]", "Retry.Statuses[1]", "Fallback.MaxStale"}
	if !reflect.DeepEqual(paths, want) {
		t.Errorf("%q, want %q", paths, want)
	}
}
