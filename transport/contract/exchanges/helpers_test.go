package exchanges_test

import (
	"io"
	"log"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/watertight-go/watertight/transport/internal/stacktest"
)

// contractBody is a body that counts how often it is closed.
type contractBody struct {
	io.Reader
	err    error // instead of reading
	mu     sync.Mutex
	closed atomic.Int64
}

func (b *contractBody) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Reader.Read(p)
}

func (b *contractBody) Close() error { b.closed.Add(1); return nil }

type contractZeros struct{}

func (contractZeros) Read(p []byte) (int, error) { return len(p), nil }

// stackFuncs is a body made of functions.
type stackFuncs struct {
	read  func([]byte) (int, error)
	close func() error
}

func (b *stackFuncs) Read(p []byte) (int, error) { return b.read(p) }

func (b *stackFuncs) Close() error { return b.close() }

func TestMain(m *testing.M) {
	log.SetOutput(io.Discard) // where net/http tells of what peers do that we have made to
	os.Exit(m.Run())
}

// What the tests share.
var (
	stackNew  = stacktest.New
	stackWait = stacktest.Wait
	quiet     = stacktest.Quiet
)
