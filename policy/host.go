package policy

import (
	"fmt"
	"strings"
)

// A HostPattern says which hosts a policy is for: an exact name ("api.example"),
// a name with a port ("api.example:8443"), or every name below a suffix
// ("*.example", with or without a port). Names are compared in lower case
// and without a trailing dot.
type HostPattern struct {
	Name     string // without "*." and port
	Port     string // "" for any
	Wildcard bool   // names below Name, not Name itself
}

// ParseHostPattern reads a pattern; its error says what would be right.
func ParseHostPattern(s string) (HostPattern, error) {
	var p HostPattern
	wrong := func(why string) (HostPattern, error) {
		return HostPattern{}, fmt.Errorf("host pattern %q: %s; want a name, name:port or *.suffix", redactUserinfo(s), why)
	}
	if strings.Contains(s, "://") {
		return wrong("has a scheme")
	}
	if strings.ContainsAny(s, "/?#@ \t\r\n") {
		return wrong("has more than a host and a port")
	}
	rest := s
	if after, ok := strings.CutPrefix(s, "*."); ok {
		p.Wildcard, rest = true, after
	}
	if strings.Contains(rest, "*") {
		return wrong("has a * that is not a leading *.")
	}
	host, port := SplitHostPort(rest)
	if port != "" {
		if n := 0; !validPort(port, &n) {
			return wrong("has a port that is not a number from 1 to 65535")
		}
		p.Port = port
	}
	if host == "" {
		return wrong("has no name")
	}
	p.Name = strings.ToLower(strings.TrimSuffix(host, "."))
	return p, nil
}

// redactUserinfo keeps a password in a mistyped pattern out of the error.
func redactUserinfo(s string) string {
	if i := strings.LastIndexByte(s, '@'); i >= 0 {
		return "REDACTED" + s[i:]
	}
	return s
}

func validPort(s string, n *int) bool {
	for _, c := range s {
		if c < '0' || c > '9' {
			return false
		}
		if *n = *n*10 + int(c-'0'); *n > 65535 {
			return false
		}
	}
	return *n > 0
}

// Match reports whether the pattern covers a host, given in lower case, on a
// port.
func (p HostPattern) Match(name, port string) bool {
	if p.Port != "" && p.Port != port {
		return false
	}
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

// SplitHostPort splits the authority of a URL, with or without a port, and takes
// the brackets off an IPv6 address.
func SplitHostPort(s string) (host, port string) {
	host = s
	if i := strings.LastIndexByte(s, ':'); i >= 0 && strings.IndexByte(s[i:], ']') < 0 && (s[0] == '[' || strings.IndexByte(s, ':') == i) {
		host, port = s[:i], s[i+1:]
	}
	if len(host) >= 2 && host[0] == '[' && host[len(host)-1] == ']' {
		host = host[1 : len(host)-1]
	}
	return host, port
}
