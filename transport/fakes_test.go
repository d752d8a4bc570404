package transport_test

import (
	"io"
	"net/http"
	"strings"

	"github.com/watertight-go/watertight/transport/internal/stacktest"
)

// rt is a RoundTripper that is a function.
type rt func(*http.Request) (*http.Response, error)

func (f rt) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// ok is an answer from memory.
func ok(r *http.Request, body string) *http.Response {
	return &http.Response{
		Status: "200 OK", StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"text/plain"}},
		Body:   io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)), Request: r,
	}
}

// Bodies that the tests share.
type (
	contractBody = stacktest.Body
	bodyFuncs    = stacktest.BodyFuncs
)

// What the tests share.
var (
	under            = stacktest.Under
	fetch            = stacktest.Fetch
	get              = stacktest.GetRequest
	mustTimeOut      = stacktest.MustTimeOut
	mustTake         = stacktest.MustTake
	silent           = stacktest.Silent
	quiet            = stacktest.Quiet
	bulkheadAnswer   = stacktest.Answer
	bulkheadNew      = stacktest.New
	bulkheadRequest  = stacktest.Request
	bulkheadGet      = stacktest.Get
	bulkheadInFlight = stacktest.InFlight
	bodyWait         = stacktest.Wait
)
