package cache

import (
	"hash/maphash"
	"net/http"
	"net/url"
	"strings"
)

const maxKeyBytes = 8 << 10

// Key names a URI: what RFC 9111 section 2 calls the primary key. It is comparable. Keys of different
// Caches never equal each other.
type Key struct {
	// Scheme is http or https.
	Scheme string
	// Host is the lower-case host and, unless it is the scheme's default, the port. When Request.Host
	// overrides it both are in here: one decides which server is asked, the other what it answers.
	Host string
	// Path is the path as sent, escaped.
	Path string
	// Query is the query as sent, order kept.
	Query string

	hash uint64
}

// newKey returns the key of a request, and false for one that has none: not http, no host, or too long.
func newKey(seed maphash.Seed, req *http.Request) (Key, bool) {
	u := req.URL
	if u == nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return Key{}, false
	}
	k := Key{Scheme: u.Scheme, Host: authority(u.Scheme, u.Host)}
	if req.Host != "" && req.Host != u.Host {
		if override := authority(u.Scheme, req.Host); override != k.Host {
			k.Host = override + "@" + k.Host
		}
	}
	k = k.at(seed, u)
	return k, k.size() <= maxKeyBytes
}

// at is the key of u on the host of k.
func (k Key) at(seed maphash.Seed, u *url.URL) Key {
	k.Path, k.Query = u.EscapedPath(), u.RawQuery
	if u.Opaque != "" {
		k.Path = u.Opaque
		if rest, ok := strings.CutPrefix(k.Path, "//"); ok {
			_, rest, _ = strings.Cut(rest, "/")
			k.Path = "/" + rest
		}
	}
	if k.Path == "" {
		k.Path = "/"
	}
	if u.ForceQuery && k.Query == "" {
		k.Path += "?" // nothing escaped ends like this: /a? is not /a
	}
	k.hash = maphash.Comparable(seed, [4]string{k.Scheme, k.Host, k.Path, k.Query})
	return k
}

func (k Key) size() int { return len(k.Scheme) + len(k.Host) + len(k.Path) + len(k.Query) }

// authority is host in the one form in which two equal ones are equal strings.
func authority(scheme, host string) string {
	host = strings.ToLower(host)
	if scheme == "http" {
		host = strings.TrimSuffix(host, ":80")
	} else {
		host = strings.TrimSuffix(host, ":443")
	}
	return strings.TrimSuffix(host, ":")
}
