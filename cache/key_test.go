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
		{"http://[::1]/", "http://[0:0::1]/"},
		{"http://[2001:db8::1]:8080/", "http://[2001:DB8:0::0:1]:08080/"},
		{"http://[fe80::1%25eth0]/", "http://[fe80:0::1%25eth0]:080/"},
		{"http://[::ffff:192.0.2.1]/", "http://[::ffff:c000:201]/"},
		{"http://a.test/doc", "http://A.test./doc"},
		{"http://a.test:8080/doc", "http://a.test.:8080/doc"},
		{"http://a.test:80/doc", "http://a.test:080/doc"},
		{"https://a.test/doc", "https://a.test.:00443/doc"},
		{"http://a.test/~doc", "http://a.test/%7edoc"},
		{"http://a.test/doc", "http://a.test/d%6Fc"},
		{"http://a.test/a%2Fb%20c", "http://a.test/a%2fb%20c"},
		{"http://a.test/doc?q=a-b_c.d%C3%BC", "http://a.test/doc?q=%61%2Db%5Fc%2Ed%c3%bc"},
		{"http://a.test/?q=%zz%4", "http://a.test?q=%zz%4"},
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
		"http://a.test/doc?a=1&b=2", "http://a.test/doc?b=2&a=1", "http://a.test/doc%2F", "http://a.test/doc%3Fa=1",
		"http://a.test:443/doc", "https://a.test:80/doc", "http://a.test:0/doc", "http://a.test..:8080/doc",
		"http://a.test/%2541", "http://a.test/%41", "http://a.test/doc?a%3D1", "http://a.test/doc?a=%31%26b=2",
		"http://[::1]/doc", "http://[::2]/doc", "http://[::1%25a]/doc", "http://[::1]:8080/doc",
	}
	c := newClient(t)
	for _, url := range urls {
		c.do(request("GET", url), answer(200, url), minutes)
	}
	for _, url := range urls {
		c.serves(t, url, request("GET", url), minutes)
	}
}

// A URL that was made by hand may lack the brackets of an address, whose last group is no port.
func TestAnAddressWithoutBracketsIsTheSameHost(t *testing.T) {
	c := newClient(t)
	for _, host := range []string{"2001:db8::80", "[2001:db8::80]"} {
		req := request("GET", "http://x/doc")
		req.URL.Host, req.Host = host, host
		if host[0] != '[' {
			c.do(req, answer(200, "hello"), minutes)
		}
		c.serves(t, "hello", req, minutes)
	}
	c.servesNothing(t, request("GET", "http://[2001:db8::]/doc"), minutes)
}

func TestAKeyInItsOneFormTakesNoMemory(t *testing.T) {
	c := newClient(t)
	for _, url := range []string{"https://api.test/v1?q=1", "http://api.test:8080/?q=%C3%BC", "http://[2001:db8::1]:8080/", "http://[::1]/"} {
		req := request("GET", url)
		if n := testing.AllocsPerRun(100, func() { c.Begin(req) }); n != 0 {
			t.Errorf("%s: %v allocations", url, n)
		}
	}
}

func TestAWriteRemovesItsURIHoweverItIsSpelt(t *testing.T) {
	for _, pair := range [][2]string{
		{"http://a.test/doc", "http://a.test.:080/d%6fc"},
		{"http://[::1]/doc", "http://[0:0::1]/doc"},
	} {
		c := newClient(t)
		c.do(request("GET", pair[0]), answer(200, "hello"), minutes)
		c.do(request("DELETE", pair[1]), answer(204, ""), minutes)
		c.servesNothing(t, request("GET", pair[0]), minutes)
	}
	c := newClient(t)
	c.do(request("GET", "http://a.test/doc"), answer(200, "hello"), minutes)
	c.do(request("POST", "http://a.test/docs"), answer(201, "", "Location", "http://A.test.:080/d%6fc"), minutes)
	c.servesNothing(t, request("GET", "http://a.test/doc"), minutes)
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

// It is sent as the request line, which overrules the host.
func TestAnOpaqueURLOfAnotherHostIsAnotherURI(t *testing.T) {
	opaque := func(text string) *http.Request {
		req := get()
		req.URL = &url.URL{Scheme: "https", Host: "a.test", Opaque: text}
		return req
	}
	c := newClient(t)
	c.do(get(), answer(200, "a"), minutes)
	for _, text := range []string{"//b.test/doc", "//c.test/doc", "//c.test:8080/doc", "//u@c.test/doc", "//c.test"} {
		c.servesNothing(t, opaque(text), minutes)
		c.do(opaque(text), answer(200, text), minutes)
		c.serves(t, text, opaque(text), minutes)
	}
	c.serves(t, "a", opaque("//A.test:443/doc"), minutes)
	req := opaque("//b.test/doc")
	req.Host = "b.test"
	c.servesNothing(t, req, minutes)
	c.do(req, answer(200, "b, of a"), minutes)
	c.serves(t, "//b.test/doc", opaque("//b.test/doc"), minutes)
}

func TestARequestWithoutAHeaderIsLikeAnyOther(t *testing.T) {
	c := newClient(t)
	c.do(get(), answer(200, "hello", "Vary", "Accept"), minutes)
	c.serves(t, "hello", &http.Request{Method: "GET", URL: get().URL}, minutes)
}
