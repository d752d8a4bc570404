package cache_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/watertight-go/watertight/cache"
)

func TestPurgeRemovesWhatBeginsWithItsPrefix(t *testing.T) {
	urls := []string{
		"https://a.test/", "https://a.test/users/1", "https://a.test/users/2?full=1", "https://a.test/users?full=1", "https://a.test/us%65rs/3",
		"http://a.test/users/1", "https://a.test:8443/users/1", "https://a.test.evil/users/1", "https://b.test/users/1",
	}
	for prefix, want := range map[string]string{
		"":                         "0 1 2 3 4 5 6 7 8",
		"https://a.test":           "0 1 2 3 4",
		"HTTPS://A.TEST:443":       "0 1 2 3 4",
		"https://a.test/":          "0 1 2 3 4",
		"https://a.test/users":     "1 2 3 4",
		"https://a.test/users/":    "1 2 4",
		"https://a.test/users?":    "3",
		"https://a.test/users?ful": "3",
		"https://a.test/users/2?f": "2",
		"https://a.test/user%73/3": "4",
		"http://a.test/users/1":    "5",
		"https://a.test:8443":      "6",
		"https://b.test/users/10":  "",
	} {
		c := newClient(t)
		for _, url := range urls {
			for _, token := range []string{"", "one", "another"} {
				c.do(request("GET", url, "Authorization", token), answer(200, "x", "Cache-Control", "max-age=60"), none)
			}
		}
		n, err := c.Purge(prefix)
		var gone []string
		for i, url := range urls {
			if _, ok := c.fail(request("GET", url, "Authorization", "one"), failed, none); !ok {
				gone = append(gone, string(rune('0'+i)))
			}
		}
		if got := strings.Join(gone, " "); got != want || err != nil || n != 3*len(gone) || c.store.Len() != 3*len(urls)-n {
			t.Errorf("%q removed %q, %d in all, %d are left, %v; want %q", prefix, got, n, c.store.Len(), err, want)
		}
	}
}

func TestPurgeRefusesWhatIsNoPrefix(t *testing.T) {
	c := newClient(t)
	c.do(get(), answer(200, "x", "Cache-Control", "max-age=60"), none)
	for _, prefix := range []string{"/users", "a.test/users", "ftp://a.test", "https://", "https://u:secret@a.test/", "https://a.test/#x", "https://a.test/%zz", ":"} {
		n, err := c.Purge(prefix)
		if err == nil || n != 0 || strings.Contains(err.Error(), "secret") || c.store.Len() != 1 {
			t.Errorf("%q: %d, %v", prefix, n, err)
		}
	}
}

func TestPurgeRemovesWhatIsSomeones(t *testing.T) {
	c := newClient(t)
	tenants := client{c.For(cache.Rules{Fresh: true, Partition: func(r *http.Request) (string, bool) { return r.Header.Get("Tenant"), true }}), c.store}
	for _, who := range []string{"", "ann", "ben"} {
		c.do(get("Cookie", who), answer(200, "a", "Cache-Control", "max-age=60"), none)
		c.do(get("Cookie", who, "X-Scope-Orgid", "7"), answer(200, "a", "Cache-Control", "max-age=60"), none)
		tenants.do(request("GET", "https://t.test/", "Tenant", who, "Origin", "https://one.test"), answer(200, "a", "Cache-Control", "max-age=60"), none)
		tenants.do(request("GET", "https://t.test/", "Tenant", who), answer(200, "a", "Cache-Control", "max-age=60"), none)
	}
	left := 12
	for name, n := range map[string]int{
		"ann":    c.PurgePartition("ann"),
		"caller": c.PurgeCaller(get("Cookie", "ann")),
		"nobody": c.PurgePartition("nobody"),
		"cookie": c.PurgeCaller(get("Cookie", "ann", "X-Api-Key", "1")),
	} {
		want := map[string]int{"ann": 2, "caller": 2}[name]
		if n != want {
			t.Errorf("%s: removed %d, want %d", name, n, want)
		}
		left -= n
	}
	if c.store.Len() != left {
		t.Errorf("%d are left, want %d", c.store.Len(), left)
	}
	c.servesNothing(t, get("Cookie", "ann"), none)
	c.serves(t, "a", get("Cookie", "ben"), none)
}

func TestAnAnswerAskedForBeforeAPurgeIsNotStoredAfterIt(t *testing.T) {
	for name, purge := range map[string]func(client){
		"prefix":    func(c client) { _, _ = c.Purge("https://a.test/") },
		"partition": func(c client) { c.PurgePartition("x") },
		"caller":    func(c client) { c.PurgeCaller(get()) },
	} {
		c := newClient(t)
		x := c.Begin(get())
		resp := answer(200, "old", "Cache-Control", "max-age=60")
		capture := c.Received(&x, get(), resp, none)
		purge(c)
		c.read(capture, resp)
		if c.store.Len() != 0 {
			t.Errorf("%s: stored", name)
		}
	}
}
