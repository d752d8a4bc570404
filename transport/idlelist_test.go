package transport

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
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

// Many that find the bound exceeded at once used to close a pool each, though the
// first was enough.
func TestIdleConnectionsOfNoMorePoolsAreClosedThanMustBe(t *testing.T) {
	const each, most = 10, 100
	for range 50 {
		tr := Must(New(Config{MaxIdleConns: most}))
		var pools []*pool
		for i := range 2 * most / each {
			h := tr.hostAt(hostKey{"http", fmt.Sprintf("h%d.test", i), "80"}, "", tr.now())
			p := h.newPool(false)
			p.transport.MaxIdleConnsPerHost = each
			pools = append(pools, p)
		}
		idle, late := pools[:most/each], pools[most/each:]
		for _, p := range idle {
			for range each {
				p.put()
			}
		}
		var wg sync.WaitGroup
		begin := make(chan struct{})
		for _, p := range late { // one from each: one more pool has to go
			wg.Go(func() {
				<-begin
				p.put()
			})
		}
		close(begin)
		wg.Wait()
		var counted int64
		for _, p := range pools {
			counted += p.parked.Load()
		}
		if n := tr.idle.n.Load(); n != most || counted != n {
			t.Fatalf("%d are counted, %d in the pools; want %d", n, counted, most)
		}
	}
}

// What came back to a pool that was already given up stayed in the count, and kept
// the pool in the list.
func TestIdleConnectionsOfAPoolThatIsOverAreForgotten(t *testing.T) {
	tr := Must(New(Config{}))
	h := tr.hostAt(hostKey{"http", "a.test", "80"}, "", tr.now())
	p := h.pools.acquire(h, false)
	a := &attempt{pool: p}
	h.pools.retire(p)
	p.release()
	a.putIdleConn(nil)
	if n, kept := tr.idle.n.Load(), tr.idle.pools.Len(); n != 0 || kept != 0 {
		t.Errorf("%d connections of %d pools are remembered", n, kept)
	}
}
