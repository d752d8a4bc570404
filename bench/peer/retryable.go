package peer

import (
	"net/http"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/watertight-go/watertight/policy"
)

// newRetryable is go-retryablehttp's RoundTripper. There is an http.Client in it,
// whose cost is therefore its own.
func newRetryable(base http.RoundTripper, p policy.Policy) http.RoundTripper {
	c := retryablehttp.NewClient()
	c.HTTPClient = &http.Client{Transport: base}
	c.Logger = nil
	c.RetryMax = max(p.Retry.MaxAttempts-1, 0)
	c.RetryWaitMin, c.RetryWaitMax = p.Retry.Base, p.Retry.Max
	return &retryablehttp.RoundTripper{Client: c}
}
