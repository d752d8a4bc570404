package cache_test

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/watertight-go/watertight/cache"
)

var (
	errDial = errors.New("connection refused")
	refused = cache.Failure{Err: errors.New("breaker open"), Detail: "breaker-open"}
	dialing = cache.Failure{Err: errDial, Detail: "dial-error", Forwarded: true}
	failed  = cache.Failure{Status: 503, Forwarded: true}

	none    = cache.Window{}
	minutes = cache.Window{MaxStale: 10 * time.Minute}
)

// client is a Cache with what is always the same around it.
type client struct {
	*cache.Cache
	store *cache.Memory
}

func newClient(t testing.TB) client { return newSizedClient(t, cache.Config{}) }

func newSizedClient(t testing.TB, config cache.Config) client {
	t.Helper()
	store, err := cache.NewMemory(config)
	if err != nil {
		t.Fatal(err)
	}
	return client{cache.New(store), store}
}

// request returns a request with the given fields, name and value in turn.
func request(method, url string, fields ...string) *http.Request {
	req, err := http.NewRequest(method, url, nil)
	if err != nil {
		panic(err)
	}
	for i := 0; i < len(fields); i += 2 {
		req.Header.Add(fields[i], fields[i+1])
	}
	return req
}

func get(fields ...string) *http.Request { return request("GET", "https://a.test/doc", fields...) }

// answer returns a response as net/http makes it, with a Content-Length and the given fields.
func answer(status int, text string, fields ...string) *http.Response {
	resp := &http.Response{
		Status:        strconv.Itoa(status) + " " + http.StatusText(status),
		StatusCode:    status,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        make(http.Header),
		Body:          io.NopCloser(strings.NewReader(text)),
		ContentLength: int64(len(text)),
	}
	resp.Header.Set("Content-Length", strconv.Itoa(len(text)))
	for i := 0; i < len(fields); i += 2 {
		resp.Header.Add(fields[i], fields[i+1])
	}
	if text == "" {
		resp.Body = http.NoBody
	}
	return resp
}

// chunked makes the length of a response unknown.
func chunked(resp *http.Response) *http.Response {
	resp.Header.Del("Content-Length")
	resp.ContentLength = -1
	resp.TransferEncoding = []string{"chunked"}
	return resp
}

// Begin is as package transport begins, which leaves for later what most calls never need.
func (c client) Begin(req *http.Request) (x cache.Exchange) {
	c.BeginIn(&x, req, time.Now())
	return x
}

// do makes a whole call: resp is the answer, and its caller reads it to the end.
func (c client) do(req *http.Request, resp *http.Response, w cache.Window) {
	x := c.Begin(req)
	c.read(c.Received(&x, req, resp, w), resp)
}

func (c client) read(capture *cache.Capture, resp *http.Response) {
	io.Copy(capture, resp.Body)
	capture.Complete(true)
}

// fail makes a call that fails.
func (c client) fail(req *http.Request, why cache.Failure, w cache.Window) (*http.Response, bool) {
	x := c.Begin(req)
	return c.Serve(&x, req, why, w)
}

func (c client) mustFail(t testing.TB, req *http.Request, why cache.Failure, w cache.Window) *http.Response {
	t.Helper()
	resp, ok := c.fail(req, why, w)
	if !ok {
		t.Fatalf("%s %s: nothing served", req.Method, req.URL)
	}
	return resp
}

func (c client) serves(t testing.TB, want string, req *http.Request, w cache.Window) {
	t.Helper()
	resp, ok := c.fail(req, failed, w)
	if !ok {
		t.Fatalf("%s %s %v: nothing served, want %q", req.Method, req.URL, req.Header, want)
	}
	if got := text(t, resp); got != want {
		t.Fatalf("%s %s %v: served %q, want %q", req.Method, req.URL, req.Header, got, want)
	}
}

func (c client) servesNothing(t testing.TB, req *http.Request, w cache.Window) {
	t.Helper()
	if resp, ok := c.fail(req, failed, w); ok {
		t.Fatalf("%s %s %v: served %q, want nothing", req.Method, req.URL, req.Header, text(t, resp))
	}
}

func text(t testing.TB, resp *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
