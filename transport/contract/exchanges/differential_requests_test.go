package exchanges_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// requestExchanges are about requests without a body.
var requestExchanges = map[string]exchange{
	"GET":                          {},
	"GET with headers":             {ask: askHeader("X-B", "1", "X-A", "2", "X-B", "3", "Cookie", "a=b", "lower-Case", "x")},
	"GET with long headers":        {ask: askHeader("X-Long", strings.Repeat("x", 100_000))},
	"GET with empty headers":       {ask: askHeader("X-Empty", "", "X-Space", "  1  ")},
	"GET with a header of no line": {ask: askFor(func(r *http.Request) { r.Header["X-None"] = nil })},
	"GET with cookies": {ask: askFor(func(r *http.Request) {
		r.AddCookie(&http.Cookie{Name: "a", Value: "1"})
		r.AddCookie(&http.Cookie{Name: "b", Value: "two words"})
	})},
	"GET with a password":         {ask: askFor(func(r *http.Request) { r.SetBasicAuth("u", "p") })},
	"GET with a query":            {ask: askFor(func(r *http.Request) { r.URL.RawQuery, r.URL.Fragment = "b=2&a=1;x", "part" })},
	"GET with an empty query":     {ask: askFor(func(r *http.Request) { r.URL.ForceQuery = true })},
	"GET with an escaped path":    {ask: askFor(func(r *http.Request) { r.URL.Path, r.URL.RawPath = "/a/b c", "/a%2Fb%20c" })},
	"GET with no path":            {ask: askFor(func(r *http.Request) { r.URL.Path = "" })},
	"GET with dots in its path":   {ask: askFor(func(r *http.Request) { r.URL.Path = "/a/../b//c" })},
	"GET of an opaque URL":        {ask: askFor(func(r *http.Request) { r.URL.Opaque = "//origin.test/%2f/x" })},
	"GET with another Host":       {ask: askFor(func(r *http.Request) { r.Host = "other.test:81" })},
	"GET with a Host header":      {ask: askHeader("Host", "ignored.test")},
	"GET with userinfo":           {ask: askFor(func(r *http.Request) { r.URL.User = url.UserPassword("u", "p") })},
	"GET with a port":             {ask: askFor(func(r *http.Request) { r.URL.Host = "origin.test:8080" })},
	"GET with the default port":   {ask: askFor(func(r *http.Request) { r.URL.Host = "origin.test:80" })},
	"GET with an empty port":      {ask: askFor(func(r *http.Request) { r.URL.Host = "origin.test:" })},
	"GET of a host with a dot":    {ask: askFor(func(r *http.Request) { r.URL.Host = "origin.test." })},
	"GET of an upper-case host":   {ask: askFor(func(r *http.Request) { r.URL.Host = "ORIGIN.test" })},
	"GET of an international one": {ask: askFor(func(r *http.Request) { r.URL.Host = "bücher.test" })},
	"GET of an IPv6 host":         {ask: askFor(func(r *http.Request) { r.URL.Host = "[::1]:80" })},
	"GET of a host with a zone":   {ask: askFor(func(r *http.Request) { r.URL.Host = "[fe80::1%en0]:80" })},
	"GET of localhost":            {ask: askFor(func(r *http.Request) { r.URL.Host = "localhost:8080" })},
	"GET without a user agent":    {ask: askHeader("User-Agent", "")},
	"GET with a user agent":       {ask: askHeader("User-Agent", "mine/1")},
	"GET with Close":              {ask: askFor(func(r *http.Request) { r.Close = true })},
	"GET with Connection close":   {ask: askHeader("Connection", "close")},
	"GET with hop-by-hop headers": {ask: askHeader("Te", "trailers", "Keep-Alive", "1", "Proxy-Authorization", "x")},
	"GET with a Range": {ask: askHeader("Range", "bytes=0-1"),
		answer: "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-1/9\r\nContent-Length: 2\r\n\r\nok"},
	"GET with If-None-Match": {ask: askHeader("If-None-Match", `"1"`), answer: "HTTP/1.1 304 Not Modified\r\nEtag: \"1\"\r\n\r\n"},
	"GET with no method":     {ask: askMethod("")},
	"HEAD":                   {ask: askMethod("HEAD"), answer: "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"},
	"HEAD chunked":           {ask: askMethod("HEAD"), answer: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"},
	"HEAD of no length":      {ask: askMethod("HEAD"), answer: "HTTP/1.1 200 OK\r\n\r\n"},
	"HEAD of a zipped one":   {ask: askMethod("HEAD"), answer: "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 1000\r\n\r\n"},
	"HEAD of a redirect":     {ask: askMethod("HEAD"), answer: "HTTP/1.1 302 Found\r\nLocation: /b\r\nContent-Length: 1000\r\n\r\n"},
	"OPTIONS *": {ask: askFor(func(r *http.Request) {
		r.Method, r.URL.Path, r.URL.Opaque = "OPTIONS", "", "*"
	})},
	"OPTIONS":                  {ask: askMethod("OPTIONS")},
	"TRACE":                    {ask: askMethod("TRACE")},
	"DELETE":                   {ask: askMethod("DELETE")},
	"PATCH of nothing":         {ask: askMethod("PATCH")},
	"a method of one's own":    {ask: askMethod("PURGE")},
	"a method of WebDAV":       {ask: asks(askMethod("PROPFIND"), askHeader("Depth", "1")), answer: "HTTP/1.1 207 Multi-Status\r\nContent-Length: 2\r\n\r\nok"},
	"a method in lower case":   {ask: askMethod("get")},
	"a method in mixed case":   {ask: askMethod("Head")},
	"a method of odd letters":  {ask: askMethod("M-SEARCH!")},
	"CONNECT":                  {ask: askMethod("CONNECT"), answer: "HTTP/1.1 200 OK\r\n\r\nwelcome", end: endCut},
	"CONNECT of an opaque URL": {ask: askFor(func(r *http.Request) { r.Method, r.URL.Opaque = "CONNECT", "other.test:99" }), answer: "HTTP/1.1 200 OK\r\n\r\n", end: endCut},
	"CONNECT that is refused":  {ask: askMethod("CONNECT"), answer: "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno"},
	"no header map":            {ask: askFor(func(r *http.Request) { r.Header = nil })},
	"GET over TLS":             {origin: originEncrypted},
	"GET over TLS with a port": {origin: originEncrypted, ask: askFor(func(r *http.Request) { r.URL.Host = "origin.test:443" })},
	"HEAD over TLS":            {origin: originEncrypted, ask: askMethod("HEAD"), answer: "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"},
	"POST over TLS":            {origin: originEncrypted, ask: askBody("POST", unknown("hello"), 0)},
}

// malformedExchanges are about requests that cannot be sent, or not to anybody.
var malformedExchanges = map[string]exchange{
	"a method that is none":        {ask: askMethod("BAD METHOD")},
	"a header name that is none":   {ask: askHeader("X Y", "1")},
	"a header name of no letters":  {ask: askHeader("", "1")},
	"a header value that is none":  {ask: askHeader("X-Y", "1\n2")},
	"a trailer that is none":       {ask: asks(askBody("POST", unknown("hello"), -1), askFor(func(r *http.Request) { r.Trailer = http.Header{"X Y": {"1"}} }))},
	"a trailer value that is none": {ask: asks(askBody("POST", unknown("hello"), -1), askFor(func(r *http.Request) { r.Trailer = http.Header{"X": {"1\r\n"}} }))},
	"a trailer of a length":        {loose: true, ask: asks(askBody("POST", unknown("hello"), -1), askFor(func(r *http.Request) { r.Trailer = http.Header{"Content-Length": {"1"}} }))},
	"a trailer without a body":     {ask: asks(askMethod("POST"), askFor(func(r *http.Request) { r.Trailer = http.Header{"X": {"1"}} }))},
	"a host that is none":          {ask: askFor(func(r *http.Request) { r.Host = "a b\n" })},
	"a URL's host that is none":    {ask: askFor(func(r *http.Request) { r.URL.Host = "a b" })},
	"a port that is none":          {ask: askFor(func(r *http.Request) { r.URL.Host = "origin.test:http" })},
	"a host of two ports":          {ask: askFor(func(r *http.Request) { r.URL.Host = "a:1:2" })},
	"a scheme that is none":        {ask: askFor(func(r *http.Request) { r.URL.Scheme = "gopher" })},
	"a scheme in upper case":       {ask: askFor(func(r *http.Request) { r.URL.Scheme = "HTTP" })},
	"no scheme":                    {ask: askFor(func(r *http.Request) { r.URL.Scheme = "" })},
	"no host":                      {ask: askFor(func(r *http.Request) { r.URL.Host = "" })},
	"no host, but a Host":          {ask: askFor(func(r *http.Request) { r.URL.Host, r.Host = "", "origin.test" })},
	"no URL":                       {ask: askFor(func(r *http.Request) { r.URL = nil })},
	"control characters in a URL":  {loose: true, ask: askFor(func(r *http.Request) { r.URL.RawQuery = "a=\x01" })},
	"a URL of a file":              {ask: askFor(func(r *http.Request) { r.URL.Scheme, r.URL.Host = "file", "" })},
	"https where http is spoken":   {loose: true, ask: askFor(func(r *http.Request) { r.URL.Scheme, r.URL.Host = "https", "origin.test:80" })},
	"http where https is spoken":   {loose: true, origin: originEncrypted, ask: askFor(func(r *http.Request) { r.URL.Scheme, r.URL.Host = "http", "origin.test:443" })},
	"a name the peer has not":      {loose: true, origin: originEncrypted, ask: askFor(func(r *http.Request) { r.URL.Host = "origin.example" })},
	"GET that nobody listens to":   {ask: askFor(func(r *http.Request) { r.URL.Host = "refused.test" })},
	"POST that nobody listens to":  {ask: asks(askBody("POST", unknown("hello"), 0), askFor(func(r *http.Request) { r.URL.Host = "refused.test" }))},
	"a name that is not known":     {ask: askFor(func(r *http.Request) { r.URL.Host = "unknown.test" })},
	"a length without a body":      {ask: askFor(func(r *http.Request) { r.Method, r.ContentLength = "POST", 7 })},
	"a length for NoBody":          {loose: true, ask: askFor(func(r *http.Request) { r.Method, r.Body, r.ContentLength = "POST", http.NoBody, 7 })},
	"a body that is too short":     {loose: true, ask: askBody("PUT", unknown("hello"), 9)},
	"a body that is too long":      {loose: true, end: endEcho, ask: askBody("PUT", unknown("hello"), 3)},
	"a body that fails": {loose: true, ask: askBody("POST", func() io.Reader {
		return io.MultiReader(strings.NewReader("he"), &contractBody{Err: errUpload})
	}, 0)},
	"a body that fails at once": {loose: true, ask: askBody("POST", func() io.Reader { return &contractBody{Err: errUpload} }, 0)},
	"a body that fails in the middle of much": {loose: true, ask: askBody("POST", func() io.Reader {
		return io.MultiReader(strings.NewReader(strings.Repeat("x", 200_000)), &contractBody{Err: errUpload})
	}, 300_000)},
}

var errUpload = errors.New("the caller's own")

// callerExchanges are about callers who leave.
var callerExchanges = map[string]exchange{
	"has gone":           {ask: func(p *play, _ *http.Request) { p.cancel() }},
	"has gone, POST":     {ask: asks(askBody("POST", unknown("hello"), 0), func(p *play, _ *http.Request) { p.cancel() })},
	"has gone for a why": {ask: askFor(becauseOf)},
	"is past a deadline": {ask: askFor(func(r *http.Request) {
		ctx, cancel := context.WithDeadline(r.Context(), time.Unix(1, 0))
		context.AfterFunc(ctx, cancel)
		*r = *r.WithContext(ctx)
	})},
	"has closed Cancel": {ask: func(p *play, r *http.Request) { r.Cancel = p.legacy; close(p.legacy) }},
	"goes":              {racy: true, end: endEcho, ask: func(p *play, _ *http.Request) { p.got = p.cancel }},
	"goes for a why": {racy: true, end: endEcho, ask: func(p *play, r *http.Request) {
		ctx, cancel := context.WithCancelCause(r.Context())
		p.got = func() { cancel(errUpload) }
		*r = *r.WithContext(ctx)
	}},
	"goes, POST": {racy: true, end: endEcho, ask: asks(askBody("POST", unknown("hello"), 0), func(p *play, _ *http.Request) { p.got = p.cancel })},
	"closes Cancel without an answer": {end: endEcho, ask: func(p *play, r *http.Request) {
		r.Cancel = p.legacy
		p.got = func() { close(p.legacy) }
	}},
	"has a deadline": {loose: true, end: endEcho, ask: askDeadline(100 * time.Millisecond)},
	"has a deadline in http.Client": {loose: true, end: endEcho,
		client: func(c *http.Client) { c.Timeout = 100 * time.Millisecond }},
	"has a deadline in http.Client, in the body": {loose: true, end: endEcho, answer: "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nok",
		client: func(c *http.Client) { c.Timeout = 200 * time.Millisecond }},
	"has a deadline that is not reached": {ask: askDeadline(time.Hour)},
	"has a timeout that is not reached":  {client: func(c *http.Client) { c.Timeout = time.Hour }},
	"goes in the body": {answer: "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nok", end: endEcho,
		read: readAfter(2, func(p *play) { p.cancel() })},
	"goes in the body for a why": {answer: "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nok", end: endEcho,
		ask: func(p *play, r *http.Request) {
			ctx, cancel := context.WithCancelCause(r.Context())
			p.leave = func() { cancel(errUpload) }
			*r = *r.WithContext(ctx)
		},
		read: readAfter(2, func(p *play) { p.leave() })},
	"closes Cancel in the body": {answer: "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nok", end: endEcho,
		ask:  func(p *play, r *http.Request) { r.Cancel = p.legacy },
		read: readAfter(2, func(p *play) { close(p.legacy) })},
	"has a Cancel that is not closed": {ask: func(p *play, r *http.Request) { r.Cancel = p.legacy }},
	"has a deadline in the body": {loose: true, answer: "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nok", end: endEcho,
		ask: askDeadline(200 * time.Millisecond)},
	"goes when all is read": {read: func(p *play, resp *http.Response) ([]byte, error) {
		b, err := io.ReadAll(resp.Body)
		p.cancel()
		return b, err
	}},
	"goes before it reads what has come": {loose: true, read: func(p *play, resp *http.Response) ([]byte, error) {
		p.cancel()
		_ = resp.Body.Close()
		return nil, nil
	}},
}

func becauseOf(r *http.Request) {
	ctx, cancel := context.WithCancelCause(r.Context())
	cancel(errUpload)
	*r = *r.WithContext(ctx)
}

func askDeadline(d time.Duration) ask {
	return askFor(func(r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), d)
		context.AfterFunc(ctx, cancel)
		*r = *r.WithContext(ctx)
	})
}

// readAfter lets something happen once the first n bytes are read.
func readAfter(n int, event func(*play)) func(*play, *http.Response) ([]byte, error) {
	return func(p *play, resp *http.Response) ([]byte, error) {
		b := make([]byte, n)
		if _, err := io.ReadFull(resp.Body, b); err != nil {
			return b, err
		}
		event(p)
		rest, err := io.ReadAll(resp.Body)
		return append(b, rest...), err
	}
}
