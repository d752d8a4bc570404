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
	for _, name := range []string{
		"Authorization", "Proxy-Authorization", "Cookie", "X-Api-Key", "Api-Key", "Apikey", "X-Forwarded-Host", "X-Forwarded-Proto", "Forwarded", "Origin",
		"X-Auth-Token", "Private-Token", "X-Vault-Token", "X-Shopify-Access-Token", "X-Amz-Security-Token", "X-Goog-Api-Key", "X-Goog-Iap-Jwt-Assertion",
		"Cf-Access-Jwt-Assertion", "X-Client-Secret", "X-Session", "X-User-Jwt", "X-Forwarded-Authorization",
	} {
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

func TestKeyHeadersAreBesidesTheDefaultOnes(t *testing.T) {
	for _, name := range []string{"x-tenant", "X-Forwarded-Host", "X-Forwarded-Proto", "Forwarded", "Origin", "Authorization"} {
		c := rulesClient(t, cache.Rules{Fresh: true, KeyHeaders: []string{"x-tenant"}})
		c.ask(get(name, "one"), answer(200, "for one", "Cache-Control", "max-age=60"))
		for who, want := range map[string]bool{"one": true, "two": false} {
			if got, _ := c.ask(get(name, who), nil); (got != nil) != want {
				t.Errorf("%s: %s is given %v", name, who, got)
			}
		}
	}
}

// What a caller says that it has a copy of is not what is stored, unless it is.
func TestA304ConfirmsWhatItsCallerHasACopyOf(t *testing.T) {
	const stored, later = "Fri, 17 Dec 1999 00:00:00 GMT", "Sat, 18 Dec 1999 00:00:00 GMT"
	both := []string{"Etag", `"1"`, "Last-Modified", stored}
	for name, test := range map[string]struct {
		stored, ask, answer []string
		fresh               bool
	}{
		"its copy is the stored one":              {both, []string{"If-None-Match", `"1"`}, nil, true},
		"one of its copies is":                    {both, []string{"If-None-Match", `"0", "1"`}, []string{"Etag", `"1"`}, true},
		"and is named by the origin":              {both, []string{"If-None-Match", `"1"`}, []string{"Etag", `"1"`}, true},
		"its copy is another":                     {both, []string{"If-None-Match", `"2"`}, nil, false},
		"as the origin says":                      {both, []string{"If-None-Match", `"2"`}, []string{"Etag", `"2"`}, false},
		"it has both, and the other is confirmed": {both, []string{"If-None-Match", `"1", "2"`}, []string{"Etag", `"2"`}, false},
		"another ETag than it asked for":          {both, []string{"If-None-Match", `"1"`}, []string{"Etag", `"2"`}, false},
		"its copy is as new":                      {both, []string{"If-Modified-Since", stored}, nil, true},
		"it is newer":                             {both, []string{"If-Modified-Since", later}, nil, false},
		"it is of another date, says the origin":  {both, []string{"If-Modified-Since", later}, []string{"Last-Modified", later}, false},
		"nothing tells copies apart":              {nil, []string{"If-None-Match", `"2"`}, nil, true},
		"the date alone is stored":                {[]string{"Last-Modified", stored}, []string{"If-Modified-Since", later}, nil, false},
		"the tag alone is stored":                 {[]string{"Etag", `"1"`}, []string{"If-None-Match", `"2"`}, nil, false},
		"the caller does not ask for it":          {both, nil, nil, true},
		"under a new tag":                         {both, nil, []string{"Etag", `"2"`}, true}, // the public suite asks for it: 304-etag-update-response-ETag
		"which is the same, weakly":               {both, nil, []string{"Etag", `W/"1"`}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newFresh(t)
				c.ask(get(), answer(200, "stored", append([]string{"Cache-Control", "max-age=10"}, test.stored...)...))
				time.Sleep(20 * time.Second)
				if _, sent := c.ask(get(test.ask...), answer(304, "", append([]string{"Cache-Control", "max-age=10"}, test.answer...)...)); sent == nil {
					t.Fatal("it was not sent")
				}
				if got, _ := c.ask(get(), nil); (got != nil) != test.fresh {
					t.Errorf("%v is served as fresh", got)
				}
			})
		})
	}
}

// What the origin has just confirmed is not stale to the caller for whom it has.
func TestAnAnswerThatWasValidatedIsNotStale(t *testing.T) {
	for _, control := range []string{"max-age=60", "max-age=0", "no-cache"} {
		c := newFresh(t)
		c.ask(get(), answer(200, "stored", "Cache-Control", "no-cache", "Etag", `"1"`))
		got, sent := c.ask(get(), answer(304, "", "Cache-Control", control, "Etag", `"1"`))
		if info, ok := cache.FromResponse(got); sent == nil || !ok || info.Stale || info.Cause != nil || text(t, got) != "stored" {
			t.Errorf("%s: %+v, %v", control, info, ok)
		}
	}
}

func TestAStoredFailureStandsInForNothingOnceItIsStale(t *testing.T) {
	for _, control := range []string{"max-age=1", "max-age=1, stale-if-error=600", "max-age=1, stale-while-revalidate=600"} {
		synctest.Test(t, func(t *testing.T) {
			c := newFresh(t)
			c.do(get(), answer(503, "down", "Cache-Control", control, "Etag", `"1"`), minutes)
			if got, _ := c.ask(get(), nil); got == nil || got.StatusCode != 503 {
				t.Errorf("%s: %v, want it while it is fresh", control, got)
			}
			time.Sleep(5 * time.Minute)
			x := c.Begin(get())
			if c.Serves(&x, get(), minutes) {
				t.Errorf("%s: Serves", control)
			}
			c.servesNothing(t, get(), minutes)
			for _, ask := range [][]string{nil, {"Cache-Control", "max-stale"}} {
				if got, _ := c.ask(get(ask...), nil); got != nil {
					t.Errorf("%s: %v gets it", control, ask)
				}
			}
		})
	}
}

func TestStaleLimitBoundsWhateverIsServedStale(t *testing.T) {
	const year = "max-age=10, stale-while-revalidate=31536000"
	for name, test := range map[string]struct {
		window cache.Window
		stored string
		ask    []string
		limit  time.Duration
	}{
		"max-stale":                          {cache.Window{StaleLimit: time.Minute}, "max-age=10", []string{"Cache-Control", "max-stale"}, time.Minute},
		"max-stale, of a long time":          {cache.Window{StaleLimit: time.Minute}, "max-age=10", []string{"Cache-Control", "max-stale=31536000"}, time.Minute},
		"max-stale, by default":              {cache.Window{}, "max-age=10", []string{"Cache-Control", "max-stale"}, 24 * time.Hour},
		"stale-while-revalidate":             {cache.Window{StaleLimit: time.Minute}, year, nil, time.Minute},
		"stale-while-revalidate, by default": {cache.Window{}, year, nil, 24 * time.Hour},
		"beyond MaxStale":                    {cache.Window{MaxStale: time.Second, StaleLimit: time.Minute}, year, nil, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newFresh(t)
				c.do(get(), answer(200, "stored", "Cache-Control", test.stored, "Etag", `"1"`), test.window)
				for _, at := range []struct {
					after  time.Duration
					served bool
				}{{10*time.Second + test.limit, true}, {time.Nanosecond, false}} {
					time.Sleep(at.after)
					x := c.Begin(get(test.ask...))
					if got := c.Reuse(&x, get(test.ask...), test.window); (got.Response != nil) != at.served {
						t.Errorf("served: %v, want %v", got.Response != nil, at.served)
					}
				}
			})
		})
	}
}

// Who keeps nothing of an answer says nothing of what others have kept.
func TestWhatMustNotBeStoredDeletesNothing(t *testing.T) {
	for name, test := range map[string]struct {
		req  *http.Request
		resp *http.Response
	}{
		"HEAD":  {request("HEAD", "https://a.test/doc", "Cache-Control", "no-store"), answer(200, "stored", "Cache-Control", "max-age=60", "Etag", `"1"`)},
		"a 304": {get("Cache-Control", "no-store", "If-None-Match", `"1"`), answer(304, "", "Etag", `"1"`)},
	} {
		c := newFresh(t)
		c.ask(get(), answer(200, "stored", "Cache-Control", "max-age=60", "Etag", `"1"`))
		if _, sent := c.ask(test.req, test.resp); sent == nil {
			t.Errorf("%s: not sent", name)
		}
		if got, _ := c.ask(get(), nil); got == nil || c.store.Len() != 1 {
			t.Errorf("%s: %d are stored", name, c.store.Len())
		}
	}
}

// An answer that is no longer the stored one takes its place at once.
func TestRefreshIntervalIsForAnswersThatAreTheSame(t *testing.T) {
	const old, later = "Fri, 17 Dec 1999 00:00:00 GMT", "Sat, 18 Dec 1999 00:00:00 GMT"
	for name, test := range map[string]struct {
		fields []string
		want   string
	}{
		"the same":         {[]string{"Etag", `"1"`, "Last-Modified", old}, "first"},
		"another ETag":     {[]string{"Etag", `"2"`, "Last-Modified", old}, "second"},
		"another date":     {[]string{"Etag", `"1"`, "Last-Modified", later}, "second"},
		"no ETag any more": {[]string{"Last-Modified", old}, "second"},
	} {
		c := rulesClient(t, cache.Rules{Fresh: true, RefreshInterval: time.Minute})
		c.ask(get(), answer(200, "first", "Cache-Control", "max-age=60", "Etag", `"1"`, "Last-Modified", old))
		c.ask(get("Cache-Control", "no-cache"), answer(200, "second", append([]string{"Cache-Control", "max-age=60"}, test.fields...)...))
		if got, _ := c.ask(get(), nil); got == nil || text(t, got) != test.want {
			t.Errorf("%s: %v, want the %s", name, got, test.want)
		}
	}
}
