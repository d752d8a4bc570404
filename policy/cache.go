package policy

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Cache says how the response cache of a host is used beyond the fallback. By
// default it is a fallback only: while the origin answers, every request goes to
// the origin, and nothing that it answers is changed.
type Cache struct {
	// Off keeps nothing of this host, whatever Fallback allows. Default: false.
	Off bool

	// Fresh reuses answers as RFC 9111 has it: one that is fresh is served without
	// contact, one that is stale is validated, and what a request and an answer say
	// about it is heeded. An answer with neither max-age nor Expires is fresh for a
	// tenth of its age by Last-Modified, at most 24 h (section 4.2.2).
	//
	// Only credentials separate callers then: Authorization, Proxy-Authorization,
	// Cookie, X-Api-Key, Api-Key, X-Auth-Token, the userinfo of the URL, and fields
	// whose names end in -Token, -Key, -Secret, -Session, -Assertion, -Jwt, Apikey or
	// Authorization.
	// Without Fresh every field does that is not known to be harmless. Default: false.
	Fresh bool

	// Partition says whose a request is, in place of its credentials: answers are
	// shared by the requests of one tenant; with false, or when it panics, a request is
	// sent and its answer not stored. It is called several times for a call. Only with Fresh. Nil, the default: who shows the same credentials shares.
	Partition func(req *http.Request) (tenant string, ok bool) `json:"-"`

	// Shared tells that callers share the answers of the host, or those of one tenant
	// do, and brings in the rules of RFC 9111 for shared caches: credentials separate
	// nobody, private answers are not kept, s-maxage and proxy-revalidate count, and
	// of what was asked for with credentials, or sets a cookie, only what its origin
	// says is for others too (section 3.5). Only with Fresh. Default: false, for what
	// one user may see another may not.
	Shared bool

	// RefreshInterval spares a busy client copies, never requests: a stored answer that
	// is younger is not replaced by one with the same validators and lifetime. Zero, the
	// default: the last one is kept.
	RefreshInterval time.Duration

	// LabelAll adds a member of Cache-Status to answers of the origin too, which says
	// why they were asked for and whether they are stored (RFC 9211). Default: false:
	// only what comes from the store is labelled.
	LabelAll bool

	// KeyHeaders are request fields that separate answers whether the origin names
	// them in Vary or not, besides X-Forwarded-Host, X-Forwarded-Proto, Forwarded and
	// Origin. Whatever tells users apart and is no credential (X-User-Id, X-Tenant)
	// must be here, in Vary, or in Partition. Only with Fresh. Default: none more.
	KeyHeaders []string
}

func (c Cache) validate(v *validator) {
	v.duration("Cache.RefreshInterval", c.RefreshInterval)
	if c.Fresh && c.Off {
		v.add("Cache.Fresh", c.Fresh, "false with Cache.Off: nothing is kept that could be reused")
	}
	for _, of := range []struct {
		field string
		set   bool
		value any
	}{
		{"Partition", c.Partition != nil, "set"},
		{"KeyHeaders", c.KeyHeaders != nil, c.KeyHeaders},
		{"Shared", c.Shared, c.Shared},
	} {
		if of.set && !c.Fresh {
			v.add("Cache."+of.field, of.value, "left out without Cache.Fresh: a fallback keeps callers apart by whatever may tell them apart")
		}
	}
	for i, name := range c.KeyHeaders {
		if !isToken(name) {
			v.add(fmt.Sprintf("Cache.KeyHeaders[%d]", i), strconv.Quote(name), "the name of a header field, such as X-Tenant")
		}
	}
}

// isToken reports whether s can be the name of a header field (RFC 9110 section 5.6.2).
func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	})
}
