package cache_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watertight-go/watertight/cache"
)

// rulesClient is a client of a host whose answers are reused by r.
func rulesClient(t testing.TB, r cache.Rules) client {
	c := newClient(t)
	c.Cache = c.For(r)
	return c
}

func TestSharedAnswersAreThoseThatAreForOthersToo(t *testing.T) {
	for name, test := range map[string]struct {
		ask    []string // of who asks first
		answer []string
		shared bool
	}{
		"anonymous":                           {answer: []string{"Cache-Control", "max-age=60"}, shared: true},
		"private":                             {answer: []string{"Cache-Control", "max-age=60, private"}},
		"private, must-understand":            {answer: []string{"Cache-Control", "max-age=60, private, must-understand"}},
		"private, and public":                 {answer: []string{"Cache-Control", "max-age=60, private, public"}},
		"private, s-maxage":                   {answer: []string{"Cache-Control", "s-maxage=60, private, must-understand, must-revalidate"}},
		"private, must-understand, no-store":  {answer: []string{"Cache-Control", "max-age=60, private, must-understand, no-store"}},
		"private in part":                     {answer: []string{"Cache-Control", `max-age=60, private="X-User"`, "X-User", "ann"}, shared: true},
		"private in a part that is illegible": {answer: []string{"Cache-Control", `max-age=60, private="X\-User"`, "X-User", "ann"}},
		"with credentials":                    {ask: []string{"Authorization", "ann"}, answer: []string{"Cache-Control", "max-age=60"}},
		"with a cookie":                       {ask: []string{"Cookie", "ann"}, answer: []string{"Cache-Control", "max-age=60"}},
		"with credentials, public":            {ask: []string{"Authorization", "ann"}, answer: []string{"Cache-Control", "max-age=60, public"}, shared: true},
		"with credentials, s-maxage":          {ask: []string{"Authorization", "ann"}, answer: []string{"Cache-Control", "s-maxage=60"}, shared: true},
		"with credentials, must-revalidate":   {ask: []string{"Authorization", "ann"}, answer: []string{"Cache-Control", "max-age=60, must-revalidate"}, shared: true},
		"with credentials, proxy-revalidate":  {ask: []string{"Authorization", "ann"}, answer: []string{"Cache-Control", "max-age=60, proxy-revalidate"}},
		"sets a cookie":                       {answer: []string{"Cache-Control", "max-age=60", "Set-Cookie", "ann"}},
		"sets a cookie, public":               {answer: []string{"Cache-Control", "max-age=60, public", "Set-Cookie", "all"}, shared: true},
	} {
		c := rulesClient(t, cache.Rules{Fresh: true, Shared: true})
		c.ask(get(test.ask...), answer(200, "x", test.answer...))
		for _, who := range [][]string{nil, {"Authorization", "ben"}, {"Cookie", "ben"}} {
			got, _ := c.ask(get(who...), nil)
			if (got != nil) != test.shared {
				t.Errorf("%s: %v gets %v", name, who, got)
			}
			if got != nil && got.Header.Get("X-User") != "" {
				t.Errorf("%s: %v gets %v", name, who, got.Header)
			}
		}
	}
}

func TestSharedAnswersLiveByWhatIsForSharedCaches(t *testing.T) {
	for control, want := range map[string]struct {
		fresh time.Duration
		stale bool // is served when the origin fails
	}{
		"max-age=10":                        {10 * time.Second, true},
		"max-age=10, s-maxage=20":           {20 * time.Second, false},
		"max-age=20, s-maxage=10":           {10 * time.Second, false},
		"s-maxage=20, s-maxage=10":          {10 * time.Second, false},
		"max-age=10, proxy-revalidate":      {10 * time.Second, false},
		"max-age=10, s-maxage=nonsense":     {0, false},
		"max-age=10, must-revalidate":       {10 * time.Second, false},
		"public, max-age=10, s-maxage=-1":   {0, false},
		"max-age=10, stale-if-error=100000": {10 * time.Second, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := rulesClient(t, cache.Rules{Fresh: true, Shared: true})
			c.ask(get(), answer(200, "x", "Cache-Control", control, "Etag", `"1"`))
			if want.fresh > 0 {
				time.Sleep(want.fresh - 1)
				if got, _ := c.ask(get(), nil); got == nil {
					t.Errorf("%s: not fresh for %v", control, want.fresh)
				}
				time.Sleep(time.Nanosecond)
			}
			if got, _ := c.ask(get(), nil); got != nil {
				t.Errorf("%s: fresh after %v", control, want.fresh)
			}
			if _, ok := c.fail(get(), failed, minutes); ok != want.stale {
				t.Errorf("%s: served when stale: %v", control, ok)
			}
		})
	}
}

func TestSharedAnswersAreKeptApartByTenants(t *testing.T) {
	c := rulesClient(t, cache.Rules{Fresh: true, Shared: true, Partition: func(r *http.Request) (string, bool) { return r.Header.Get("Tenant"), true }})
	c.ask(get("Tenant", "a"), answer(200, "x", "Cache-Control", "max-age=60"))
	if got, _ := c.ask(get("Tenant", "a", "Cookie", "ben"), nil); got == nil {
		t.Error("not shared within a tenant")
	}
	if got, _ := c.ask(get("Tenant", "b"), nil); got != nil {
		t.Error("shared with another tenant")
	}
}

func TestLabelsSayWhyTheOriginWasAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		header := http.Header{"Cache-Status": {"origin; hit"}, "Cache-Control": {"max-age=60"}, "Vary": {"X-A"}, "Etag": {`"1"`}}
		label := func(c client, req *http.Request, status int) string {
			t.Helper()
			resp := answer(status, "x")
			resp.Header = header
			got, _ := c.ask(req, resp)
			if len(header["Cache-Status"]) != 1 {
				t.Fatal("the base's header was changed")
			}
			lines := got.Header["Cache-Status"]
			if len(lines) != 2 || lines[0] != "origin; hit" {
				t.Fatalf("%q", lines)
			}
			return lines[1]
		}
		c := rulesClient(t, cache.Rules{Fresh: true, LabelAll: true})
		for _, test := range []struct {
			after  time.Duration
			method string
			fields []string
			status int
			want   string
		}{
			{0, "GET", nil, 200, "watertight; fwd=uri-miss; stored"},
			{0, "GET", nil, 200, "watertight; hit; ttl=60"},
			{0, "GET", []string{"X-A", "1"}, 200, "watertight; fwd=vary-miss; stored"},
			{0, "GET", []string{"Cache-Control", "no-cache"}, 200, "watertight; fwd=request; stored"},
			{61 * time.Second, "GET", nil, 304, "watertight; fwd=stale; fwd-status=304; ttl=60"},
			{61 * time.Second, "GET", nil, 200, "watertight; fwd=stale; fwd-status=200; stored"},
			{0, "GET", []string{"Cache-Control", "no-store"}, 200, "watertight; fwd=request"},
			{0, "POST", nil, 200, "watertight; fwd=method"},
			{0, "OPTIONS", nil, 200, "watertight; fwd=bypass"},
		} {
			time.Sleep(test.after)
			if got := label(c, request(test.method, "https://a.test/doc", test.fields...), test.status); got != test.want {
				t.Errorf("%s %v: %q, want %q", test.method, test.fields, got, test.want)
			}
		}
		c = rulesClient(t, cache.Rules{LabelAll: true})
		if got := label(c, get(), 200); !strings.HasPrefix(got, "watertight; fwd=bypass; stored") {
			t.Error(got)
		}
	})
}
