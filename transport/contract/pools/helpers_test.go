package pools_test

import "github.com/watertight-go/watertight/transport/internal/stacktest"

// What the tests share.
var (
	under       = stacktest.Under
	fetch       = stacktest.Fetch
	get         = stacktest.GetRequest
	mustTimeOut = stacktest.MustTimeOut
	mustTake    = stacktest.MustTake
	silent      = stacktest.Silent
	quiet       = stacktest.Quiet
)
