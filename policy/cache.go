package policy

import "net/http"

// Cache says how the response cache of a host is used beyond the fallback. By
// default it is a fallback only: while the origin answers, every request goes to
// the origin, and nothing that it answers is changed.
type Cache struct {
	// Off keeps nothing of this host, whatever Fallback allows. Default: false.
	Off bool

	// Fresh reuses answers as RFC 9111 has it: one that is fresh is served without
	// contact, one that is stale is validated, and what a request and an answer say
	// about it is heeded. Default: false.
	Fresh bool

	// Partition says whose a request is, in place of its credentials: answers are
	// shared by the requests of one tenant; with false a request has no part in the
	// cache. Only with Fresh. Nil, the default: who shows the same credentials shares.
	Partition func(req *http.Request) (tenant string, ok bool) `json:"-"`

	// KeyHeaders are request fields that separate answers whether the origin names
	// them in Vary or not. Only with Fresh. Nil, the default: X-Forwarded-Host,
	// X-Forwarded-Proto, Forwarded and Origin.
	KeyHeaders []string
}
