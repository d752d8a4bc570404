package policy

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A HostPattern says which hosts a policy is for: an exact name ("api.example"),
// a name with a port ("api.example:8443"), or every name below a suffix
// ("*.example", with or without a port). "*.example" does not match "example"
// itself: that is a pattern of its own. IPv6 addresses may have brackets, and
// need them before a port. Upper case and a trailing dot make no difference.
//
// A name outside ASCII is kept as it is written: the caller brings the names of
// hosts and patterns to one form (IDNA), which the standard library cannot.
type HostPattern struct {
	Name     string // in lower case, without "*.", port, brackets and trailing dot
	Port     string // "" for any; without leading zeros
	Wildcard bool   // names below Name, not Name itself
}

// ParseHostPattern reads a pattern; its error says what would be right, and holds
// neither userinfo nor query of a URL that was given instead.
func ParseHostPattern(s string) (HostPattern, error) {
	wrong := func(why string) (HostPattern, error) {
		return HostPattern{}, fmt.Errorf("host pattern %q: %s; want a name, name:port, *.suffix or *.suffix:port", redact(s), why)
	}
	if strings.Contains(s, "://") {
		return wrong("has a scheme")
	}
	if strings.ContainsAny(s, "/?#@ \t\r\n") {
		return wrong("has more than a host and a port")
	}
	if s == "*" {
		return wrong("means every host, which is what Config.Default is for")
	}
	rest, wildcard := strings.CutPrefix(s, "*.")
	if strings.Contains(rest, "*") {
		return wrong("has a * that is not a leading *.")
	}
	host, port := SplitHostPort(rest)
	if port != "" || host != rest && strings.HasSuffix(rest, ":") {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return wrong("has a port that is not a number from 1 to 65535")
		}
		port = strconv.FormatUint(n, 10)
	}
	name := fold(host)
	switch bracketed := strings.HasPrefix(rest, "["); {
	case name == "":
		return wrong("has no name")
	case !wildcard && name[0] == '.' && validName(name[1:]):
		return wrong("has a name that begins with a dot; did you mean *" + rest + "?")
	case isIPv6(name):
		if wildcard {
			return wrong("has a * before an address")
		}
	case bracketed, !validName(name):
		return wrong("has a name that is neither a host name nor an address")
	}
	return HostPattern{Name: name, Port: port, Wildcard: wildcard}, nil
}

// fold brings a name to the form in which names are compared.
func fold(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }

func isIPv6(s string) bool {
	a, err := netip.ParseAddr(s)
	return err == nil && a.Is6() && (a.Zone() == "" || validName(a.Zone()))
}

// validName accepts what is used as a host name, underscores and names not yet
// in ASCII included.
func validName(s string) bool {
	for label := range strings.SplitSeq(s, ".") {
		if label == "" {
			return false
		}
	}
	for _, c := range s {
		switch {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-', c == '_', c == '.':
		case c >= utf8.RuneSelf && c != utf8.RuneError && unicode.IsPrint(c):
		default:
			return false
		}
	}
	return true
}

// redact keeps the secrets of a URL that was mistaken for a pattern out of the
// error. Where an @ and a query meet, either may be part of the other.
func redact(s string) string {
	at, query := strings.LastIndexByte(s, '@'), strings.IndexAny(s, "?#")
	switch {
	case at >= 0 && query >= 0:
		return "REDACTED"
	case at >= 0:
		return "REDACTED" + s[at:]
	case query >= 0:
		return s[:query+1] + "REDACTED"
	}
	return s
}

// Match reports whether the pattern covers a host, without brackets, on a port,
// which is never empty: 80 or 443 where the URL names none.
func (p HostPattern) Match(name, port string) bool {
	if p.Port != "" && p.Port != port {
		return false
	}
	name = fold(name)
	if p.Wildcard {
		cut := len(name) - len(p.Name) - 1
		return cut > 0 && name[cut] == '.' && name[cut+1:] == p.Name
	}
	return name == p.Name
}

// MoreSpecific reports whether p is to be preferred to q where both match: an
// exact name to a suffix, a longer suffix to a shorter, a port to none.
func (p HostPattern) MoreSpecific(q HostPattern) bool {
	if p.Wildcard != q.Wildcard {
		return q.Wildcard
	}
	if len(p.Name) != len(q.Name) {
		return len(p.Name) > len(q.Name)
	}
	return p.Port != "" && q.Port == ""
}

// SplitHostPort splits the authority of a URL, without userinfo and with or
// without a port, and takes the brackets off an IPv6 address. Unlike
// [net.SplitHostPort] it takes an authority without a port, and a bare IPv6
// address; port is empty when there is none.
func SplitHostPort(s string) (host, port string) {
	host = s
	if i := strings.LastIndexByte(s, ':'); i >= 0 {
		bare := s[0] != '[' && strings.IndexByte(s, ':') == i
		if bare || s[0] == '[' && s[i-1] == ']' {
			host, port = s[:i], s[i+1:]
		}
	}
	if len(host) >= 2 && host[0] == '[' && host[len(host)-1] == ']' {
		host = host[1 : len(host)-1]
	}
	return host, port
}
