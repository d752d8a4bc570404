package cache

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"hash/maphash"
	"net/http"
	"net/url"
	"slices"
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

// Partition separates callers: a keyed hash of whatever in a request says who is asking. The zero Partition
// is that of requests that do not say.
type Partition [16]byte

// partition returns the partition of a request: HMAC-SHA-256 over the identifying fields and the userinfo, cut to 16
// bytes. The hash is paid for only by requests that have any.
func partition(secret []byte, req *http.Request) (p Partition) {
	var room [16]string
	names := room[:0]
	for name, values := range req.Header {
		if len(values) > 0 && identifying(name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 && req.URL.User == nil {
		return p
	}
	slices.Sort(names)
	text := make([]byte, 0, 1<<10)
	for _, name := range names {
		text = appendPart(text, name)
		text = binary.AppendUvarint(text, uint64(len(req.Header[name])))
		for _, value := range req.Header[name] {
			text = appendPart(text, value)
		}
	}
	if req.URL.User != nil {
		text = appendPart(text, "")
		text = appendPart(text, req.URL.User.String())
	}
	mac := hmac.New(sha256.New, secret)
	mac.Write(text)
	clear(text)
	copy(p[:], mac.Sum(nil))
	return p
}

func appendPart(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// identifying reports whether a request field may say who is asking, or is one that origins answer by without saying
// so in Vary. It goes by what the names have in common, because no list of them is complete (X-Api-Key, Private-Token,
// X-Goog-Iam-Authority-Selector, X-Tenant-Id): a wrong yes costs a fallback, a wrong no shows one user's
// answer to another.
func identifying(name string) bool {
	switch name { // what nearly every request has
	case "Accept", "Accept-Encoding", "Accept-Language", "Cache-Control", "Connection", "Content-Type", "User-Agent",
		"If-Modified-Since", "If-None-Match", "Range", "Traceparent", "Tracestate", "X-Request-Id", "X-Forwarded-For":
		return false
	case "Authorization", "Cookie", "Origin", "Forwarded":
		return true
	}
	var room [64]byte
	if len(name) > len(room) {
		return true
	}
	b := room[:len(name)]
	for i := range b {
		b[i] = name[i]
		if 'A' <= b[i] && b[i] <= 'Z' {
			b[i] += 'a' - 'A'
		}
	}
	if string(b) == "user-agent" || string(b) == "x-forwarded-for" {
		return false
	}
	if bytes.Contains(b, []byte("key")) {
		return !bytes.Contains(b, []byte("idempotency"))
	}
	lowered := string(b)
	for _, word := range [...]string{
		"auth", "token", "cookie", "secret", "session", "credential", "passw", "signature", "cert",
		"user", "tenant", "client-id", "account", "customer", "organization", "role", "subject", "identity", "principal", "impersonate", "on-behalf",
		"origin", "forwarded", "x-host",
	} {
		if strings.Contains(lowered, word) {
			return true
		}
	}
	return false
}
