package otel

import (
	"bytes"
	"net/url"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

const redacted = "REDACTED"

// Whose values are redacted where Config.RedactQuery is nil, folded. They have the list
// of the semantic conventions for url.full among them.
var (
	// A name that ends so: what else it says does not matter. A token that is no
	// credential, as of the next page, tells a reader nothing that is missed.
	secretEnds = []string{
		"token", "secret", "password", "passwd", "pwd", "passphrase", "signature", "credential", "credentials",
		"apikey", "accesskey", "secretkey", "privatekey", "subscriptionkey", "authkey", "signingkey", "encryptionkey",
		"sharedkey", "accountkey", "masterkey", "sessionkey", "appkey", "accesskeyid",
		"authorization", "assertion", "jwt", "sessionid",
	}
	// A name that is one of these. key is by what several clouds take their API keys;
	// names that end in it are as often those of caches, rows and orders.
	secretNames = []string{
		"sig", "key", "auth", "pass", "otp", "session", "phpsessid", "samlresponse",
		"code", "authcode", "authorizationcode", "codeverifier", // of OAuth
	}
)

// fullURL is a URL as url.full has it: without its fragment, and without what may
// be a secret (semantic conventions, url.full).
func (o *Observer) fullURL(u *url.URL) string {
	if u.User == nil && u.RawQuery == "" && u.Fragment == "" && u.Opaque == "" {
		return u.String()
	}
	c := *u
	c.Fragment, c.RawFragment = "", ""
	c.Opaque = "" // whatever is in it
	if c.User != nil {
		if _, ok := c.User.Password(); ok {
			c.User = url.UserPassword(redacted, redacted)
		} else {
			c.User = url.User(redacted)
		}
	}
	if c.RawQuery != "" {
		c.RawQuery = o.redactQuery(c.RawQuery)
	}
	return c.String()
}

// redactQuery replaces values, and leaves all else as it was sent. A semicolon may
// separate parameters for the server, whatever it does for us. A parameter that holds
// a URL with more than a path goes as a whole: who knows how its server reads it.
func (o *Observer) redactQuery(q string) string {
	var b strings.Builder
	for first := true; first || q != ""; first = false {
		end := strings.IndexAny(q, "&;")
		part, sep := q, ""
		if end >= 0 {
			part, sep = q[:end], q[end:end+1]
		}
		q = q[len(part)+len(sep):]
		name, value, ok := strings.Cut(part, "=")
		switch {
		case o.holdsURL(name):
			part = redacted
		case ok && (o.secret(name) || o.holdsURL(value)):
			part = name + "=" + redacted
		}
		b.WriteString(part)
		b.WriteString(sep)
	}
	return b.String()
}

// secret reports whether the values of a query parameter are redacted: also of one
// that cannot be decoded.
func (o *Observer) secret(name string) bool {
	if strings.ContainsAny(name, "%+") {
		plain, err := url.QueryUnescape(name)
		if err != nil {
			return len(o.redact.names) > 0
		}
		name = plain
	}
	return o.redact.matches(name)
}

// mostNested is how often a URL may be encoded to be seen within another; what is
// encoded more often counts as one with secrets.
const mostNested = 5

// holdsURL reports whether a text holds a URL, percent-encoded or not, that may have
// secrets: userinfo, a query or a fragment. Where nothing is redacted, none has.
func (o *Observer) holdsURL(s string) bool {
	if len(o.redact.names) == 0 {
		return false
	}
	for range mostNested {
		if _, after, ok := strings.Cut(s, "://"); ok && strings.ContainsAny(after, "@?#&;=") {
			return true
		}
		plain := unescaped(s)
		if plain == s {
			return false
		}
		s = plain
	}
	return strings.Contains(s, "%")
}

// unescaped is a text without what of it is percent-encoded as it should be.
func unescaped(s string) string {
	i := strings.IndexByte(s, '%')
	if i < 0 {
		return s
	}
	b := append(make([]byte, 0, len(s)), s[:i]...)
	for ; i < len(s); i++ {
		c := s[i]
		if c == '%' && i+2 < len(s) {
			if v, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
				c = byte(v)
				i += 2
			}
		}
		b = append(b, c)
	}
	return string(b)
}

// redaction is which query parameters have secret values.
type redaction struct {
	names map[string]bool // folded
	ends  []string        // of names, folded
}

func newRedaction(names, ends []string) redaction {
	r := redaction{names: map[string]bool{}, ends: ends}
	for _, name := range names {
		r.names[string(fold(nil, name))] = true
	}
	return r
}

// matches reports whether a name, or a part of it where a form nests or numbers it,
// is one of those: user[password], credentials.token, token[].
func (r *redaction) matches(name string) bool {
	var buf [64]byte
	folded := fold(buf[:0], name)
	if r.match(folded) {
		return true
	}
	for part := range bytes.FieldsFuncSeq(folded, separates) {
		if r.match(part) {
			return true
		}
	}
	return false
}

func (r *redaction) match(folded []byte) bool {
	if r.names[string(folded)] {
		return true
	}
	for _, end := range r.ends {
		if len(folded) >= len(end) && string(folded[len(folded)-len(end):]) == end {
			return true
		}
	}
	return false
}

// fold appends a name without what tells accessToken, access_token and Access-Token
// apart.
func fold(to []byte, name string) []byte {
	for _, r := range name {
		if r != '-' && r != '_' {
			to = utf8.AppendRune(to, unicode.ToLower(unicode.ToUpper(r))) // some letters have three cases
		}
	}
	return to
}

// separates reports whether a character is between the parts of a name.
func separates(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }
