package compat_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
)

// The limits under which the programs run: the streams outlive all of them, and the
// transfers outlive attempt and total.
const (
	read    = 500 * time.Millisecond
	attempt = time.Second
	total   = 2500 * time.Millisecond
)

// install puts a stack under http.DefaultTransport until the test ends; what it
// sends goes through base, or where that is nil through the stack's own. In the end
// nothing may be left in it.
func install(t *testing.T, base http.RoundTripper, change ...func(*policy.Policy)) *transport.Transport {
	t.Helper()
	p := policy.Default()
	p.Timeout.Read, p.Timeout.Attempt, p.Timeout.Total = read, attempt, total
	p.Breaker.SlowCall = attempt / 2
	for _, c := range change {
		c(&p)
	}
	rt := transport.Must(transport.New(transport.Config{Default: p, Base: base, Logger: slog.New(slog.DiscardHandler)}))
	restore := transport.Install(rt)
	t.Cleanup(func() {
		restore()
		defer rt.Close()
		for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			held, calls := 0, int64(0)
			for _, h := range rt.Snapshot() {
				held += h.InFlight
				calls += h.Counts.Calls
				if h.Counts.Leaked > 0 || h.State != transport.Closed {
					t.Errorf("%s: %d leaked, breaker %s after %v", h.Host, h.Counts.Leaked, h.State, h.Trip)
				}
			}
			if calls == 0 {
				t.Error("nothing went through the stack")
			}
			if held == 0 {
				return
			}
			if time.Now().After(deadline) {
				t.Errorf("%d attempts in flight after the end", held)
				return
			}
		}
	})
	return rt
}

// bounded is a context for a whole program.
func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// mib is a mebibyte.
const mib = 1 << 20

// object is what is moved up and down.
const objectSize = 64 * mib

// pattern is bytes without a period that a part or a range could hide.
type pattern struct{ n uint64 }

func (p *pattern) Read(b []byte) (int, error) {
	for i := range b {
		p.n = p.n*6364136223846793005 + 1442695040888963407
		b[i] = byte(p.n >> 56)
	}
	return len(b), nil
}

func object() io.Reader { return io.LimitReader(&pattern{}, objectSize) }

// paced takes its time: a MiB of it lasts pace.
type paced struct{ io.Reader }

const pace = 70 * time.Millisecond // 64 MiB last longer than total, a part of 16 MiB longer than attempt

func (p paced) Read(b []byte) (int, error) {
	n, err := p.Reader.Read(b[:min(len(b), mib/4)])
	time.Sleep(pace * time.Duration(n) / mib)
	return n, err
}
