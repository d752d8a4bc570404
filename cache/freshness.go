package cache

import (
	"net/http"
	"strings"
	"time"
)

// Window says how long after its lifetime an answer may still stand in for a failed one.
type Window struct {
	// MaxStale is what a host's owner allows where the origin says nothing (RFC 9111 section 4.2.4). Zero:
	// only what the origin grants with stale-if-error (RFC 5861 section 4).
	MaxStale time.Duration
	// StaleLimit caps every grant, whoever made it. Zero means 24 h.
	StaleLimit time.Duration
}

const defaultStaleLimit = 24 * time.Hour

// granted is how stale an answer may be: the first that was given of the request's stale-if-error, its
// max-stale, the response's stale-if-error and MaxStale, at most StaleLimit. A stale-if-error=0 on either
// side forbids it.
func (w Window) granted(ask, stored control) time.Duration {
	if stored.mustRevalidate || stored.noCache || stored.staleIfError == 0 || ask.staleIfError == 0 {
		return 0
	}
	limit := w.limit()
	grant := w.MaxStale
	switch {
	case ask.staleIfError != absent:
		grant = ask.staleIfError
	case ask.maxStale != absent:
		grant = ask.maxStale
	case stored.staleIfError != absent:
		grant = stored.staleIfError
	}
	return clamp(min(grant, limit))
}

// limit is StaleLimit, or its default.
func (w Window) limit() time.Duration {
	if w.StaleLimit == 0 {
		return defaultStaleLimit
	}
	return w.StaleLimit
}

// allows reports whether an answer of this age, with ttl of its lifetime left, may stand in for a failed one.
func (w Window) allows(ask, stored control, age, ttl time.Duration) bool {
	if ask.staleIfError <= 0 && ask.maxStale <= 0 { // the caller has not said that old is better than none
		switch {
		case ask.noCache, ask.maxAge == 0:
			return false
		case ask.maxAge != absent && (age > ask.maxAge || ttl <= 0):
			return false // RFC 9111 section 5.2.1.1
		case ask.minFresh != absent && ttl < ask.minFresh:
			return false
		}
	}
	if stored.noCache {
		return false
	}
	if ttl > 0 {
		return true
	}
	grant := w.granted(ask, stored)
	return grant > 0 && -ttl <= grant
}

// lifetime is the freshness lifetime that the origin has given (RFC 9111 section 4.2.1), and whether it has given one.
// There is no heuristic one.
func lifetime(h http.Header, c control, date time.Time) (time.Duration, bool) {
	if c.maxAge != absent {
		return c.maxAge, true
	}
	lines := h["Expires"]
	if len(lines) == 0 {
		return 0, false
	}
	expires, ok := parseDate(lines)
	if !ok {
		return 0, true // invalid or contradictory: already expired (RFC 9111 section 5.3)
	}
	return clamp(expires.Sub(date)), true
}

// guess is a lifetime for an answer whose origin has given none: a tenth of the time since it was modified, at most a day (RFC 9111
// section 4.2.2).
func guess(h http.Header, date time.Time) (time.Duration, bool) {
	modified, ok := parseDate(h["Last-Modified"])
	if !ok || modified.After(date) {
		return 0, false
	}
	return min(clamp(date.Sub(modified))/10, 24*time.Hour), true
}

// initialAge is corrected_initial_age of RFC 9111 section 4.2.3 for an answer that arrived now, delay after it was asked for.
func initialAge(h http.Header, date, now time.Time, delay time.Duration) time.Duration {
	apparent := clamp(now.Sub(date))
	return max(apparent, parseAge(h["Age"])+clamp(delay))
}

// parseAge reads the first member of Age (RFC 9111 section 5.1). Of what is not delta-seconds it takes the digits that it begins
// with, lest something old be taken for new, and else zero.
func parseAge(lines []string) time.Duration {
	if len(lines) == 0 {
		return 0
	}
	first, _, _ := strings.Cut(lines[0], ",")
	first = trim(first)
	age, _ := seconds(first[:len(first)-len(strings.TrimLeft(first, "0123456789"))])
	return age
}

// parseDate reads a field that may have one value only. Lines that differ are as bad as one that cannot be read.
func parseDate(lines []string) (time.Time, bool) {
	if len(lines) == 0 {
		return time.Time{}, false
	}
	for _, line := range lines[1:] {
		if line != lines[0] {
			return time.Time{}, false
		}
	}
	t, err := http.ParseTime(lines[0])
	return t, err == nil
}

// clamp keeps sums of durations far from overflow: dates reach 292 years, clocks jump.
func clamp(d time.Duration) time.Duration { return min(max(d, 0), forever) }
