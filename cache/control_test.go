package cache

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestCacheControlIsReadInTheMostRestrictiveWay(t *testing.T) {
	with := func(change func(*control)) control {
		c := nothing
		change(&c)
		return c
	}
	noStore := with(func(c *control) { c.noStore = true })
	noCache := with(func(c *control) { c.noCache = true })
	age := func(d time.Duration) control { return with(func(c *control) { c.maxAge = d }) }
	for _, test := range []struct {
		text string
		want control
		omit string
	}{
		{"", nothing, ""},
		{" , ,,", nothing, ""},
		{"x=1, y=\"a, no-store\"", nothing, ""},
		{"NO-STORE", noStore, ""},
		{"no-store=1", noStore, ""},
		{"no-storex", nothing, ""},
		{"max-age=60", age(time.Minute), ""},
		{"Max-Age=60", age(time.Minute), ""},
		{`max-age="60"`, age(time.Minute), ""},
		{"max-age=60, max-age=30", age(30 * time.Second), ""},
		{"max-age=30, max-age=60", age(30 * time.Second), ""},
		{"max-age=60, max-age=x", age(0), ""},
		{"max-age", age(0), ""},
		{"max-age=", age(0), ""},
		{"max-age=-1", age(0), ""},
		{"max-age=1.5", age(0), ""},
		{"max-age=+60", age(0), ""},
		{"max-age =60", age(0), ""},
		{"max-age= 60", age(0), ""},
		{"max-age=60 ", age(time.Minute), ""},
		{"max-age=60 30", age(0), ""},
		{"max-age=60;no-store", age(0), ""},
		{`max-age="60"x`, age(0), ""},
		{`max-age="60" , no-store`, with(func(c *control) { c.maxAge, c.noStore = time.Minute, true }), ""},
		{"max-age=2147483648", age(forever), ""},
		{"max-age=9999999999999999999999999", age(forever), ""},
		{"no-cache", noCache, ""},
		{"no-cache=", noCache, ""},
		{`no-cache=""`, noCache, ""},
		{`no-cache="a, b"`, nothing, "a, b"},
		{"no-cache=a", nothing, "a"},
		{`no-cache="a\b"`, noCache, ""},
		{`no-cache="a", no-cache`, noCache, "a"},
		{`x="no-store`, noStore, ""},
		{`x="a" "b"`, noStore, ""},
		{`x=a"b`, noStore, ""},
		{`"no-cache"`, noStore, ""},
		{`x="\", no-cache", max-age=1`, age(time.Second), ""},
		{`x="\`, noStore, ""},
		{"must-revalidate, must-understand, only-if-cached",
			with(func(c *control) { c.mustRevalidate, c.mustUnderstand, c.onlyIfCached = true, true, true }), ""},
		{"stale-if-error=5, stale-if-error=7", with(func(c *control) { c.staleIfError = 5 * time.Second }), ""},
		{"stale-if-error", with(func(c *control) { c.staleIfError = 0 }), ""},
		{"max-stale", with(func(c *control) { c.maxStale = forever }), ""},
		{"max-stale, max-stale=3", with(func(c *control) { c.maxStale = 3 * time.Second }), ""},
		{"max-stale=x", with(func(c *control) { c.maxStale = 0 }), ""},
		{"min-fresh=3, min-fresh=5", with(func(c *control) { c.minFresh = 5 * time.Second }), ""},
		{"min-fresh=x", with(func(c *control) { c.minFresh = forever }), ""},
	} {
		got, omit := parseControl([]string{test.text})
		if got != test.want || strings.Join(omit, "|") != test.omit {
			t.Errorf("%q:\ngot  %+v %q\nwant %+v %q", test.text, got, omit, test.want, test.omit)
		}
	}
}

func TestAllLinesOfCacheControlCount(t *testing.T) {
	got, _ := parseControl([]string{"max-age=60", "no-store", "max-age=30"})
	if !got.noStore || got.maxAge != 30*time.Second {
		t.Errorf("%+v", got)
	}
}

func TestFieldNamesForbidARequestToUseTheStore(t *testing.T) {
	if got := requestControl(http.Header{"Cache-Control": {`no-cache="a"`}}); !got.noCache {
		t.Errorf("%+v", got)
	}
}

func FuzzCacheControl(f *testing.F) {
	for _, s := range []string{"", "max-age=60, no-store", `no-cache="a, b"`, `x="\", no-store`, "max-age =1", `"`, "a=\"b\" c, d"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, omit := parseControl([]string{s})
		for _, d := range []time.Duration{got.maxAge, got.maxStale, got.minFresh, got.staleIfError} {
			if d < absent || d > forever {
				t.Errorf("duration %d", d)
			}
		}
		if more, _ := parseControl([]string{s, "no-store"}); !more.noStore {
			t.Error("a line hides the next")
		}
		if strings.Count(s, `"`) == 0 {
			for member := range strings.SplitSeq(s, ",") {
				if strings.EqualFold(strings.Trim(member, " \t"), "no-store") && !got.noStore {
					t.Error("no-store was missed")
				}
			}
		}
		if strings.Count(s, `"`)%2 == 1 && !strings.Contains(s, `\`) && !got.noStore {
			t.Error("an open quote was ignored")
		}
		for _, list := range omit {
			if list == "" {
				t.Error("no-cache for no field")
			}
		}
	})
}

func FuzzVary(f *testing.F) {
	f.Add("Accept, X-A", "a, b", "b,a")
	f.Add("*", "", "")
	f.Add("accept-language", `"a, b"`, "EN")
	f.Fuzz(func(t *testing.T, vary, one, two string) {
		names, ok := New(nil).varyNames([]string{vary})
		if !ok {
			return
		}
		if strings.Contains(vary, "*") && strings.Trim(vary, ", \t") == "*" {
			t.Error("a star was accepted")
		}
		h := http.Header{}
		for _, name := range names {
			h[name] = []string{one, two}
		}
		for _, name := range names {
			f := field{name, normal(name, h[name])}
			if f.value == missing {
				t.Errorf("%q, %q is taken for a missing field", one, two)
			}
			if !f.selects(&Cache{core: &core{}}, h) {
				t.Errorf("%s: %q, %q do not match themselves", name, one, two)
			}
			if f.selects(&Cache{core: &core{}}, http.Header{}) {
				t.Errorf("%s: %q matches a request without it", name, f.value)
			}
		}
	})
}

func FuzzDates(f *testing.F) {
	f.Add("Sat, 01 Jan 2000 00:00:00 GMT", "Thu, 01 Jan 2099 00:00:00 GMT", "5", int64(0))
	f.Add("Mon, 01 Jan 0001 00:00:00 GMT", "Fri, 31 Dec 9999 23:59:59 GMT", "99999999999999999999", int64(-1))
	f.Add("x", "0", "-1", int64(1)<<62)
	f.Fuzz(func(t *testing.T, date, expires, age string, delay int64) {
		h := http.Header{"Date": {date}, "Expires": {expires}, "Age": {age}}
		when, ok := parseDate(h["Date"])
		if !ok {
			when = time.Now()
		}
		life, timed := lifetime(h, nothing, when)
		if !timed || life < 0 || life > forever {
			t.Errorf("lifetime %d %t", life, timed)
		}
		if _, ok := parseDate(h["Expires"]); !ok && life != 0 {
			t.Errorf("%q gives a lifetime", expires)
		}
		if got := initialAge(h, when, time.Now(), time.Duration(delay)); got < 0 || got > 2*forever {
			t.Errorf("age %d", got)
		}
	})
}

func FuzzWholeHeaders(f *testing.F) {
	f.Add("Cache-Control: max-age=60\nVary: Accept\nDate: Sat, 01 Jan 2000 00:00:00 GMT", "Accept: a/b", 200)
	f.Add("Cache-Control: no-store\nCache-Control: max-age=1", "Authorization: x\nPragma: no-cache", 404)
	f.Add("Expires: 0\nConnection: a\nSet-Cookie: b", "Cache-Control: only-if-cached, max-stale", 301)
	f.Fuzz(func(t *testing.T, answered, asked string, status int) {
		store, err := NewMemory(Config{})
		if err != nil {
			t.Fatal(err)
		}
		c, window := New(store), Window{MaxStale: time.Hour}
		req, err := http.NewRequest("GET", "https://a.test/", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header = parseHeader(asked)
		resp := &http.Response{StatusCode: status, Header: parseHeader(answered), Body: http.NoBody}
		x := c.Begin(req)
		c.Received(&x, req, resp, window)
		x = c.Begin(req)
		c.OnlyIfCached(&x, req)
		served, ok := c.Serve(&x, req, Failure{Status: 503, Forwarded: true}, window)
		if !ok {
			return
		}
		says, _ := parseControl(resp.Header["Cache-Control"])
		if says.noStore && !says.mustUnderstand || says.noCache || x.ask.noStore || served.StatusCode != status {
			t.Errorf("%q %q: served %d", answered, asked, status)
		}
		if len(served.Header["Age"]) != 1 || len(served.Header["Set-Cookie"]) != 0 || len(served.Header["Cache-Status"]) == 0 {
			t.Errorf("%v", served.Header)
		}
		req.Header.Set("Authorization", "another")
		if _, ok := c.Serve(&x, req, Failure{Status: 503}, window); ok && parseHeader(asked).Get("Authorization") != "another" {
			t.Error("served to another")
		}
	})
}

func parseHeader(text string) http.Header {
	h := http.Header{}
	for line := range strings.SplitSeq(text, "\n") {
		name, value, _ := strings.Cut(line, ":")
		h.Add(name, strings.Trim(value, " \t"))
	}
	return h
}
