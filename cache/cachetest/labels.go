package cachetest

import (
	"net/http"
	"strings"
	"time"
)

var labels = []rule{
	{"AgeIsFromTheOriginOn",
		"Age of a stored answer is what it came with, the time it took and the time since (RFC 9111 section 4.2.3, 5.1)", age},
	{"LabelsCanBeRead",
		"Cache-Status is a list of RFC 8941, its ttl what is left, its member the last of the list (RFC 9211 section 2)", cacheStatus},
	{"DatesAreKept",
		"Date, Expires and Cache-Control are served as the origin sent them (RFC 9111 section 4)", dates},
}

func age(p *probe) {
	a := fresh("text", "Age", "10")
	a.delay = 2 * time.Second
	p.answers(a)
	p.misses("text")
	for _, want := range []string{"12", "13", "14"} {
		if g := p.hits("text"); strings.Join(g.Header["Age"], "|") != want {
			p.Errorf("Age %q, want %s", g.Header["Age"], want)
		}
		time.Sleep(time.Second)
	}
	p.answers(fresh("young"))
	young := request(http.MethodGet, "http://a.test/young")
	p.miss("young", young)
	time.Sleep(1999 * time.Millisecond)
	if g := p.hit("young", request(http.MethodGet, young.URL.String())); strings.Join(g.Header["Age"], "|") != "1" {
		p.Errorf("Age %q, want 1", g.Header["Age"])
	}
}

// cacheStatus asks for no label, but for one that is true: what is wrong with its form probe.labelled has said.
func cacheStatus(p *probe) {
	p.answers(fresh("text", "Cache-Status", `Upstream; fwd=uri-miss; key="a, b"`))
	p.misses("text")
	time.Sleep(20 * time.Second)
	g := p.hits("text")
	list, err := parseList(g.Header["Cache-Status"])
	if err != nil || len(list) == 0 || list[0].value != token("Upstream") || list[0].params["key"] != "a, b" {
		p.Fatalf("%q: %v", g.Header["Cache-Status"], err)
	}
	if len(list) == 1 {
		return
	}
	own := list[len(list)-1]
	if ttl, given := own.params["ttl"]; own.params["hit"] != true || given && ttl != int64(40) {
		p.Errorf("Cache-Status: %q, of a hit with 40 s left", g.Header["Cache-Status"])
	}
}

func dates(p *probe) {
	at := time.Now().UTC().Add(-10 * time.Second).Format(http.TimeFormat)
	past := time.Now().UTC().Add(-time.Hour).Format(http.TimeFormat)
	p.answers(fresh("text", "Date", at, "Expires", past, "X-A", "1"))
	p.misses("text")
	time.Sleep(time.Second)
	g := p.hits("text")
	if g.Header.Get("Date") != at || g.Header.Get("Expires") != past || g.Header.Get("Cache-Control") != "max-age=60" {
		p.Error(g.Header)
	}
}
