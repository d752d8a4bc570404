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

func TestNoCallerSeesWhatWasMeantForAnother(t *testing.T) {
	for _, name := range []string{
		"Authorization", "Proxy-Authorization", "Cookie", "X-Api-Key", "Api-Key", "Apikey", "X-Auth-Token", "Private-Token",
		"Ocp-Apim-Subscription-Key", "X-Amz-Security-Token", "X-Session-Id", "X-User-Id", "X-Tenant-Id", "Impersonate-User", "X-Remote-User",
		"X-Client-Cert", "X-Ms-Client-Principal", "Openai-Organization", "Origin", "Forwarded", "X-Forwarded-Host", "X-Forwarded-Proto",
		"X-" + strings.Repeat("Long-", 20) + "Name",
	} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t)
			c.do(get(name, "one"), answer(200, "one", "Cache-Control", "public, max-age=60"), minutes)
			c.servesNothing(t, get(), minutes)
			c.servesNothing(t, get(name, "two"), minutes)
			c.servesNothing(t, get(name, "one", name, "two"), minutes)
			c.serves(t, "one", get(name, "one"), minutes)

			c.do(get(), answer(200, "anyone"), minutes)
			c.servesNothing(t, get(name, "two"), minutes)
			c.serves(t, "one", get(name, "one"), minutes)
			raw := get()
			raw.Header[strings.ToLower(name)] = []string{"one"}
			c.servesNothing(t, raw, minutes)
		})
	}
}

func TestUserinfoSeparatesCallers(t *testing.T) {
	c := newClient(t)
	c.do(request("GET", "https://u:p@a.test/doc"), answer(200, "one"), minutes)
	c.servesNothing(t, get(), minutes)
	c.servesNothing(t, request("GET", "https://u:q@a.test/doc"), minutes)
	c.serves(t, "one", request("GET", "https://u:p@a.test/doc"), minutes)
}

func TestFieldsAreNotMistakenForOneAnother(t *testing.T) {
	c := newClient(t)
	c.do(get("X-Token", "ab", "X-User", "c"), answer(200, "one"), minutes)
	c.servesNothing(t, get("X-Token", "a", "X-User", "bc"), minutes)
	c.servesNothing(t, get("X-Token", "abX-Userc"), minutes)
	c.servesNothing(t, get("X-Token", "c", "X-User", "ab"), minutes)
}

func TestFieldsThatChangeWithEveryCallDoNotSeparate(t *testing.T) {
	for _, name := range []string{"Traceparent", "X-Request-Id", "X-B3-Traceid", "Idempotency-Key", "User-Agent", "X-Forwarded-For", "Accept", "user-agent"} {
		c := newClient(t)
		one, two := get(), get()
		one.Header[name], two.Header[name] = []string{"1"}, []string{"2"}
		c.do(one, answer(200, "hello"), minutes)
		c.serves(t, "hello", two, minutes)
	}
}

func TestARefusedTokenDoesNotHideTheAnswerToAGoodOne(t *testing.T) {
	c := newClient(t)
	c.do(get("Authorization", "good"), answer(200, "hello"), minutes)
	c.do(get("Authorization", "bad"), answer(401, "who?", "Cache-Control", "max-age=60"), minutes)
	c.serves(t, "hello", get("Authorization", "good"), minutes)
	c.servesNothing(t, get("Authorization", "bad"), minutes)
}

func TestARequestWithoutAHeaderIsLikeAnyOther(t *testing.T) {
	c := newClient(t)
	c.do(get(), answer(200, "hello", "Vary", "Accept"), minutes)
	c.serves(t, "hello", &http.Request{Method: "GET", URL: get().URL}, minutes)
}
