// Package hostname brings hosts to the one form in which they are compared.
package hostname

import (
	"fmt"
	"net/netip"
	"net/url"
	"strings"

	"golang.org/x/net/idna"

	"github.com/watertight-go/watertight/policy"
)

// Of is the host and the port of a URL: the host as Normal has it, the port without
// leading zeros, and that of the scheme where the URL names none. It does not
// allocate for names that are in their normal form. Without a scheme the port may be
// empty.
func Of(u *url.URL) (name, port string, err error) {
	name, port = policy.SplitHostPort(u.Host)
	if name, err = Normal(name); err != nil {
		return "", "", err
	}
	for len(port) > 1 && port[0] == '0' {
		port = port[1:]
	}
	switch {
	case port != "" || u.Scheme == "":
	case u.Scheme == "https":
		port = "443"
	default:
		port = "80"
	}
	return name, port, nil
}

// printable reports whether a zone, which may be anything, can be shown and exported.
func printable(zone string) bool {
	return strings.IndexFunc(zone, func(r rune) bool { return r <= ' ' || r >= 0x7f }) < 0
}

// Normal is a name in lower-case ASCII by IDNA (the lookup profile of UTS 46, as
// net/http has it), without a trailing dot, or an IP address in its canonical form.
func Normal(name string) (string, error) {
	name = strings.TrimSuffix(name, ".")
	plain, ip := true, false
	for i := 0; i < len(name); i++ {
		switch c := name[i]; {
		case c == ':':
			ip = true
		case c >= 0x80 || 'A' <= c && c <= 'Z':
			plain = false
		}
	}
	if ip {
		a, err := netip.ParseAddr(name)
		if err != nil || !printable(a.Zone()) {
			return "", fmt.Errorf("host %q: must be a name or an IP address", name)
		}
		return a.String(), nil
	}
	if plain {
		return name, nil
	}
	ascii, err := idna.Lookup.ToASCII(name)
	if err == nil {
		return strings.TrimSuffix(ascii, "."), nil // IDNA knows other dots
	}
	lower := strings.ToLower(name)
	if strings.IndexFunc(lower, func(r rune) bool { return r >= 0x80 }) < 0 {
		return lower, nil // such as names with "_"
	}
	return "", fmt.Errorf("host %q: must be a name or an IP address", name)
}
