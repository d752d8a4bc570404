package cachetest

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

var vary = []rule{
	{"VariantsAreApart",
		"an answer is reused for the request fields that its Vary names, all equal (RFC 9111 section 4.1)", variants},
	{"AbsentMatchesOnlyAbsent",
		"a field that Vary names and the stored request did not have must be absent again (RFC 9111 section 4.1)", absent},
	{"OlderVariantsStayHidden",
		"of several answers that match the newest counts, and if that may not be used none does (RFC 9111 section 4.1)", hidden},
	{"ManyVariantsAreNotMixed",
		"however many variants a URI has, nobody gets another's (RFC 9111 section 4.1)", manyVariants},
	{"VaryStarMatchesNothing",
		"an answer with a star in Vary matches no other request (RFC 9111 section 4.1)", varyStar},
	{"MalformedVaryMatchesNothing",
		"a Vary with what is no field name may mean any: nothing is known to match it (RFC 9110 section 12.5.5)", malformedVary},
	{"HugeVaryIsHeeded",
		"a Vary of thousands of names is heeded to the last, or its answer is not stored (RFC 9111 section 4.1)", hugeVary},
	{"VaryIsAboutTheRequestAsSent",
		"a request may be reused and changed once its answer was read: the store keeps what was sent (net/http, RoundTripper)", asSent},
}

func variants(p *probe) {
	p.numbers(fresh("", "Vary", "x-a, X-B", "Vary", "X-C"))
	callers := [][]string{{}, {"X-A", "1"}, {"X-A", "2"}, {"X-B", "1"}, {"X-C", "1"}, {"X-A", "1", "X-C", "1"}, {"X-A", "1", "X-A", "2"}}
	for i, fields := range callers {
		p.misses(strconv.Itoa(i+1), fields...)
	}
	for i, fields := range callers {
		p.hits(strconv.Itoa(i+1), fields...)
	}
	p.hits("1", "X-D", "1")
}

func absent(p *probe) {
	p.numbers(fresh("", "Vary", "X-A"))
	p.misses("1")
	p.misses("2", "X-A", "")
	p.misses("3", "X-A", "1")
	p.hits("1")
	p.hits("3", "X-A", "1")
}

func manyVariants(p *probe) {
	p.answersBy(func(req *http.Request) answer { return fresh(req.Header.Get("X-A"), "Vary", "X-A") })
	for range 3 {
		for i := range 40 {
			a := strconv.Itoa(i)
			if g := p.get("X-A", a); g.text != a {
				p.Errorf("%q for %q", g.text, a)
			}
			p.hits(a, "X-A", a)
		}
	}
}

func hidden(p *probe) {
	for _, newer := range []answer{
		says("new", "Cache-Control", "max-age=10", "Vary", "X-B"),
		says("new", "Cache-Control", "max-age=10"),
		says("new", "Cache-Control", "max-age=10", "Vary", "*"),
		says("new", "Cache-Control", "max-age=10", "Vary", "X-A; q=1"),
		says("new", "Cache-Control", "no-store"),
	} {
		p.answers(says("old", "Cache-Control", "max-age=100", "Vary", "X-A"), newer, says("newest", "Cache-Control", "no-store"))
		p.misses("old", "Cache-Control", "no-cache")
		p.hits("old")
		time.Sleep(time.Second)
		p.misses("new", "Cache-Control", "no-cache")
		p.never("old")
		time.Sleep(20 * time.Second)
		p.misses("newest")
		p.never("old")
	}
}

func varyStar(p *probe) {
	for _, fields := range [][]string{{"Vary", "*"}, {"Vary", "Accept, *"}, {"Vary", "*, Accept"}, {"Vary", "Accept", "Vary", " * "}} {
		p.numbers(fresh("", fields...))
		p.misses("1", "Cache-Control", "no-cache")
		p.misses("2")
		p.misses("3")
	}
	p.reuses()
}

func malformedVary(p *probe) {
	for _, v := range []string{"Accept Language", "X-A; q=1", "X/A", "X-A=1", `"X-A"`, "X-\x80", "X-A\tX-B", "(X-A)"} {
		p.numbers(fresh("", "Vary", v))
		p.misses("1", "Cache-Control", "no-cache")
		p.misses("2")
		p.misses("3", "X-A", "1")
	}
	p.numbers(fresh("", "Vary", ", ,X-A,", "Vary", "")) // empty members are good (RFC 9110 section 5.6.1.2)
	p.misses("1", "Cache-Control", "no-cache")
	p.misses("2", "X-A", "1")
	p.hits("1")
}

func hugeVary(p *probe) {
	var names strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&names, "X-%d, ", i)
	}
	p.numbers(fresh("", "Vary", names.String()+"X-Last"))
	p.misses("1")
	p.misses("2", "X-Last", "1")
	p.misses("3", "X-Last", "2")
	p.misses("4", "X-0", "2")
	p.reuses()
}

func asSent(p *probe) {
	p.answersBy(func(req *http.Request) answer { return fresh(req.Header.Get("X-A"), "Vary", "X-A") })
	req := request(http.MethodGet, url, "X-A", "one")
	p.miss("one", req)
	req.Header["X-A"][0] = "two"
	p.miss("two", req)
	req.Header.Set("X-A", "three")
	p.hits("one", "X-A", "one")
	p.hits("two", "X-A", "two")
	p.misses("three", "X-A", "three")
}
