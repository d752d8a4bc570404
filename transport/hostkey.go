package transport

import (
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/watertight-go/watertight/internal/hostname"
)

// hostKey identifies a host's state.
type hostKey struct{ scheme, name, port string }

func (k hostKey) String() string {
	if k.bracketed() {
		return "[" + k.name + "]:" + k.port
	}
	return k.name + ":" + k.port
}

// owned is k in memory of its own, and String, which it is part of.
func (k hostKey) owned() (own hostKey, text string) {
	switch k.scheme {
	case "http":
		own.scheme = "http"
	case "https":
		own.scheme = "https"
	}
	text = k.String()
	begin := 0
	if k.bracketed() {
		begin = len("[")
	}
	own.name, own.port = text[begin:begin+len(k.name)], text[len(text)-len(k.port):]
	return own, text
}

// bracketed reports whether the name is an IPv6 address.
func (k hostKey) bracketed() bool { return strings.IndexByte(k.name, ':') >= 0 }

// keyOf normalises a URL's scheme and authority; it does not allocate for names
// that are in their normal form.
func keyOf(u *url.URL) (hostKey, error) {
	if strings.IndexByte(u.Host, '@') >= 0 { // made by hand: it may hold a password
		return hostKey{}, errors.New("host: has userinfo, which belongs in URL.User")
	}
	name, port, err := hostname.Of(u)
	if err != nil {
		return hostKey{}, err
	}
	return hostKey{u.Scheme, name, port}, nil
}

// named is req with its hosts as they are sent, for the cache, which knows no IDNA.
func (h *host) named(req *http.Request) *http.Request {
	usual := h.ascii && req.URL.Host == h.spelling && (req.Host == "" || req.Host == req.URL.Host)
	if usual || isASCII(req.URL.Host) && isASCII(req.Host) {
		return req
	}
	r, u := *req, *req.URL
	u.Host, r.Host = sentName(u.Scheme, u.Host), sentName(u.Scheme, r.Host)
	r.URL = &u
	return &r
}

// sentName is a host, with or without a port, in ASCII.
func sentName(scheme, host string) string {
	if isASCII(host) {
		return host
	}
	k, err := keyOf(&url.URL{Scheme: scheme, Host: host})
	if err != nil {
		return host
	}
	return k.String()
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}
