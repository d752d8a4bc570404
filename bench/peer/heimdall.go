package peer

import (
	"fmt"
	"math"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/gojek/heimdall/v7"
	"github.com/gojek/heimdall/v7/httpclient"
	"github.com/gojek/heimdall/v7/hystrix"

	"github.com/watertight-go/watertight/policy"
)

// do is a client as a RoundTripper. The http.Client in it is a part of what it costs.
type do func(*http.Request) (*http.Response, error)

func (f do) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func newHeimdall(base http.RoundTripper, p policy.Policy) http.RoundTripper {
	return do(httpclient.NewClient(
		httpclient.WithHTTPClient(&http.Client{Transport: base, Timeout: p.Timeout.Attempt}),
		httpclient.WithRetryCount(max(p.Retry.MaxAttempts-1, 0)),
		httpclient.WithRetrier(retrier(p.Retry)),
	).Do)
}

// commands tells commands apart: hystrix-go keeps them by name, for ever.
var commands atomic.Int64

func newHystrix(base http.RoundTripper, p policy.Policy) http.RoundTripper {
	options := []hystrix.Option{
		hystrix.WithCommandName(fmt.Sprintf("command %d", commands.Add(1))),
		hystrix.WithHTTPClient(&http.Client{Transport: base, Timeout: p.Timeout.Attempt}),
		hystrix.WithHystrixTimeout(p.Timeout.Attempt),
		hystrix.WithMaxConcurrentRequests(p.Bulkhead.MaxConcurrent),
		hystrix.WithRetryCount(max(p.Retry.MaxAttempts-1, 0)),
		hystrix.WithRetrier(retrier(p.Retry)),
	}
	if b := p.Breaker; b.Enabled() {
		options = append(options,
			hystrix.WithErrorPercentThreshold(int(100*b.FailureRate)),
			hystrix.WithRequestVolumeThreshold(b.MinCalls),
			hystrix.WithSleepWindow(int(b.OpenFor/time.Millisecond)))
	} else {
		options = append(options, hystrix.WithRequestVolumeThreshold(math.MaxInt32))
	}
	return do(hystrix.NewClient(options...).Do)
}

func retrier(r policy.Retry) heimdall.Retriable {
	if r.Base == 0 {
		return heimdall.NewNoRetrier()
	}
	return heimdall.NewRetrier(heimdall.NewExponentialBackoff(r.Base, r.Max, 2, r.Base))
}
