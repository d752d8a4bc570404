package cachetest

import (
	"net/http"
	"slices"
	"strings"
)

var headers = []rule{
	{"HugeHeadersPass",
		"a header however large reaches its caller as it is, stored or not", hugeHeaders},
	{"ConnectionFieldsAreNotStored",
		"what is about one connection is not in an answer from the store (RFC 9111 section 3.1)", hopByHop},
	{"HeadersAreTheCallers",
		"a caller may change the header that he was given: nobody else sees that", callersHeader},
	{"LinesStayApart",
		"lines of one field are served as they came, in their order (RFC 9110 section 5.3)", lines},
	{"SetCookieIsKept",
		"Set-Cookie is part of a fresh answer like any other field (RFC 9111 section 7.3)", setCookie},
	{"RequestsAreNotChanged",
		"a RoundTripper does not change a request, be it answered, validated or forwarded (net/http)", unchanged},
	{"ResponsesNameTheirRequest",
		"Response.Request is the very request of this caller (net/http)", named},
}

func hugeHeaders(p *probe) {
	big := strings.Repeat("x", 1<<20)
	p.answers(fresh("big", "X-Big", big))
	for range 2 {
		if g := p.get(); g.text != "big" || g.Header.Get("X-Big") != big {
			p.Errorf("%q, with %d bytes", g.text, len(g.Header.Get("X-Big")))
		}
	}
	many := fresh("many")
	for range 20_000 {
		many.fields = append(many.fields, "X-Many", "x")
	}
	p.answers(many)
	for range 2 {
		if g := p.do(request(http.MethodGet, "http://a.test/many")); g.text != "many" || len(g.Header["X-Many"]) != 20_000 {
			p.Errorf("%q, with %d lines", g.text, len(g.Header["X-Many"]))
		}
	}
	p.reuses()
}

func hopByHop(p *probe) {
	p.answers(fresh("text", "Connection", "x-one, Keep-Alive", "Connection", "X-Two", "X-One", "1", "X-Two", "2", "X-Three", "3",
		"Keep-Alive", "timeout=5", "Proxy-Authenticate", "Basic"))
	p.misses("text")
	g := p.hits("text")
	for _, name := range []string{"Connection", "Keep-Alive", "X-One", "X-Two", "Proxy-Authenticate"} {
		if g.Header[name] != nil {
			p.Errorf("%s: %q", name, g.Header[name])
		}
	}
	if g.Header.Get("X-Three") != "3" {
		p.Error(g.Header)
	}
}

func callersHeader(p *probe) {
	p.answers(fresh("text", "X-A", "1", "X-A", "2", "Etag", `"1"`))
	resp := p.send(request(http.MethodGet, url))
	spoil := func(h http.Header) {
		h["X-A"][0] = "spoilt"
		h["X-A"] = append(h["X-A"][:1], "3")
		h.Set("X-B", "1")
		h.Del("Etag")
		h.Set("Cache-Control", "no-store")
	}
	spoil(resp.Header) // before the answer is stored
	if g := read(resp); g.text != "text" {
		p.Fatal(g.text)
	}
	for range 3 {
		g := p.hits("text")
		if !slices.Equal(g.Header["X-A"], []string{"1", "2"}) || g.Header["X-B"] != nil || g.Header.Get("Etag") == "" {
			p.Fatalf("%v", g.Header)
		}
		spoil(g.Header)
	}
}

func lines(p *probe) {
	p.answers(fresh("text", "Link", "<1>", "X-Other", "", "Link", "<2>, <3>"))
	p.misses("text")
	g := p.hits("text")
	if !slices.Equal(g.Header["Link"], []string{"<1>", "<2>, <3>"}) || !slices.Equal(g.Header["X-Other"], []string{""}) {
		p.Error(g.Header)
	}
}

func setCookie(p *probe) {
	p.answers(fresh("text", "Set-Cookie", "a=1", "Set-Cookie", "b=2"))
	p.misses("text")
	if g := p.hits("text"); len(g.Cookies()) != 2 {
		p.Error(g.Header)
	}
}

func unchanged(p *probe) { // see probe.try
	p.answersBy(func(req *http.Request) answer {
		if req.Header.Get("If-None-Match") != "" {
			return answer{status: http.StatusNotModified, fields: []string{"Etag", `"1"`}}
		}
		return says("text", "Cache-Control", "max-age=0", "Etag", `"1"`)
	})
	p.misses("text")
	if p.misses("text"); p.last().Header.Get("If-None-Match") != `"1"` {
		p.Errorf("not validated: %v", p.last().Header)
	}
	req := request(http.MethodGet, url)
	req.Header = nil
	p.miss("text", req)
	p.do(request(http.MethodHead, url))
	p.do(request(http.MethodPut, url, "X-A", "1"))
	p.do(request("", url))
}

func named(p *probe) { // see probe.try
	p.answers(fresh("text", "Etag", `"1"`))
	p.misses("text")
	p.hits("text")
	p.hits("text", "X-A", "1")
	p.do(request(http.MethodHead, url))
	p.do(request(http.MethodGet, url, "Range", "bytes=0-1"))
	p.do(request(http.MethodGet, url, "If-None-Match", `"1"`))
	p.do(request(http.MethodPut, url))
}
