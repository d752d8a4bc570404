package cache_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watertight-go/watertight/cache"
)

// newFresh is a client of a host whose answers are reused as RFC 9111 has it.
func newFresh(t testing.TB) client {
	c := newClient(t)
	c.Cache = c.For(cache.Rules{Fresh: true})
	return c
}

// ask is what becomes of a request, whose origin would answer with resp; sent is what was sent, nil if nothing was.
func (c client) ask(req *http.Request, resp *http.Response) (got *http.Response, sent *http.Request) {
	x := c.Begin(req)
	reuse := c.Reuse(&x, req, cache.Window{})
	if reuse.Response != nil {
		return reuse.Response, nil
	}
	if resp == nil {
		return nil, reuse.Request
	}
	if merged, ok := c.Validated(&x, req, resp, cache.Window{}); ok {
		return merged, reuse.Request
	}
	c.read(c.Received(&x, req, resp, cache.Window{}), resp)
	return resp, reuse.Request
}

func TestFreshAnswersAreServedWithoutContact(t *testing.T) {
	for name, test := range map[string]struct {
		stored []string
		after  time.Duration
		ask    []string
		hit    bool
	}{
		"fresh":                              {stored: []string{"Cache-Control", "max-age=60"}, after: 59 * time.Second, hit: true},
		"no longer":                          {stored: []string{"Cache-Control", "max-age=60"}, after: 60 * time.Second},
		"it was old when it came":            {stored: []string{"Cache-Control", "max-age=60", "Age", "50"}, after: 20 * time.Second},
		"no-cache is validated":              {stored: []string{"Cache-Control", "max-age=60, no-cache", "Etag", `"1"`}},
		"no-store":                           {stored: []string{"Cache-Control", "max-age=60, no-store"}},
		"no lifetime":                        {stored: []string{"Etag", `"1"`}},
		"a tenth of its age":                 {stored: []string{"Last-Modified", time.Date(1999, 12, 22, 0, 0, 0, 0, time.UTC).Format(http.TimeFormat)}, after: 23 * time.Hour, hit: true},
		"and no more":                        {stored: []string{"Last-Modified", time.Date(1999, 12, 22, 0, 0, 0, 0, time.UTC).Format(http.TimeFormat)}, after: 25 * time.Hour},
		"the caller wants it validated":      {stored: []string{"Cache-Control", "max-age=60"}, ask: []string{"Cache-Control", "no-cache"}},
		"by Pragma":                          {stored: []string{"Cache-Control", "max-age=60"}, ask: []string{"Pragma", "no-cache"}},
		"the caller wants nothing old":       {stored: []string{"Cache-Control", "max-age=60"}, after: 11 * time.Second, ask: []string{"Cache-Control", "max-age=10"}},
		"old enough for the caller":          {stored: []string{"Cache-Control", "max-age=60"}, after: 10 * time.Second, ask: []string{"Cache-Control", "max-age=10"}, hit: true},
		"the caller wants it fresh for long": {stored: []string{"Cache-Control", "max-age=60"}, after: 31 * time.Second, ask: []string{"Cache-Control", "min-fresh=30"}},
		"the caller takes it stale":          {stored: []string{"Cache-Control", "max-age=60"}, after: 70 * time.Second, ask: []string{"Cache-Control", "max-stale=10"}, hit: true},
		"but not so stale":                   {stored: []string{"Cache-Control", "max-age=60"}, after: 71 * time.Second, ask: []string{"Cache-Control", "max-stale=10"}},
		"nor against its origin":             {stored: []string{"Cache-Control", "max-age=60, must-revalidate"}, after: 61 * time.Second, ask: []string{"Cache-Control", "max-stale"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newFresh(t)
				c.ask(get(), answer(200, "stored", test.stored...))
				time.Sleep(test.after)
				got, sent := c.ask(get(test.ask...), nil)
				if (got != nil) != test.hit || (sent == nil) != test.hit {
					t.Fatalf("%v, sent %v; want a hit: %v", got, sent, test.hit)
				}
				if test.hit && (text(t, got) != "stored" || !strings.HasPrefix(got.Header.Get("Cache-Status"), "watertight; hit; ttl=")) {
					t.Errorf("%v", got.Header)
				}
			})
		})
	}
}

func TestStaleAnswersAreValidated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFresh(t)
		c.ask(get(), answer(200, "stored", "Cache-Control", "max-age=60", "Etag", `"1"`, "Last-Modified", "Sat, 01 Jan 2000 00:00:00 GMT", "X-A", "old", "X-B", "kept"))
		time.Sleep(time.Minute)
		req := get("Accept", "a")
		got, sent := c.ask(req, answer(304, "", "Cache-Control", "max-age=30", "Etag", `"1"`, "X-A", "new", "Content-Length", "0"))
		if sent == nil || sent.Header.Get("If-None-Match") != `"1"` || sent.Header.Get("If-Modified-Since") == "" || len(req.Header["If-None-Match"]) > 0 {
			t.Fatalf("sent %v for %v", sent, req)
		}
		if got.StatusCode != 200 || text(t, got) != "stored" || got.Header.Get("X-A") != "new" || got.Header.Get("X-B") != "kept" {
			t.Errorf("%d %v", got.StatusCode, got.Header)
		}
		if s := got.Header.Get("Cache-Status"); s != "watertight; fwd=stale; fwd-status=304; ttl=30" {
			t.Error(s)
		}
		time.Sleep(29 * time.Second)
		if got, _ := c.ask(get(), nil); got == nil || text(t, got) != "stored" || got.Header.Get("Age") != "29" {
			t.Errorf("%v, want it fresh again", got)
		}
		time.Sleep(time.Second)
		if _, sent := c.ask(get(), answer(200, "another", "Cache-Control", "max-age=60")); sent == nil {
			t.Error("it was not asked for")
		}
		if got, _ := c.ask(get(), nil); got == nil || text(t, got) != "another" {
			t.Errorf("%v, want what has taken its place", got)
		}
	})
}

func TestCallersWithACopyGetA304(t *testing.T) {
	for name, test := range map[string]struct {
		ask    []string
		status int
	}{
		"the same":                   {[]string{"If-None-Match", `"1"`}, 304},
		"one of several":             {[]string{"If-None-Match", `"0", W/"1"`}, 304},
		"any":                        {[]string{"If-None-Match", "*"}, 304},
		"another":                    {[]string{"If-None-Match", `"2"`}, 200},
		"as new":                     {[]string{"If-Modified-Since", "Fri, 31 Dec 1999 00:00:00 GMT"}, 304},
		"older":                      {[]string{"If-Modified-Since", "Thu, 30 Dec 1999 00:00:00 GMT"}, 200},
		"of another tag, though new": {[]string{"If-None-Match", `"2"`, "If-Modified-Since", "Fri, 31 Dec 1999 00:00:00 GMT"}, 200},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newFresh(t)
				c.ask(get(), answer(200, "stored", "Cache-Control", "max-age=60", "Etag", `"1"`, "Last-Modified", "Fri, 31 Dec 1999 00:00:00 GMT"))
				got, sent := c.ask(get(test.ask...), nil)
				if sent != nil || got.StatusCode != test.status || got.Header.Get("Etag") != `"1"` {
					t.Fatalf("%v, sent %v", got, sent)
				}
				if want := map[int]string{200: "stored"}[test.status]; text(t, got) != want {
					t.Error("the wrong body")
				}
			})
		})
	}
}

func TestRangesAreCutFromWholeAnswers(t *testing.T) {
	now := time.Now().UTC()
	date, modified := now.Format(http.TimeFormat), now.Add(-time.Second).Format(http.TimeFormat)
	for name, test := range map[string]struct {
		ask    []string
		status int
		body   string
		of     string
	}{
		"the first":           {[]string{"Range", "bytes=0-2"}, 206, "012", "bytes 0-2/10"},
		"to the end":          {[]string{"Range", "bytes=7-"}, 206, "789", "bytes 7-9/10"},
		"beyond the end":      {[]string{"Range", "bytes=7-100"}, 206, "789", "bytes 7-9/10"},
		"the last":            {[]string{"Range", "bytes=-3"}, 206, "789", "bytes 7-9/10"},
		"more than there is":  {[]string{"Range", "bytes=-30"}, 206, "0123456789", "bytes 0-9/10"},
		"after the end":       {[]string{"Range", "bytes=10-"}, 416, "", "bytes */10"},
		"several":             {[]string{"Range", "bytes=0-1,3-4"}, 200, "0123456789", ""},
		"backwards":           {[]string{"Range", "bytes=3-1"}, 200, "0123456789", ""},
		"another unit":        {[]string{"Range", "lines=0-1"}, 200, "0123456789", ""},
		"nonsense":            {[]string{"Range", "bytes=a-b"}, 200, "0123456789", ""},
		"of the same":         {[]string{"Range", "bytes=0-2", "If-Range", `"1"`}, 206, "012", "bytes 0-2/10"},
		"of another":          {[]string{"Range", "bytes=0-2", "If-Range", `"2"`}, 200, "0123456789", ""},
		"of one weakly equal": {[]string{"Range", "bytes=0-2", "If-Range", `W/"1"`}, 200, "0123456789", ""},
		"of the same date":    {[]string{"Range", "bytes=0-2", "If-Range", modified}, 206, "012", "bytes 0-2/10"},
		"of another date":     {[]string{"Range", "bytes=0-2", "If-Range", date}, 200, "0123456789", ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := newFresh(t)
			c.ask(get(), answer(200, "0123456789", "Cache-Control", "max-age=60", "Etag", `"1"`, "Last-Modified", modified, "Date", date))
			got, sent := c.ask(get(test.ask...), nil)
			if sent != nil {
				t.Fatalf("sent %v", sent)
			}
			if body := text(t, got); got.StatusCode != test.status || body != test.body || got.Header.Get("Content-Range") != test.of {
				t.Errorf("%d %q %v", got.StatusCode, body, got.Header)
			}
			if test.status != 200 && got.ContentLength != int64(len(test.body)) {
				t.Errorf("a length of %d", got.ContentLength)
			}
		})
	}
}

// What one caller has asked for too much is not the next one's answer, whatever lifetime the origin gives it.
func TestAnswersToConditionsAreNotStored(t *testing.T) {
	for status, ask := range map[int][]string{412: {"If-Match", `"0"`}, 416: {"Range", "bytes=100-"}, 417: {"Expect", "more"}} {
		for _, lifetime := range []string{"max-age=60", "public", "must-understand, max-age=60"} {
			c := newFresh(t)
			c.ask(get(ask...), answer(status, "no", "Cache-Control", lifetime))
			if c.store.Len() != 0 {
				t.Errorf("%d with %s is stored", status, lifetime)
			}
		}
	}
}

// It may have changed once more within that second.
func TestNoRangeIsCutForADateThatIsThatOfTheAnswer(t *testing.T) {
	c := newFresh(t)
	date := time.Now().UTC().Format(http.TimeFormat)
	c.ask(get(), answer(200, "0123456789", "Cache-Control", "max-age=60", "Last-Modified", date, "Date", date))
	got, sent := c.ask(get("Range", "bytes=0-2", "If-Range", date), nil)
	if sent != nil || got.StatusCode != 200 || text(t, got) != "0123456789" {
		t.Errorf("%v, sent %v", got, sent)
	}
}

func TestStaleAnswersMayBeServedWhileTheyAreRefreshed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFresh(t)
		c.ask(get(), answer(200, "stored", "Cache-Control", "max-age=10, stale-while-revalidate=20", "Etag", `"1"`))
		time.Sleep(30 * time.Second)
		x := c.Begin(get())
		reuse := c.Reuse(&x, get(), cache.Window{})
		if reuse.Response == nil || !reuse.Refresh || text(t, reuse.Response) != "stored" {
			t.Fatalf("%+v", reuse)
		}
		if s := reuse.Response.Header.Get("Cache-Status"); s != "watertight; hit; ttl=-20" {
			t.Error(s)
		}
		x = c.Begin(get())
		if req := c.Refresh(&x, get()); req.Header.Get("If-None-Match") != `"1"` {
			t.Errorf("to refresh it, %v is sent", req.Header)
		}
		time.Sleep(time.Second)
		if got, sent := c.ask(get(), nil); got != nil || sent == nil {
			t.Errorf("%v is served after its window", got)
		}
		for _, directive := range []string{"no-cache", "max-age=5", "min-fresh=1"} {
			if got, _ := c.ask(get("Cache-Control", directive), nil); got != nil {
				t.Errorf("%s: %v is served", directive, got)
			}
		}
	})
}

func TestCallersDoNotShareFreshAnswers(t *testing.T) {
	for _, name := range []string{"Authorization", "Cookie", "X-Api-Key", "X-Forwarded-Host", "Origin"} {
		c := newFresh(t)
		c.ask(get(name, "one"), answer(200, "for one", "Cache-Control", "max-age=60"))
		if got, _ := c.ask(get(name, "two"), nil); got != nil {
			t.Errorf("%s: another caller is given it", name)
		}
		if got, _ := c.ask(get(), nil); got != nil {
			t.Errorf("%s: a caller without is given it", name)
		}
		if got, _ := c.ask(get(name, "one"), nil); got == nil {
			t.Errorf("%s: its caller is not", name)
		}
	}
}

func TestFailuresTakeNoGoodAnswersPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFresh(t)
		c.ask(get(), answer(200, "good", "Cache-Control", "max-age=10", "Etag", `"1"`))
		time.Sleep(11 * time.Second)
		c.ask(get(), answer(503, "bad", "Cache-Control", "max-age=600"))
		if got, sent := c.ask(get(), nil); got != nil || sent.Header.Get("If-None-Match") != `"1"` {
			t.Errorf("%v, sent %v; want the good one validated", got, sent)
		}
		c.ask(request("GET", "https://a.test/other"), answer(503, "bad", "Cache-Control", "max-age=600"))
		if got, _ := c.ask(request("GET", "https://a.test/other"), nil); got == nil || got.StatusCode != 503 {
			t.Errorf("%v, want what the origin lets be kept", got)
		}
	})
}

func TestHeadIsAnsweredFromGet(t *testing.T) {
	c := newFresh(t)
	c.ask(get(), answer(200, "stored", "Cache-Control", "max-age=60"))
	got, sent := c.ask(request("HEAD", "https://a.test/doc"), nil)
	if sent != nil || text(t, got) != "" || got.ContentLength != 6 {
		t.Errorf("%+v, sent %v", got, sent)
	}
}
