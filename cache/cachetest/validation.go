package cachetest

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

var validation = []rule{
	{"NotModifiedMerges",
		"a 304 brings the header of the stored answer up to date, and its caller gets the whole (RFC 9111 section 3.2, 4.3.3)", merges},
	{"NotModifiedSaysNothingOfTheBody",
		"a 304 does not change the length or the coding of what is stored (RFC 9111 section 3.2)", bodyFields},
	{"NotModifiedOfAnotherIsNotMerged",
		"a 304 with another validator does not bring the stored answer up to date (RFC 9111 section 4.3.4)", anotherTag},
	{"NotModifiedMayRevoke",
		"a 304 with no-store, or no-cache, ends what was allowed before (RFC 9111 section 3.2, 5.2.2)", revokes},
	{"CallersConditionsAreTheirOwn",
		"a 304 is for a caller whose own copy it is about (RFC 9111 section 4.3.2)", conditions},
	{"AnswersToConditionsAreForWhoMadeThem",
		"that a condition failed, or a range is not there, is no answer to who has not asked for it (RFC 9110 section 13.2.2, 15.5.17)", unmet},
	{"PreconditionsReachTheOrigin",
		"If-Match and If-Unmodified-Since are for the origin alone to judge (RFC 9111 section 4.3.2)", preconditions},
	{"HeadIsAnsweredFromGet",
		"HEAD is answered from the answer to GET, with its header and no body (RFC 9111 section 4, RFC 9110 section 9.3.2)", headFromGet},
	{"HeadIsValidatedToo",
		"HEAD is answered from an answer to GET that was validated, and with 304 where the caller's copy is good (RFC 9111 section 4.3)", headValidated},
	{"HeadIsNoAnswerToGet",
		"an answer to HEAD is not served for a GET (RFC 9110 section 9.3.2)", headUnstored},
	{"HeadEndsWhatItContradicts",
		"a HEAD with another validator or length ends the stored answer to GET (RFC 9111 section 4.3.5)", headContradicts},
}

func merges(p *probe) {
	p.answers(says("text", "Cache-Control", "max-age=10", "Etag", `"1"`, "X-A", "old", "X-B", "kept"),
		answer{status: 304, fields: []string{"Cache-Control", "max-age=20", "Etag", `"1"`, "X-A", "new"}}, fresh("next"))
	p.misses("text")
	time.Sleep(10 * time.Second)
	check := func(g got) {
		p.Helper()
		h := g.Header
		if g.StatusCode != 200 || h.Get("X-A") != "new" || len(h["X-A"]) != 1 || h.Get("X-B") != "kept" || h.Get("Cache-Control") != "max-age=20" {
			p.Errorf("%d %v", g.StatusCode, h)
		}
	}
	check(p.misses("text"))
	if p.last().Header.Get("If-None-Match") != `"1"` {
		p.Errorf("not validated: %v", p.last().Header)
	}
	time.Sleep(19 * time.Second)
	check(p.hits("text"))
	time.Sleep(time.Second)
	p.misses("next")
}

func bodyFields(p *probe) {
	p.answers(says("text", "Cache-Control", "max-age=10", "Etag", `"1"`),
		answer{status: 304, fields: []string{"Cache-Control", "max-age=20", "Etag", `"1"`, "Content-Length", "999",
			"Content-Encoding", "gzip", "Content-Range", "bytes 0-1/999"}})
	p.misses("text")
	time.Sleep(10 * time.Second)
	for _, g := range []got{p.misses("text"), p.hits("text")} {
		if h := g.Header; h.Get("Content-Length") != "4" || h.Get("Content-Encoding") != "" || h.Get("Content-Range") != "" || g.ContentLength != 4 {
			p.Errorf("length %d, %v", g.ContentLength, h)
		}
	}
}

func anotherTag(p *probe) {
	p.answers(says("text", "Cache-Control", "max-age=10", "Etag", `"1"`))
	p.misses("text")
	p.hits("text")
	time.Sleep(10 * time.Second)
	p.answers(answer{status: 304, fields: []string{"Cache-Control", "max-age=60", "Etag", `"2"`}}, fresh("next"))
	p.get("If-None-Match", `"2"`) // of a caller who has it
	p.misses("next")
}

func revokes(p *probe) {
	for _, says304 := range []string{"no-store", "no-cache, max-age=60", "max-age=0, must-revalidate"} {
		p.answers(fresh("old", "Etag", `"1"`), answer{status: 304, fields: []string{"Cache-Control", says304, "Etag", `"1"`}},
			answer{err: errors.New("down")})
		p.misses("old", "Cache-Control", "no-cache")
		p.hits("old")
		time.Sleep(time.Minute)
		p.misses("old")
		p.never("old")
		p.never("old", "Cache-Control", "max-stale")
	}
}

// tagged answers as an origin that knows its validators.
func tagged(etag string, modified time.Time, a answer) func(*http.Request) answer {
	a.fields = append(slices.Clone(a.fields), "Etag", etag, "Last-Modified", modified.UTC().Format(http.TimeFormat))
	return func(req *http.Request) answer {
		if slices.Contains(strings.Split(req.Header.Get("If-None-Match"), ", "), etag) {
			return answer{status: 304, fields: a.fields}
		}
		return a
	}
}

func conditions(p *probe) {
	modified := time.Now().Add(-time.Hour)
	at := func(d time.Duration) string { return modified.Add(d).UTC().Format(http.TimeFormat) }
	p.answersBy(tagged(`"2"`, modified, fresh("text")))
	p.misses("text")
	p.hits("text")
	ask := func(want int, fields ...string) {
		p.Helper()
		g := p.get(fields...)
		text := "text"
		if want == http.StatusNotModified {
			text = ""
		}
		if g.StatusCode != want || g.text != text {
			p.Errorf("%v: %d %q, want %d", fields, g.StatusCode, g.text, want)
		}
	}
	for range 2 { // fresh, then stale
		ask(304, "If-None-Match", `"2"`)
		ask(304, "If-None-Match", `"1", "2"`)
		ask(200, "If-None-Match", `"1"`)
		ask(200, "If-None-Match", `"1"`, "If-Modified-Since", at(time.Hour))
		ask(200, "If-Modified-Since", at(-time.Second))
		ask(200, "If-Modified-Since", "yesterday")
		time.Sleep(time.Minute)
	}
}

func preconditions(p *probe) {
	p.numbers(fresh("", "Etag", `"1"`))
	p.misses("1")
	p.hits("1")
	p.misses("2", "If-Match", `"0"`)
	p.misses("3", "If-Unmodified-Since", time.Now().UTC().Format(http.TimeFormat))
}

func unmet(p *probe) {
	for _, a := range []struct {
		status int
		fields []string
	}{
		{412, []string{"If-Match", `"0"`}},
		{412, []string{"If-Unmodified-Since", "Sat, 01 Jan 2000 00:00:00 GMT"}},
		{416, []string{"Range", "bytes=100-"}},
		{417, []string{"Expect", "the impossible"}},
		{304, []string{"If-None-Match", `"1"`}},
	} {
		p.answers(answer{status: a.status, fields: fresh("").fields}, fresh("text"))
		p.get(append(a.fields, "Cache-Control", "no-cache")...)
		if g := p.get(); g.StatusCode != http.StatusOK || g.text != "text" {
			p.Errorf("%d %q after a %d to %v", g.StatusCode, g.text, a.status, a.fields)
		}
	}
	p.reuses()
}

func headFromGet(p *probe) {
	p.answers(fresh("text", "X-A", "1"))
	p.misses("text")
	g := p.hit("", request(http.MethodHead, url))
	if g.StatusCode != http.StatusOK || g.Header.Get("X-A") != "1" || g.Header.Get("Content-Length") != "4" || g.ContentLength != 4 {
		p.Errorf("%d, length %d, %v", g.StatusCode, g.ContentLength, g.Header)
	}
	p.hits("text")
}

func headValidated(p *probe) {
	p.answersBy(tagged(`"1"`, time.Now(), fresh("text")))
	p.misses("text")
	p.hits("text")
	for range 2 { // fresh, then stale
		if g := p.do(request(http.MethodHead, url, "If-None-Match", `"1"`)); g.StatusCode != http.StatusNotModified || g.text != "" {
			p.Errorf("%d %q", g.StatusCode, g.text)
		}
		time.Sleep(time.Minute)
		if g := p.do(request(http.MethodHead, url)); g.StatusCode != http.StatusOK || g.text != "" || g.ContentLength >= 0 && g.ContentLength != 4 {
			p.Errorf("%d %q of length %d", g.StatusCode, g.text, g.ContentLength)
		}
		time.Sleep(time.Minute)
	}
	p.misses("text")
}

func headUnstored(p *probe) {
	p.answers(fresh("text"))
	p.miss("", request(http.MethodHead, url))
	p.misses("text")
	p.hits("text")
}

func headContradicts(p *probe) {
	now := time.Now().UTC().Format(http.TimeFormat)
	for i, head := range []answer{fresh("text", "Etag", `"2"`), fresh("longer", "Etag", `"1"`), fresh("text", "Etag", `"1"`, "Last-Modified", now)} {
		u := "http://a.test/" + strconv.Itoa(i)
		old := time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat)
		p.answers(fresh("text", "Etag", `"1"`, "Last-Modified", old), head, fresh("next"))
		p.miss("text", request(http.MethodGet, u))
		p.hit("text", request(http.MethodGet, u))
		p.miss("", request(http.MethodHead, u, "Cache-Control", "no-cache"))
		p.miss("next", request(http.MethodGet, u))
	}
}
