package transport

import (
	"net/url"
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
		{hostKey{"http", "[", "80"}, "[:80"}, // which net/url refuses, but who makes a URL by hand need not
		{hostKey{"http", "[abc", "80"}, "[abc:80"},
		{hostKey{"http", "]", ""}, "]:"},
		{hostKey{}, ":"}, // of the overflow state
	} {
		if n := testing.AllocsPerRun(100, func() { test.key.owned() }); n > 1 {
			t.Errorf("%+v: %v allocations", test.key, n)
		}
		if own, text := test.key.owned(); own != test.key || text != test.text || text != test.key.String() {
			t.Errorf("%+v: %+v, %q", test.key, own, text)
		}
	}
}

// Should hosts have the same hash, each has a state of its own.
func TestHostsWithTheSameHashDoNotShareAState(t *testing.T) {
	tr := Must(New(Config{Base: &hangs{}}))
	defer tr.Close()
	const hash = 7
	keys := []hostKey{{"http", "a.test", "80"}, {"http", "b.test", "80"}, {"http", "c.test", "80"}}
	var states []*host
	for _, k := range keys {
		states = append(states, tr.addHost(k, hash, k.name, 0))
	}
	want := func(known ...bool) {
		t.Helper()
		for i, k := range keys {
			if h := tr.hosts.find(k, hash); (h == states[i]) != known[i] || !known[i] && h != nil {
				t.Errorf("%s: %p, want %v", k.name, h, known[i])
			}
		}
	}
	want(true, true, true)
	for _, step := range []struct {
		drop  int
		known []bool
	}{{1, []bool{true, false, true}}, {2, []bool{true, false, false}}, {0, []bool{false, false, false}}} {
		tr.hosts.shard(hash).remove(states[step.drop])
		want(step.known...)
	}
}

// Whatever name a URL has, its host is found again under it, and others after it.
func FuzzHostKey(f *testing.F) {
	for _, host := range []string{"a.test", "A.test.:080", "[::1]:8080", "[fe80::1%25eth0]", "[", "]", "[abc", "a:b:c", ":80", "xn--bcher-kva.test", "bücher.test"} {
		f.Add(host, false)
		f.Add(host, true)
	}
	f.Fuzz(func(t *testing.T, host string, secure bool) {
		u := &url.URL{Scheme: "http", Host: host}
		if secure {
			u.Scheme = "https"
		}
		k, err := keyOf(u)
		if err != nil {
			return
		}
		if own, text := k.owned(); own != k || text != k.String() {
			t.Errorf("%+v: %+v, %q", k, own, text)
		}
		tr := Must(New(Config{Base: &hangs{}}))
		defer tr.Close()
		first, err := tr.host(u, 0)
		if err != nil {
			t.Fatal(err)
		}
		again, err := tr.host(u, 0)
		if err != nil || again != first || first.key != k || first.overflow {
			t.Errorf("%+v, then %+v, %v", first.key, again.key, err)
		}
		if n := len(tr.Snapshot()); n != 1 {
			t.Errorf("%d hosts are known", n)
		}
	})
}
