package exchanges_test

import (
	"errors"
	"net/http"
	"net/http/cookiejar"
	"strings"
)

// redirect is a turn that sends the caller elsewhere.
func redirect(status, to string, lines ...string) turn {
	return turn{answer: "HTTP/1.1 " + status + "\r\nLocation: " + to + "\r\n" + strings.Join(append(lines, "Content-Length: 2\r\n\r\nno"), "\r\n")}
}

// hops are answers in turn, to a client that follows redirects.
func hops(ask ask, turns ...turn) exchange {
	return exchange{ask: ask, answer: turns[0].answer, end: turns[0].end, then: turns[1:], client: follow}
}

func follow(*http.Client) {}

var (
	credentials = askHeader("Authorization", "Bearer secret", "Cookie", "mine=1", "Www-Authenticate", "x", "X-Mine", "1")
	putKnown    = askBody("PUT", known("hello"), 0)
	putOnce     = askBody("PUT", unknown("hello"), 5)
)

// redirectExchanges are about what http.Client does with the stack under it.
var redirectExchanges = map[string]exchange{
	"301":                          hops(nil, redirect("301 Moved Permanently", "/b"), turnOK),
	"302":                          hops(nil, redirect("302 Found", "/b?c=d#e"), turnOK),
	"303":                          hops(nil, redirect("303 See Other", "b"), turnOK),
	"307":                          hops(nil, redirect("307 Temporary Redirect", "../b"), turnOK),
	"308":                          hops(nil, redirect("308 Permanent Redirect", "//origin.test/b"), turnOK),
	"300 is not followed":          hops(nil, redirect("300 Multiple Choices", "/b"), turnOK),
	"304 is not followed":          hops(nil, turn{answer: "HTTP/1.1 304 Not Modified\r\nLocation: /b\r\n\r\n"}, turnOK),
	"302 without a body":           hops(nil, turn{answer: "HTTP/1.1 302 Found\r\nLocation: /b\r\nContent-Length: 0\r\n\r\n"}, turnOK),
	"302 without a Location":       hops(nil, turn{answer: "HTTP/1.1 302 Found\r\nContent-Length: 2\r\n\r\nok"}),
	"302 with an empty one":        hops(nil, redirect("302 Found", ""), turnOK),
	"302 to what is no URL":        hops(nil, redirect("302 Found", "http://[::1/%zz"), turnOK),
	"302 to another scheme":        hops(nil, redirect("302 Found", "gopher://origin.test/"), turnOK),
	"302 to nobody":                hops(nil, redirect("302 Found", "http://refused.test/"), turnOK),
	"302 of much":                  hops(nil, turn{answer: "HTTP/1.1 302 Found\r\nLocation: /b\r\nContent-Length: 100000\r\n\r\n" + strings.Repeat("x", 100_000), end: endCut}, turnOK),
	"302, then closed":             hops(nil, redirect("302 Found", "/b", "Connection: close"), turnOK),
	"302, chunked":                 hops(nil, turn{answer: "HTTP/1.1 302 Found\r\nLocation: /b\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n"}, turnOK),
	"three in a row":               hops(nil, redirect("302 Found", "/b"), redirect("301 Moved Permanently", "/c"), redirect("307 Temporary Redirect", "/d"), turnOK),
	"over and over":                hops(nil, redirect("302 Found", "/b")),
	"HEAD, 302":                    hops(askMethod("HEAD"), turn{answer: "HTTP/1.1 302 Found\r\nLocation: /b\r\nContent-Length: 9\r\n\r\n"}, turn{answer: "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"}),
	"POST, 301":                    hops(postKnown, redirect("301 Moved Permanently", "/b"), turnOK),
	"POST, 302":                    hops(postKnown, redirect("302 Found", "/b"), turnOK),
	"POST, 303":                    hops(postKnown, redirect("303 See Other", "/b"), turnOK),
	"POST, 307":                    hops(postKnown, redirect("307 Temporary Redirect", "/b"), turnOK),
	"POST, 308":                    hops(postKnown, redirect("308 Permanent Redirect", "/b"), turnOK),
	"PUT, 307 twice":               hops(putKnown, redirect("307 Temporary Redirect", "/b"), redirect("307 Temporary Redirect", "/c"), turnOK),
	"PUT, 307, sent but once":      hops(putOnce, redirect("307 Temporary Redirect", "/b"), turnOK),
	"PUT, 302":                     hops(putKnown, redirect("302 Found", "/b"), turnOK),
	"PUT of much, 308":             hops(askBody("PUT", known(helloes), 0), redirect("308 Permanent Redirect", "/b"), turnOK),
	"DELETE, 307":                  hops(askMethod("DELETE"), redirect("307 Temporary Redirect", "/b"), turnOK),
	"credentials at home":          hops(credentials, redirect("302 Found", "/b"), turnOK),
	"credentials to another host":  hops(credentials, redirect("302 Found", "http://other.test/b"), turnOK),
	"credentials to a part of it":  hops(credentials, redirect("302 Found", "http://sub.origin.test/b"), turnOK),
	"credentials to another port":  hops(credentials, redirect("302 Found", "http://origin.test:81/b"), turnOK),
	"credentials there and back":   hops(credentials, redirect("302 Found", "http://other.test/b"), redirect("302 Found", "http://origin.test/c"), turnOK),
	"credentials in the URL":       hops(askFor(func(r *http.Request) { r.URL = r.URL.JoinPath(); r.URL.User = userinfo }), redirect("302 Found", "/b"), turnOK),
	"credentials in the Location":  hops(nil, redirect("302 Found", "http://u:p@other.test/b"), turnOK),
	"credentials to https":         hops(credentials, redirect("302 Found", "https://origin.test/b"), turnOK),
	"https to http, without Refer": {origin: originEncrypted, client: follow, ask: credentials, answer: redirect("302 Found", "http://origin.test/b").answer, then: []turn{turnOK}},
	"cookies that were set":        hops(nil, redirect("302 Found", "/b", "Set-Cookie: s=1; Path=/"), turnOK),
	"cookies on the way":           hops(nil, redirect("302 Found", "/b", "Set-Cookie: s=1"), redirect("302 Found", "http://other.test/c", "Set-Cookie: s=2"), redirect("302 Found", "http://origin.test/d", "Set-Cookie: o=3"), turnOK),
	"cookies that are replaced":    hops(askHeader("Cookie", "s=0; t=1"), redirect("302 Found", "/b", "Set-Cookie: s=1; Path=/"), turnOK),
	"cookies without a jar": {client: func(c *http.Client) { c.Jar = nil }, ask: askHeader("Cookie", "s=0"),
		answer: redirect("302 Found", "/b", "Set-Cookie: s=1").answer, then: []turn{turnOK}},
	"another Host": hops(askFor(func(r *http.Request) { r.Host = "virtual.test" }), redirect("302 Found", "/b"), turnOK),
	"a Referer":    hops(askHeader("Referer", "http://origin.test/first"), redirect("302 Found", "/b"), turnOK),
	"none wanted": {client: func(c *http.Client) {
		c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	},
		answer: redirect("302 Found", "/b").answer},
	"none allowed": {client: func(c *http.Client) {
		c.CheckRedirect = func(*http.Request, []*http.Request) error { return errors.New("no more") }
	},
		answer: redirect("302 Found", "/b").answer},
	"with a timeout":   {client: func(c *http.Client) { c.Timeout = 1 << 40 }, answer: redirect("302 Found", "/b").answer, then: []turn{turnOK}},
	"with a Cancel":    {client: follow, ask: func(p *play, r *http.Request) { r.Cancel = p.legacy }, answer: redirect("302 Found", "/b").answer, then: []turn{turnOK}},
	"401 at the end":   hops(credentials, redirect("302 Found", "/b"), turn{answer: "HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno"}),
	"206 at the end":   hops(askHeader("Range", "bytes=0-1"), redirect("302 Found", "/b"), turn{answer: "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-1/9\r\nContent-Length: 2\r\n\r\nok"}),
	"no redirect":      hops(nil, turnOK),
	"no redirect, jar": {client: func(c *http.Client) { c.Jar, _ = cookiejar.New(nil) }, answer: "HTTP/1.1 200 OK\r\nSet-Cookie: s=1\r\nContent-Length: 2\r\n\r\nok"},
}
