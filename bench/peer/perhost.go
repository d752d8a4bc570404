package peer

import (
	"net/http"
	"sync"

	"github.com/watertight-go/watertight/policy"
)

// hosts gives each host a RoundTripper of its own, as one does by hand with what
// keeps a single state. It forgets none.
type hosts struct {
	new func() http.RoundTripper
	all sync.Map // of http.RoundTripper by URL.Host
}

func perHost(one func(http.RoundTripper, policy.Policy) http.RoundTripper) func(http.RoundTripper, policy.Policy) http.RoundTripper {
	return func(base http.RoundTripper, p policy.Policy) http.RoundTripper {
		return &hosts{new: func() http.RoundTripper { return one(base, p) }}
	}
}

func (h *hosts) RoundTrip(req *http.Request) (*http.Response, error) {
	rt, ok := h.all.Load(req.URL.Host)
	if !ok {
		rt, _ = h.all.LoadOrStore(req.URL.Host, h.new())
	}
	return rt.(http.RoundTripper).RoundTrip(req)
}
