package pools_test

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/internal/stacktest"
	"github.com/watertight-go/watertight/transport/transporttest"
)

// pooling is a policy with a short Read, and no other layer.
func pooling() policy.Policy {
	return policy.Policy{Timeout: policy.Timeout{Connect: time.Second, TLSHandshake: time.Second, Read: time.Second}}
}

// ask does a call that must succeed, and returns the number of the connection it
// came over.
func ask(t *testing.T, origin *transporttest.Origin, rt http.RoundTripper) int {
	t.Helper()
	if _, err := fetch(&http.Client{Transport: rt}, get(t, origin.URL)); err != nil {
		t.Fatal(err)
	}
	hits := origin.Hits()
	return hits[len(hits)-1].Conn
}

// kinds are HTTP/1.1 and HTTP/2.
var kinds = map[string][]transporttest.Option{"HTTP/1.1": nil, "HTTP/2": {transporttest.TLS("h2")}}

func eachKind(t *testing.T, f func(t *testing.T, opts []transporttest.Option)) {
	for name, opts := range kinds {
		t.Run(name, func(t *testing.T) { f(t, opts) })
	}
}

func TestPoolIsUsedAgain(t *testing.T) {
	eachKind(t, func(t *testing.T, opts []transporttest.Option) {
		transporttest.CheckLeaks(t)
		origin := transporttest.NewOrigin(t, opts...)
		origin.Script(transporttest.Step{Size: 100})
		tr := under(t, transport.Config{Base: origin.Base()})
		for range 100 {
			ask(t, origin, tr)
		}
		if opened, _ := origin.Connections(); opened != 1 {
			t.Errorf("%d connections for 100 calls", opened)
		}
	})
}

func TestPoolIsSizedFromTheBulkhead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		origin := transporttest.NewNet(t, nil)
		origin.Script(transporttest.Step{Delay: time.Second, Body: "x"})
		p := pooling()
		p.Timeout.Read, p.Bulkhead.MaxConcurrent = time.Minute, 20
		tr := under(t, transport.Config{Base: origin.Base(), Default: p})
		for range 3 {
			var wg sync.WaitGroup
			for range 20 {
				wg.Go(func() {
					if _, err := fetch(tr.Client(), get(t, origin.URL)); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
		}
		if opened, open := origin.Connections(); opened != 20 || open != 20 {
			t.Errorf("%d connections were opened, %d are open", opened, open)
		}
	})
}

func TestPoolOfARetryAfterATimeoutIsFresh(t *testing.T) {
	for name, opts := range kinds {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				origin := transporttest.NewNet(t, nil, opts...)
				p := pooling()
				p.Retry = policy.Retry{MaxAttempts: 2, Base: 100 * time.Millisecond, Max: 100 * time.Millisecond}
				tr := under(t, transport.Config{Base: origin.Base(), Default: p})
				if n := ask(t, origin, tr); n != 1 {
					t.Fatalf("connection %d", n)
				}
				origin.Mute() // all that is pooled is dead, and does not say so
				start := time.Now()
				if n := ask(t, origin, tr); n != 2 {
					t.Errorf("the retry came over connection %d", n)
				}
				if d := time.Since(start); d < time.Second || d > 1100*time.Millisecond {
					t.Errorf("took %v", d)
				}
				// That connection was for one attempt, and the pool was retired.
				if n := ask(t, origin, tr); n != 3 {
					t.Errorf("the next call came over connection %d", n)
				}
				if n := ask(t, origin, tr); n != 3 {
					t.Errorf("the call after it came over connection %d", n)
				}
				time.Sleep(time.Second)
				if _, open := origin.Connections(); open > 2 { // the muted one does not see its end
					t.Errorf("%d connections are open", open)
				}
			})
		})
	}
}

func TestPoolOfAProbeIsFreshAndOneTripRetiresTheOld(t *testing.T) {
	for name, opts := range kinds {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				origin := transporttest.NewNet(t, nil, opts...)
				p := pooling()
				p.Breaker = policy.Breaker{ConsecutiveFailures: 1, OpenFor: 10 * time.Second, HalfOpenProbes: 3}
				tr := under(t, transport.Config{Base: origin.Base(), Default: p})
				ask(t, origin, tr)
				origin.Script(transporttest.Step{Status: http.StatusInternalServerError, Body: "no"}, transporttest.Step{Body: "yes"})
				ask(t, origin, tr)
				if s := tr.Snapshot()[0].State; s != transport.Open {
					t.Fatal(s)
				}
				time.Sleep(time.Second)
				if opened, open := origin.Connections(); opened != 1 || open != 0 {
					t.Errorf("%d of %d connections are open after the trip", open, opened)
				}
				time.Sleep(12 * time.Second)
				for i := range 3 {
					if n := ask(t, origin, tr); n != 2+i {
						t.Errorf("probe %d came over connection %d", i+1, n)
					}
				}
				if s := tr.Snapshot()[0].State; s != transport.Closed {
					t.Fatal(s)
				}
				for range 2 {
					if n := ask(t, origin, tr); n != 5 {
						t.Errorf("connection %d after the probes", n)
					}
				}
				time.Sleep(time.Second)
				if _, open := origin.Connections(); open != 1 {
					t.Errorf("%d connections are open", open)
				}
			})
		})
	}
}

func TestPoolOfAShadowedBreakerIsNotRetired(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		origin := transporttest.NewNet(t, nil)
		origin.Script(transporttest.Step{Status: http.StatusInternalServerError, Body: "no"})
		p := pooling()
		p.Breaker = policy.Breaker{ConsecutiveFailures: 1, Shadow: true}
		tr := under(t, transport.Config{Base: origin.Base(), Default: p})
		for range 10 {
			if n := ask(t, origin, tr); n != 1 {
				t.Errorf("connection %d", n)
			}
		}
	})
}

func TestPoolOfASlowHostThatIsHeardFromIsKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		origin := transporttest.NewNet(t, nil, transporttest.TLS("h2"))
		origin.ScriptFunc(func(h transporttest.Hit) transporttest.Step {
			if h.Path == "/slow" {
				return transporttest.Step{Delay: 5 * time.Second}
			}
			return transporttest.Step{Delay: 500 * time.Millisecond}
		})
		tr := under(t, transport.Config{Base: origin.Base(), Default: pooling()})
		ask(t, origin, tr)
		for range 10 {
			var wg sync.WaitGroup
			wg.Go(func() {
				_, err := fetch(tr.Client(), get(t, origin.URL+"/slow"))
				mustTimeOut(t, err, transport.ErrReadTimeout, "response_header", "Timeout.Read", time.Second)
			})
			ask(t, origin, tr) // the same connection says something
			wg.Wait()
		}
		if opened, _ := origin.Connections(); opened != 1 {
			t.Errorf("%d connections", opened)
		}
	})
}

func TestPoolThatIsRetiredFinishesItsStreams(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		origin := transporttest.NewNet(t, nil, transporttest.TLS("h2"))
		origin.ScriptFunc(func(h transporttest.Hit) transporttest.Step {
			switch h.Path {
			case "/stream":
				return transporttest.Step{Header: http.Header{"Content-Type": {"text/event-stream"}}, Size: 6, Chunk: 1, Pause: 10 * time.Second}
			case "/down":
				return transporttest.Step{Status: http.StatusInternalServerError, Body: "no"}
			}
			return transporttest.Step{Body: "x"}
		})
		p := pooling()
		p.Breaker = policy.Breaker{ConsecutiveFailures: 1, OpenFor: 5 * time.Second, HalfOpenProbes: 1}
		tr := under(t, transport.Config{Base: origin.Base(), Default: p})
		ask(t, origin, tr)
		resp, err := tr.RoundTrip(get(t, origin.URL+"/stream"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fetch(tr.Client(), get(t, origin.URL+"/down")); err != nil {
			t.Fatal(err)
		}
		if s := tr.Snapshot()[0].State; s != transport.Open {
			t.Fatal(s)
		}
		time.Sleep(6 * time.Second)
		ask(t, origin, tr) // the probe
		if n := ask(t, origin, tr); n != 3 {
			t.Errorf("connection %d", n)
		}
		b, err := io.ReadAll(resp.Body)
		if err != nil || string(b) != "abcdef" {
			t.Errorf("%q, %v", b, err)
		}
		_ = resp.Body.Close()
		time.Sleep(time.Second)
		if opened, open := origin.Connections(); opened != 3 || open != 1 {
			t.Errorf("%d of %d connections are open", open, opened)
		}
	})
}

func TestPoolsOfAllHostsHaveABoundTogether(t *testing.T) {
	for name, opts := range kinds {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				origin := transporttest.NewNet(t, nil, opts...)
				origin.Script(transporttest.Step{Body: "x"})
				base := origin.Base()
				base.TLSClientConfig.InsecureSkipVerify = true
				tr := under(t, transport.Config{Base: base, Default: pooling(), MaxIdleConns: 10})
				client := tr.Client()
				call := func(i int) {
					u := strings.Replace(origin.URL, "origin", fmt.Sprintf("h%d", i), 1)
					if _, err := fetch(client, get(t, u)); err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Millisecond)
				}
				for i := range 40 {
					call(i)
				}
				time.Sleep(time.Second)
				if _, open := origin.Connections(); open > 10 || open < 5 {
					t.Errorf("%d connections are open", open)
				}
				before, _ := origin.Connections()
				for i := 35; i < 40; i++ { // the last ones used are kept
					call(i)
				}
				if after, _ := origin.Connections(); after != before {
					t.Errorf("%d new connections", after-before)
				}
			})
		})
	}
}

func TestPoolOfAnIdleHostIsGivenBack(t *testing.T) {
	for name, opts := range kinds {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				origin := transporttest.NewNet(t, nil, opts...)
				other := transporttest.NewNet(t, nil)
				base := origin.Base() // without an IdleConnTimeout
				base.DialContext = choose(base.DialContext, other.Base().DialContext)
				tr := under(t, transport.Config{Base: base, Default: pooling()})
				ask(t, origin, tr)
				busy := strings.Replace(other.URL, "origin", "other", 1)
				for range 20 {
					time.Sleep(10 * time.Second)
					if _, err := fetch(tr.Client(), get(t, busy)); err != nil {
						t.Fatal(err)
					}
				}
				if _, open := origin.Connections(); open != 0 {
					t.Errorf("%d connections of the idle host are open", open)
				}
				if n := ask(t, origin, tr); n == 0 {
					t.Error("no answer")
				}
			})
		})
	}
}

// choose dials hosts of the name other.test elsewhere.
func choose(dial, other dialContext) dialContext {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if strings.HasPrefix(addr, "other.test") {
			return other(ctx, network, addr)
		}
		return dial(ctx, network, addr)
	}
}

type dialContext = func(context.Context, string, string) (net.Conn, error)

func TestPoolsCloseTheirIdleConnections(t *testing.T) {
	eachKind(t, func(t *testing.T, opts []transporttest.Option) {
		transporttest.CheckLeaks(t)
		origin := transporttest.NewOrigin(t, opts...)
		tr := under(t, transport.Config{Base: origin.Base()})
		ask(t, origin, tr)
		tr.Client().CloseIdleConnections()
		origin.WaitOpen(0)
		ask(t, origin, tr)
		_ = tr.Close()
		origin.WaitOpen(0)
	})
}

func TestPoolThatIsClosedInUseIsGoneAfterIt(t *testing.T) {
	for name, opts := range kinds {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				origin := transporttest.NewNet(t, nil, opts...)
				origin.Script(transporttest.Step{Delay: 500 * time.Millisecond, Body: "x"})
				tr := under(t, transport.Config{Base: origin.Base(), Default: pooling()})
				time.AfterFunc(100*time.Millisecond, func() { _ = tr.Close() })
				ask(t, origin, tr)
				time.Sleep(time.Second)
				if _, open := origin.Connections(); open != 0 {
					t.Error("the connection is open")
				}
				if _, err := fetch(tr.Client(), get(t, origin.URL)); !errors.Is(err, transport.ErrClosed) {
					t.Error(err)
				}
			})
		})
	}
}

func TestPoolsOfStacksThatAreClosedLeaveNothing(t *testing.T) {
	transporttest.CheckLeaks(t)
	origin := transporttest.NewOrigin(t)
	origin.Script(transporttest.Step{Body: "x"})
	base := origin.Base()
	for range 300 {
		tr := transport.Must(transport.New(transport.Config{Base: base, Logger: quiet()}))
		ask(t, origin, tr)
		_ = tr.Close()
	}
	origin.WaitOpen(0)
}

func TestPoolIsNotHurtByAnotherHostsFailures(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		origin := transporttest.NewNet(t, nil)
		dead := transporttest.NewNet(t, nil)
		dead.OnDial(transporttest.Refuse)
		base := origin.Base()
		base.DialContext = choose(base.DialContext, dead.Base().DialContext)
		tr := under(t, transport.Config{Base: base})
		ask(t, origin, tr)
		for range 30 {
			_, _ = fetch(tr.Client(), get(t, "http://other.test"))
		}
		if n := ask(t, origin, tr); n != 1 {
			t.Errorf("connection %d", n)
		}
	})
}

// TestPoolSurvivesTheCancellationOfAFinishedRequest: A's context is cancelled
// while B uses its connection.
func TestPoolSurvivesTheCancellationOfAFinishedRequest(t *testing.T) {
	eachKind(t, func(t *testing.T, opts []transporttest.Option) {
		transporttest.CheckLeaks(t)
		origin := transporttest.NewOrigin(t, opts...)
		origin.Script(transporttest.Step{Body: "x"})
		p := pooling()
		p.Timeout.Read = 10 * time.Second
		tr := under(t, transport.Config{Base: origin.Base(), Default: p})
		rounds := 1000
		if testing.Short() {
			rounds = 100
		}
		cancel := func() {}
		for range rounds {
			ctx, next := context.WithCancel(context.Background())
			go cancel()
			if _, err := fetch(tr.Client(), get(t, origin.URL).WithContext(ctx)); err != nil {
				t.Fatal(err)
			}
			cancel = next
		}
		cancel()
		if opened, _ := origin.Connections(); opened != 1 {
			t.Errorf("%d connections", opened)
		}
	})
}

// TestPoolSurvivesItsIdleTimeout: calls come when the connection is about to be
// closed for being idle.
func TestPoolSurvivesItsIdleTimeout(t *testing.T) {
	t.Parallel()
	for name, opts := range kinds {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				origin := transporttest.NewNet(t, nil, opts...)
				base := origin.Base()
				base.IdleConnTimeout = 50 * time.Millisecond
				tr := under(t, transport.Config{Base: base, Default: pooling()})
				for i := range 200 {
					start := time.Now()
					ask(t, origin, tr)
					mustTake(t, start, 0)
					time.Sleep(time.Duration(45+i%11) * time.Millisecond)
				}
			})
		})
	}
}

// TestPoolIsNotStuckByCancelledCalls: one permit, calls cancelled in any phase, and
// then a plain one.
func TestPoolIsNotStuckByCancelledCalls(t *testing.T) {
	eachKind(t, func(t *testing.T, opts []transporttest.Option) {
		transporttest.CheckLeaks(t)
		origin := transporttest.NewOrigin(t, opts...)
		origin.OnDial(transporttest.DialDelay(2 * time.Millisecond))
		origin.Script(transporttest.Step{Delay: 2 * time.Millisecond, Size: 64 << 10})
		p := policy.Policy{Timeout: policy.Service().Timeout, Bulkhead: policy.Bulkhead{MaxConcurrent: 1, MaxWait: time.Second}}
		tr := under(t, transport.Config{Base: origin.Base(), Default: p})
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i)*200*time.Microsecond)
				defer cancel()
				_, _ = fetch(tr.Client(), get(t, origin.URL).WithContext(ctx))
			})
		}
		wg.Wait()
		origin.Script(transporttest.Step{Body: "x"})
		ask(t, origin, tr)
	})
}

func TestTimeoutEndsADialWithItsAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		origin := transporttest.NewNet(t, nil)
		origin.OnDial(transporttest.BlackHole)
		p := policy.Service()
		p.Breaker = policy.Breaker{}
		tr := under(t, transport.Config{Base: origin.Base(), Default: p})
		var wg sync.WaitGroup
		for range 1000 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
				defer cancel()
				_, err := fetch(tr.Client(), get(t, origin.URL).WithContext(ctx))
				if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, transport.ErrBulkheadFull) {
					t.Error(err)
				}
			})
			time.Sleep(time.Millisecond)
			synctest.Wait()
			if _, now, _ := origin.Dials(); now > p.Bulkhead.MaxConcurrent {
				t.Fatalf("%d dials at once", now)
			}
		}
		wg.Wait()
		synctest.Wait()
		if begun, now, _ := origin.Dials(); now != 0 || begun < 100 {
			t.Errorf("%d dials, %d go on", begun, now)
		}
	})
}

// TestTimeoutEndsAHandshakeWithItsAttempt: net/http goes on with a TLS handshake,
// and with an exchange with a proxy, for up to a minute after its request.
func TestTimeoutEndsAHandshakeWithItsAttempt(t *testing.T) {
	for name, proxy := range map[string]string{"TLS": "", "CONNECT": "http://proxy.test", "TLS to the proxy": "https://proxy.test", "SOCKS": "socks5://proxy.test"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				origin := transporttest.NewNet(t, nil, transporttest.ServeConn(silent))
				base := origin.Base()
				if proxy != "" {
					base.Proxy = func(*http.Request) (*url.URL, error) { return url.Parse(proxy) }
				}
				tr := under(t, transport.Config{Base: base})
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				_, err := fetch(tr.Client(), get(t, "https://a.test").WithContext(ctx))
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
				synctest.Wait()
				if opened, open := origin.Connections(); opened != 1 || open != 0 {
					t.Errorf("%d of %d connections are open", open, opened)
				}
			})
		})
	}
}

// TestTimeoutSparesADialThatAnotherCallMayUse: a call that found a connection
// leaves its own dial to the pool.
func TestTimeoutSparesADialThatAnotherCallMayUse(t *testing.T) {
	for name, opts := range map[string][]transporttest.Option{"plain": nil, "TLS": {transporttest.TLS("http/1.1")}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				origin := transporttest.NewNet(t, nil, opts...)
				origin.Script(transporttest.Step{Delay: 200 * time.Millisecond, Body: "x"})
				p := pooling()
				p.Bulkhead.MaxConcurrent = 10
				tr := under(t, transport.Config{Base: origin.Base(), Default: p})
				var wg sync.WaitGroup
				wg.Go(func() { ask(t, origin, tr) })
				time.Sleep(100 * time.Millisecond)
				origin.OnDial(transporttest.DialDelay(500 * time.Millisecond))
				if n := ask(t, origin, tr); n != 1 { // while its own dial goes on
					t.Errorf("connection %d", n)
				}
				wg.Wait()
				time.Sleep(time.Second)
				if opened, open := origin.Connections(); opened != 2 || open != 2 {
					t.Errorf("%d of %d connections are open", open, opened)
				}
				for range 2 {
					wg.Go(func() { ask(t, origin, tr) })
				}
				wg.Wait()
				if opened, _ := origin.Connections(); opened != 2 {
					t.Errorf("%d connections", opened)
				}
			})
		})
	}
}

// TestTimeoutOfASecondConnectionIsConnects: net/http asks again when the pooled
// connection turns out to be dead.
func TestTimeoutOfASecondConnectionIsConnects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		origin := transporttest.NewNet(t, nil)
		tr := under(t, transport.Config{Base: origin.Base(), Default: policy.Policy{Timeout: policy.Timeout{Connect: time.Second, Attempt: time.Minute}}})
		ask(t, origin, tr)
		origin.OnDial(transporttest.BlackHole)
		origin.Script(transporttest.Step{Delay: 5 * time.Second, Fault: transporttest.Cut})
		start := time.Now()
		_, err := fetch(tr.Client(), get(t, origin.URL))
		mustTimeOut(t, err, transport.ErrConnectTimeout, "connect", "Timeout.Connect", time.Second)
		mustTake(t, start, 6*time.Second)
	})
}

func TestTimeoutOfGarbageAfterTheHandshake(t *testing.T) {
	transporttest.CheckLeaks(t)
	for name, serve := range map[string]func(net.Conn){
		"garbage": func(c net.Conn) { _, _ = io.CopyN(c, rand.Reader, 1<<20); silent(c) },
		"silence": silent,
	} {
		t.Run(name, func(t *testing.T) {
			origin := transporttest.NewOrigin(t, transporttest.TLS("h2"), transporttest.ServeConn(serve))
			p := policy.Policy{Timeout: policy.Timeout{Connect: time.Second, TLSHandshake: time.Second, Read: 100 * time.Millisecond}}
			tr := under(t, transport.Config{Base: origin.Base(), Default: p})
			start := time.Now()
			if _, err := fetch(tr.Client(), get(t, origin.URL)); err == nil {
				t.Error("no error")
			}
			if d := time.Since(start); d > 3*time.Second {
				t.Errorf("took %v", d)
			}
		})
	}
}

func TestTimeoutOfGarbageInPlaceOfTheHandshake(t *testing.T) {
	transporttest.CheckLeaks(t)
	origin := transporttest.NewOrigin(t, transporttest.ServeConn(func(c net.Conn) { _, _ = io.WriteString(c, "220 mail.test ESMTP\r\n"); silent(c) }))
	tr := under(t, transport.Config{Base: origin.Base(), Default: policy.Service()})
	_, err := fetch(tr.Client(), get(t, strings.Replace(origin.URL, "http:", "https:", 1)))
	var header tls.RecordHeaderError
	if !errors.As(err, &header) {
		t.Errorf("got %v", err)
	}
	origin.WaitOpen(0)
}

func TestPoolPingsIdleHTTP2Connections(t *testing.T) {
	restore := transport.Install(transport.Must(transport.New(transport.Config{Logger: quiet()})))
	defer restore()
	c := http.DefaultTransport.(*http.Transport)
	if c.HTTP2 == nil || c.HTTP2.SendPingTimeout != 30*time.Second || c.HTTP2.PingTimeout != 5*time.Second {
		t.Errorf("%+v", c.HTTP2)
	}
}

// TestPoolFindsADeadHTTP2Connection: nobody calls while the connection dies, and
// the pings find it.
func TestPoolFindsADeadHTTP2Connection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		origin := transporttest.NewNet(t, nil, transporttest.TLS("h2"))
		tr := under(t, transport.Config{Base: origin.Base(), Default: pooling()})
		for range 3 {
			if n := ask(t, origin, tr); n != 1 { // pings do a healthy connection no harm
				t.Errorf("connection %d", n)
			}
			time.Sleep(80 * time.Second)
		}
		ask(t, origin, tr)
		origin.Mute()
		time.Sleep(36 * time.Second)
		start := time.Now()
		if n := ask(t, origin, tr); n != 2 {
			t.Errorf("connection %d", n)
		}
		mustTake(t, start, 0)
	})
}

func TestPoolKeepsTheSettingsOfItsBase(t *testing.T) {
	t.Run("HTTP2", func(t *testing.T) {
		base := &http.Transport{HTTP2: &http.HTTP2Config{SendPingTimeout: 7 * time.Second}, MaxIdleConnsPerHost: 3, IdleConnTimeout: time.Hour}
		restore := transport.Install(transport.Must(transport.New(transport.Config{Base: base, Logger: quiet(), Default: policy.Policy{Timeout: policy.Timeout{Read: 1}}})))
		defer restore()
		c := http.DefaultTransport.(*http.Transport)
		if c.HTTP2.SendPingTimeout != 7*time.Second || c.MaxIdleConnsPerHost != 3 || c.IdleConnTimeout != time.Hour {
			t.Errorf("%+v", c)
		}
		if base.HTTP2.PingTimeout != 0 || base.DialContext != nil {
			t.Error("the base was changed")
		}
	})
	for name, set := range map[string]func(*http.Transport, *atomic.Int32){
		"DialContext": func(b *http.Transport, n *atomic.Int32) {
			dial := b.DialContext
			b.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
				n.Add(1)
				return dial(ctx, network, addr)
			}
		},
		"Dial": func(b *http.Transport, n *atomic.Int32) {
			dial := b.DialContext
			b.DialContext = nil
			b.Dial = func(network, addr string) (net.Conn, error) {
				n.Add(1)
				return dial(context.Background(), network, addr)
			}
		},
		"DialTLSContext": func(b *http.Transport, n *atomic.Int32) {
			dial, config := b.DialContext, b.TLSClientConfig.Clone()
			config.ServerName, config.NextProtos = "origin.test", []string{"h2"}
			b.DialTLSContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
				n.Add(1)
				c, err := dial(ctx, network, addr)
				if err != nil {
					return nil, err
				}
				return tls.Client(c, config), nil
			}
		},
		"DialTLS": func(b *http.Transport, n *atomic.Int32) {
			dial, config := b.DialContext, b.TLSClientConfig.Clone()
			config.ServerName = "origin.test"
			b.DialTLS = func(network, addr string) (net.Conn, error) {
				n.Add(1)
				c, err := dial(context.Background(), network, addr)
				if err != nil {
					return nil, err
				}
				return tls.Client(c, config), nil
			}
		},
		"TLSClientConfig": func(b *http.Transport, n *atomic.Int32) {
			b.TLSClientConfig.VerifyConnection = func(tls.ConnectionState) error { n.Add(1); return nil }
		},
		"Proxy": func(b *http.Transport, n *atomic.Int32) {
			b.Proxy = func(*http.Request) (*url.URL, error) { n.Add(1); return nil, nil }
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				origin := transporttest.NewNet(t, nil, transporttest.TLS())
				base := origin.Base()
				n := &atomic.Int32{}
				set(base, n)
				tr := under(t, transport.Config{Base: base, Default: policy.Service()})
				ask(t, origin, tr)
				if n.Load() != 1 {
					t.Errorf("called %d times", n.Load())
				}
			})
		})
	}
}

// TestTimeoutEndsACustomTLSDial: a dialer of the caller's own is bounded too.
func TestTimeoutEndsACustomTLSDial(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var going atomic.Int32
		base := &http.Transport{DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			going.Add(1)
			defer going.Add(-1)
			<-ctx.Done()
			return nil, ctx.Err()
		}}
		tr := under(t, transport.Config{Base: base, Default: pooling()})
		start := time.Now()
		_, err := fetch(tr.Client(), get(t, "https://a.test"))
		mustTimeOut(t, err, transport.ErrConnectTimeout, "connect", "Timeout.Connect", time.Second)
		mustTake(t, start, time.Second)
		synctest.Wait()
		if going.Load() != 0 {
			t.Error("the dial goes on")
		}
	})
}

func TestPoolSpeaksHTTP2WhereItsBaseWould(t *testing.T) {
	transporttest.CheckLeaks(t)
	origin := transporttest.NewOrigin(t, transporttest.TLS())
	used := &http.Transport{TLSClientConfig: origin.TLSClientConfig(), ForceAttemptHTTP2: true}
	if _, err := fetch(&http.Client{Transport: used}, get(t, origin.URL)); err != nil {
		t.Fatal(err)
	}
	used.CloseIdleConnections()
	off := &http.Protocols{}
	off.SetHTTP1(true)
	for name, c := range map[string]struct {
		base *http.Transport
		want int
	}{
		"forced":             {&http.Transport{TLSClientConfig: origin.TLSClientConfig(), ForceAttemptHTTP2: true}, 2},
		"used before":        {used, 2},
		"a TLSClientConfig":  {&http.Transport{TLSClientConfig: origin.TLSClientConfig()}, 1},
		"switched off":       {&http.Transport{TLSClientConfig: origin.TLSClientConfig(), TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{}, ForceAttemptHTTP2: true}, 1},
		"HTTP/1 by protocol": {&http.Transport{TLSClientConfig: origin.TLSClientConfig(), Protocols: off, ForceAttemptHTTP2: true}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			tr := under(t, transport.Config{Base: c.base})
			resp, err := tr.Client().Get(origin.URL)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if resp.ProtoMajor != c.want {
				t.Errorf("spoke %s", resp.Proto)
			}
		})
	}
}

// TestPoolOfTheZeroConfigSpeaksHTTP2: nothing of the base's own is set, as on
// http.DefaultTransport.
func TestPoolOfTheZeroConfigSpeaksHTTP2(t *testing.T) {
	for name, base := range map[string]http.RoundTripper{"none": nil, "zero": &http.Transport{}, "default": http.DefaultTransport.(*http.Transport).Clone()} {
		t.Run(name, func(t *testing.T) {
			restore := transport.Install(transport.Must(transport.New(transport.Config{Base: base, Logger: quiet()})))
			defer restore()
			c := http.DefaultTransport.(*http.Transport)
			if !c.ForceAttemptHTTP2 {
				t.Error("HTTP/2 is lost")
			}
			if name != "zero" && c.Proxy == nil {
				t.Error("the proxy is lost")
			}
		})
	}
}

func TestPoolSpeaksUnencryptedHTTP2(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		origin := transporttest.NewNet(t, nil, transporttest.H2C())
		tr := under(t, transport.Config{Base: origin.Base()})
		ask(t, origin, tr)
		if p := origin.Hits()[0].Proto; p != "HTTP/2.0" {
			t.Error(p)
		}
	})
}

func TestPoolGoesThroughAProxy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		origin := transporttest.NewNet(t, nil, transporttest.TLS())
		dial := origin.Base().DialContext
		proxy := transporttest.NewNet(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			stacktest.Connect(t, w, func() (net.Conn, error) { return dial(r.Context(), "tcp", r.Host) })
		}))
		base := proxy.Base()
		base.TLSClientConfig = origin.TLSClientConfig()
		base.Proxy = func(*http.Request) (*url.URL, error) { return url.Parse("http://proxy.test") }
		tr := under(t, transport.Config{Base: base, Default: policy.Service()})
		for range 3 {
			resp, err := tr.Client().Get(origin.URL)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if resp.Proto != "HTTP/2.0" {
				t.Error(resp.Proto)
			}
		}
		if hits := proxy.Hits(); len(hits) != 1 || hits[0].Method != http.MethodConnect {
			t.Errorf("the proxy saw %d requests", len(hits))
		}
		_ = tr.Close()
		time.Sleep(time.Second)
	})
}

// TestPoolLeavesNothingAfterAThousandCalls: real sockets, every way to end.
func TestPoolLeavesNothingAfterAThousandCalls(t *testing.T) {
	eachKind(t, func(t *testing.T, opts []transporttest.Option) {
		transporttest.CheckLeaks(t)
		origin := transporttest.NewOrigin(t, opts...)
		n := atomic.Int32{}
		origin.ScriptFunc(func(transporttest.Hit) transporttest.Step {
			switch n.Add(1) % 300 {
			case 1:
				return transporttest.Step{Fault: transporttest.Hang}
			case 2:
				return transporttest.Step{Size: 100, Fault: transporttest.Hang, At: 50}
			case 3:
				return transporttest.Step{Size: 100, Fault: transporttest.Reset, At: 50}
			}
			return transporttest.Step{Size: 100}
		})
		p := policy.Service()
		p.Breaker = policy.Breaker{}
		p.Timeout.Read = 300 * time.Millisecond // ample for the answers that come
		p.Retry.Base = time.Millisecond
		tr := under(t, transport.Config{Base: origin.Base(), Default: p})
		var wg sync.WaitGroup
		var good atomic.Int32
		for range 4 {
			wg.Go(func() {
				for range 250 {
					if _, err := fetch(tr.Client(), get(t, origin.URL)); err == nil {
						good.Add(1)
					}
				}
			})
		}
		wg.Wait()
		if g := good.Load(); g < 900 || g == 1000 { // a body that breaks is one in a hundred
			t.Errorf("%d calls of 1000 succeeded", g)
		}
		transporttest.CheckPermits(t, tr)
		_ = tr.Close()
		origin.WaitOpen(0)
	})
}

// A busy host alone must not dial anew for each call, because it has more of them
// than connections may be idle.
func TestPoolOfOneHostBeyondTheBoundOfAllKeepsThatMany(t *testing.T) {
	const idle, calls = 8, 12
	transporttest.CheckLeaks(t)
	origin := transporttest.NewOrigin(t)
	p := pooling()
	p.Timeout, p.Bulkhead.MaxConcurrent = policy.Timeout{}, 100
	tr := under(t, transport.Config{Base: origin.Base(), Default: p, MaxIdleConns: idle})
	for burst := range 4 {
		together := make(chan struct{})
		var here atomic.Int32
		origin.Script(transporttest.Step{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			if here.Add(1) == calls {
				close(together)
			}
			<-together
		})})
		before, _ := origin.Connections()
		var wg sync.WaitGroup
		for range calls {
			wg.Go(func() {
				if _, err := fetch(tr.Client(), get(t, origin.URL)); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if opened, _ := origin.Connections(); burst > 0 && opened-before != calls-idle {
			t.Errorf("burst %d opened %d connections, want %d", burst, opened-before, calls-idle)
		}
		origin.WaitOpen(idle)
	}
}
