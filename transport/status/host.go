package status

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// names are those under which a handler may be reached; none: all.
type names map[string]bool

func namesOf(hosts []string) names {
	n := names{}
	for _, h := range hosts {
		n[bare(h)] = true
	}
	return n
}

// refuse answers a request to another name, and reports whether it has. A page of
// another site whose name was made to resolve to this address is of the same origin for
// its browser, and only the name of the host tells it from ours. An address in its place
// cannot be made to lead elsewhere, and neither can localhost.
func (n names) refuse(w http.ResponseWriter, r *http.Request) bool {
	host := bare(r.Host)
	_, err := netip.ParseAddr(host)
	if len(n) == 0 || n[host] || err == nil || host == "localhost" {
		return false
	}
	(problem{Status: http.StatusMisdirectedRequest, Field: "Host", Value: r.Host, Want: "a name that this handler was given, an address or localhost"}).write(w)
	return true
}

// bare is the name of a host as it is compared: without its port.
func bare(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	return strings.ToLower(strings.TrimSuffix(host, "."))
}
