package transport_test

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/transporttest"
)

func slogTo(h slog.Handler) *slog.Logger { return slog.New(h) }

// configProblems are the paths of all that is wrong with a configuration.
func configProblems(err error) []string {
	var paths []string
	var walk func(error)
	walk = func(err error) {
		switch e := err.(type) {
		case *policy.FieldError:
			paths = append(paths, e.Path)
		case interface{ Unwrap() []error }:
			for _, err := range e.Unwrap() {
				walk(err)
			}
		case interface{ Unwrap() error }:
			walk(e.Unwrap())
		}
	}
	walk(err)
	return paths
}

func TestConfigReportsEveryProblemWithItsPath(t *testing.T) {
	bad := policy.Service()
	bad.Timeout.Attempt = time.Minute    // above Total
	bad.Breaker.SlowCall = 2 * time.Hour // not below Attempt
	bad.Breaker.MinCalls = 50            // above MaxConcurrent
	bad.Retry.Base = -time.Second
	bad.Fallback.MaxStale = 48 * time.Hour // above StaleLimit
	worse := policy.Policy{Bulkhead: policy.Bulkhead{MaxWait: -1}, Breaker: policy.Breaker{FailureRate: math.NaN(), WindowCalls: 10, MinCalls: 20}}
	_, err := transport.New(transport.Config{
		Default:       bad,
		Hosts:         map[string]policy.Policy{"payments.internal": worse, "*.assets.test:8443": {Timeout: policy.Timeout{Read: -1}}},
		MaxConcurrent: -1,
		MaxHosts:      -2,
		MaxIdleConns:  -3,
	})
	got := configProblems(err)
	want := []string{
		"MaxConcurrent", "MaxHosts", "MaxIdleConns",
		"Default.Timeout.Attempt", "Default.Retry.Base", "Default.Fallback.MaxStale", "Default.Breaker.SlowCall", "Default.Breaker.MinCalls",
		`Hosts["*.assets.test:8443"].Timeout.Read`,
		`Hosts["payments.internal"].Bulkhead.MaxWait`, `Hosts["payments.internal"].Breaker.FailureRate`,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("problems\n%q, want\n%q", got, want)
	}
	for _, path := range want {
		if !strings.Contains(err.Error(), path+": ") {
			t.Errorf("%s is not in the text", path)
		}
	}
	if !strings.HasPrefix(err.Error(), "watertight: ") {
		t.Errorf("%v", err)
	}
}

func TestConfigNamesHostsThatAreNone(t *testing.T) {
	for name, want := range map[string]string{
		"":                           "has no name",
		"https://a.test":             "has a scheme",
		"a.test/path":                "more than a host and a port",
		"a.test:0":                   "port",
		"a.test:99999":               "port",
		"*":                          "*",
		"a.*.test":                   "*",
		"a..test":                    "name",
		"user:S3CRET@a.test":         "more than a host",
		"https://a.test/?sig=S3CRET": "has a scheme",
	} {
		_, err := transport.New(transport.Config{Hosts: map[string]policy.Policy{name: {}, "good.test": {}}})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "S3CRET") || strings.Contains(err.Error(), "good.test") {
			t.Errorf("%q: %v, want %q", name, err, want)
		}
	}
}

func TestConfigRefusesTwoEntriesForOneHost(t *testing.T) {
	for _, pair := range [][2]string{
		{"a.test", "A.test"}, {"a.test", "a.test."}, {"a.test:80", "a.test:080"}, {"bücher.test", "xn--bcher-kva.test"},
		{"*.a.test", "*.A.TEST"}, {"[::1]", "::1"}, {"[::1]:80", "[0:0::1]:80"},
	} {
		_, err := transport.New(transport.Config{Hosts: map[string]policy.Policy{pair[0]: {}, pair[1]: {}}})
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q", pair[0])) || !strings.Contains(err.Error(), fmt.Sprintf("%q", pair[1])) {
			t.Errorf("%q: %v", pair, err)
		}
	}
	if _, err := transport.New(transport.Config{Hosts: map[string]policy.Policy{"a.test": {}, "a.test:80": {}, "*.a.test": {}, "b.a.test": {}}}); err != nil {
		t.Error(err)
	}
}

func TestConfigBoundsEachHostByTheWholeProcess(t *testing.T) {
	capped := func(n int) policy.Policy { return policy.Policy{Bulkhead: policy.Bulkhead{MaxConcurrent: n}} }
	rates := func(minCalls int) policy.Policy {
		return policy.Policy{Breaker: policy.Breaker{MinCalls: minCalls, FailureRate: 0.5}}
	}
	for _, test := range []struct {
		name   string
		config transport.Config
		want   []string
	}{
		{"no bound", transport.Config{Default: capped(1000)}, nil},
		{"a host's cap up to it", transport.Config{MaxConcurrent: 10, Default: capped(10)}, nil},
		{"their sum above it", transport.Config{MaxConcurrent: 10, Default: capped(10), Hosts: map[string]policy.Policy{"a.test": capped(10)}}, nil},
		{"a host's cap above it", transport.Config{MaxConcurrent: 10, Default: capped(1), Hosts: map[string]policy.Policy{"a.test": capped(11)}}, []string{`Hosts["a.test"].Bulkhead.MaxConcurrent`}},
		{"the default's cap above it", transport.Config{MaxConcurrent: 10, Default: capped(11)}, []string{"Default.Bulkhead.MaxConcurrent"}},
		{"the default of the default", transport.Config{MaxConcurrent: 10}, nil},
		{"no cap of its own", transport.Config{MaxConcurrent: 10, Default: rates(10)}, nil},
		{"evidence that could never be had", transport.Config{MaxConcurrent: 10, Default: rates(11)}, []string{"Default.Breaker.MinCalls"}},
		{"evidence by default", transport.Config{MaxConcurrent: 10, Default: rates(0)}, nil},
	} {
		_, err := transport.New(test.config)
		if got := configProblems(err); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

func TestConfigZeroGivesEveryHostTheDefaultPolicy(t *testing.T) {
	for _, c := range []transport.Config{{}, {Hosts: map[string]policy.Policy{"b.test": policy.Service()}}} {
		c.Base, c.Logger = newStub(1), quiet()
		tr := transport.Must(transport.New(c))
		_ = hostCall(tr, "http://a.test")
		if got := tr.Snapshot()[0].Policy; !reflect.DeepEqual(got, policy.Default()) {
			t.Errorf("%+v", got)
		}
	}
	tr := transport.Must(transport.New(transport.Config{Base: newStub(1), MaxConcurrent: 10, Logger: quiet()}))
	_ = hostCall(tr, "http://a.test")
	if p := tr.Snapshot()[0].Policy; p.Bulkhead.MaxConcurrent != 10 || p.Breaker.MinCalls != 10 {
		t.Errorf("under a bound of 10: %+v", p)
	}
}

func TestConfigEntriesReplaceTheDefault(t *testing.T) {
	only := policy.Policy{Timeout: policy.Timeout{Read: time.Second}}
	tr := transport.Must(transport.New(transport.Config{Base: newStub(1), Logger: quiet(), Hosts: map[string]policy.Policy{"a.test": only}}))
	_ = hostCall(tr, "http://a.test")
	if got := tr.Snapshot()[0].Policy; !reflect.DeepEqual(got, only) {
		t.Errorf("%+v", got)
	}
}

func TestConfigMayBeChangedAfterwards(t *testing.T) {
	hosts := map[string]policy.Policy{"a.test": {Bulkhead: policy.Bulkhead{MaxConcurrent: 1}}}
	tr := transport.Must(transport.New(transport.Config{Base: newStub(1), Logger: quiet(), Hosts: hosts}))
	hosts["a.test"] = policy.Policy{Bulkhead: policy.Bulkhead{MaxConcurrent: 2}}
	delete(hosts, "a.test")
	_ = hostCall(tr, "http://a.test")
	if n := tr.Snapshot()[0].MaxConcurrent; n != 1 {
		t.Error(n)
	}
}

func TestConfigRefusesANilBaseThatLooksLikeOne(t *testing.T) {
	var none *http.Transport
	if _, err := transport.New(transport.Config{Base: none}); err == nil || !strings.Contains(err.Error(), "Base") {
		t.Error(err)
	}
}

func TestConfigThatIsWrongPanicsInMust(t *testing.T) {
	defer func() {
		if err, ok := recover().(error); !ok || len(configProblems(err)) != 1 {
			t.Error(err)
		}
	}()
	transport.Must(transport.New(transport.Config{MaxHosts: -1}))
}

func TestConfigOfNothingPassesEverythingThrough(t *testing.T) {
	transporttest.CheckLeaks(t)
	o := transporttest.NewOrigin(t)
	seen := &transporttest.Recorder{}
	tr := transport.Must(transport.New(transport.Config{Base: o.Base(), Observer: seen, Logger: quiet(), Hosts: map[string]policy.Policy{"a.test": {}}}))
	defer tr.Close()
	var open []io.Closer
	for _, step := range []transporttest.Step{{Status: 500}, {Status: 503, Body: "x"}, {Status: 429}, {Fault: transporttest.Reset}, {Fault: transporttest.Reset, At: 2, Body: "long"}, {Body: "fine"}} {
		o.Script(step)
		for range 40 {
			before := len(o.Hits())
			resp, err := tr.RoundTrip(fallbackRequest("POST", "http://a.test/"))
			if hits := len(o.Hits()); hits != before+1 {
				t.Fatalf("%+v: %d requests were sent", step, hits-before)
			}
			switch {
			case step.Fault != 0 && step.At == 0:
				var ours *transport.Error
				if err == nil || errors.As(err, &ours) {
					t.Errorf("%+v: %v, %v", step, resp, err)
				}
			case err != nil || resp.StatusCode != max(step.Status, 200):
				t.Errorf("%+v: %v, %v", step, resp, err)
			default:
				open = append(open, resp.Body)
			}
		}
	}
	for _, e := range seen.Events() {
		if e.Kind != transport.EventCallEnd && e.Kind != transport.EventAttemptEnd {
			t.Errorf("%+v", e)
		}
	}
	for _, body := range open {
		_ = body.Close()
	}
}
