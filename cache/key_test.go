package cache_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

func TestRequestsForTheSameURIShareAnEntry(t *testing.T) {
	for _, pair := range [][2]string{
		{"https://a.test/doc", "https://A.TEST:443/doc#part"},
		{"http://a.test", "http://a.test:80/"},
		{"http://a.test:/doc", "http://a.test/doc"},
		{"http://[::1]:80/", "http://[::1]/"},
	} {
		c := newClient(t)
		c.do(request("GET", pair[0]), answer(200, "hello"), minutes)
		c.serves(t, "hello", request("GET", pair[1]), minutes)
		req := request("GET", pair[1])
		req.Method = ""
		c.serves(t, "hello", req, minutes)
	}
}

func TestRequestsForDifferentURIsDoNot(t *testing.T) {
	urls := []string{
		"http://a.test/doc", "https://a.test/doc", "http://a.test:8080/doc", "http://b.test/doc", "http://a.test/Doc",
		"http://a.test/doc/", "http://a.test/doc?", "http://a.test/doc??", "http://a.test/doc?a=1", "http://a.test/doc?a=2",
		"http://a.test/doc?a=1&b=2", "http://a.test/doc?b=2&a=1", "http://a.test/d%6Fc", "http://a.test/doc%2F", "http://a.test/doc%3Fa=1",
		"http://a.test:443/doc", "https://a.test:80/doc",
	}
	c := newClient(t)
	for _, url := range urls {
		c.do(request("GET", url), answer(200, url), minutes)
	}
	for _, url := range urls {
		c.serves(t, url, request("GET", url), minutes)
	}
}

func TestTheHostFieldIsPartOfTheKey(t *testing.T) {
	c := newClient(t)
	hosts := []string{"a.test", "b.test", "c.test:8443"}
	for _, host := range hosts {
		req := get()
		req.Host = host
		c.do(req, answer(200, host), minutes)
	}
	for _, host := range hosts {
		req := get()
		req.Host = strings.ToUpper(host)
		c.serves(t, host, req, minutes)
	}
	req := request("GET", "https://other.test/doc")
	req.Host = "b.test"
	c.servesNothing(t, req, minutes)
}

func TestAWriteThroughAnotherHostFieldRemovesWhatThatNames(t *testing.T) {
	c := newClient(t)
	for _, ref := range []string{"/doc", "https://a.test/doc", "https://b.test/doc"} {
		read, write := get(), request("POST", "https://a.test/docs")
		read.Host, write.Host = "b.test", "b.test"
		c.do(read, answer(200, "hello"), minutes)
		c.do(write, answer(201, "", "Location", ref), minutes)
		if c.store.Len() != 0 {
			t.Errorf("%s: still there", ref)
		}
	}
}

func TestAnOpaqueURLIsTheSameURI(t *testing.T) {
	c := newClient(t)
	c.do(get(), answer(200, "hello"), minutes)
	req := get()
	req.URL = &url.URL{Scheme: "https", Host: "a.test", Opaque: "//a.test/doc"}
	c.serves(t, "hello", req, minutes)
}

func TestARequestWithoutAHeaderIsLikeAnyOther(t *testing.T) {
	c := newClient(t)
	c.do(get(), answer(200, "hello", "Vary", "Accept"), minutes)
	c.serves(t, "hello", &http.Request{Method: "GET", URL: get().URL}, minutes)
}
