package transporttest_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/transporttest"
)

// An outage in a staging environment, by hand: payments fail for a while, and the
// breaker of your own policy is seen to open.
func ExampleFaults() {
	p := policy.Service()
	p.Retry = policy.Retry{}
	var staging http.RoundTripper = transporttest.NewBase() // in your program: nil, or the *http.Transport that it has
	logger := slog.New(slog.DiscardHandler)

	faults := &transporttest.Faults{Base: staging}
	rt := transport.Must(transport.New(transport.Config{Default: p, Base: faults, Logger: logger}))

	// The outage begins.
	err := faults.Set("payments.internal",
		transporttest.Injection{Share: 0.5, Step: transporttest.Step{Status: 503, Header: http.Header{"Retry-After": {"20"}}}},
		transporttest.Injection{Share: 0.3, Step: transporttest.Step{Fault: transporttest.Reset}},
		transporttest.Injection{Share: 0.1, Step: transporttest.Step{Fault: transporttest.Cut, At: 100}}) // of the true answer
	if err != nil {
		fmt.Println(err)
	}
	for call := 1; call <= 100; call++ {
		resp, err := rt.Client().Get("http://payments.internal/")
		if errors.Is(err, transport.ErrBreakerOpen) {
			fmt.Printf("call %d is refused: %v\n", call, rt.Snapshot()[0].Trip)
			break
		}
		if err == nil {
			resp.Body.Close()
		}
	}
	fmt.Printf("injected: %+v\n", faults.Injected("payments.internal"))
	faults.Clear() // the outage is over: watch the breaker close

	// Output:
	// call 21 is refused: 13 of 20 calls failed in the last 2s (limit 50 %), last: status 503
	// injected: {Requests:20 Hits:[11 2 1]}
}
