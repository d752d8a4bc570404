package cache_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watertight-go/watertight/cache"
)

func TestServesTheLastGoodAnswerAfterAFailure(t *testing.T) {
	for _, why := range []cache.Failure{
		refused, dialing, failed, {Status: 500}, {Status: 502}, {Status: 504}, {Err: errDial, Status: 503},
	} {
		c := newClient(t)
		c.do(get(), answer(200, "hello"), minutes)
		resp := c.mustFail(t, get(), why, minutes)
		if got := text(t, resp); got != "hello" || resp.StatusCode != 200 {
			t.Errorf("%+v: %d %q", why, resp.StatusCode, got)
		}
	}
}

func TestServesNothingInPlaceOfAnAnswer(t *testing.T) {
	for _, why := range []cache.Failure{
		{}, {Detail: "none"}, {Status: 200}, {Status: 304}, {Status: 401}, {Status: 404}, {Status: 429}, {Status: 501}, {Status: 505},
		{Status: 404, Err: errDial},
	} {
		c := newClient(t)
		c.do(get(), answer(200, "hello"), minutes)
		if _, ok := c.fail(get(), why, minutes); ok {
			t.Errorf("%+v: served", why)
		}
	}
}

func TestServesNothingInPlaceOfARefusedCertificate(t *testing.T) {
	for _, err := range []error{
		&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}},
		fmt.Errorf("dial: %w", x509.HostnameError{}),
		fmt.Errorf("%w and %w", errDial, x509.UnknownAuthorityError{}),
		x509.CertificateInvalidError{},
		x509.SystemRootsError{Err: errDial},
	} {
		c := newClient(t)
		c.do(get(), answer(200, "hello"), minutes)
		if _, ok := c.fail(get(), cache.Failure{Err: err, Forwarded: true}, minutes); ok {
			t.Errorf("%v: served", err)
		}
	}
}

func TestServesNothingToACallerWhoHasGone(t *testing.T) {
	c := newClient(t)
	c.do(get(), answer(200, "hello"), minutes)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c.servesNothing(t, get().WithContext(ctx), minutes)
	req, cancelled := get(), make(chan struct{})
	close(cancelled)
	req.Cancel = cancelled
	c.servesNothing(t, req, minutes)
}

func TestStores(t *testing.T) {
	hour := []string{"Cache-Control", "max-age=3600"}
	for _, test := range []struct {
		name   string
		status int
		fields []string
		window cache.Window
		want   bool
	}{
		{"fresh", 200, hour, none, true},
		{"Expires", 200, []string{"Expires", "Thu, 01 Jan 2099 00:00:00 GMT"}, none, true},
		{"Expires in the past", 200, []string{"Expires", "Thu, 01 Jan 1998 00:00:00 GMT"}, none, false},
		{"Expires past, MaxStale", 200, []string{"Expires", "0"}, minutes, true},
		{"Expires twice, differing", 200, []string{"Expires", "Thu, 01 Jan 2099 00:00:00 GMT", "Expires", "Thu, 01 Jan 2098 00:00:00 GMT"}, none, false},
		{"max-age beats Expires", 200, []string{"Expires", "Thu, 01 Jan 2099 00:00:00 GMT", "Cache-Control", "max-age=0"}, none, false},
		{"nothing granted", 200, nil, none, false},
		{"granted by the owner", 200, nil, minutes, true},
		{"granted by the origin", 200, []string{"Cache-Control", "stale-if-error=60"}, none, true},
		{"stale-if-error=0", 200, []string{"Cache-Control", "stale-if-error=0"}, minutes, false},
		{"older than its lifetime", 200, append([]string{"Age", "3600"}, hour...), none, false},
		{"no-store", 200, []string{"Cache-Control", "no-store, max-age=60"}, minutes, false},
		{"must-understand", 200, []string{"Cache-Control", "must-understand, no-store, max-age=60"}, none, true},
		{"must-understand, unknown status", 299, []string{"Cache-Control", "must-understand, max-age=60"}, none, false},
		{"no-cache", 200, []string{"Cache-Control", "no-cache, max-age=60"}, minutes, false},
		{"no-cache with fields", 200, []string{"Cache-Control", `no-cache="X-A", max-age=60`}, none, true},
		{"private", 200, []string{"Cache-Control", "private, max-age=60"}, none, true},
		{"must-revalidate, stale at once", 200, []string{"Cache-Control", "must-revalidate, max-age=0"}, minutes, false},
		{"s-maxage only", 200, []string{"Cache-Control", "s-maxage=60"}, none, false},
		{"Vary *", 200, append([]string{"Vary", "Accept, *"}, hour...), none, false},
		{"Vary that is no name", 200, append([]string{"Vary", "a b"}, hour...), none, false},
		{"Date unreadable", 200, append([]string{"Date", "yesterday"}, hour...), none, false},
		{"trailers announced", 200, append([]string{"Trailer", "X-Sum"}, hour...), none, false},
		{"huge header", 200, append([]string{"X-A", strings.Repeat("x", 64<<10)}, hour...), none, false},
		{"201", 201, hour, minutes, false},
		{"203", 203, nil, minutes, true},
		{"206", 206, hour, minutes, false},
		{"300", 300, nil, minutes, true},
		{"301", 301, nil, minutes, true},
		{"302", 302, nil, minutes, false},
		{"302 with a lifetime", 302, hour, none, true},
		{"307 with a lifetime", 307, hour, none, true},
		{"308", 308, nil, minutes, true},
		{"404 with a lifetime", 404, hour, minutes, false},
		{"410 with a lifetime", 410, hour, minutes, false},
		{"429 with a lifetime", 429, hour, minutes, false},
		{"500 with a lifetime", 500, hour, minutes, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newClient(t)
			c.do(get(), answer(test.status, "hello", test.fields...), test.window)
			if got := c.store.Len() == 1; got != test.want {
				t.Errorf("stored: %t, want %t", got, test.want)
			}
		})
	}
}

func TestStoresAnAnswerWithoutABodyAtOnce(t *testing.T) {
	c := newClient(t)
	req := get()
	x := c.Begin(req)
	if capture := c.Received(&x, req, answer(204, ""), minutes); capture != nil {
		t.Error("a capture for nothing")
	}
	resp := c.mustFail(t, get(), failed, minutes)
	if got := text(t, resp); got != "" || resp.StatusCode != 204 || resp.ContentLength != 0 {
		t.Errorf("%d %q, length %d", resp.StatusCode, got, resp.ContentLength)
	}
}

func TestLeavesRequestsAloneThatCannotBeAnsweredFromTheStore(t *testing.T) {
	withBody := get()
	withBody.Body = io.NopCloser(strings.NewReader("query"))
	noURL := &http.Request{Method: "GET"}
	opaque := &http.Request{Method: "GET", URL: get().URL.JoinPath("x")}
	opaque.URL.Host = ""
	for _, req := range []*http.Request{
		withBody, noURL, opaque,
		request("GET", "ftp://a.test/doc"),
		request("GET", "https://a.test/"+strings.Repeat("x", 8<<10)),
		request("POST", "https://a.test/doc"), request("PUT", "https://a.test/doc"), request("OPTIONS", "https://a.test/doc"),
		get("Upgrade", "websocket"),
		get("X-HTTP-Method-Override", "DELETE"), get("X-Original-URL", "/admin"), get("X-Rewrite-URL", "/admin"),
	} {
		c := newClient(t)
		c.do(req, answer(200, "hello", "Cache-Control", "max-age=60"), minutes)
		if c.store.Len() != 0 {
			t.Errorf("%s %v %v: stored", req.Method, req.URL, req.Header)
		}
		c.do(get(), answer(200, "hello"), minutes)
		if _, ok := c.fail(req, failed, minutes); ok {
			t.Errorf("%s %v %v: served", req.Method, req.URL, req.Header)
		}
	}
}

// raw returns a GET with a field under a key that nobody has made canonical.
func raw(name, value string) *http.Request {
	req := get()
	req.Header[name] = []string{value}
	return req
}

// net/http sends such a field as it is, so the origin heeds it; here no lookup found it.
func TestARequestWithAKeyThatIsNotCanonicalIsLeftAlone(t *testing.T) {
	for _, test := range []struct{ name, value string }{
		{"cache-control", "no-store"}, {"CACHE-CONTROL", "no-cache"}, {"pragma", "no-cache"}, {"range", "bytes=0-1"}, {"if-match", `"v1"`},
		{"x-lang", "fr"}, {"accept", "text/csv"}, {"upgrade", "websocket"}, {"Cache-Control ", "no-store"}, {"x-original-url", "/admin"}, {"", "x"},
	} {
		c := newClient(t)
		c.do(raw(test.name, test.value), answer(200, "hello", "Vary", "X-Lang"), minutes)
		if c.store.Len() != 0 {
			t.Errorf("%q: stored", test.name)
		}
		c.do(get(), answer(200, "hello"), minutes)
		if _, ok := c.fail(raw(test.name, test.value), failed, minutes); ok {
			t.Errorf("%q: served", test.name)
		}
	}
}

func TestAWriteWithAKeyThatIsNotCanonicalIsStillAWrite(t *testing.T) {
	override := raw("x-http-method-override", "DELETE")
	override.Header.Set("X-Original-Url", "/doc")
	override.Body = io.NopCloser(strings.NewReader("body"))
	post := raw("x-lang", "fr")
	post.Method = "POST"
	for _, req := range []*http.Request{post, override, raw("X-HTTP-Method", "DELETE"), raw("x-method-override", "PUT")} {
		c := newClient(t)
		c.do(get(), answer(200, "hello"), minutes)
		c.do(req, answer(200, ""), minutes)
		if c.store.Len() != 0 {
			t.Errorf("%s %v: left the entry", req.Method, req.Header)
		}
	}
}

func TestAnAnswerWithAKeyThatIsNotCanonicalIsNotStored(t *testing.T) {
	for _, test := range []struct{ name, value string }{
		{"cache-control", "no-store"}, {"CACHE-CONTROL", "no-cache"}, {"vary", "*"}, {"trailer", "X-Sum"}, {"x-a", "b"}, {"Cache-Control ", "no-store"},
	} {
		c := newClient(t)
		c.do(get(), answer(200, "hello"), minutes)
		resp := answer(200, "newer")
		resp.Header[test.name] = []string{test.value}
		c.do(get(), resp, minutes)
		if c.store.Len() != 0 {
			t.Errorf("%q: something is stored", test.name)
		}
		c.do(get(), answer(200, "hello"), minutes)
		c.do(request("HEAD", "https://a.test/doc"), resp, minutes)
		if c.store.Len() != 0 {
			t.Errorf("%q: HEAD has left the entry", test.name)
		}
		c.do(get(), answer(200, "hello"), minutes)
		resp.StatusCode = 304
		c.do(get("If-None-Match", "x"), resp, minutes)
		if c.store.Len() != 0 {
			t.Errorf("%q: 304 has left the entry", test.name)
		}
	}
}

func TestAWriteWhoseAnswerHasAKeyThatIsNotCanonicalRemovesWhatItNames(t *testing.T) {
	c := newClient(t)
	c.do(get(), answer(200, "hello"), minutes)
	resp := answer(201, "")
	resp.Header["location"] = []string{"/doc"}
	c.do(request("POST", "https://a.test/docs"), resp, minutes)
	c.servesNothing(t, get(), minutes)
}

func FuzzCanonical(f *testing.F) {
	for _, name := range []string{"", "Accept", "accept", "X-Scope-OrgID", "X--A", "-A", "-a", "A b", "X-1a", "X-1A", "X_a", "É"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		want := name != "" && name == textproto.CanonicalMIMEHeaderKey(name) && !strings.ContainsFunc(name, func(r rune) bool {
			return r <= ' ' || r > '~' || strings.ContainsRune("\"(),/:;<=>?@[\\]{}", r)
		})
		if got := cache.Canonical(name); got != want {
			t.Errorf("%q: %t", name, got)
		}
	})
}

func TestRequestsForAPartOrWithAPreconditionGetNothingWhole(t *testing.T) {
	for _, fields := range [][]string{
		{"Range", "bytes=0-9"}, {"Range", "bytes=0-9", "If-Range", `"v1"`}, {"If-Match", `"v1"`},
		{"If-Unmodified-Since", "Thu, 01 Jan 1998 00:00:00 GMT"},
	} {
		c := newClient(t)
		c.do(get(), answer(200, "hello", "Etag", `"v1"`), minutes)
		c.servesNothing(t, get(fields...), minutes)
	}
}

func TestAWholeAnswerToARangeRequestIsStored(t *testing.T) {
	c := newClient(t)
	c.do(get("Range", "bytes=0-1"), answer(200, "hello"), minutes)
	c.serves(t, "hello", get(), minutes)
}

func TestAPartIsNeverStored(t *testing.T) {
	c := newClient(t)
	c.do(get("Range", "bytes=0-1"), answer(206, "he", "Cache-Control", "max-age=60"), minutes)
	c.servesNothing(t, get(), minutes)
}

func TestAnswersConditionalCallersOnlyWithWhatIsNotOlder(t *testing.T) {
	const older, stored, newer = "Thu, 01 Jan 1998 00:00:00 GMT", "Thu, 01 Jan 2004 00:00:00 GMT", "Thu, 01 Jan 2015 00:00:00 GMT"
	for _, test := range []struct {
		name, value string
		want        bool
	}{
		{"If-None-Match", `"v2"`, true},
		{"If-None-Match", `"v1", W/"v2"`, true},
		{"If-None-Match", `"v3"`, false},
		{"If-None-Match", `*`, false},
		{"If-Modified-Since", stored, true},
		{"If-Modified-Since", older, true},
		{"If-Modified-Since", newer, false},
		{"If-Modified-Since", "yesterday", false},
	} {
		c := newClient(t)
		c.do(get(), answer(200, "hello", "Etag", `"v2"`, "Last-Modified", stored), minutes)
		resp, ok := c.fail(get(test.name, test.value), failed, minutes)
		if ok != test.want {
			t.Errorf("%s: %s: served %t, want %t", test.name, test.value, ok, test.want)
		}
		if ok && resp.StatusCode != 200 {
			t.Errorf("%s: %s: status %d", test.name, test.value, resp.StatusCode)
		}
	}
}

func TestANewerAnswerRemovesTheEntry(t *testing.T) {
	for _, test := range []struct {
		status int
		fields []string
		gone   bool
	}{
		{404, nil, true}, {410, nil, true}, {401, nil, true}, {403, nil, true}, {400, nil, true},
		{302, nil, true}, {201, nil, true}, {200, []string{"Cache-Control", "no-store"}, true}, {200, []string{"Cache-Control", "no-cache"}, true},
		{304, nil, false}, {206, nil, false}, {429, nil, false},
		{500, nil, false}, {501, nil, false}, {503, nil, false},
	} {
		c := newClient(t)
		c.do(get(), answer(200, "hello"), minutes)
		c.do(get(), answer(test.status, "newer", test.fields...), minutes)
		if _, ok := c.fail(get(), failed, minutes); ok == test.gone {
			t.Errorf("%d %v: served afterwards: %t", test.status, test.fields, ok)
		}
	}
}

// A caller with a copy of its own was told no-store, and the next outage brought out the stored one.
func TestAnAnswerThatConfirmsTheEntryMayRevokeIt(t *testing.T) {
	for _, test := range []struct {
		stored, says string
		gone         bool
	}{
		{"max-age=60", "no-store", true},
		{"max-age=60", "no-cache, max-age=60", true},
		{"max-age=60", "must-revalidate, max-age=60", true},
		{"max-age=60", `no-cache="X-Secret"`, true},
		{"max-age=60", `no-cache="Set-Cookie", max-age=60`, false},
		{"max-age=60", "stale-if-error=0", true},
		{"max-age=60, stale-if-error=60", "stale-if-error=30", true},
		{"max-age=60, stale-if-error=60", "max-age=60, stale-if-error=60", false},
		{"max-age=60", "stale-if-error=60", false},
		{"max-age=60", "max-age=10", true},
		{"max-age=60", "max-age=49", false}, // 60, less the 10 seconds since then and one for rounding
		{"max-age=60", "max-age=60", false},
		{"max-age=60", "public", false},
		{"max-age=60, must-revalidate", "max-age=60, must-revalidate", false},
		{"max-age=60, must-understand, no-store", "max-age=60, must-understand, no-store", false},
	} {
		for _, status := range []int{304, 206, 200} {
			synctest.Test(t, func(t *testing.T) {
				c := newClient(t)
				before := get()
				late := c.Begin(before)
				c.do(get(), answer(200, "hello", "Etag", `"v1"`, "X-Secret", "x", "Cache-Control", test.stored), minutes)
				c.do(get("Authorization", "x"), answer(200, "private", "Cache-Control", test.stored), minutes)
				time.Sleep(10 * time.Second)
				req := get("If-None-Match", `"v1"`)
				if status == 200 {
					req.Method = "HEAD"
				}
				c.do(req, answer(status, "", "Etag", `"v1"`, "Cache-Control", test.says), minutes)
				if _, ok := c.fail(get(), failed, minutes); ok == test.gone {
					t.Errorf("%s, then %d %s: served %t", test.stored, status, test.says, ok)
				}
				c.serves(t, "private", get("Authorization", "x"), minutes)
				resp := answer(200, "from before")
				c.read(c.Received(&late, before, resp, minutes), resp)
				if test.gone {
					c.servesNothing(t, get(), minutes)
				}
			})
		}
	}
}

func TestAnOldConfirmationRevokesNothingNewer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t)
		slow := get("If-None-Match", `"v1"`)
		x := c.Begin(slow)
		time.Sleep(time.Second)
		c.do(get(), answer(200, "newer"), minutes)
		c.Received(&x, slow, answer(304, "", "Cache-Control", "no-store"), minutes)
		c.serves(t, "newer", get(), minutes)
	})
}

func TestTheSameExpiresRevokesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t)
		time.Sleep(1500 * time.Millisecond)
		expires := time.Now().Add(time.Minute).UTC().Format(http.TimeFormat)
		c.do(get(), answer(200, "hello", "Expires", expires, "Date", time.Now().UTC().Format(http.TimeFormat)), minutes)
		time.Sleep(5700 * time.Millisecond)
		c.do(get("If-None-Match", "x"), answer(304, "", "Expires", expires), minutes)
		c.serves(t, "hello", get(), minutes)
		c.do(get("If-None-Match", "x"), answer(304, "", "Expires", "0"), minutes)
		c.servesNothing(t, get(), minutes)
	})
}

func TestANewerAnswerRemovesNothingOfOthers(t *testing.T) {
	c := newClient(t)
	c.do(get("Authorization", "one"), answer(200, "one"), minutes)
	c.do(get("Accept", "text/csv"), answer(200, "csv", "Vary", "Accept"), minutes)
	c.do(get("Accept", "text/html"), answer(200, "html", "Vary", "Accept"), minutes)
	c.do(get("Accept", "text/html"), answer(404, ""), minutes)
	c.serves(t, "one", get("Authorization", "one"), minutes)
	c.serves(t, "csv", get("Accept", "text/csv"), minutes)
	c.servesNothing(t, get("Accept", "text/html"), minutes)
}

func TestAnAnswerAskedForBeforeARemovalIsNotStoredAfterIt(t *testing.T) {
	c := newClient(t)
	slow := get()
	x := c.Begin(slow)
	c.do(get(), answer(404, ""), minutes)
	resp := answer(200, "from before")
	c.read(c.Received(&x, slow, resp, minutes), resp)
	c.servesNothing(t, get(), minutes)
}

func TestAnOlderAnswerRemovesNothingNewer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t)
		slow := get()
		x := c.Begin(slow)
		time.Sleep(time.Second)
		c.do(get(), answer(200, "newer"), minutes)
		c.Received(&x, slow, answer(404, ""), minutes)
		c.serves(t, "newer", get(), minutes)
	})
}

func TestAnOlderAnswerDoesNotReplaceANewerOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t)
		slow := get()
		x := c.Begin(slow)
		time.Sleep(time.Second)
		c.do(get(), answer(200, "newer"), minutes)
		time.Sleep(time.Second)
		resp := answer(200, "older")
		c.read(c.Received(&x, slow, resp, minutes), resp)
		c.serves(t, "newer", get(), minutes)
	})
}

func TestOfTwoAskedForAtOnceTheLaterDateStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t)
		c.do(get(), answer(200, "later", "Date", "Sat, 01 Jan 2000 00:00:00 GMT"), minutes)
		c.do(get(), answer(200, "earlier", "Date", "Fri, 31 Dec 1999 23:59:59 GMT"), minutes)
		c.serves(t, "later", get(), minutes)
	})
}

func TestASuccessfulWriteRemovesTheURIForEveryone(t *testing.T) {
	for _, test := range []struct {
		method string
		status int
		gone   bool
	}{
		{"POST", 200, true}, {"PUT", 204, true}, {"DELETE", 200, true}, {"PATCH", 303, true}, {"FROB", 200, true},
		{"PUT", 404, false}, {"PUT", 500, false}, {"OPTIONS", 200, false}, {"TRACE", 200, false}, {"PUT", 101, false},
	} {
		c := newClient(t)
		c.do(get(), answer(200, "hello"), minutes)
		c.do(get("Cookie", "a=b"), answer(200, "private"), minutes)
		c.do(get("Accept-Language", "fr"), answer(200, "bonjour", "Vary", "Accept-Language"), minutes)
		c.do(request(test.method, "https://a.test:443/doc#part"), answer(test.status, ""), minutes)
		if want := 0; test.gone && c.store.Len() != want || !test.gone && c.store.Len() != 3 {
			t.Errorf("%s %d: %d entries left", test.method, test.status, c.store.Len())
		}
	}
}

func TestAGetThatIsAWriteInDisguiseRemovesTheURI(t *testing.T) {
	c := newClient(t)
	c.do(get(), answer(200, "hello"), minutes)
	c.do(get("X-HTTP-Method-Override", "DELETE"), answer(200, ""), minutes)
	c.servesNothing(t, get(), minutes)
}

func TestAWriteRemovesWhatItSaysItChangedOnTheSameOrigin(t *testing.T) {
	for _, test := range []struct {
		name, ref string
		gone      bool
	}{
		{"Location", "/doc", true}, {"Location", "https://A.test/doc", true}, {"Content-Location", "doc", true},
		{"Location", "https://b.test/doc", false}, {"Location", "http://a.test/doc", false}, {"Location", "/other", false}, {"Location", ":", false},
	} {
		c := newClient(t)
		c.do(get(), answer(200, "hello"), minutes)
		c.do(request("POST", "https://a.test/docs"), answer(201, "", test.name, test.ref), minutes)
		if got := c.store.Len() == 0; got != test.gone {
			t.Errorf("%s: %s: gone %t", test.name, test.ref, got)
		}
	}
}

func TestAnAnswerAskedForBeforeAWriteIsNotStoredAfterIt(t *testing.T) {
	for _, test := range []struct {
		name string
		run  func(c client, read func())
	}{
		{"read ends after the write", func(c client, read func()) {
			c.do(request("PUT", "https://a.test/doc"), answer(204, ""), minutes)
			read()
		}},
		{"read ends during the write", func(c client, read func()) {
			put := request("PUT", "https://a.test/doc")
			x := c.Begin(put)
			read()
			c.Received(&x, put, answer(204, ""), minutes)
		}},
		{"write to another URI that names this one", func(c client, read func()) {
			c.do(request("POST", "https://a.test/docs"), answer(201, "", "Location", "/doc"), minutes)
			read()
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newClient(t)
			req := get()
			x := c.Begin(req)
			test.run(c, func() {
				resp := answer(200, "from before")
				c.read(c.Received(&x, req, resp, minutes), resp)
			})
			c.servesNothing(t, get(), minutes)
		})
	}
}

// Writes are counted for many URIs together.
func TestAFewWritesToOtherURIsKeepNoAnswerFromBeingStored(t *testing.T) {
	c := newClient(t)
	x := c.Cache.Begin(get())
	for i, written := 0, 0; written < 4; i++ {
		other := "https://a.test/" + strconv.Itoa(i)
		if !cache.SameStripe(x, c.Cache.Begin(request("GET", other))) {
			continue
		}
		c.do(request("PUT", other), answer(200, "written"), none)
		written++
	}
	resp := answer(200, "kept", "Cache-Control", "max-age=60")
	c.read(c.Received(&x, get(), resp, none), resp)
	c.serves(t, "kept", get(), none)

	x = c.Begin(get())
	c.do(request("PUT", "https://a.test/doc"), answer(200, "written"), none)
	for i := range 5000 {
		c.do(request("PUT", "https://a.test/"+strconv.Itoa(i)), answer(200, "written"), none)
	}
	resp = answer(200, "old", "Cache-Control", "max-age=60")
	c.read(c.Received(&x, get(), resp, none), resp)
	c.servesNothing(t, get(), none)
}

func TestAReadBegunDuringAWriteIsNotStoredAfterIt(t *testing.T) {
	c := newClient(t)
	put, req := request("PUT", "https://a.test/doc"), get()
	write := c.Begin(put)
	read := c.Begin(req)
	c.Received(&write, put, answer(204, ""), minutes)
	resp := answer(200, "perhaps from before")
	c.read(c.Received(&read, req, resp, minutes), resp)
	c.servesNothing(t, get(), minutes)
}

func TestHeadIsAnsweredFromTheEntryOfGet(t *testing.T) {
	c := newClient(t)
	c.do(get(), answer(200, "hello"), minutes)
	resp := c.mustFail(t, request("HEAD", "https://a.test/doc"), failed, minutes)
	if got := text(t, resp); got != "" || resp.ContentLength != 5 || resp.Header.Get("Content-Length") != "5" {
		t.Errorf("%q, length %d, %v", got, resp.ContentLength, resp.Header)
	}
}

func TestHeadStoresNothing(t *testing.T) {
	c := newClient(t)
	c.do(request("HEAD", "https://a.test/doc"), answer(200, "", "Cache-Control", "max-age=60"), minutes)
	c.servesNothing(t, get(), minutes)
}

func TestHeadRemovesTheEntryItContradicts(t *testing.T) {
	const monday, tuesday = "Mon, 01 Jan 2024 00:00:00 GMT", "Tue, 02 Jan 2024 00:00:00 GMT"
	for _, test := range []struct {
		name         string
		status       int
		length       int64
		uncompressed bool
		fields       []string
		gone         bool
	}{
		{"same", 200, 5, false, []string{"Etag", `"v1"`, "Last-Modified", monday}, false},
		{"silent", 200, -1, false, nil, false},
		{"other ETag", 200, 5, false, []string{"Etag", `"v2"`}, true},
		{"other Last-Modified", 200, 5, false, []string{"Last-Modified", tuesday}, true},
		{"other length", 200, 6, false, nil, true},
		{"other length, but decompressed", 200, 6, true, nil, false},
		{"no-store", 200, 5, false, []string{"Cache-Control", "no-store"}, true},
		{"gone", 410, 0, false, nil, true},
		{"not allowed", 405, 0, false, nil, false},
		{"failed", 503, 0, false, nil, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newClient(t)
			first := answer(200, "hello", "Etag", `"v1"`, "Last-Modified", monday)
			first.Uncompressed = test.uncompressed
			c.do(get(), first, minutes)
			head := answer(test.status, "", test.fields...)
			head.ContentLength = test.length
			c.do(request("HEAD", "https://a.test/doc"), head, minutes)
			if got := c.store.Len() == 0; got != test.gone {
				t.Errorf("gone: %t, want %t", got, test.gone)
			}
		})
	}
}

func TestOnlyIfCachedIsNeverForwarded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t)
		ask := func(fields ...string) (*http.Response, bool) {
			req := get(fields...)
			x := c.Begin(req)
			return c.OnlyIfCached(&x, req)
		}
		check := func(want int, fields ...string) *http.Response {
			t.Helper()
			resp, ok := ask(fields...)
			if !ok || resp.StatusCode != want || resp.Body == nil || resp.Request == nil {
				t.Fatalf("%v: %v %v, want %d", fields, resp, ok, want)
			}
			return resp
		}
		if _, ok := ask(); ok {
			t.Error("answered a request that may be forwarded")
		}
		miss := check(504, "Cache-Control", "only-if-cached")
		if got := miss.Header.Get("Cache-Status"); got != "watertight; detail=only-if-cached" {
			t.Error(got)
		}
		c.do(get(), answer(200, "hello", "Cache-Control", "max-age=60"), minutes)
		hit := check(200, "Cache-Control", "only-if-cached")
		if got := hit.Header.Get("Cache-Status"); got != "watertight; hit; ttl=60" {
			t.Error(got)
		}
		if info, ok := cache.FromResponse(hit); !ok || info.Cause != nil {
			t.Errorf("%+v", info)
		}
		check(504, "Cache-Control", "only-if-cached, no-cache")
		check(504, "Cache-Control", "only-if-cached", "Range", "bytes=0-1")
		time.Sleep(90 * time.Second)
		check(504, "Cache-Control", "only-if-cached")
		check(200, "Cache-Control", "only-if-cached, max-stale=60")
		check(504, "Cache-Control", "only-if-cached, max-stale=20")
	})
}

func TestNothingHappensForTheZeroExchange(t *testing.T) {
	c := newClient(t)
	var x cache.Exchange
	if c.Received(&x, get(), answer(200, "hello"), minutes) != nil {
		t.Error("a capture")
	}
	if _, ok := c.Serve(&x, get(), failed, minutes); ok {
		t.Error("an answer")
	}
}

func TestWhatOneCacheStoredNoOtherFinds(t *testing.T) {
	one := newClient(t)
	two := client{cache.New(one.store), one.store}
	one.do(get("Authorization", "secret"), answer(200, "hello"), minutes)
	two.servesNothing(t, get("Authorization", "secret"), minutes)
}

func TestTheCauseIsTheMaskedError(t *testing.T) {
	c := newClient(t)
	c.do(get(), answer(200, "hello"), minutes)
	info, ok := cache.FromResponse(c.mustFail(t, get(), dialing, minutes))
	if !ok || !errors.Is(info.Cause, errDial) {
		t.Errorf("%+v", info)
	}
	info, _ = cache.FromResponse(c.mustFail(t, get(), failed, minutes))
	if info.Cause == nil || info.Cause.Error() != "origin answered 503 Service Unavailable" {
		t.Errorf("%v", info.Cause)
	}
}

func TestAnAnswerLikeARecentOneIsNotWorthItsCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, fresh := range []bool{false, true} {
			c := newClient(t)
			c.Cache = c.For(cache.Rules{Fresh: fresh, RefreshInterval: time.Second})
			kept := func(want bool, resp *http.Response) {
				t.Helper()
				x := c.Begin(get())
				capture := c.Received(&x, get(), resp, minutes)
				if (capture != nil) != want {
					t.Errorf("fresh=%v: kept: %v, want %v", fresh, capture != nil, want)
				}
				c.read(capture, resp)
			}
			kept(true, answer(200, "1", "Cache-Control", "max-age=60"))
			time.Sleep(999 * time.Millisecond)
			kept(false, answer(200, "2", "Cache-Control", "max-age=60"))
			c.serves(t, "1", get(), minutes)
			time.Sleep(time.Millisecond)
			kept(true, answer(200, "3", "Cache-Control", "max-age=60"))
			c.serves(t, "3", get(), minutes)
			kept(true, answer(200, "4", "Cache-Control", "max-age=30"))
			kept(true, answer(203, "5", "Cache-Control", "max-age=30"))
			kept(false, answer(200, "6", "Cache-Control", "no-store"))
			c.servesNothing(t, get(), minutes)
			kept(true, answer(200, "7", "Cache-Control", "max-age=60"))
			kept(false, answer(404, "8", "Cache-Control", "no-store"))
			c.servesNothing(t, get(), minutes)
		}
	})
}
