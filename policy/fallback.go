package policy

import (
	"cmp"
	"fmt"
	"net/http"
	"time"
)

// Fallback is what is served when the answer would be a refusal, a transport
// error, a timeout, or 500, 502, 503, 504: the stored answer, else the degraded
// one, else the error. It is never asked for other statuses, nor for a caller
// who has gone, and it never blocks. The zero value is off.
type Fallback struct {
	// MaxStale is how long after its freshness a stored answer may be served,
	// beyond what the origin grants by stale-if-error (RFC 5861 section 4). It is
	// a product decision, to be made per host. It never overrides no-store,
	// no-cache, must-revalidate or Vary: *. At most StaleLimit. Zero, the default:
	// only what the origin grants.
	MaxStale time.Duration

	// StaleLimit caps the staleness that MaxStale, the origin and the request may
	// ask for. Default: 24 h. Zero: 24 h where MaxStale is set; where both are
	// zero nothing is stored, and nothing stale is served, but by Cache.Fresh.
	StaleLimit time.Duration

	// After is how long a call waits for the origin's answer to begin when there is a
	// stored one that may be served: that is served then, and the request goes on in
	// the background, counts as usual and brings the store up to date. Until it has,
	// further calls for the same are answered at once. The hooks of net/http/httptrace
	// are not called for such calls. What is past its freshness may be served within
	// MaxStale or the origin's stale-if-error, here as elsewhere. Zero, the default: as long as Timeout lets it.
	After time.Duration

	// Degraded builds a partial answer, in memory, when there is no stored one,
	// or returns nil for none. cause is what would have been returned; for a
	// 5xx, an error that names the status. It gets no network and must not
	// block. Missing fields of the response are filled in. Nil, the default:
	// none.
	Degraded func(req *http.Request, cause error) *http.Response `json:"-"`

	// FailFast503 turns what is left, a refusal, a timeout or a connection error,
	// into a response 503 with Retry-After, for callers that can only read
	// responses. Default: false, the typed error.
	FailFast503 bool

	// Shadow reports fallbacks that would have been served, and serves none.
	// Default: false.
	Shadow bool
}

// DefaultStaleLimit is what a zero Fallback.StaleLimit stands for where MaxStale
// is set: a day, since nobody wants last week's answer by accident.
const DefaultStaleLimit = 24 * time.Hour

// Enabled reports whether the layer can ever answer.
func (f Fallback) Enabled() bool {
	return f.MaxStale > 0 || f.StaleLimit > 0 || f.Degraded != nil || f.FailFast503
}

// Stores reports whether responses are kept to be served later.
func (f Fallback) Stores() bool { return f.MaxStale > 0 || f.StaleLimit > 0 }

// Status reports whether a response with this status code may be replaced: the
// four that RFC 5861 section 4 lists.
func (f Fallback) Status(code int) bool {
	switch code {
	case http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

func (f Fallback) validate(v *validator) {
	v.duration("Fallback.MaxStale", f.MaxStale)
	v.defaulted("Fallback.StaleLimit", f.StaleLimit, DefaultStaleLimit)
	v.duration("Fallback.After", f.After)
	limit := cmp.Or(f.StaleLimit, DefaultStaleLimit)
	if limit > 0 && f.MaxStale > limit {
		v.add("Fallback.MaxStale", f.MaxStale, fmt.Sprintf("at most Fallback.StaleLimit (%v), which caps it", limit))
	}
}
