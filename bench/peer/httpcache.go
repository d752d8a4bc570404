package peer

import (
	"net/http"

	"github.com/gregjones/httpcache"

	"github.com/watertight-go/watertight/policy"
)

// newHTTPCache has nothing to configure: what is stale, and for how long it may be
// served, the origin says.
func newHTTPCache(base http.RoundTripper, _ policy.Policy) http.RoundTripper {
	t := httpcache.NewMemoryCacheTransport()
	t.Transport = base
	return t
}
