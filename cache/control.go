package cache

import (
	"net/http"
	"strings"
	"time"
)

const (
	// absent is the value of a duration that was not given.
	absent time.Duration = -1
	// forever is 2^31 seconds, where delta-seconds saturate (RFC 9111 section 1.2.2). Two of them and an
	// age still fit a time.Duration.
	forever = (1 << 31) * time.Second
)

// control is what Cache-Control says, in a request or a response. What is malformed, contradictory or
// given twice is read as the most restrictive of its possible meanings.
type control struct {
	noStore        bool
	noCache        bool // without field names
	mustRevalidate bool
	mustUnderstand bool
	onlyIfCached   bool

	public, private bool // private without field names
	proxyRevalidate bool
	forOthers       bool // may be shared, though it was asked for with credentials (RFC 9111 section 3.5)

	maxAge               time.Duration
	sMaxAge              time.Duration
	maxStale             time.Duration
	minFresh             time.Duration
	staleIfError         time.Duration
	staleWhileRevalidate time.Duration
}

var nothing = control{maxAge: absent, sMaxAge: absent, maxStale: absent, minFresh: absent, staleIfError: absent, staleWhileRevalidate: absent}

// parseControl reads the lines of a Cache-Control field. omit lists what no-cache="..." names, as it was written.
func parseControl(lines []string) (c control, omit []string) {
	c = nothing
	for _, line := range lines {
		for d, rest, ok := nextDirective(line); ok; d, rest, ok = nextDirective(rest) {
			if d.broken {
				c.noStore = true // who knows what the stray quote has swallowed
			}
			omit = c.apply(d, omit)
		}
	}
	return c, omit
}

func (c *control) apply(d directive, omit []string) []string {
	switch strings.ToLower(d.name) {
	case "no-store":
		c.noStore = true
	case "no-cache":
		if !d.hasArg || d.arg == "" || d.odd || strings.ContainsRune(d.arg, '\\') {
			c.noCache = true
			break
		}
		omit = append(omit, d.arg)
	case "must-revalidate":
		c.mustRevalidate = true
	case "must-understand":
		c.mustUnderstand = true
	case "public":
		c.public = true
	case "private":
		c.private = c.private || !d.hasArg || d.arg == "" || d.odd || strings.ContainsRune(d.arg, '\\')
	case "proxy-revalidate":
		c.proxyRevalidate = true
	case "s-maxage":
		c.sMaxAge = lower(c.sMaxAge, d.seconds())
	case "stale-while-revalidate":
		c.staleWhileRevalidate = lower(c.staleWhileRevalidate, d.seconds())
	case "only-if-cached":
		c.onlyIfCached = true
	case "max-age":
		c.maxAge = lower(c.maxAge, d.seconds())
	case "stale-if-error":
		c.staleIfError = lower(c.staleIfError, d.seconds())
	case "max-stale":
		if !d.hasArg {
			c.maxStale = lower(c.maxStale, forever)
			break
		}
		c.maxStale = lower(c.maxStale, d.seconds())
	case "min-fresh":
		if s, ok := seconds(d.arg); ok && !d.odd {
			c.minFresh = max(c.minFresh, s)
			break
		}
		c.minFresh = forever
	}
	return omit
}

// says is what the Cache-Control of a response means to c, and the fields that are not to be stored with it.
func (c *Cache) says(h http.Header) (control, []string) {
	lines := h["Cache-Control"]
	says, omit := parseControl(lines)
	if !c.rules.Shared {
		return says, omit
	}
	says.forOthers = says.public || says.mustRevalidate || says.sMaxAge != absent
	says.mustRevalidate = says.mustRevalidate || says.proxyRevalidate || says.sMaxAge != absent // RFC 9111 section 5.2.2.10
	if says.sMaxAge != absent {
		says.maxAge = says.sMaxAge
	}
	for _, line := range lines {
		for d, rest, ok := nextDirective(line); ok; d, rest, ok = nextDirective(rest) {
			if strings.EqualFold(d.name, "private") {
				omit = append(omit, d.arg)
			}
		}
	}
	return says, omit
}

// lower is the lower of two durations of which the first may be absent.
func lower(a, b time.Duration) time.Duration {
	if a == absent {
		return b
	}
	return min(a, b)
}

// directive is one member of Cache-Control.
type directive struct {
	name, arg string
	hasArg    bool
	odd       bool // not in the grammar, though its end is clear: the argument is not to be trusted
	broken    bool // a quote that does not open or close an argument: not even the end is clear
}

// seconds is the argument as delta-seconds; what cannot be read is no time at all.
func (d directive) seconds() time.Duration {
	s, ok := seconds(d.arg)
	if !ok || d.odd || d.broken {
		return 0
	}
	return s
}

// nextDirective cuts the first directive from s, and returns false when there is none.
func nextDirective(s string) (d directive, rest string, ok bool) {
	s = strings.TrimLeft(s, ", \t")
	if s == "" {
		return d, "", false
	}
	end := strings.IndexAny(s, ",=\"")
	if end < 0 {
		return directive{name: trim(s)}, "", true
	}
	name := trim(s[:end])
	switch s[end] {
	case ',':
		return directive{name: name}, s[end:], true
	case '"':
		return directive{name: name, broken: true}, afterComma(s), true
	}
	d = directive{name: name, hasArg: true, odd: len(name) != end}
	s = s[end+1:]
	if t := strings.TrimLeft(s, " \t"); len(t) != len(s) {
		d.odd, s = true, t
	}
	if s == "" || s[0] != '"' {
		arg, _, _ := strings.Cut(s, ",")
		d.arg, rest = trim(arg), s[len(arg):]
		d.broken = strings.ContainsRune(arg, '"')
		return d, rest, true
	}
	quoted := closingQuote(s)
	if quoted < 0 {
		d.broken = true
		return d, afterComma(s), true
	}
	d.arg, s = s[1:quoted], s[quoted+1:]
	rest = afterComma(s)
	between := trim(s[:len(s)-len(rest)])
	d.odd = d.odd || between != "" && between != ","
	d.broken = strings.ContainsRune(between, '"')
	return d, rest, true
}

// closingQuote is the index of the quote that ends the quoted string at the start of s, or -1.
func closingQuote(s string) int {
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			return i
		}
	}
	return -1
}

func afterComma(s string) string {
	_, rest, _ := strings.Cut(s, ",")
	return rest
}

// seconds reads delta-seconds: digits and nothing else, saturating at 2^31.
func seconds(s string) (time.Duration, bool) {
	if s == "" {
		return 0, false
	}
	var n int64
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		n = min(n*10+int64(s[i]-'0'), 1<<31)
	}
	return time.Duration(n) * time.Second, true
}

func trim(s string) string { return strings.Trim(s, " \t") }

// requestControl reads Cache-Control of a request, or Pragma where there is none (RFC 9111 section 5.4).
func requestControl(h http.Header) control {
	if lines := h["Cache-Control"]; len(lines) > 0 {
		c, omit := parseControl(lines)
		c.noCache = c.noCache || len(omit) > 0 // field names mean nothing in a request
		return c
	}
	c := nothing
	for _, line := range h["Pragma"] {
		for member := range strings.SplitSeq(line, ",") {
			c.noCache = c.noCache || strings.EqualFold(trim(member), "no-cache")
		}
	}
	return c
}
