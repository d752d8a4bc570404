package transport

import (
	"testing"
)

func TestAHostHasItsNamesInOneString(t *testing.T) {
	for _, test := range []struct {
		key  hostKey
		text string
	}{
		{hostKey{"http", "a.test", "80"}, "a.test:80"},
		{hostKey{"https", "a.test", "8443"}, "a.test:8443"},
		{hostKey{"https", "::1", "443"}, "[::1]:443"},
		{hostKey{"http", "fe80::1%25eth0", "8080"}, "[fe80::1%25eth0]:8080"},
		{hostKey{}, ":"}, // of the overflow state
	} {
		if own, text := test.key.owned(); own != test.key || text != test.text || text != test.key.String() {
			t.Errorf("%+v: %+v, %q", test.key, own, text)
		}
	}
}

// Should two hosts have the same hash, the second one shares the overflow state, and the
// first one keeps its own.
func TestHostsWithTheSameHashDoNotShareAState(t *testing.T) {
	tr := Must(New(Config{Base: &hangs{}}))
	defer tr.Close()
	a, b := hostKey{"http", "a.test", "80"}, hostKey{"http", "b.test", "80"}
	const hash = 7
	first := tr.addHost(a, hash, "a.test", 0)
	if second := tr.addHost(b, hash, "b.test", 0); second == first || !second.overflow {
		t.Errorf("%s has the state of %s", second.name, first.name)
	}
	if tr.hosts.find(a, hash) != first || tr.hosts.find(b, hash) != nil {
		t.Error("what was there is not found any more")
	}
}
