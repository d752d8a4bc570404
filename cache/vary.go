package cache

import (
	"net/http"
	"net/textproto"
	"slices"
	"strings"
)

const (
	maxVariants  = 16
	maxSelectors = 32

	// missing is the value of a selector for a field that the request did not have. No normal form is a lone comma.
	missing = ","
)

// field is one line of a header, or one selector: a request field named by Vary with its value in normal form.
type field struct{ name, value string }

// varyNames reads Vary (RFC 9110 section 12.5.5) into canonical names, without repeats and without those that the
// partition covers already. It returns false when no request can be known to match: a star, or a member that is no name.
func (c *Cache) varyNames(lines []string) ([]string, bool) {
	var names []string
	for _, line := range lines {
		for member := range strings.SplitSeq(line, ",") {
			member = trim(member)
			if member == "" {
				continue
			}
			if member == "*" || !isToken(member) {
				return nil, false
			}
			name := textproto.CanonicalMIMEHeaderKey(member)
			if c.identifies(name) || slices.Contains(names, name) {
				continue
			}
			if len(names) == maxSelectors {
				return nil, false
			}
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, true
}

// selector is the value of a request field as an entry keeps it: in normal form, and a keyed hash where that is a secret.
func (c *Cache) selector(name string, values []string) string {
	value := normal(name, values)
	if value == missing || !credential(name) {
		return value
	}
	p := c.mac([]byte(value))
	return string(p[:])
}

// selects reports whether a request has the value of a selector.
func (f field) selects(c *Cache, h http.Header) bool {
	values := h[f.name]
	if len(values) == 1 && values[0] == f.value && f.value != missing {
		return true
	}
	return c.selector(f.name, values) == f.value
}

// selectable lists the fields of a request that a selector may be about. The header itself is the caller's again before the body
// has been read.
func (c *Cache) selectable(h http.Header) []field {
	fields := make([]field, 0, len(h))
	for name, values := range h {
		if len(values) > 0 && !c.identifies(name) {
			fields = append(fields, field{name, strings.Join(values, ", ")})
		}
	}
	return fields
}

// answers reports what matches does, for a request whose fields selectable has listed.
func (e *Entry) answers(asked []field) bool {
	for _, s := range e.selectors {
		value := missing
		for _, f := range asked {
			if f.name == s.name {
				value = e.owner.selector(f.name, []string{f.value})
			}
		}
		if value != s.value {
			return false
		}
	}
	return true
}

// normal is the value of a request field in the form in which two that mean the same are equal (RFC 9111 section 4.1).
func normal(name string, values []string) string {
	if len(values) == 0 {
		return missing
	}
	unordered := name == "Accept-Language" || name == "Accept-Encoding" || name == "Accept-Charset"
	if len(values) == 1 && !strings.ContainsAny(values[0], ", \t") && !unordered {
		return values[0]
	}
	if slices.ContainsFunc(values, func(v string) bool { return strings.Contains(v, `"`) }) {
		return strings.Join(values, ", ") // spaces and commas in quotes mean something
	}
	var members []string
	for _, value := range values {
		if unordered {
			value = strings.ToLower(value)
		}
		for member := range strings.SplitSeq(value, ",") {
			if member = trim(member); member != "" {
				members = append(members, member)
			}
		}
	}
	if unordered {
		slices.Sort(members)
	}
	if len(members) == 1 {
		return members[0]
	}
	return strings.Join(members, ",")
}

// isToken reports whether s is a token of RFC 9110 section 5.6.2.
func isToken(s string) bool {
	for i := 0; i < len(s); i++ {
		if !isTokenByte(s[i]) {
			return false
		}
	}
	return s != ""
}

func isTokenByte(c byte) bool {
	return 'a' <= c && c <= 'z' || c == '-' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
		strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}

// canonical reports whether a field name is a token and as [textproto.CanonicalMIMEHeaderKey] makes it. No other is found by a lookup,
// though it means the same to whoever reads it from the wire; net/http leaves one such as "Cache-Control " in answers.
func canonical(name string) bool {
	start := true
	for i := 0; i < len(name); i++ {
		c := name[i]
		switch {
		case c == '-': // a token byte, and much the commonest
		case 'a' <= c && c <= 'z':
			if start {
				return false
			}
		case 'A' <= c && c <= 'Z':
			if !start {
				return false
			}
		case !isTokenByte(c):
			return false
		}
		start = c == '-'
	}
	return name != ""
}

// legible reports whether all names in h are canonical.
func legible(h http.Header) bool {
	for name := range h {
		if !canonical(name) {
			return false
		}
	}
	return true
}
