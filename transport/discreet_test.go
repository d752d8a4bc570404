package transport_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/transporttest"
)

// No header value and no query is in the text of an error, an event or a log line.
func TestErrorsAreSilentAboutHeadersAndQueries(t *testing.T) {
	const secret = "S3CRET"
	h2 := []transporttest.Option{transporttest.TLS("h2")}
	type exchange struct {
		opts   []transporttest.Option
		raw    string
		change func(*http.Request)
	}
	tests := map[string]exchange{
		"peer: length":            {raw: "HTTP/1.1 200 OK\r\nContent-Length: " + secret + "\r\n\r\n"},
		"peer: two lengths":       {raw: "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: " + secret + "\r\n\r\nhello"},
		"peer: transfer encoding": {raw: "HTTP/1.1 200 OK\r\nTransfer-Encoding: " + secret + "\r\n\r\n"},
		"peer: status line":       {raw: "Set-Cookie: " + secret + "\r\n\r\n"},
		"peer: quotes":            {raw: "HTTP/1.1 200 OK\r\nContent-Length: \"" + secret + "\\\"" + secret + "\r\n\r\n"},
		"peer: header":            {raw: "HTTP/1.1 200 OK\r\nX-Key " + secret + "\r\n\r\n"},
		"peer: trailer":           {raw: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX " + secret + "\r\n\r\n"},
		"h2: Upgrade":             {opts: h2, change: func(r *http.Request) { r.Header.Set("Upgrade", secret) }},
		"h2: Connection":          {opts: h2, change: func(r *http.Request) { r.Header.Set("Connection", secret) }},
		"h2: Transfer-Encoding":   {opts: h2, change: func(r *http.Request) { r.Header.Set("Transfer-Encoding", secret) }},
		"h2: Opaque":              {opts: h2, change: func(r *http.Request) { r.URL.Opaque = "x?sig=" + secret }},
	}
	for name, test := range tests {
		for _, kind := range []string{"pool", "foreign base"} {
			t.Run(name+" over a "+kind, func(t *testing.T) {
				o := transporttest.NewOrigin(t, test.opts...)
				o.Script(transporttest.Step{Raw: test.raw})
				base := http.RoundTripper(o.Base())
				if kind == "foreign base" {
					base = rt(o.Base().RoundTrip)
				}
				p := retrySocketPolicy()
				p.Breaker.ConsecutiveFailures = 2
				var logged bytes.Buffer
				rec := &transporttest.Recorder{}
				tr, err := transport.New(transport.Config{Base: base, Default: p, Observer: rec, Logger: slog.New(slog.NewTextHandler(&logged, nil))})
				if err != nil {
					t.Fatal(err)
				}
				req := retryRequest(t, http.MethodGet, o.URL, nil)
				if test.change != nil {
					test.change(req)
				}
				resp, err := tr.RoundTrip(req)
				if err == nil {
					_, err = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
				_ = tr.Close()
				if err == nil || strings.Contains(err.Error(), secret) {
					t.Errorf("%v, want an error that does not repeat the secret", err)
				}
				for _, e := range rec.Events() {
					if e.Err != nil && strings.Contains(e.Err.Error(), secret) {
						t.Errorf("event %v: %v", e.Kind, e.Err)
					}
				}
				if strings.Contains(logged.String(), secret) {
					t.Errorf("logged %s", logged.String())
				}
			})
		}
	}
}

// What is left out of an error's text is left out of nothing else.
func TestDiscreetErrorKeepsItsCause(t *testing.T) {
	cause := errors.New("cause")
	base := rt(func(*http.Request) (*http.Response, error) { return nil, fmt.Errorf(`bad "a" and "b": %w`, cause) })
	tr := retryTransport(t, base, retryPolicy(), nil)
	_, err := tr.RoundTrip(retryRequest(t, http.MethodPost, "http://a.test/", strings.NewReader("x")))
	if err == nil || err.Error() != `bad "...": cause` || !errors.Is(err, cause) {
		t.Errorf("%v, want the same error with nothing in quotes", err)
	}
}

// The words of the caller's own errors are his, as is what net/http says about names.
func TestErrorsThatQuoteNothingOfTheWireStayAsTheyAre(t *testing.T) {
	mine := errors.New(`open "my file"`)
	o := transporttest.NewOrigin(t)
	for name, test := range map[string]struct {
		change func(*http.Request) *http.Request
		want   string
	}{
		"cause of the context": {func(r *http.Request) *http.Request {
			ctx, cancel := context.WithCancelCause(r.Context())
			hung := transporttest.NewOrigin(t, transporttest.ServeConn(func(c net.Conn) {
				_, _ = c.Read(make([]byte, 1))
				cancel(mine)
				_, _ = io.Copy(io.Discard, c)
			}))
			r = r.WithContext(ctx)
			r.URL.Host = strings.TrimPrefix(hung.URL, "http://")
			return r
		}, mine.Error()},
		"request body": {func(r *http.Request) *http.Request {
			r.Method, r.Body, r.ContentLength = http.MethodPut, io.NopCloser(discreetReader{mine}), -1
			return r
		}, mine.Error()},
		"header name": {func(r *http.Request) *http.Request {
			r.Header["a b"] = []string{"x"}
			return r
		}, `"a b"`},
	} {
		t.Run(name, func(t *testing.T) {
			tr := retryTransport(t, &http.Transport{}, retrySocketPolicy(), nil)
			_, err := tr.RoundTrip(test.change(retryRequest(t, http.MethodGet, o.URL, nil)))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %s in it", err, test.want)
			}
		})
	}
}

type discreetReader struct{ err error }

func (r discreetReader) Read([]byte) (int, error) { return 0, r.err }

// What http.Client and its callers ask of an error without unwrapping it, it still says;
// and nothing that it did not.
func TestDiscreetErrorIsStillOfTheNetwork(t *testing.T) {
	for name, cause := range map[string]error{
		"a timeout":          &net.DNSError{Err: `no answer from "x"`, IsTimeout: true},
		"temporary":          &net.DNSError{Err: `no answer from "x"`, IsTemporary: true},
		"not of the network": errors.New(`bad "x"`),
	} {
		t.Run(name, func(t *testing.T) {
			tr := retryTransport(t, rt(func(*http.Request) (*http.Response, error) { return nil, cause }), retryPolicy(), nil)
			_, err := tr.RoundTrip(retryRequest(t, http.MethodPost, "http://a.test/", strings.NewReader("x")))
			want, isNet := cause.(net.Error)
			got, gotNet := err.(net.Error)
			if gotNet != isNet || isNet && (got.Timeout() != want.Timeout() || got.Temporary() != want.Temporary()) {
				t.Errorf("%#v, want what %#v says", err, cause)
			}
			if !strings.Contains(err.Error(), `"..."`) {
				t.Error(err)
			}
		})
	}
}
