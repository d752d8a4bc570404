package exchanges_test

import (
	"io"
	"log"
	"os"
	"testing"

	"github.com/watertight-go/watertight/transport/internal/stacktest"
)

type contractZeros struct{}

func (contractZeros) Read(p []byte) (int, error) { return len(p), nil }

func TestMain(m *testing.M) {
	log.SetOutput(io.Discard) // where net/http tells of what peers do that we have made to
	os.Exit(m.Run())
}

// Bodies that the tests share.
type (
	contractBody = stacktest.Body
	stackFuncs   = stacktest.BodyFuncs
)

// What the tests share.
var (
	stackNew  = stacktest.New
	stackWait = stacktest.Wait
	quiet     = stacktest.Quiet
)
