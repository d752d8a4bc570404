package pools_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watertight-go/watertight/policy"
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

// What is idle a moment before it is counted may be closed and then counted, so
// that fewer are kept of those that end at once.
func TestIdleConnectionsKeepTheirBoundUnderACrowd(t *testing.T) {
	t.Parallel()
	for _, apart := range []time.Duration{0, time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			const bound, each = 20, 4
			origin := transporttest.NewNet(t, nil)
			origin.Script(transporttest.Step{Delay: time.Second, Body: "x"})
			p := pooling()
			p.Timeout.Read, p.Bulkhead.MaxConcurrent = time.Minute, 5
			tr := under(t, transport.Config{Base: origin.Base(), Default: p, MaxIdleConns: bound})
			for round := range 5 {
				var wg sync.WaitGroup
				for i := range 25 * each { // so many calls to each of 25 hosts, and others in the next round
					wg.Go(func() {
						time.Sleep(time.Duration(i) * apart)
						u := strings.Replace(origin.URL, "origin", fmt.Sprintf("h%d", 10*round+i%25), 1)
						if _, err := fetch(tr.Client(), get(t, u)); err != nil {
							t.Error(err)
						}
					})
				}
				wg.Wait()
				time.Sleep(time.Second)
				_, open := origin.Connections()
				if open > bound || apart > 0 && open <= bound-each { // the last pool that was closed had so many
					t.Errorf("%d connections are open after calls that end %v apart", open, apart)
				}
			}
		})
	}
}

// One host used to keep as many as its base says, where no bulkhead says less.
func TestIdleConnectionsOfOneHostKeepTheBoundOfAll(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ base, bulkhead, want int }{
		{50, 0, 5}, {3, 0, 3}, {0, 0, http.DefaultMaxIdleConnsPerHost}, {50, 40, 5}, {50, 4, 4}, {-1, 0, 0},
	} {
		t.Run(fmt.Sprint(test), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := transporttest.NewNet(t, nil)
				o.Script(transporttest.Step{Delay: time.Second, Body: "x"})
				base := o.Base()
				base.MaxIdleConnsPerHost = test.base
				p := pooling()
				p.Timeout.Read = time.Minute
				p.Bulkhead = policy.Bulkhead{MaxConcurrent: test.bulkhead, MaxWait: time.Minute}
				tr := under(t, transport.Config{Base: base, Default: p, MaxIdleConns: 5})
				var wg sync.WaitGroup
				for range 40 {
					wg.Go(func() {
						if _, err := fetch(tr.Client(), get(t, o.URL)); err != nil {
							t.Error(err)
						}
					})
				}
				wg.Wait()
				time.Sleep(time.Second)
				if _, open := o.Connections(); open != test.want {
					t.Errorf("%d connections are idle, want %d", open, test.want)
				}
			})
		})
	}
}

// What CloseIdleConnections looks for a moment later is what was idle then, and none
// that was made since.
func TestIdleConnectionsThatAreNewAreNotClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		origin := transporttest.NewNet(t, nil, transporttest.TLS("h2"))
		tr := under(t, transport.Config{Base: origin.Base()})
		ask(t, origin, tr)
		time.Sleep(time.Second)
		tr.CloseIdleConnections()
		second := ask(t, origin, tr)
		time.Sleep(time.Second)
		if third := ask(t, origin, tr); second == 1 || third != second {
			t.Errorf("the second call is on connection %d, the third on %d", second, third)
		}
	})
}
