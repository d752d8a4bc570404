package contract_test

import (
	"net/http"
	"strings"
	"time"

	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport/internal/stacktest"
	"github.com/watertight-go/watertight/transport/transporttest"
)

// stackBase answers from memory, with a body that is open until it is read or
// closed.
type stackBase func(*http.Request) (*http.Response, error)

func (f stackBase) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// stackHello answers every request with a short body.
func stackHello(r *http.Request) (*http.Response, error) {
	return stackAnswer(r, http.StatusOK, strings.NewReader("hello")), nil
}

// stackOnly is a policy of nothing but n permits.
func stackOnly(n int, wait time.Duration) policy.Policy {
	return policy.Policy{Bulkhead: policy.Bulkhead{MaxConcurrent: n, MaxWait: wait}}
}

// stackProtocols are the ways to speak to an Origin.
var stackProtocols = map[string][]transporttest.Option{
	"HTTP/1.1": nil,
	"HTTP/2":   {transporttest.TLS("h2")},
}

// Bodies that the tests share.
type (
	contractBody = stacktest.Body
	stackFuncs   = stacktest.BodyFuncs
)

// What the tests share.
var (
	stackAnswer   = stacktest.Answer
	stackNew      = stacktest.New
	stackRequest  = stacktest.Request
	stackGet      = stacktest.Get
	stackInFlight = stacktest.InFlight
	stackWait     = stacktest.Wait
	quiet         = stacktest.Quiet
)
