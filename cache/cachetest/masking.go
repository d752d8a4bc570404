package cachetest

import (
	"errors"
	"net/http"
	"time"
)

var masking = []rule{
	{"GoneIsNotMasked",
		"an answer that ends a resource, or access to it, is not followed by the older one (RFC 9111 section 4)", gone},
	{"UnstorableEndsTheOlder",
		"a newer answer that may not be stored still replaces the older one (RFC 9111 section 4, 5.2.2.5)", unstorable},
	{"NoStoreIsNeverServed",
		"an answer with no-store is not stored, to be served after a failure either (RFC 9111 section 5.2.2.5)", noStore},
	{"NoCacheIsNeverServedUnasked",
		"an answer with no-cache is not served without a successful validation, whatever has failed (RFC 9111 section 5.2.2.4)", noCache},
	{"FieldsOfNoCacheAreNotServed",
		"fields that no-cache names are not served without a successful validation (RFC 9111 section 5.2.2.4)", fieldsOfNoCache},
	{"MustRevalidateIsNeverServedStale",
		"an answer with must-revalidate is not served stale, whatever has failed (RFC 9111 section 5.2.2.2)", mustRevalidate},
	{"RequestNoStoreIsHeeded",
		"the answer to a request with no-store is not stored (RFC 9111 section 5.2.1.5)", requestNoStore},
	{"FailuresAreNotStored",
		"an error of the network's is nothing to reuse: the next caller gets a try of his own", failures},
}

func gone(p *probe) {
	for _, status := range []int{401, 403, 404, 410, 301} {
		p.answers(fresh("old"), answer{status: status, body: "ended", fields: []string{"Cache-Control", "no-store"}},
			answer{err: errors.New("down")})
		p.misses("old", "Cache-Control", "no-cache")
		p.hits("old")
		p.misses("ended", "Cache-Control", "no-cache")
		p.never("old")
		p.never("old", "Cache-Control", "max-stale")
	}
}

func unstorable(p *probe) {
	p.answers(fresh("old"), says("new", "Cache-Control", "no-store"), answer{err: errors.New("down")})
	p.misses("old")
	p.hits("old")
	p.misses("new", "Cache-Control", "no-cache")
	p.never("old")
	p.never("new")
}

// fails tests that an answer, which is reused but for what is being tested, is not once the origin fails.
func (p *probe) fails(after time.Duration, reused bool, fields ...string) {
	p.Helper()
	for _, failure := range []answer{{err: errors.New("down")}, {status: 503}, {status: 500}, {status: 504}} {
		p.answers(says("old", fields...))
		p.misses("old", "Cache-Control", "no-cache")
		if reused {
			p.hits("old")
		}
		time.Sleep(after)
		p.answers(failure)
		p.never("old")
		p.never("old", "Cache-Control", "max-stale")
		p.never("old", "Cache-Control", "stale-if-error=1000")
	}
}

func noStore(p *probe) {
	p.fails(0, false, "Cache-Control", "no-store, max-age=60, stale-if-error=1000", "Etag", `"1"`)
	p.reuses()
}

func noCache(p *probe) {
	p.fails(0, false, "Cache-Control", "no-cache, max-age=60, stale-if-error=1000, stale-while-revalidate=1000", "Etag", `"1"`)
	p.reuses()
}

func fieldsOfNoCache(p *probe) {
	p.answers(fresh("text", "Cache-Control", `no-cache="x-secret, X-Token" , no-cache="X-More"`,
		"X-Secret", "1", "X-Token", "2", "X-More", "3", "X-Open", "4"))
	p.misses("text")
	g := p.get()
	for _, name := range []string{"X-Secret", "X-Token", "X-More"} {
		if !g.forwarded && g.Header[name] != nil {
			p.Errorf("%s: %q", name, g.Header[name])
		}
	}
	if g.Header.Get("X-Open") != "4" {
		p.Error(g.Header)
	}
	p.reuses()
}

func mustRevalidate(p *probe) {
	p.fails(time.Minute, true, "Cache-Control", "must-revalidate, max-age=60, stale-if-error=1000, stale-while-revalidate=1000", "Etag", `"1"`)
}

// reuses sees that the cache reuses at all, where a rule has nothing that is.
func (p *probe) reuses() {
	p.Helper()
	p.answers(fresh("reused"))
	p.miss("reused", request(http.MethodGet, "http://reused.test/"))
	p.hit("reused", request(http.MethodGet, "http://reused.test/"))
}

func requestNoStore(p *probe) {
	p.numbers(fresh(""))
	p.misses("1", "Cache-Control", "no-store")
	p.misses("2")
	p.hits("2")
	p.misses("3", "Cache-Control", "no-store")
	p.never("2") // which is older than 3
}

func failures(p *probe) {
	p.answers(answer{err: errors.New("down")}, fresh("up"))
	if resp, err := p.try(request(http.MethodGet, url)); err == nil {
		_ = resp.Body.Close()
		p.Errorf("status %d for an error", resp.StatusCode)
	}
	p.misses("up")
	p.hits("up")
}
