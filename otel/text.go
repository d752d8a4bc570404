package otel

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// An exporter that meets one text which is no UTF-8 may drop all that it sends with it,
// and one that is long may be refused as a whole.
const (
	mostURL    = 2048 // bytes of url.full
	mostMethod = 64   // of http.request.method_original
)

// valid is a text as an attribute may have it.
func valid(s string) string { return strings.ToValidUTF8(s, string(utf8.RuneError)) }

// validURL is a URL as an attribute may have it: what is no UTF-8 is percent-encoded.
func validURL(s string) string {
	if !utf8.ValidString(s) {
		var b strings.Builder
		for s != "" {
			r, size := utf8.DecodeRuneInString(s)
			if r == utf8.RuneError && size == 1 {
				fmt.Fprintf(&b, "%%%02X", s[0])
			} else {
				b.WriteString(s[:size])
			}
			s = s[size:]
		}
		s = b.String()
	}
	if len(s) > mostURL {
		s = shortened(s, mostURL)
		if i := strings.LastIndexByte(s, '%'); i >= 0 && i > len(s)-3 {
			s = s[:i]
		}
	}
	return s
}

// shortened is a text that ends between two of its runes.
func shortened(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most]
}
