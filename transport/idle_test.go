package transport_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/transporttest"
)

// Many hosts, of which each is called once, and a few over and over.
func TestIdleConnectionsOfAnyNumberOfHostsKeepTheirBound(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]transporttest.Option{"HTTP/1.1": nil, "HTTP/2": {transporttest.H2C()}} {
		synctest.Test(t, func(t *testing.T) {
			const bound, busy = 10, 3
			origin := transporttest.NewNet(t, nil, opts...)
			base := origin.Base()
			base.IdleConnTimeout = time.Hour
			tr := under(t, transport.Config{Base: base, Default: pooling(), MaxIdleConns: bound})
			call := func(host string) {
				if _, err := fetch(tr.Client(), get(t, strings.Replace(origin.URL, "origin", host, 1))); err != nil {
					t.Fatal(err)
				}
			}
			for i := range 250 {
				call(fmt.Sprintf("h%d", i))
				call(fmt.Sprintf("busy%d", i%busy))
				time.Sleep(time.Second)
				if _, open := origin.Connections(); open > bound {
					t.Fatalf("%s: %d connections are open after %d hosts", name, open, i+1)
				}
			}
			if opened, _ := origin.Connections(); opened != 250+busy {
				t.Errorf("%s: %d connections: those of the busy hosts were closed", name, opened)
			}
		})
	}
}

func TestIdleConnectionsKeepTheirBoundUnderACrowd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const bound = 20
		origin := transporttest.NewNet(t, nil)
		origin.Script(transporttest.Step{Delay: time.Second, Body: "x"})
		p := pooling()
		p.Timeout.Read, p.Bulkhead.MaxConcurrent = time.Minute, 5
		tr := under(t, transport.Config{Base: origin.Base(), Default: p, MaxIdleConns: bound})
		for round := range 5 {
			var wg sync.WaitGroup
			for i := range 100 { // four calls to each of 25 hosts, and others in the next round
				wg.Go(func() {
					u := strings.Replace(origin.URL, "origin", fmt.Sprintf("h%d", 10*round+i%25), 1)
					if _, err := fetch(tr.Client(), get(t, u)); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			time.Sleep(time.Second)
			if _, open := origin.Connections(); open > bound || open < bound/2 {
				t.Errorf("%d connections are open", open)
			}
		}
	})
}
