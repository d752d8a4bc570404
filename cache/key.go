package cache

import (
	"hash/maphash"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

const maxKeyBytes = 8 << 10

// Key names a URI: what RFC 9111 section 2 calls the primary key. It is comparable. Keys of different
// Caches never equal each other. However a URI is spelt, its key is one (RFC 9110 section 4.2.3), but for names
// that are not ASCII: package transport, which knows how they are sent, hands on what IDNA makes of them.
type Key struct {
	// Scheme is http or https.
	Scheme string
	// Host is the lower-case host without a trailing dot, or the canonical IP address, and, unless it is the scheme's
	// default, the port. When Request.Host overrides it both are in here: one decides which server is asked, the other
	// what it answers.
	Host string
	// Path is the path as sent, escaped, but for characters that need not be; or a whole URI, where URL.Opaque names another host
	// than Host.
	Path string
	// Query is the query likewise, order kept.
	Query string

	origin uint64 // hash of Scheme and Host
	hash   uint64 // of all of it
}

// take takes from a request what finish makes its key of, and returns false for one that has none: not http, or no host.
func (c *Cache) take(k *Key, req *http.Request) bool {
	var room origin
	o := c.origin(&room, req)
	if o == nil {
		return false
	}
	k.Scheme, k.Host, k.origin = o.scheme, o.authority, o.hash
	k.take(req.URL)
	return true
}

// name makes k, which has a host, the key of u on that host.
func (k *Key) name(seed maphash.Seed, u *url.URL) {
	k.take(u)
	k.finish(seed)
}

// take takes from u what finish makes the key of.
func (k *Key) take(u *url.URL) {
	k.Path, k.Query = u.EscapedPath(), u.RawQuery
	if u.Opaque != "" {
		k.Path = u.Opaque
		if rest, ok := strings.CutPrefix(k.Path, "//"); ok {
			host, path, _ := strings.Cut(rest, "/")
			k.Path = "/" + path
			if as, _, _ := strings.Cut(k.Host, "@"); authority(u.Scheme, host) != as {
				k.Path = u.Scheme + ":" + u.Opaque // of another host: it is all sent, and overrules Host (RFC 9112 section 3.2.2)
			}
		}
	}
	if k.Path == "" {
		k.Path = "/"
	}
	if u.ForceQuery && k.Query == "" {
		k.Path += "?" // nothing escaped ends like this: /a? is not /a
	}
}

// finish brings what was taken to its normal form.
func (k *Key) finish(seed maphash.Seed) {
	k.Path, k.Query = spelt(k.Path), spelt(k.Query)
	k.hash = k.origin*hashFactor + maphash.String(seed, k.Path)
	if k.Query != "" {
		k.hash = k.hash*hashFactor + maphash.String(seed, k.Query)
	}
}

// hashFactor is odd, so that no bit of what it multiplies is lost (2^64 over the golden ratio: Knuth, TAOCP 3, section 6.4).
const hashFactor = 0x9e3779b97f4a7c15

func (k *Key) size() int { return len(k.Scheme) + len(k.Host) + len(k.Path) + len(k.Query) }

// authority is host in the one form in which two equal ones are equal strings. It does not allocate for that form.
func authority(scheme, host string) string {
	host = strings.ToLower(host)
	name, port := host, ""
	if i := strings.LastIndexByte(host, ':'); i >= 0 && (strings.IndexByte(host, ':') == i || i > 0 && host[i-1] == ']') {
		name, port = host[:i], host[i+1:]
	}
	for len(port) > 1 && port[0] == '0' {
		port = port[1:]
	}
	name = canonicalName(name)
	switch {
	case port == "" || scheme == "http" && port == "80" || scheme == "https" && port == "443":
		return name
	case len(name)+len(":")+len(port) == len(host) && strings.HasPrefix(host, name):
		return host
	}
	return name + ":" + port
}

// canonicalName is a lower-case name without a trailing dot, or an IPv6 address in its canonical form, in brackets.
func canonicalName(name string) string {
	if strings.IndexByte(name, ':') < 0 {
		return strings.TrimSuffix(name, ".")
	}
	a, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(name, "["), "]"))
	if err != nil {
		return name
	}
	var room [64]byte
	b := append(a.AppendTo(append(room[:0], '[')), ']')
	if string(b) == name {
		return name
	}
	return string(b)
}

// spelt is a path or query in the one form in which two equal ones are equal strings: what need not be escaped is not, and
// hexadecimal digits are in upper case (RFC 3986 section 6.2.2). It does not allocate for that form.
func spelt(s string) string {
	if strings.IndexByte(s, '%') < 0 {
		return s
	}
	var b strings.Builder
	done := 0 // of s, in b
	for i := 0; i+2 < len(s); i++ {
		if s[i] != '%' {
			continue
		}
		c, err := strconv.ParseUint(s[i+1:i+3], 16, 8)
		if err != nil {
			continue
		}
		triplet := strings.ToUpper(s[i : i+3])
		if unreserved(byte(c)) {
			triplet = string(rune(c))
		}
		if triplet != s[i:i+3] {
			b.WriteString(s[done:i])
			b.WriteString(triplet)
			done = i + 3
		}
	}
	if done == 0 {
		return s
	}
	b.WriteString(s[done:])
	return b.String()
}

// unreserved characters mean the same escaped (RFC 3986 section 2.3).
func unreserved(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '.' || c == '_' || c == '~'
}
