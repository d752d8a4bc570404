package transport

import (
	"context"
	"net"
	"net/http"
	"strings"
	"time"
)

// orphan is how long a handshake may take whose attempt has found another
// connection: net/http goes on with it, for the pool.
const orphan = time.Minute

type dialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

// dialers are the base's, bounded; the second is nil if it has none of its own.
func (h *host) dialers(from *http.Transport) (plain, encrypted dialFunc) {
	plain, encrypted = from.DialContext, from.DialTLSContext
	if old := from.Dial; plain == nil && old != nil {
		plain = func(_ context.Context, network, addr string) (net.Conn, error) { return old(network, addr) }
	}
	if old := from.DialTLS; encrypted == nil && old != nil {
		encrypted = func(_ context.Context, network, addr string) (net.Conn, error) { return old(network, addr) }
	}
	if plain == nil {
		plain = (&net.Dialer{KeepAlive: 30 * time.Second}).DialContext
	}
	if encrypted != nil {
		encrypted = h.bound(encrypted)
	}
	return h.bound(plain), encrypted
}

// bound bounds a dial by Timeout.Connect, and ends it, with the handshake or the
// exchange with a proxy that may follow, when its attempt ends without a
// connection: net/http lets both go on without their request.
func (h *host) bound(dial dialFunc) dialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		a, _ := ctx.Value(attemptKey{}).(*attempt)
		if a == nil || a.call.h != h { // a Clone that Install made is used
			return dial(ctx, network, addr)
		}
		direct := strings.EqualFold(addr, h.name)
		a.mu.Lock()
		turn, p := a.dials, a.pool
		a.direct = direct
		a.mu.Unlock()
		abandoned := func() bool {
			a.mu.Lock()
			defer a.mu.Unlock()
			return a.dials == turn
		}
		limit := a.call.timeout.Connect
		if limit <= 0 || a.call.timeout.Shadow {
			limit = forever
		}
		ctx, cancel := context.WithTimeout(ctx, limit+time.Second) // the watch is first
		defer cancel()
		stop := context.AfterFunc(a, func() {
			if abandoned() {
				cancel()
			}
		})
		conn, err := dial(ctx, network, addr)
		stop()
		if conn == nil || err != nil {
			return conn, err
		}
		p.shut()
		if !direct || h.key.scheme != "http" {
			context.AfterFunc(a, func() {
				if abandoned() {
					h.t.survive("net.Conn.Close", func() { _ = conn.Close() })
				}
			})
		}
		return conn, nil
	}
}
