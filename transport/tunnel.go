package transport

import (
	"io"
	"sync"
	"time"
)

// tunnel bounds the silence of an upgraded connection, and ends the context of its
// attempt with it, which a foreign base may need until then.
type tunnel struct {
	io.ReadWriteCloser
	a *attempt

	mu     sync.Mutex  // guards what follows
	timer  *time.Timer // nil: any silence is allowed
	over   bool        // closed, or in shadow mode and told of
	silent *Error      // once it was silent for too long
}

func newTunnel(rw io.ReadWriteCloser, a *attempt) *tunnel {
	t := &tunnel{ReadWriteCloser: rw, a: a}
	if d := a.call.timeout.StreamIdle; d > 0 {
		t.mu.Lock()
		t.timer = time.AfterFunc(d, t.expire)
		t.mu.Unlock()
	}
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
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case err != nil && t.silent != nil:
		return t.silent
	case n > 0 && t.timer != nil && t.silent == nil && !t.over:
		t.timer.Reset(t.a.call.timeout.StreamIdle)
	}
	return err
}

// expire closes a connection that was silent; in shadow mode it only says so.
func (t *tunnel) expire() {
	c := t.a.call
	shadow := c.timeout.Shadow
	t.mu.Lock()
	if t.over {
		t.mu.Unlock()
		return
	}
	if shadow {
		t.over = true
	} else {
		t.silent = c.error(&Error{Kind: ErrStreamIdle, Layer: LayerTimeout, Phase: phaseBody.String(),
			Limit: c.timeout.StreamIdle, Knob: "Timeout.StreamIdle"})
	}
	t.mu.Unlock()
	c.timedOut(&Error{Kind: ErrStreamIdle, Phase: phaseBody.String(), Limit: c.timeout.StreamIdle}, int(t.a.number), shadow)
	if !shadow {
		c.h.t.survive("Response.Body.Close", func() { _ = t.ReadWriteCloser.Close() })
	}
}

func (t *tunnel) Close() error {
	t.mu.Lock()
	t.over = true
	if t.timer != nil {
		t.timer.Stop()
	}
	t.mu.Unlock()
	defer t.a.stop()
	return t.ReadWriteCloser.Close()
}
