package cachetest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const url = "http://a.test/doc"

// probe is a caller of the cache, with the origin below it in hand.
type probe struct {
	*testing.T
	*origin
	cache http.RoundTripper
}

// got is an answer that was read to its end.
type got struct {
	*http.Response
	text      string
	err       error // of the body
	forwarded bool  // the origin was asked
}

func (g got) String() string {
	from := "the store"
	if g.forwarded {
		from = "the origin"
	}
	return fmt.Sprintf("%d %q, %v, from %s", g.StatusCode, short(g.text), g.err, from)
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

// send makes a call and looks at what is true of every answer; its caller reads the body. After an error there is an empty answer.
func (p *probe) send(req *http.Request) *http.Response {
	p.Helper()
	resp, err := p.try(req)
	if err != nil {
		p.Errorf("%s %s: %v", req.Method, req.URL, err)
		return &http.Response{Header: http.Header{}, Body: http.NoBody}
	}
	return resp
}

// try is send for a call that may end in an error.
func (p *probe) try(req *http.Request) (*http.Response, error) {
	p.Helper()
	before := req.Clone(context.Background())
	resp, err := p.cache.RoundTrip(req)
	same := req.Method == before.Method && req.Host == before.Host
	if !same || !reflect.DeepEqual(req.URL, before.URL) || !reflect.DeepEqual(req.Header, before.Header) {
		p.Errorf("%s %s: the request was changed, from %v to %v", before.Method, before.URL, before.Header, req.Header)
	}
	if err != nil {
		return nil, err
	}
	if resp.Body == nil || resp.Header == nil || resp.Request != req {
		p.Errorf("%s %s: Body %v, Header %v, Request %p, not %p", req.Method, req.URL, resp.Body, resp.Header, resp.Request, req)
	}
	p.labelled(resp.Header)
	return resp, nil
}

// read reads an answer to its end.
func read(resp *http.Response) got {
	text, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	return got{Response: resp, text: string(text), err: err}
}

// do makes a call and reads the answer to its end.
func (p *probe) do(req *http.Request) got {
	p.Helper()
	before := p.count()
	g := read(p.send(req))
	g.forwarded = p.count() != before
	return g
}

// get is do for a GET of the one URL that most rules need.
func (p *probe) get(fields ...string) got {
	p.Helper()
	return p.do(request(http.MethodGet, url, fields...))
}

// hit makes a call that the cache is expected to answer alone, with this text.
func (p *probe) hit(want string, req *http.Request) got {
	p.Helper()
	g := p.do(req)
	if g.text != want || g.forwarded || g.err != nil {
		p.Errorf("%s %s %v: %v; want %q from the store", req.Method, req.URL, req.Header, g, short(want))
	}
	return g
}

// miss makes a call that must reach the origin, which has this text for it.
func (p *probe) miss(want string, req *http.Request) got {
	p.Helper()
	g := p.do(req)
	if g.text != want || !g.forwarded || g.err != nil {
		p.Errorf("%s %s %v: %v; want %q from the origin", req.Method, req.URL, req.Header, g, short(want))
	}
	return g
}

// hits and misses are hit and miss for a GET of the one URL.
func (p *probe) hits(want string, fields ...string) got {
	p.Helper()
	return p.hit(want, request(http.MethodGet, url, fields...))
}

func (p *probe) misses(want string, fields ...string) got {
	p.Helper()
	return p.miss(want, request(http.MethodGet, url, fields...))
}

// never makes a GET that may end in an error, but must not be answered with this text.
func (p *probe) never(old string, fields ...string) {
	p.Helper()
	resp, err := p.try(request(http.MethodGet, url, fields...))
	if err != nil {
		return
	}
	if g := read(resp); g.text == old {
		p.Errorf("GET %s: %d %q", url, g.StatusCode, short(g.text))
	}
}

// numbers has the origin answer with the number of the request, 1 to begin with.
func (p *probe) numbers(a answer) {
	n := 0
	p.answersBy(func(*http.Request) answer {
		n++
		numbered := a
		numbered.body = strconv.Itoa(n)
		return numbered
	})
}

func short(s string) string {
	if len(s) > 60 {
		return s[:60] + "..."
	}
	return s
}

// labelled reports labels that cannot be read: Age, of which there may be one (RFC 9111 section 5.1), and Cache-Status (RFC 9211).
func (p *probe) labelled(h http.Header) {
	p.Helper()
	if lines := h["Age"]; len(lines) > 1 || len(lines) == 1 && (lines[0] == "" || strings.Trim(lines[0], "0123456789") != "") {
		p.Errorf("Age: %q", lines)
	}
	list, err := parseList(h["Cache-Status"])
	if err != nil {
		p.Errorf("Cache-Status: %q: %v", h["Cache-Status"], err)
	}
	for _, i := range list {
		if fault := misused(i); fault != "" {
			p.Errorf("Cache-Status: %q: %s", h["Cache-Status"], fault)
		}
	}
}

// reasons are what RFC 9211 section 2.2 has a request forwarded for.
var reasons = []token{"bypass", "method", "uri-miss", "vary-miss", "miss", "request", "stale", "partial"}

// misused says what is wrong with a member of Cache-Status (RFC 9211 section 2), or nothing.
func misused(i item) string {
	switch i.value.(type) {
	case string, token:
	default:
		return "the name of a cache is a string or a token"
	}
	hit, _ := i.params["hit"].(bool)
	_, forwarded := i.params["fwd"]
	if hit && forwarded {
		return "hit and fwd exclude each other"
	}
	for name, value := range i.params {
		good := true
		switch name {
		case "hit", "stored", "collapsed":
			_, good = value.(bool)
		case "fwd":
			reason, ok := value.(token)
			good = ok && slices.Contains(reasons, reason)
		case "ttl":
			_, good = value.(int64)
		case "fwd-status":
			status, ok := value.(int64)
			good = ok && 100 <= status && status <= 599
		case "key":
			_, good = value.(string)
		}
		if !good {
			return name + " has no such value"
		}
	}
	return ""
}
