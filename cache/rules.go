package cache

import (
	"net/http"
	"slices"
	"time"
)

// Rules say how the answers of a host are reused. The zero Rules are those of a fallback: while the origin answers, nothing is
// looked up to answer a request.
type Rules struct {
	// Fresh reuses answers as RFC 9111 has it: what is fresh is served without contact, what is stale is validated, and
	// a request's directives are heeded. See [Cache.Reuse].
	Fresh bool

	// Partition says whose a request is, in place of its credentials: answers are shared by the requests of one tenant. With
	// false the request has no part in the cache. Nil: who shows the same credentials shares.
	Partition func(*http.Request) (tenant string, ok bool)

	// Shared tells that callers share the answers of the host, or those of one tenant do: the rules of RFC 9111 for shared caches
	// apply. Credentials separate nobody, private answers are not kept, s-maxage and proxy-revalidate count, and of what was asked
	// for with credentials only what its origin says is for others too (section 3.5).
	Shared bool

	// RefreshInterval is how old a stored answer must be to be replaced by one that says the same of itself: a busy client need
	// not keep every answer. Zero: the last one is kept.
	RefreshInterval time.Duration

	// LabelAll gives answers of the origin a member of Cache-Status too, which says why they were asked for and whether they
	// are stored (RFC 9211). Else only what comes from the store has one, and all others are as they came.
	LabelAll bool

	// KeyHeaders are request fields that separate answers whether the origin names them in Vary or not, besides X-Forwarded-Host,
	// X-Forwarded-Proto, Forwarded and Origin.
	KeyHeaders []string
}

var defaultKeyHeaders = []string{"X-Forwarded-Host", "X-Forwarded-Proto", "Forwarded", "Origin"}

// For returns a Cache over the same store, with the same keys and partitions, that reuses by r.
func (c *Cache) For(r Rules) *Cache {
	headers := slices.Clip(defaultKeyHeaders)
	for _, name := range r.KeyHeaders {
		headers = append(headers, http.CanonicalHeaderKey(name))
	}
	r.KeyHeaders = headers
	return &Cache{core: c.core, rules: &r}
}

// ForHost returns a Cache like c, over the same store, for the requests of one host. The scheme, http or https, and the host are
// as most of their URLs have them: what those come to in a [Key] is worked out once, and host is kept. An empty host means those of
// the first request. It answers requests of other hosts too, less quickly.
func (c *Cache) ForHost(scheme, host string) *Cache {
	of := &Cache{core: c.core, rules: c.rules}
	if host != "" && (scheme == "http" || scheme == "https") {
		of.first = of.originOf(scheme, host)
		of.asked.Store(&of.first)
	}
	return of
}

// MaxEntryBytes is the largest body that the store keeps.
func (c *Cache) MaxEntryBytes() int64 { return c.store.MaxEntryBytes() }
