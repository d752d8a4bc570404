package transport

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

// What is remembered of a pool ends with its connections, or it would keep the host.
func TestIdleConnectionsThatAreClosedAreForgotten(t *testing.T) {
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }))
	defer origin.Close()
	base := &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, origin.Listener.Addr().String())
	}}
	tr := Must(New(Config{Base: base, MaxHosts: 10, Logger: slog.New(slog.DiscardHandler)}))
	kept := func() int {
		tr.idle.mu.Lock()
		defer tr.idle.mu.Unlock()
		return tr.idle.pools.Len()
	}
	for i := range 50 {
		resp, err := tr.Client().Get(fmt.Sprintf("http://h%d.test/", i))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
	if n := kept(); n == 0 || n > 10 {
		t.Errorf("%d pools of 10 hosts", n)
	}
	_ = tr.Close()
	if n := kept(); n != 0 {
		t.Errorf("%d pools after Close", n)
	}
	if n := tr.idle.n.Load(); n != 0 {
		t.Errorf("%d idle connections after Close", n)
	}
}
