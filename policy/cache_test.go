package policy_test

import (
	"net/http"
	"reflect"
	"testing"

	"github.com/watertight-go/watertight/policy"
)

func TestCacheRefusesWhatCannotBeMeant(t *testing.T) {
	whose := func(*http.Request) (string, bool) { return "", true }
	for _, test := range []struct {
		cache policy.Cache
		want  []string // paths
	}{
		{policy.Cache{}, nil},
		{policy.Cache{Off: true}, nil},
		{policy.Cache{Fresh: true, LabelAll: true}, nil},
		{policy.Cache{LabelAll: true}, []string{"Cache.LabelAll"}},
		{policy.Cache{LabelAll: true, Off: true}, []string{"Cache.LabelAll"}},
		{policy.Cache{Fresh: true, Shared: true, Partition: whose, KeyHeaders: []string{"X-Tenant", "accept"}}, nil},
		{policy.Cache{Fresh: true, KeyHeaders: []string{}}, nil},
		{policy.Cache{Fresh: true, Off: true}, []string{"Cache.Fresh"}},
		{policy.Cache{Shared: true, Partition: whose, KeyHeaders: []string{"X-A"}}, []string{"Cache.Partition", "Cache.KeyHeaders", "Cache.Shared"}},
		{policy.Cache{Fresh: true, KeyHeaders: []string{"X-A", "", "X A", "X:A", "Ä"}},
			[]string{"Cache.KeyHeaders[1]", "Cache.KeyHeaders[2]", "Cache.KeyHeaders[3]", "Cache.KeyHeaders[4]"}},
	} {
		var got []string
		for _, e := range problems(t, policy.Policy{Cache: test.cache}.Validate()) {
			got = append(got, e.Path)
		}
		if !reflect.DeepEqual(got, test.want) {
			t.Errorf("%+v: %q, want %q", test.cache, got, test.want)
		}
	}
}

func TestLabelsAreForWhereThereIsAStore(t *testing.T) {
	for _, test := range []struct {
		policy policy.Policy
		ok     bool
	}{
		{policy.Policy{Cache: policy.Cache{LabelAll: true}}, false},
		{policy.Policy{Cache: policy.Cache{LabelAll: true}, Fallback: policy.Fallback{FailFast503: true}}, false},
		{policy.Policy{Cache: policy.Cache{LabelAll: true, Off: true}, Fallback: policy.Fallback{MaxStale: 1}}, false},
		{policy.Policy{Cache: policy.Cache{LabelAll: true}, Fallback: policy.Fallback{MaxStale: 1}}, true},
		{policy.Policy{Cache: policy.Cache{LabelAll: true}, Fallback: policy.Fallback{StaleLimit: 1}}, true},
		{policy.Policy{Cache: policy.Cache{LabelAll: true, Fresh: true}}, true},
	} {
		if err := test.policy.Validate(); (err == nil) != test.ok {
			t.Errorf("%+v, %+v: %v", test.policy.Cache, test.policy.Fallback, err)
		}
	}
}
