package otel

import (
	"net/url"
	"strings"
)

const redacted = "REDACTED"

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
// separate parameters for the server, whatever it does for us.
func (o *Observer) redactQuery(q string) string {
	var b strings.Builder
	for first := true; first || q != ""; first = false {
		end := strings.IndexAny(q, "&;")
		part, sep := q, ""
		if end >= 0 {
			part, sep = q[:end], q[end:end+1]
		}
		q = q[len(part)+len(sep):]
		name, _, ok := strings.Cut(part, "=")
		if ok && o.secret(name) {
			part = name + "=" + redacted
		}
		b.WriteString(part)
		b.WriteString(sep)
	}
	return b.String()
}

// secret reports whether the values of a query parameter are redacted: also of one
// that a form calls user[password] or token[], and of one that cannot be decoded.
func (o *Observer) secret(name string) bool {
	if strings.ContainsAny(name, "%+") {
		plain, err := url.QueryUnescape(name)
		if err != nil {
			return len(o.config.RedactQuery) > 0
		}
		name = plain
	}
	for part := range strings.FieldsFuncSeq(name, func(r rune) bool { return r == '[' || r == ']' || r == ' ' }) {
		for _, r := range o.config.RedactQuery {
			if strings.EqualFold(part, r) {
				return true
			}
		}
	}
	return false
}
