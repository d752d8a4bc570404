package cachetest

import (
	"net/http"
	"time"
)

var control = []rule{
	{"FirstAnswersAreReused",
		"an answer within its max-age is served without contact (RFC 9111 section 4.2.1)", reused},
	{"ContradictionsAreReadStrictly",
		"of directives that contradict each other the strictest counts (RFC 9111 section 4.2.1)", contradictions},
	{"MalformedMaxAgeIsNone",
		"a max-age that is no number makes an answer stale (RFC 9111 section 1.2.2, 4.2.1)", malformedMaxAge},
	{"HugeMaxAgeSaturates",
		"a max-age that overflows is the greatest there is, and not a negative one (RFC 9111 section 1.2.2)", hugeMaxAge},
	{"HugeAgeIsStale",
		"an Age that overflows is the greatest there is (RFC 9111 section 1.2.2, 5.1)", hugeAge},
	{"InvalidExpiresIsThePast",
		"Expires that is invalid, or 0, or given twice, is in the past; max-age overrides it (RFC 9111 section 5.3)", expires},
	{"SharedDirectivesGiveNothing",
		"s-maxage and proxy-revalidate are not for a private cache (RFC 9111 section 5.2.2.8, 5.2.2.10)", sharedDirectives},
	{"StatusesWithoutLifetimeAreNotReused",
		"most statuses, and 200 without a hint, are reused only if their origin has given a lifetime (RFC 9111 section 4.2.2)", statuses},
	{"DirectivesAreCaseInsensitive",
		"directives are known in any case, and what is unknown is ignored (RFC 9111 section 5.2, 5.2.3)", directives},
	{"RequestDirectivesAreHeeded",
		"max-age, min-fresh and no-cache of a request, and Pragma, keep it from what they exclude (RFC 9111 section 5.2.1, 5.4)", requested},
	{"OnlyIfCachedMakesNoContact",
		"a request with only-if-cached is answered from the store or with 504 (RFC 9111 section 5.2.1.7)", onlyIfCached},
}

func reused(p *probe) {
	p.numbers(fresh(""))
	p.misses("1")
	p.hits("1")
	p.hits("1", "Cache-Control", "max-age=10")
}

// unusable tests that answers with these fields are not reused.
func (p *probe) unusable(lines ...[]string) {
	p.Helper()
	for _, fields := range lines {
		p.numbers(says("", fields...))
		p.misses("1", "Cache-Control", "no-cache")
		if g := p.get(); !g.forwarded || g.text != "2" {
			p.Errorf("%q: %q, forwarded %t", fields, g.text, g.forwarded)
		}
	}
}

func contradictions(p *probe) {
	const cc = "Cache-Control"
	p.unusable(
		[]string{cc, "max-age=60, no-store"},
		[]string{cc, "no-store, max-age=60, public"},
		[]string{cc, "max-age=60", cc, "no-store"},
		[]string{cc, "max-age=60", cc, "no-cache"},
		[]string{cc, "max-age=60, no-cache, public, immutable"},
		[]string{cc, "max-age=0, max-age=60"},
		[]string{cc, "max-age=60, max-age=0"},
		[]string{cc, "max-age=60", cc, "max-age=0"},
		[]string{cc, `max-age=60, no-cache=""`},
		[]string{cc, "max-age=60, no-store=yes"},
		[]string{cc, `max-age=60, x="a\", no-store`},
		[]string{cc, `max-age=60", no-store`},
	)
	p.reuses()
}

func malformedMaxAge(p *probe) {
	for _, v := range []string{"", "-1", "+60", "60s", "60.0", "6e1", "0x3c", " 60", "six", `"60`, `60"`, "6 0", "60;60", "\u0661"} {
		p.unusable([]string{"Cache-Control", "max-age=" + v}, []string{"Cache-Control", "public, max-age=" + v, "Cache-Control", "max-age=60"})
	}
	p.unusable([]string{"Cache-Control", "max-age"}, []string{"Cache-Control", "max-age =60"}, []string{"Cache-Control", "max-age:60"})
	p.reuses()
}

func hugeMaxAge(p *probe) {
	for _, v := range []string{"2147483648", "4294967296", "9223372036854775808", "18446744073709551616", "99999999999999999999999999"} {
		p.numbers(says("", "Cache-Control", "max-age="+v))
		p.misses("1", "Cache-Control", "no-cache")
		p.hits("1")
		time.Sleep(1000 * time.Hour)
		p.hits("1")
	}
}

func hugeAge(p *probe) {
	for _, v := range []string{"60", "2147483648", "4294967296", "18446744073709551616", "99999999999999999999999999"} {
		p.unusable([]string{"Cache-Control", "max-age=60", "Age", v})
	}
	p.reuses()
}

func expires(p *probe) {
	now := time.Now().UTC()
	at := func(d time.Duration) string { return now.Add(d).Format(http.TimeFormat) }
	p.unusable(
		[]string{"Expires", "0"},
		[]string{"Expires", "-1"},
		[]string{"Expires", "tomorrow"},
		[]string{"Expires", at(0)},
		[]string{"Expires", at(-time.Hour)},
		[]string{"Expires", at(time.Hour), "Expires", at(-time.Hour)},
		[]string{"Expires", at(-time.Hour), "Expires", at(time.Hour)},
		[]string{"Expires", at(time.Hour), "Cache-Control", "max-age=0"},
	)
	p.numbers(says("", "Expires", at(time.Hour)))
	p.misses("1", "Cache-Control", "no-cache")
	p.hits("1")
	p.numbers(fresh("", "Expires", at(-time.Hour)))
	p.misses("1", "Cache-Control", "no-cache")
	p.hits("1")
}

func sharedDirectives(p *probe) {
	p.unusable([]string{"Cache-Control", "s-maxage=60"}, []string{"Cache-Control", "max-age=0, s-maxage=60"},
		[]string{"Cache-Control", "s-maxage=60, proxy-revalidate", "Expires", "0"})
	p.numbers(fresh("", "Cache-Control", "s-maxage=0, proxy-revalidate, private"))
	p.misses("1", "Cache-Control", "no-cache")
	p.hits("1")
}

func statuses(p *probe) {
	modified := time.Now().Add(-1000 * time.Hour).UTC().Format(http.TimeFormat)
	for _, status := range []int{201, 302, 303, 307, 400, 401, 403, 409, 429, 500, 502, 503} {
		p.numbers(answer{status: status, fields: []string{"Last-Modified", modified}})
		first := p.get("Cache-Control", "no-cache")
		if g := p.get(); !g.forwarded || first.StatusCode != status {
			p.Errorf("%d: %d, forwarded %t", status, g.StatusCode, g.forwarded)
		}
	}
	p.unusable([]string{"Content-Type", "text/plain"})
	p.numbers(answer{status: 299, fields: []string{"Cache-Control", "must-understand, no-store, max-age=60"}})
	p.misses("1", "Cache-Control", "no-cache")
	p.misses("2")
	p.reuses()
}

func directives(p *probe) {
	p.unusable([]string{"Cache-Control", "Max-Age=60, NO-STORE"}, []string{"Cache-Control", "max-age=60,No-Cache"})
	for _, v := range []string{
		"MAX-AGE=60", "x, max-age=60, y=1", `z="max-age=0", max-age=60`, ",,max-age=60,", `max-age="60"`, "no-storey, max-age=60",
	} {
		p.numbers(says("", "Cache-Control", v))
		p.misses("1", "Cache-Control", "no-cache")
		p.hits("1")
	}
}

func requested(p *probe) {
	p.numbers(fresh(""))
	p.misses("1")
	time.Sleep(10 * time.Second)
	p.hits("1", "Cache-Control", "max-age=10")
	p.hits("1", "Cache-Control", "min-fresh=50")
	n := 1
	for _, fields := range [][]string{
		{"Cache-Control", "max-age=5"}, {"Cache-Control", "max-age=0"}, {"Cache-Control", "no-cache"}, {"Pragma", "no-cache"},
		{"Cache-Control", "min-fresh=51"}, {"Cache-Control", "max-age=60, max-age=5"}, {"Cache-Control", "max-age=x"}, {"Cache-Control", "MAX-AGE=5"},
	} {
		n++
		p.misses(string(rune('0'+n)), fields...)
		p.hits(string(rune('0' + n)))
		time.Sleep(10 * time.Second)
	}
}

func onlyIfCached(p *probe) {
	p.numbers(fresh(""))
	none := func() {
		p.Helper()
		before := p.count()
		g := p.get("Cache-Control", "only-if-cached")
		if g.StatusCode != http.StatusGatewayTimeout || p.count() != before {
			p.Errorf("status %d, forwarded %t", g.StatusCode, p.count() != before)
		}
	}
	none()
	p.misses("1")
	p.hits("1", "Cache-Control", "only-if-cached")
	time.Sleep(time.Minute)
	none()
}
