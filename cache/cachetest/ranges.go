package cachetest

import (
	"net/http"
	"strconv"
	"time"
)

var ranges = []rule{
	{"RangesAreCutFromTheWhole",
		"a range is cut from what is stored whole (RFC 9110 section 14.2, RFC 9111 section 3.3)", cut},
	{"OddRangesAreNotCut",
		"several ranges, and what cannot be read, get the whole; what begins behind the end gets 416 (RFC 9110 section 14.2, 15.5.17)", oddRanges},
	{"IfRangeNeedsAStrongMatch",
		"a weak or another validator in If-Range gets the whole (RFC 9110 section 13.1.5)", ifRange},
	{"IfRangeDatesMayBeWeak",
		"a Last-Modified within a second of Date is no strong validator (RFC 9110 section 8.8.2.2, 13.1.5)", weakDate},
	{"PartsAreNotStoredAsTheWhole",
		"a 206 is not served for the whole (RFC 9111 section 3.3)", parts},
	{"WholesToRangesAreWhole",
		"a 200 to a request for a range is a whole answer, and its caller gets that", wholes},
}

const digits = "0123456789"

// ranged tests that a range of digits, which are stored, has a true answer, the store's or the origin's, which has the same.
func (p *probe) ranged(status int, text string, fields ...string) got {
	p.Helper()
	g := p.get(fields...)
	if g.forwarded {
		p.Errorf("%v: forwarded, want it from the store", fields)
	}
	if g.StatusCode != status || status != 416 && g.text != text || g.ContentLength >= 0 && g.ContentLength != int64(len(g.text)) {
		p.Errorf("%v: %d %q of length %d, want %d %q", fields, g.StatusCode, g.text, g.ContentLength, status, text)
	}
	if length := g.Header.Get("Content-Length"); length != "" && length != strconv.Itoa(len(g.text)) {
		p.Errorf("%v: Content-Length %s for %q", fields, length, g.text)
	}
	return g
}

func cut(p *probe) {
	for _, f := range []framing{fixed, chunked} {
		a := fresh(digits, "Etag", `"1"`)
		a.framing = f
		p.answers(a)
		p.misses(digits, "Cache-Control", "no-cache")
		p.cuts()
	}
}

func (p *probe) cuts() {
	p.Helper()
	for _, r := range [][3]string{
		{"bytes=0-0", "0", "0-0"}, {"bytes=2-4", "234", "2-4"}, {"bytes=8-", "89", "8-9"}, {"bytes=-3", "789", "7-9"}, {"bytes=-30", digits, "0-9"},
		{"bytes=8-99999999999999999", "89", "8-9"},
	} {
		g := p.ranged(206, r[1], "Range", r[0])
		if want := "bytes " + r[2] + "/10"; g.Header.Get("Content-Range") != want {
			p.Errorf("%s: Content-Range %q, want %q", r[0], g.Header.Get("Content-Range"), want)
		}
	}
	p.hits(digits)
}

func oddRanges(p *probe) {
	p.answers(fresh(digits))
	p.misses(digits)
	for _, r := range []string{"bytes=0-1,4-5", "bytes=4-2", "bytes", "bytes=", "bytes=-", "bytes=a-b", "bytes=1-2-3", "lines=0-1",
		"bytes=0x1-2", "bytes=+1-2", "bytes=1"} {
		g := p.ranged(200, digits, "Range", r)
		if g.Header.Get("Content-Range") != "" {
			p.Errorf("%s: %v", r, g.Header)
		}
	}
	for _, r := range []string{"bytes=10-", "bytes=10-12"} {
		if g := p.ranged(416, "", "Range", r); g.Header.Get("Content-Range") != "bytes */10" {
			p.Errorf("%s: %v", r, g.Header)
		}
	}
	p.hits(digits)
}

func ifRange(p *probe) {
	modified := time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat)
	p.answers(fresh(digits, "Etag", `"1"`, "Last-Modified", modified))
	p.misses(digits)
	p.ranged(206, "0", "Range", "bytes=0-0", "If-Range", `"1"`)
	p.ranged(206, "0", "Range", "bytes=0-0", "If-Range", modified)
	for _, v := range []string{`"2"`, `W/"1"`, "1", "", time.Now().UTC().Format(http.TimeFormat)} {
		p.ranged(200, digits, "Range", "bytes=0-0", "If-Range", v)
	}
	p.answers(fresh(digits, "Etag", `W/"1"`))
	p.misses(digits, "Cache-Control", "no-cache")
	p.ranged(200, digits, "Range", "bytes=0-0", "If-Range", `W/"1"`)
}

func weakDate(p *probe) {
	now := time.Now()
	at := now.UTC().Format(http.TimeFormat)
	p.answers(fresh(digits, "Date", at, "Last-Modified", at))
	p.misses(digits)
	p.hits(digits)
	p.ranged(206, "0", "Range", "bytes=0-0")
	p.ranged(200, digits, "Range", "bytes=0-0", "If-Range", at)
	before := now.Add(-time.Second).UTC().Format(http.TimeFormat)
	p.answers(fresh(digits, "Date", at, "Last-Modified", before))
	p.misses(digits, "Cache-Control", "no-cache")
	p.ranged(206, "0", "Range", "bytes=0-0", "If-Range", before)
}

func parts(p *probe) {
	part := func(text, of string) answer {
		return answer{status: 206, body: text, fields: fresh("", "Content-Range", of, "Etag", `"1"`).fields}
	}
	p.answers(part("0", "bytes 0-0/10"), fresh(digits, "Etag", `"1"`))
	p.misses("0", "Range", "bytes=0-0")
	p.misses(digits)
	p.hits(digits)
	p.answers(part("9", "bytes 9-9/10"), fresh(digits))
	p.misses("9", "Range", "bytes=9-9", "Cache-Control", "no-cache")
	if g := p.get(); g.StatusCode != http.StatusOK || g.text != digits {
		p.Errorf("%d %q", g.StatusCode, g.text)
	}
}

func wholes(p *probe) {
	p.answers(fresh(digits))
	if g := p.misses(digits, "Range", "bytes=0-0"); g.StatusCode != 200 {
		p.Errorf("status %d", g.StatusCode)
	}
	p.hits(digits)
}
