package exchanges_test

import (
	"io"
	"log"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/watertight-go/watertight/transport"
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

// stackNew makes a Transport that is closed when the test ends.
func stackNew(t *testing.T, c transport.Config) *transport.Transport {
	t.Helper()
	c.Logger = quiet()
	tr, err := transport.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tr.Close() })
	return tr
}

// stackWait waits for what another goroutine will bring about.
func stackWait(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func TestMain(m *testing.M) {
	log.SetOutput(io.Discard) // where net/http tells of what peers do that we have made to
	os.Exit(m.Run())
}
