package exchanges_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"testing/fstest"
	"time"
)

// roundTripper is a function that does an exchange.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// around makes a base that is no *http.Transport, as those that set a header are.
func around(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		r = r.Clone(r.Context())
		if r.Header == nil {
			r.Header = http.Header{}
		}
		r.Header.Set("X-Around", "1")
		return next.RoundTrip(r)
	})
}

// asItIs is for what a Clone does not have.
func asItIs(base http.RoundTripper) http.RoundTripper { return base }

var files = http.FS(fstest.MapFS{"path": {Data: []byte("hello"), ModTime: time.Unix(1e9, 0)}})

// baseExchanges are about what may be set in a base, and what may be one.
var baseExchanges = map[string]exchange{
	"no keep-alives":        {base: func(_ *play, b *http.Transport) { b.DisableKeepAlives = true }},
	"no compression":        {base: uncompressed},
	"no HTTP/2":             {origin: originEncrypted, base: func(_ *play, b *http.Transport) { b.ForceAttemptHTTP2 = false }},
	"small buffers":         {ask: askBody("POST", known(helloes), 0), base: func(_ *play, b *http.Transport) { b.ReadBufferSize, b.WriteBufferSize = 16, 16 }},
	"limits that are kept":  {base: func(_ *play, b *http.Transport) { b.ResponseHeaderTimeout, b.MaxConnsPerHost = time.Minute, 7 }},
	"a header limit":        {answer: thousand, base: func(_ *play, b *http.Transport) { b.MaxResponseHeaderBytes = 2000 }},
	"a limit on the answer": {loose: true, end: endEcho, base: func(_ *play, b *http.Transport) { b.ResponseHeaderTimeout = 50 * time.Millisecond }},
	"a legacy dialer": {base: func(p *play, b *http.Transport) {
		b.DialContext = nil
		b.Dial = func(n, a string) (net.Conn, error) { return p.server.dial(p.ctx, n, a) }
	}}, //nolint:staticcheck // is there, and must work
	"a dialer that fails": {base: func(_ *play, b *http.Transport) {
		b.DialContext = func(context.Context, string, string) (net.Conn, error) { return nil, errUpload }
	}},
	"a dialer that looks":  {base: func(p *play, b *http.Transport) { b.DialContext = looking(p) }},
	"a dialer of a socket": {base: func(p *play, b *http.Transport) { b.DialContext = unixDialer(p) }},
	"a dialer of a pipe":   {base: func(_ *play, b *http.Transport) { b.DialContext = pipeDialer }},
	"a dialer of TLS":      {origin: originEncrypted, base: func(p *play, b *http.Transport) { b.DialTLSContext = tlsDialer(p) }, more: again(1)},
	"a legacy dialer of TLS": {origin: originEncrypted, base: func(p *play, b *http.Transport) {
		b.DialTLS = func(n, a string) (net.Conn, error) { return tlsDialer(p)(p.ctx, n, a) }
	}}, //nolint:staticcheck // is there, and must work
	"a dialer of no TLS":    {origin: originEncrypted, base: func(p *play, b *http.Transport) { b.DialTLSContext = plainDialer(p) }},
	"TLS of another name":   {origin: originEncrypted, ask: askFor(func(r *http.Request) { r.URL.Host = "origin.example" }), base: func(_ *play, b *http.Transport) { b.TLSClientConfig.ServerName = "named.test" }},
	"TLS that is not known": {loose: true, origin: originEncrypted, base: func(_ *play, b *http.Transport) { b.TLSClientConfig = &tls.Config{} }},
	"TLS that is not looked at": {origin: originEncrypted, base: func(_ *play, b *http.Transport) {
		b.TLSClientConfig = &tls.Config{InsecureSkipVerify: true} //nolint:gosec // of an origin of ours
	}},
	"TLS that a hook refuses": {loose: true, origin: originEncrypted, base: func(_ *play, b *http.Transport) {
		b.TLSClientConfig.VerifyConnection = func(tls.ConnectionState) error { return errUpload }
	}},
	"TLS of an old version": {origin: originEncrypted, base: func(_ *play, b *http.Transport) { b.TLSClientConfig.MaxVersion = tls.VersionTLS12 }},
	"TLS that is resumed": {origin: originEncrypted, more: again(1), base: func(_ *play, b *http.Transport) {
		b.DisableKeepAlives, b.TLSClientConfig.ClientSessionCache = true, tls.NewLRUClientSessionCache(1)
	}},
	"a protocol of its own": {wrap: asItIs, base: func(_ *play, b *http.Transport) { b.RegisterProtocol("memory", roundTripper(inMemory)) }, ask: askFor(func(r *http.Request) { r.URL.Scheme = "memory" })},
	"a POST of it":          {wrap: asItIs, base: func(_ *play, b *http.Transport) { b.RegisterProtocol("memory", roundTripper(inMemory)) }, ask: asks(postOnce, askFor(func(r *http.Request) { r.URL.Scheme = "memory" }))},
	"files":                 {wrap: asItIs, base: func(_ *play, b *http.Transport) { b.RegisterProtocol("file", http.NewFileTransport(files)) }, ask: askFor(func(r *http.Request) { r.URL.Scheme, r.URL.Host = "file", "" })},
	"files that are not":    {wrap: asItIs, base: func(_ *play, b *http.Transport) { b.RegisterProtocol("file", http.NewFileTransport(files)) }, ask: askFor(func(r *http.Request) { r.URL.Scheme, r.URL.Host, r.URL.Path = "file", "", "/no" })},
	"files as a base":       {wrap: func(http.RoundTripper) http.RoundTripper { return http.NewFileTransport(files) }, read: readSome(5)},
	"another":               {wrap: around},
	"another, POST":         {wrap: around, ask: postChunk},
	"another, POST of much": {wrap: around, ask: askBody("POST", known(helloes), 0)},
	"another, twice":        {wrap: around, more: again(1)},
	"another, trailers":     {wrap: around, answer: answerExchanges["trailers"].answer},
	"another, 103":          {wrap: around, answer: answerExchanges["103 twice"].answer},
	"another, 101":          {wrap: around, ask: askUpgrade, answer: upgraded, end: endEcho, read: readPing},
	"another, 404":          {wrap: around, answer: "HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno"},
	"another, read in part": {wrap: around, answer: thousand, read: readSome(10)},
	"another, half a body":  {wrap: around, answer: "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok", end: endCut},
	"another, nothing":      {wrap: around, end: endCut},
	"another, redirects":    {wrap: around, client: follow, answer: redirect("302 Found", "/b").answer, then: []turn{turnOK}},
	"another, over TLS":     {wrap: around, origin: originEncrypted},
	"another, nobody there": {wrap: around, ask: askFor(func(r *http.Request) { r.URL.Host = "refused.test" })},
	"another, caller goes":  {wrap: around, racy: true, end: endEcho, ask: func(p *play, _ *http.Request) { p.got = p.cancel }},
	"another that fails": {wrap: func(http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) { return nil, errUpload })
	}},
	"another with its own answer": {wrap: func(http.RoundTripper) http.RoundTripper { return roundTripper(inMemory) }, ask: postKnown},
}

// inMemory answers what it was asked.
func inMemory(r *http.Request) (*http.Response, error) {
	var asked bytes.Buffer
	if err := r.Write(&asked); err != nil { // closes the body
		return nil, err
	}
	return &http.Response{Status: "200 Fine", StatusCode: 200, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{"X-Own": {"1"}},
		Body: io.NopCloser(&asked), ContentLength: int64(asked.Len()), Request: r}, nil
}

// looking dials if all that a dialer may look at is there.
func looking(p *play) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if ctx.Value(playKey{}) != p || network != "tcp" || addr != "origin.test:80" || ctx.Err() != nil {
			return nil, errors.New("not what was expected")
		}
		return p.server.dial(ctx, network, addr)
	}
}

func unixDialer(p *play) func(context.Context, string, string) (net.Conn, error) {
	path := p.server.unix()
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}
}

// pipeDialer dials an origin that is a function.
func pipeDialer(context.Context, string, string) (net.Conn, error) {
	client, origin := net.Pipe()
	go func() {
		defer origin.Close()
		br := bufio.NewReader(origin)
		for {
			if _, err := http.ReadRequest(br); err != nil {
				return
			}
			if _, err := io.WriteString(origin, answerOK); err != nil {
				return
			}
		}
	}()
	return client, nil
}

func tlsDialer(p *play) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := p.server.dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		config := p.server.secure.TLSClientConfig()
		config.ServerName = "origin.test"
		return tls.Client(c, config), nil
	}
}

// plainDialer dials the plain origin where an encrypted one is asked for.
func plainDialer(p *play) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		return p.server.dial(ctx, network, "origin.test:80")
	}
}
