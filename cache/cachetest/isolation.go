package cachetest

import "net/http"

var isolation = []rule{
	{"AuthorizationSeparates", "what was answered to one Authorization is not served to another, or to none (RFC 9111 section 3.5, 7.3)",
		func(p *probe) { p.separates("Authorization", "Bearer one", "Bearer two") }},
	{"CookieSeparates", "what was answered to one Cookie is not served to another, or to none (RFC 9111 section 7.3)",
		func(p *probe) { p.separates("Cookie", "session=1", "session=2") }},
	{"APIKeySeparates", "what was answered to one X-Api-Key is not served to another, or to none (RFC 9111 section 7.3)",
		func(p *probe) { p.separates("X-Api-Key", "one", "two") }},
	{"UserinfoSeparates",
		"userinfo in a URL is a credential: net/http sends it as Authorization (RFC 9110 section 11.6.2)", userinfo},
	{"HostSeparates",
		"Request.Host is part of the URI: it is what is asked for (RFC 9110 section 7.1, RFC 9111 section 2)", hosts},
	{"URIsAreApart",
		"scheme, port, path and the order of a query are part of the key, a fragment is not (RFC 9111 section 2, RFC 3986)", uris},
	{"OpaqueURIsAreApart",
		"URL.Opaque is what net/http sends for the path, and may name another host (net/url, RFC 9112 section 3.2.2)", opaque},
	{"SpellingSeparates",
		"a field of any spelling is sent as it is, and means the same: a credential in lower case separates too (RFC 9110 section 5.1)", spelling},
	{"UpgradesReachTheOrigin",
		"an answer is none to a request to change the protocol (RFC 9110 section 7.8)", upgrades},
	{"MethodOverrideBypasses",
		"a GET with X-HTTP-Method-Override is another method: no stored answer is one to it (RFC 9111 section 4)", override},
}

// separates tests that a field with two values makes two callers, and none a third.
func (p *probe) separates(name, one, two string) {
	p.numbers(fresh("", "Vary", "Accept"))
	p.misses("1", name, one)
	p.misses("2", name, two)
	p.misses("3")
	p.misses("4", name, one, name, two)
	p.hits("1", name, one)
	p.hits("2", name, two)
	p.hits("3")
}

func userinfo(p *probe) {
	p.numbers(fresh(""))
	for i, want := range []string{"1", "2", "3"} {
		p.miss(want, request(http.MethodGet, []string{"http://u:p@a.test/", "http://u:q@a.test/", "http://a.test/"}[i]))
	}
	p.hit("1", request(http.MethodGet, "http://u:p@a.test/"))
	p.hit("3", request(http.MethodGet, "http://a.test/"))
}

func hosts(p *probe) {
	p.numbers(fresh(""))
	as := func(host string) *http.Request {
		req := request(http.MethodGet, url)
		req.Host = host
		return req
	}
	p.miss("1", as("b.test"))
	p.miss("2", as("c.test"))
	p.miss("3", as(""))
	p.miss("4", request(http.MethodGet, "http://b.test/doc")) // another server is asked, for the same
	p.hit("1", as("b.test"))
	p.hit("3", as("a.test"))
	p.hit("4", request(http.MethodGet, "http://b.test/doc"))
}

func uris(p *probe) {
	p.numbers(fresh(""))
	for i, u := range []string{"http://a.test/x?b=1&a=2", "https://a.test/x?b=1&a=2", "http://a.test:8080/x?b=1&a=2", "http://a.test/X?b=1&a=2",
		"http://a.test/x?a=2&b=1", "http://a.test/x", "http://a.test/x%2Fy", "http://a.test/x/y", "http://a.test//x"} {
		p.miss(string(rune('1'+i)), request(http.MethodGet, u))
	}
	p.hit("1", request(http.MethodGet, "http://a.test/x?b=1&a=2"))
	p.hit("1", request(http.MethodGet, "http://a.test/x?b=1&a=2#part"))
	p.hit("7", request(http.MethodGet, "http://a.test/x%2Fy"))
}

func opaque(p *probe) {
	p.numbers(fresh(""))
	as := func(opaque string) *http.Request {
		req := request(http.MethodGet, url)
		req.URL.Opaque = opaque
		return req
	}
	p.misses("1")
	p.miss("2", as("//b.test/doc"))
	p.miss("3", as("//c.test/doc"))
	p.miss("4", as("/other"))
	p.miss("5", as("*"))
	p.hits("1")
}

func spelling(p *probe) {
	p.numbers(fresh(""))
	as := func(name, value string) *http.Request {
		req := request(http.MethodGet, url)
		req.Header[name] = []string{value}
		return req
	}
	p.misses("1")
	p.miss("2", as("authorization", "one"))
	p.miss("3", as("authorization", "two"))
	p.miss("4", as("COOKIE", "one"))
	p.miss("5", as("Authorization", "one"))
	p.hits("1")
	p.hit("5", as("Authorization", "one"))
}

func upgrades(p *probe) {
	p.numbers(fresh(""))
	p.misses("1")
	p.hits("1")
	p.misses("2", "Connection", "Upgrade", "Upgrade", "websocket")
	p.misses("3", "Connection", "Upgrade", "Upgrade", "websocket")
}

func override(p *probe) {
	p.numbers(fresh(""))
	p.misses("1")
	p.hits("1")
	p.misses("2", "X-Http-Method-Override", "PROPFIND")
	p.never("2")
	p.misses("4", "X-Http-Method-Override", "PROPFIND")
}
