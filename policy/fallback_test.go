package policy_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/watertight-go/watertight/policy"
)

func TestFallbackIsOnWhenItCanAnswer(t *testing.T) {
	degraded := func(*http.Request, error) *http.Response { return nil }
	for _, test := range []struct {
		name            string
		f               policy.Fallback
		enabled, stores bool
	}{
		{"zero", policy.Fallback{}, false, false},
		{"shadow alone", policy.Fallback{Shadow: true}, false, false},
		{"stale by policy", policy.Fallback{MaxStale: time.Minute}, true, true},
		{"stale by the origin", policy.Fallback{StaleLimit: time.Hour}, true, true},
		{"degraded", policy.Fallback{Degraded: degraded}, true, false},
		{"fail fast", policy.Fallback{FailFast503: true}, true, false},
		{"default", policy.Default().Fallback, true, true},
	} {
		if got := test.f.Enabled(); got != test.enabled {
			t.Errorf("%s: enabled %v, want %v", test.name, got, test.enabled)
		}
		if got := test.f.Stores(); got != test.stores {
			t.Errorf("%s: stores %v, want %v", test.name, got, test.stores)
		}
	}
}

func TestFallbackReplacesOnlyTheFourStatusesOfRFC5861(t *testing.T) {
	replaced := map[int]bool{500: true, 502: true, 503: true, 504: true}
	for code := range 600 {
		if got := (policy.Fallback{}).Status(code); got != replaced[code] {
			t.Errorf("%d: %v, want %v", code, got, replaced[code])
		}
	}
}
