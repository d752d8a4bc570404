package status_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"maps"
	"net/http"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/status"
)

var update = flag.Bool("update", false, "write testdata/host.json anew")

// outage is a host in the middle of one, with a value in every field.
func outage() (*transport.HostSnapshot, time.Time) {
	began := time.Date(2026, 3, 29, 1, 59, 50, 0, time.FixedZone("CET", 3600))
	at := began.Add(95*time.Second + 250*time.Millisecond)
	p := policy.Service()
	p.Timeout.StreamIdle = 90 * time.Second
	p.Timeout.Shadow = true
	p.Bulkhead.MaxWait = 50 * time.Millisecond
	p.Breaker.ConsecutiveFailures, p.Breaker.FailuresInWindow = 12, 30
	p.Breaker.Classify = func(*http.Response, error) policy.Verdict { return policy.Unclassified }
	p.Retry.Shadow = true
	p.Fallback.MaxStale, p.Fallback.FailFast503 = 10*time.Minute, true
	p.Fallback.Degraded = func(*http.Request, error) *http.Response { return nil }
	p.Cache = policy.Cache{Off: true, RefreshInterval: time.Second, KeyHeaders: []string{"X-Tenant"}, Partition: func(*http.Request) (string, bool) { return "", true }}
	p.Fallback.After, p.Streaming = 200*time.Millisecond, true
	cause := transport.Evidence{Trigger: "slow_call_rate", Window: 2 * time.Second, Timed: 20, Slow: 18, SlowCall: 2 * time.Second, Calls: 3, Failures: 1, Consecutive: 1, Threshold: 0.5, Last: "read timeout"}
	probe := transport.Evidence{Trigger: "probe_failed", Last: "status 503"}
	reopened := began.Add(85 * time.Second)
	return &transport.HostSnapshot{
		Scheme: "https", Host: "telemetry.internal:8443", Policy: p,
		State: transport.Open, Since: reopened, ClosedUntil: began, Cause: &cause, RetryIn: 8 * time.Second,
		Trip: &probe, Tripped: reopened,
		Window: transport.Evidence{Window: time.Minute, Calls: 30, Failures: 10, Timed: 60, Slow: 18, Consecutive: 2, Last: "status 503"},
		Transitions: []transport.Transition{
			{From: transport.Closed, To: transport.Open, At: began, Until: began.Add(83 * time.Second), Evidence: cause},
			{From: transport.Open, To: transport.HalfOpen, At: began.Add(84 * time.Second), Evidence: transport.Evidence{Trigger: "wait_over"}},
			{From: transport.HalfOpen, To: transport.Open, At: reopened, Until: reopened.Add(18 * time.Second), Evidence: probe},
		},
		Failures: []transport.Failure{{At: began, What: "read timeout"}, {At: began.Add(time.Second), What: "read timeout"}, {At: reopened, What: "status 503"}},
		InFlight: 3, MaxConcurrent: 20, Waiting: 2, RetryBudget: 3.27,
		Latency: transport.Latency{Attempts: 123, P50: 20480 * time.Microsecond, P95: 655360 * time.Microsecond, P99: 3145728 * time.Microsecond},
		Stale:   transport.ServedStale{At: at.Add(-1500 * time.Millisecond), AsOf: began.Add(-2 * time.Second)},
		Counts: transport.Counts{Calls: 1, Attempts: 2, Retries: 3, RetriesSuppressed: 4, Success: 5, Failure: 6, Neutral: 7, RefusedOpen: 8, RefusedHalfOpen: 9, Rejected: 10,
			Stale: 11, Degraded: 12, FailFast: 13, Leaked: 14,
			Timeouts: map[string]int64{"queue": 22, "connect": 15, "tls": 16, "write": 23, "response_header": 17, "body": 18, "attempt": 19, "total": 20, "stream": 21}},
	}, at
}

// The shape of the JSON is a promise: programs read it.
func TestDocumentOfAHostKeepsItsShape(t *testing.T) {
	const golden = "testdata/host.json"
	snapshot, at := outage()
	got, err := json.MarshalIndent(status.Describe(snapshot, at), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	if *update {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("differs from %s (-update writes it anew):\n%s", golden, got)
	}
}

// A field of a snapshot or a policy that nothing in the document depends on has been
// forgotten.
func TestDocumentLeavesNothingOut(t *testing.T) {
	described := func(s *transport.HostSnapshot, at time.Time) string {
		d, err := json.Marshal(status.Describe(s, at))
		if err != nil {
			t.Fatal(err)
		}
		return string(d)
	}
	full, at := outage()
	whole := described(full, at)
	skip := map[string]bool{
		"RetryIn":                true, // follows from the last transition
		"Policy.Breaker.Buckets": true, // not for people
		"Window.Trigger":         true, // empty: nothing has tripped
		"Window.Threshold":       true,
		"Window.SlowCall":        true, // as in the policy
	}
	var visit func(path string, field func(*transport.HostSnapshot) reflect.Value)
	visit = func(path string, field func(*transport.HostSnapshot) reflect.Value) {
		s, at := outage()
		v := field(s)
		if v.Kind() == reflect.Struct && v.Type() != reflect.TypeFor[time.Time]() {
			for i := range v.NumField() {
				visit(strings.TrimPrefix(path+"."+v.Type().Field(i).Name, "."), func(s *transport.HostSnapshot) reflect.Value { return field(s).Field(i) })
			}
			return
		}
		switch {
		case v.Kind() == reflect.Bool:
			v.SetBool(!v.Bool())
		case v.CanInt():
			v.SetInt(2*v.Int() + 1)
		case v.CanUint():
			v.SetUint(v.Uint() + 1)
		case v.CanFloat():
			v.SetFloat(v.Float() + 1)
		default:
			v.SetZero()
		}
		if described(s, at) == whole && !skip[path] {
			t.Errorf("%s is in no field of the document", path)
		}
	}
	visit("", func(s *transport.HostSnapshot) reflect.Value { return reflect.ValueOf(s).Elem() })
}

// Whoever reads the JSON and decodes it by these types meets one name for one thing.
func TestFieldsAreNamedInJSONAsInGo(t *testing.T) {
	units := regexp.MustCompile(`_(seconds|bytes|bytes_per_second)$`)
	var visit func(reflect.Type)
	visit = func(s reflect.Type) {
		for s.Kind() == reflect.Pointer || s.Kind() == reflect.Slice {
			s = s.Elem()
		}
		if s.Kind() != reflect.Struct || s == reflect.TypeFor[time.Time]() {
			return
		}
		for i := range s.NumField() {
			f := s.Field(i)
			visit(f.Type)
			if f.Anonymous {
				continue
			}
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			plain := strings.NewReplacer("_", "")
			if inGo := strings.ToLower(f.Name); plain.Replace(name) != inGo && plain.Replace(units.ReplaceAllString(name, "")) != inGo {
				t.Errorf("%s.%s is %s in JSON", s.Name(), f.Name, name)
			}
		}
	}
	visit(reflect.TypeFor[status.Hosts]())
	visit(reflect.TypeFor[status.Transitions]())
	visit(reflect.TypeFor[status.Controlled]())
}

// The phases are those that a Transport counts: it once had two more than the document.
func TestDocumentHasEveryPhaseOfTimeouts(t *testing.T) {
	tr := (&world{}).over(t, transport.Config{})
	_ = call(tr, "https://a.test")
	var got map[string]int64
	data, _ := json.Marshal(status.Timeouts{})
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if want := tr.Snapshot()[0].Counts.Timeouts; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}
}

func TestDocumentHasTheMostFrequentFailureFirst(t *testing.T) {
	now := time.Now()
	s := &transport.HostSnapshot{Failures: []transport.Failure{{At: now, What: "reset"}, {At: now, What: "status 500"}, {At: now, What: "eof"}, {At: now.Add(1e9), What: "status 500"}, {At: now.Add(2e9), What: "eof"}}}
	got := status.Describe(s, now).Failures
	if len(got) != 3 || got[0].What != "eof" || got[0].Count != 2 || got[1].What != "status 500" || got[2].What != "reset" {
		t.Errorf("%+v", got)
	}
}

func TestDocumentHasNoThresholdForWhatIsOff(t *testing.T) {
	s := &transport.HostSnapshot{Policy: policy.Policy{Breaker: policy.Breaker{FailureRate: 0.5, SlowRate: 0.5}}}
	if w := status.Describe(s, time.Now()).Window; w.SlowRateThreshold != 0 || w.FailureRateThreshold != 0.5 || w.MinCalls != 20 {
		t.Errorf("without SlowCall no call is slow: %+v", w)
	}
}

func TestDocumentOfAHostThatIsFineSaysNoMoreThanThere(t *testing.T) {
	s := &transport.HostSnapshot{Scheme: "http", Host: "a.test:80"}
	got, _ := json.Marshal(status.Describe(s, time.Now()))
	for _, absent := range []string{"since", "closed_until", "cause", "probe_due", "trip", `"window"`, "budget\"", "last_stale", "0001-01-01"} {
		if strings.Contains(string(got), absent) {
			t.Errorf("%s: %s", absent, got)
		}
	}
	for _, there := range []string{`"shadow":[]`, `"failures":[]`, `"breaker":null`} {
		if !strings.Contains(string(got), there) {
			t.Errorf("no %s: %s", there, got)
		}
	}
}

// 28.35 s were once 28.349999999999998: Duration.Seconds adds two numbers.
func TestDocumentRoundsSecondsToWhatIsWrittenSo(t *testing.T) {
	s, at := outage()
	for ms := range int64(60_000) {
		s.Transitions[len(s.Transitions)-1].Until = at.Add(time.Duration(ms)*time.Millisecond + 7)
		d, err := json.Marshal(status.Describe(s, at).ProbeDueSeconds)
		if _, digits, _ := strings.Cut(string(d), "."); err != nil || len(digits) > 3 {
			t.Fatalf("%d ms: %s", ms, d)
		}
	}
}
