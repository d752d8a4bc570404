package transporttest

import (
	"context"
	"net"
	"os"
	"syscall"
	"time"
)

// DialHook is called before each dial of a Base of an Origin, with the address that
// was asked for. An error fails the dial.
type DialHook func(ctx context.Context, addr string) error

// Refuse is a DialHook: nobody listens.
func Refuse(context.Context, string) error {
	return &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
}

// BlackHole is a DialHook: nobody answers.
func BlackHole(ctx context.Context, _ string) error {
	<-ctx.Done()
	return ctx.Err()
}

// DialDelay returns a DialHook: connecting takes d.
func DialDelay(d time.Duration) DialHook {
	return func(ctx context.Context, _ string) error { return sleep(ctx, nil, d) }
}

// OnDial sets the hook of dials from now on; nil sets none.
func (o *Origin) OnDial(hook DialHook) { o.board.update(func() { o.onDial = hook }) }

// Dials returns how many dials the Bases have begun, how many are under way, and
// how many were at the most.
func (o *Origin) Dials() (begun, now, most int) {
	o.board.mu.Lock()
	defer o.board.mu.Unlock()
	return o.dials, o.dialling, o.mostDials
}

func (o *Origin) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	var hook DialHook
	o.board.update(func() {
		hook = o.onDial
		o.dials++
		o.dialling++
		o.mostDials = max(o.mostDials, o.dialling)
	})
	defer o.board.update(func() { o.dialling-- })
	if hook != nil {
		if err := hook(ctx, addr); err != nil {
			return nil, err
		}
	}
	if m, ok := o.listener.Listener.(*memory); ok {
		return m.dial(ctx)
	}
	var d net.Dialer
	return d.DialContext(ctx, network, o.listener.Addr().String())
}
