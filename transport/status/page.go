package status

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"net/http"
	"strings"
)

//go:embed page.html
var pageHTML string

//go:embed page.css
var pageCSS string

//go:embed page.js
var pageJS string

// page is the page as one file, and the policy that lets it have nothing but what
// is in it.
type page struct {
	html   []byte
	policy string
}

func newPage() page {
	html := strings.NewReplacer("{{css}}", pageCSS, "{{js}}", pageJS).Replace(pageHTML)
	return page{
		html: []byte(html),
		policy: "default-src 'none'; script-src " + hashed(pageJS) + "; style-src " + hashed(pageCSS) +
			"; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
	}
}

func hashed(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

func (p *page) serve(w http.ResponseWriter) {
	w.Header().Set("Content-Security-Policy", p.policy)
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(p.html)
}
