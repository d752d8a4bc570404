package transport

import "net/http"

// glance is what the layers want to know of the header of an answer.
type glance struct {
	contentType []string
	retryAfter  bool // it has Retry-After
	silent      bool // it says nothing about its reuse
}

// fewFields is up to how many fields one pass over them is quicker than to look for
// four of them.
const fewFields = 8

func glanceAt(h http.Header) glance {
	if len(h) > fewFields {
		return glance{h["Content-Type"], h["Retry-After"] != nil, len(h["Cache-Control"]) == 0 && len(h["Expires"]) == 0}
	}
	g := glance{silent: true}
	for name, values := range h {
		switch name {
		case "Content-Type":
			g.contentType = values
		case "Retry-After":
			g.retryAfter = values != nil
		case "Cache-Control", "Expires":
			g.silent = g.silent && len(values) == 0
		}
	}
	return g
}
