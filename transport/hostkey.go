package transport

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"

	"golang.org/x/net/idna"

	"github.com/watertight-go/watertight/policy"
)

// hostKey identifies a host's state.
type hostKey struct{ scheme, name, port string }

func (k hostKey) String() string {
	if strings.IndexByte(k.name, ':') >= 0 {
		return "[" + k.name + "]:" + k.port
	}
	return k.name + ":" + k.port
}

// keyOf normalises a URL's scheme and authority; it does not allocate for names
// that are in their normal form.
func keyOf(u *url.URL) (hostKey, error) {
	if strings.IndexByte(u.Host, '@') >= 0 { // made by hand: it may hold a password
		return hostKey{}, errors.New("host: has userinfo, which belongs in URL.User")
	}
	name, port := policy.SplitHostPort(u.Host)
	name, err := normalHost(name)
	if err != nil {
		return hostKey{}, err
	}
	for len(port) > 1 && port[0] == '0' {
		port = port[1:]
	}
	if port == "" && u.Scheme != "" {
		port = defaultPort(u.Scheme)
	}
	return hostKey{u.Scheme, name, port}, nil
}

func defaultPort(scheme string) string {
	if scheme == "https" {
		return "443"
	}
	return "80"
}

// normalHost is the form in which hosts are compared: lower-case ASCII by IDNA
// (the lookup profile of UTS 46, as net/http has it), IP addresses in their
// canonical form, without a trailing dot.
func normalHost(name string) (string, error) {
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
		if err != nil {
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
