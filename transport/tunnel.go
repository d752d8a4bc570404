package transport

import (
	"io"
	"sync/atomic"
	"time"
)

// tunnel bounds the silence of an upgraded connection.
type tunnel struct {
	io.ReadWriteCloser
	idle   time.Duration
	host   string
	timer  *time.Timer
	silent atomic.Bool
}

func newTunnel(rw io.ReadWriteCloser, idle time.Duration, host string) *tunnel {
	t := &tunnel{ReadWriteCloser: rw, idle: idle, host: host}
	t.timer = time.AfterFunc(idle, func() {
		t.silent.Store(true)
		_ = rw.Close()
	})
	return t
}

func (t *tunnel) Read(p []byte) (int, error) {
	n, err := t.ReadWriteCloser.Read(p)
	return n, t.moved(n, err)
}

func (t *tunnel) Write(p []byte) (int, error) {
	n, err := t.ReadWriteCloser.Write(p)
	return n, t.moved(n, err)
}

// moved puts the end of the silence off.
func (t *tunnel) moved(n int, err error) error {
	if err != nil && t.silent.Load() {
		return &Error{Kind: errStreamIdle, Host: t.host, Layer: LayerTimeout, Phase: phaseBody.String(), Limit: t.idle, Knob: "Timeout.StreamIdle"}
	}
	if n > 0 && !t.silent.Load() {
		t.timer.Reset(t.idle)
	}
	return err
}

func (t *tunnel) Close() error {
	t.timer.Stop()
	return t.ReadWriteCloser.Close()
}
