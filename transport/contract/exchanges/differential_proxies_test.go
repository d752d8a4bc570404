package exchanges_test

import (
	"context"
	"errors"
	"net/http"
	"net/url"
)

var userinfo = url.UserPassword("u", "p:w")

// through sends requests by way of a proxy.
func through(proxy string, changes ...func(*http.Transport)) func(*play, *http.Transport) {
	return func(_ *play, b *http.Transport) {
		u, err := url.Parse(proxy)
		if err != nil {
			panic(err)
		}
		b.Proxy = http.ProxyURL(u)
		for _, change := range changes {
			change(b)
		}
	}
}

// established is a proxy's answer to CONNECT.
var established = turn{answer: "HTTP/1.1 200 Connection established\r\nX-Proxy: 1\r\n\r\n", end: endTunnel}

// tunnelled is an exchange with the encrypted origin by way of a proxy, which
// answers CONNECT so.
func tunnelled(x exchange, first turn) exchange {
	x.origin = originEncrypted
	x.answer, x.end = first.answer, first.end
	if x.base == nil {
		x.base = through("http://proxy.test:3128")
	}
	if x.then == nil {
		x.then = []turn{turnOK}
	}
	return x
}

// proxyExchanges are about proxies.
var proxyExchanges = map[string]exchange{
	"http":                       {base: through("http://proxy.test:3128")},
	"http, POST":                 {base: through("http://proxy.test:3128"), ask: postChunk},
	"http, twice":                {base: through("http://proxy.test:3128"), more: again(1)},
	"http with a name":           {base: through("http://u:p%3Aw@proxy.test:3128")},
	"http with its own one":      {base: through("http://u:p@proxy.test:3128"), ask: askHeader("Proxy-Authorization", "mine")},
	"http with userinfo":         {base: through("http://proxy.test:3128"), ask: askFor(func(r *http.Request) { r.URL.User = userinfo })},
	"http with another Host":     {base: through("http://proxy.test:3128"), ask: askFor(func(r *http.Request) { r.Host = "other.test" })},
	"http with a fragment":       {base: through("http://proxy.test:3128"), ask: askFor(func(r *http.Request) { r.URL.RawQuery, r.URL.Fragment = "a=b", "c" })},
	"http, refused":              {base: through("http://proxy.test:3128"), answer: "HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm=x\r\nContent-Length: 2\r\n\r\nno"},
	"http over TLS":              {base: through("https://proxy.test:443")},
	"http, nobody listens":       {base: through("http://refused.test:3128")},
	"http with a connect header": {base: through("http://proxy.test:3128", func(b *http.Transport) { b.ProxyConnectHeader = http.Header{"X-Connect": {"1"}} })},
	"a scheme that is none":      {base: through("gopher://proxy.test:3128")},
	"none for this one":          {base: func(_ *play, b *http.Transport) { b.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil } }},
	"a function that fails": {base: func(_ *play, b *http.Transport) {
		b.Proxy = func(*http.Request) (*url.URL, error) { return nil, errUpload }
	}},
	"a function that looks at the request": {ask: askHeader("X-Way", "1"), base: func(_ *play, b *http.Transport) {
		b.Proxy = func(r *http.Request) (*url.URL, error) {
			if r.Header.Get("X-Way") == "" || r.Method != "GET" || r.URL.Path != "/path" {
				return nil, errors.New("not the request")
			}
			return url.Parse("http://proxy.test:3128")
		}
	}},
	"two hosts": {base: through("http://proxy.test:3128"), more: []ask{askFor(func(r *http.Request) { r.URL.Host = "other.test" })}},

	"CONNECT":             tunnelled(exchange{}, established),
	"CONNECT, twice":      tunnelled(exchange{more: again(1)}, established),
	"CONNECT, POST":       tunnelled(exchange{ask: postChunk}, established),
	"CONNECT, upgrade":    tunnelled(exchange{ask: askUpgrade, read: readPing, then: []turn{{answer: upgraded, end: endEcho}}}, established),
	"CONNECT with a name": tunnelled(exchange{base: through("http://u:p%3Aw@proxy.test:3128")}, established),
	"CONNECT over TLS":    tunnelled(exchange{base: through("https://proxy.test:443")}, established),
	"CONNECT to a port":   tunnelled(exchange{ask: askFor(func(r *http.Request) { r.URL.Host = "origin.test:8443" })}, established),
	"CONNECT with a header": tunnelled(exchange{base: through("http://u:p@proxy.test:3128", func(b *http.Transport) {
		b.ProxyConnectHeader = http.Header{"X-Connect": {"1", "2"}, "User-Agent": {"x"}}
	})}, established),
	"CONNECT with a header got":        tunnelled(exchange{base: through("http://proxy.test:3128", func(b *http.Transport) { b.GetProxyConnectHeader = connectHeader(nil) })}, established),
	"CONNECT with a header that fails": tunnelled(exchange{base: through("http://proxy.test:3128", func(b *http.Transport) { b.GetProxyConnectHeader = connectHeader(errUpload) })}, established),
	"CONNECT that is looked at":        tunnelled(exchange{base: through("http://proxy.test:3128", func(b *http.Transport) { b.OnProxyConnectResponse = connectResponse })}, established),
	"CONNECT that is refused by a hook": tunnelled(exchange{base: through("http://proxy.test:3128", func(b *http.Transport) {
		b.OnProxyConnectResponse = func(context.Context, *url.URL, *http.Request, *http.Response) error { return errUpload }
	})}, established),
	"CONNECT, 407":            tunnelled(exchange{}, turn{answer: "HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm=x\r\nContent-Length: 2\r\n\r\nno", end: endCut}),
	"CONNECT, 502":            tunnelled(exchange{}, turn{answer: "HTTP/1.1 502 Bad Gateway\r\n\r\n", end: endCut}),
	"CONNECT, no reason":      tunnelled(exchange{}, turn{answer: "HTTP/1.1 403\r\n\r\n", end: endCut}),
	"CONNECT, garbage":        tunnelled(exchange{}, turn{answer: "HELLO\r\n\r\n", end: endCut}),
	"CONNECT, nothing":        tunnelled(exchange{}, turn{end: endCut}),
	"CONNECT, nobody listens": tunnelled(exchange{base: through("http://refused.test:3128")}, established),
	"CONNECT, then garbage":   tunnelled(exchange{loose: true}, turn{answer: "HTTP/1.1 200 OK\r\n\r\nHELLO, THIS IS NOT TLS\r\n", end: endCut}),
	"CONNECT, then nothing":   tunnelled(exchange{loose: true}, turn{answer: "HTTP/1.1 200 OK\r\n\r\n", end: endCut}),

	"SOCKS5":             {base: through("socks5://proxy.test:1080")},
	"SOCKS5 with a name": {base: through("socks5://u:p@proxy.test:1080")},
	"SOCKS5h":            {base: through("socks5h://proxy.test:1080")},
	"SOCKS5, twice":      {base: through("socks5://proxy.test:1080"), more: again(1)},
}

// connectHeader adds to CONNECT what is in the caller's context, as a hook might.
func connectHeader(err error) func(context.Context, *url.URL, string) (http.Header, error) {
	return func(ctx context.Context, proxy *url.URL, target string) (http.Header, error) {
		if ctx.Value(playKey{}) == nil {
			return nil, errors.New("not the caller's context")
		}
		return http.Header{"X-Proxy": {proxy.String()}, "X-Target": {target}}, err
	}
}

// connectResponse fails unless it is told all that it should be.
func connectResponse(ctx context.Context, proxy *url.URL, req *http.Request, resp *http.Response) error {
	if ctx.Value(playKey{}) == nil || proxy.Host != "proxy.test:3128" || req.Method != "CONNECT" || req.Host != "origin.test:443" ||
		resp.Header.Get("X-Proxy") != "1" {
		return errors.New("not what was expected")
	}
	return nil
}
