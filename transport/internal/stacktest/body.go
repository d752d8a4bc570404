package stacktest

import (
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
)

// Body is a body that counts how often it is closed.
type Body struct {
	io.Reader
	Err    error // instead of reading
	Closed atomic.Int64

	mu sync.Mutex // held while it is read
}

func (b *Body) Read(p []byte) (int, error) {
	if b.Err != nil {
		return 0, b.Err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Reader.Read(p)
}

// Close counts.
func (b *Body) Close() error { b.Closed.Add(1); return nil }

// BodyFuncs is a body made of functions.
type BodyFuncs struct {
	OnRead  func([]byte) (int, error)
	OnClose func() error
}

func (b *BodyFuncs) Read(p []byte) (int, error) { return b.OnRead(p) }

// Close calls OnClose.
func (b *BodyFuncs) Close() error { return b.OnClose() }

// Connect makes the tunnel that a CONNECT asks a proxy for, to whatever dial leads to,
// and returns when the client has ended it.
func Connect(t *testing.T, w http.ResponseWriter, dial func() (net.Conn, error)) {
	far, err := dial()
	if err != nil {
		t.Error(err)
		return
	}
	near, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		t.Error(err)
		return
	}
	_, _ = io.WriteString(near, "HTTP/1.1 200 OK\r\n\r\n")
	go func() {
		_, _ = io.Copy(near, far)
		_ = near.Close()
	}()
	_, _ = io.Copy(far, buf)
	_ = far.Close()
}
