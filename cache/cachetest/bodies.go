package cachetest

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing/synctest"
)

var bodies = []rule{
	{"WholeBodiesAreStored",
		"an answer that was read to its end is reused, however its end was told (RFC 9111 section 4)", wholeBodies},
	{"DecodedBodiesAreStored",
		"an answer whose whole Content-Length was read is whole, if nobody saw its end: decoders stop at the last brace", decoded},
	{"EmptyBodiesAreStored",
		"an answer without a body is whole (RFC 9111 section 4)", emptyBodies},
	{"BodiesAreStreamed",
		"a caller reads what has arrived while the rest has not", streamed},
	{"EarlyCloseIsNotStored",
		"an incomplete answer is not served as a complete one (RFC 9111 section 3.3)", earlyClose},
	{"ShortBodiesAreNotStored",
		"an answer shorter than its Content-Length is incomplete, and its caller is told (RFC 9112 section 8)", shortBodies},
	{"CutChunksAreNotStored",
		"an answer whose last chunk is missing is incomplete, and its caller is told (RFC 9112 section 8)", cutChunks},
	{"UnframedBodiesAreNotStored",
		"a body that ends with its connection looks the same when it was cut (RFC 9112 section 8)", unframed},
	{"GoneCallersStoreNothing",
		"an answer whose caller has left before its end is incomplete (RFC 9111 section 3.3)", goneCallers},
	{"HugeBodiesEndTheOlder",
		"an answer too large to be stored replaces the older one all the same (RFC 9111 section 4)", hugeBodies},
	{"TrailersAreNotLost",
		"an answer is not served without the trailers that it came with (RFC 9110 section 6.5)", trailers},
	{"GzipIsForWhoAskedForIt",
		"what net/http has unpacked is served as such, and what is packed only to who asked for that (RFC 9110 section 8.4)", gzips},
	{"GetWithBodyIsNotStored",
		"the answer to a GET with a body depends on that (RFC 9110 section 9.3.1)", getWithBody},
}

func wholeBodies(p *probe) {
	for _, f := range []framing{fixed, chunked} {
		for _, size := range []int{1, 999, 100_000} {
			u := request(http.MethodGet, "http://a.test/"+strings.Repeat("x", int(f)+1)+"/"+strings.Repeat("y", size%100))
			a := fresh(strings.Repeat("x", size))
			a.framing = f
			p.answers(a)
			p.miss(a.body, u)
			if g := p.hit(a.body, u.Clone(context.Background())); g.ContentLength >= 0 && g.ContentLength != int64(size) {
				p.Errorf("ContentLength %d for %d", g.ContentLength, size)
			}
		}
	}
}

func decoded(p *probe) {
	p.answers(fresh(`{"n":1}`), fresh("again"))
	resp := p.send(request(http.MethodGet, url))
	var doc struct{ N int }
	if err := json.NewDecoder(resp.Body).Decode(&doc); err != nil || doc.N != 1 {
		p.Fatal(doc, err)
	}
	_ = resp.Body.Close()
	p.hits(`{"n":1}`)
}

func emptyBodies(p *probe) {
	p.answers(fresh(""))
	p.misses("")
	p.hits("")
	p.answers(answer{status: http.StatusNoContent, fields: []string{"Cache-Control", "max-age=60"}})
	req := request(http.MethodGet, "http://a.test/none")
	p.miss("", req)
	if g := p.hit("", req.Clone(context.Background())); g.StatusCode != http.StatusNoContent {
		p.Errorf("status %d", g.StatusCode)
	}
}

func streamed(p *probe) {
	finish := make(chan struct{})
	a := fresh("slow")
	a.finish = finish
	p.answers(a, fresh("again"))
	resp := p.send(request(http.MethodGet, url))
	buf := make([]byte, 3)
	if _, err := io.ReadFull(resp.Body, buf); err != nil || string(buf) != "slo" {
		p.Fatal(string(buf), err)
	}
	close(finish)
	if rest := read(resp); rest.text != "w" || rest.err != nil {
		p.Fatal(rest.text, rest.err)
	}
	p.hits("slow")
}

func earlyClose(p *probe) {
	for _, f := range []framing{fixed, chunked} {
		for _, taken := range []int{0, 10, 60_000} {
			a := fresh(strings.Repeat("x", 100_000))
			a.framing = f
			p.answers(a, says("next"))
			resp := p.send(request(http.MethodGet, url))
			if _, err := io.ReadFull(resp.Body, make([]byte, taken)); err != nil {
				p.Fatal(err)
			}
			if err := resp.Body.Close(); err != nil {
				p.Error(err)
			}
			p.misses("next")
		}
	}
	p.answers(fresh("whole"))
	p.misses("whole")
	p.hits("whole")
}

// cutBodies tests that of a body that is cut all is read, an error follows, and nothing is stored.
func (p *probe) cutBodies(a answer) {
	p.Helper()
	for _, missing := range []int{1, 500, 3000} {
		a.body, a.cut = strings.Repeat("x", 3000), missing
		p.answers(a, says("next"))
		g := p.get()
		if g.text != a.body[missing:] || a.quiet == errors.Is(g.err, io.ErrUnexpectedEOF) {
			p.Errorf("%d bytes, then %v", len(g.text), g.err)
		}
		p.misses("next")
	}
	a.body, a.cut = "whole", 0
	p.answers(a, says("next"))
	p.misses("whole")
}

func shortBodies(p *probe) {
	a := fresh("")
	p.cutBodies(a)
	p.hits("whole")
	a.quiet = true // a base that does not count
	p.answers(says("last", "Cache-Control", "no-store"))
	p.misses("last", "Cache-Control", "no-cache")
	for _, missing := range []int{1, 2000} {
		a.body, a.cut = strings.Repeat("x", 3000), missing
		p.answers(a, says("next"))
		p.get()
		p.misses("next")
	}
}

func cutChunks(p *probe) {
	a := fresh("")
	a.framing = chunked
	p.cutBodies(a)
	p.hits("whole")
}

func unframed(p *probe) {
	p.answers(fresh("framed"))
	p.misses("framed")
	p.hits("framed")
	a := fresh("cut?")
	a.framing = untilClose
	p.answers(a, says("next"))
	p.misses("cut?", "Cache-Control", "no-cache")
	p.misses("next")
}

func goneCallers(p *probe) {
	finish := make(chan struct{})
	a := fresh("slow")
	a.finish = finish
	p.answers(a, fresh("next"))
	ctx, leave := context.WithCancel(context.Background())
	resp := p.send(request(http.MethodGet, url).WithContext(ctx))
	done := make(chan got)
	go func() { done <- read(resp) }()
	synctest.Wait()
	leave()
	if g := <-done; !errors.Is(g.err, context.Canceled) {
		p.Errorf("%q, %v", g.text, g.err)
	}
	close(finish)
	p.misses("next")
	p.hits("next")
}

func hugeBodies(p *probe) {
	for _, f := range []framing{fixed, chunked} {
		huge := says(strings.Repeat("x", 5<<20), "Cache-Control", "no-store")
		huge.framing = f
		for _, storable := range []bool{false, true} {
			if storable {
				huge.fields = fresh("").fields
			}
			p.answers(fresh("old"), huge)
			p.misses("old", "Cache-Control", "no-cache")
			p.hits("old")
			p.misses(huge.body, "Cache-Control", "no-cache")
			p.never("old")
		}
	}
}

func trailers(p *probe) {
	a := fresh("with a trailer", "Trailer", "X-Sum")
	a.trailer = http.Header{"X-Sum": {"1"}}
	p.answers(fresh("without"), a)
	p.misses("without")
	p.hits("without")
	for range 2 {
		if g := p.do(request(http.MethodGet, "http://a.test/trailer")); g.text != "with a trailer" || g.Trailer.Get("X-Sum") != "1" {
			p.Errorf("%q, trailer %v, forwarded %t", g.text, g.Trailer, g.forwarded)
		}
	}
}

func gzips(p *probe) {
	a := fresh("plain")
	a.zips = true
	p.answers(a)
	check := func(g got, packed bool) {
		p.Helper()
		text, coding := "plain", ""
		if packed {
			text, coding = zipped("plain"), "gzip"
		}
		length := g.ContentLength < 0 || g.ContentLength == int64(len(text))
		if g.text != text || g.Header.Get("Content-Encoding") != coding || g.Uncompressed == packed || !length {
			p.Errorf("%q, %v, length %d, uncompressed %t", g.text, g.Header, g.ContentLength, g.Uncompressed)
		}
	}
	check(p.misses("plain"), false)
	check(p.hits("plain"), false)
	check(p.misses(zipped("plain"), "Accept-Encoding", "gzip"), true)
	check(p.hits(zipped("plain"), "Accept-Encoding", "gzip"), true)
	check(p.get(), false)
}

func getWithBody(p *probe) {
	p.numbers(fresh(""))
	with := func(text string) *http.Request {
		req := request(http.MethodGet, url)
		req.Body, req.ContentLength = io.NopCloser(strings.NewReader(text)), int64(len(text))
		return req
	}
	p.misses("1")
	p.hits("1")
	p.miss("2", with("a query"))
	p.miss("3", with("another"))
	if g := p.get(); g.text == "2" || g.text == "3" {
		p.Errorf("%q", g.text)
	}
}
