package cache

import (
	"net/http"
	"time"
)

// Info tells what an answer from the store is.
type Info struct {
	// FromCache is true for every answer from the store.
	FromCache bool
	// Stale is true once the answer is older than the lifetime its origin gave it (RFC 9111 section 4.2).
	Stale bool
	// AsOf is when the origin made or last confirmed the answer, by the local clock: now less Age.
	AsOf time.Time
	// Age is the time since then (RFC 9111 section 4.2.3).
	Age time.Duration
	// TTL is the lifetime that is left; negative when stale. An answer without an explicit lifetime has
	// had none from the start.
	TTL time.Duration
	// Cause is the failure that the answer stands in for. It is masked, not solved: log it.
	Cause error
}

// FromResponse returns what is known of a response that came from the store, and false for every other
// response. It finds the Info in the response's Body, or, for callers with an http.Client.Timeout (which
// wraps the Body), in the context of the response's Request. It finds nothing when something else between the
// store and the caller has replaced both; Cache-Status is left then.
func FromResponse(resp *http.Response) (Info, bool) { return Info{}, false }
