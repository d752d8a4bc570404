package contract_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/transporttest"
)

// churnUse is what the process holds.
type churnUse struct {
	goroutines, files int
	heap              uint64
}

func churnNow() churnUse {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	files, _ := os.ReadDir("/proc/self/fd") // where there is such a thing
	return churnUse{runtime.NumGoroutine(), len(files), m.HeapAlloc}
}

// churnFlat waits until the process holds no more than it did.
func churnFlat(t *testing.T, before churnUse, goroutines, files int, heap uint64) {
	t.Helper()
	var now churnUse
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		now = churnNow()
		if now.goroutines <= before.goroutines+goroutines && now.files <= before.files+files && now.heap <= before.heap+heap {
			return
		}
	}
	t.Errorf("before %+v, after %+v", before, now)
}

// A stack for each call is no way to use it, and leaves nothing behind once closed.
func TestChurnOfStacksThatAreClosedLeavesNothing(t *testing.T) {
	for name, stacks := range map[string]int{"HTTP/1.1": 1000, "HTTP/2": 100} {
		t.Run(name, func(t *testing.T) {
			transporttest.CheckLeaks(t)
			o := transporttest.NewOrigin(t, stackProtocols[name]...)
			use := func(n int) {
				for range n {
					base := o.Base()
					// net/http keeps a closed connection until its next ping was due.
					base.HTTP2 = &http.HTTP2Config{SendPingTimeout: time.Second}
					tr := transport.Must(transport.New(transport.Config{Base: base, Logger: quiet()}))
					resp := stackGet(t, tr, o.URL)
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
					_ = tr.Close()
				}
			}
			use(20)
			o.WaitOpen(0)
			before := churnNow()
			use(stacks)
			o.WaitOpen(0)
			churnFlat(t, before, 2, 2, uint64(stacks)*10<<10) // the origin keeps its hits
		})
	}
}

// What is kept of a host is no goroutine, and connections only up to the bound.
func TestChurnOfHostsStartsNoGoroutines(t *testing.T) {
	hosts := 600
	if testing.Short() {
		hosts = 300
	}
	o := transporttest.NewOrigin(t)
	tr := stackNew(t, transport.Config{Base: o.Base(), MaxIdleConns: 10})
	visit := func(from, to int) {
		for i := from; i < to; i++ {
			_, _ = io.Copy(io.Discard, stackGet(t, tr, fmt.Sprintf("http://h%d.test/", i)).Body)
		}
	}
	visit(0, 100)
	before := churnNow()
	visit(100, hosts)
	churnFlat(t, before, 10, 10, uint64(hosts)*10<<10)
	if n := len(tr.Snapshot()); n != hosts {
		t.Errorf("%d states", n)
	}
}

// http.Client.CloseIdleConnections is seen by the peer, soon.
func TestChurnOfIdleConnectionsIsSeenByThePeer(t *testing.T) {
	for name, opts := range map[string][]transporttest.Option{
		"HTTP/1.1": nil, "HTTP/2": {transporttest.TLS("h2")}, "unencrypted HTTP/2": {transporttest.H2C()},
	} {
		for _, how := range []string{"client", "stack", "close", "installed"} {
			t.Run(name+", "+how, func(t *testing.T) {
				transporttest.CheckLeaks(t)
				ended := make(chan error, 1)
				o := transporttest.NewOrigin(t, append(opts, transporttest.ServeConn(func(c net.Conn) {
					if name == "HTTP/1.1" {
						ended <- churnAnswer(c)
						return
					}
					ended <- (&pingCounter{interval: time.Minute}).frames(c)
				}))...)
				tr := stackNew(t, transport.Config{Base: o.Base()})
				var client http.Client
				switch how {
				case "installed":
					defer transport.Install(tr)()
				default:
					client.Transport = tr
				}
				resp, err := client.Get(o.URL)
				if err != nil {
					t.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
				start := time.Now()
				switch how {
				case "client", "installed":
					client.CloseIdleConnections()
				case "stack":
					tr.CloseIdleConnections()
				case "close":
					_ = tr.Close()
				}
				select {
				case err := <-ended:
					if err != io.EOF {
						t.Errorf("the peer saw %v", err)
					}
					if took := time.Since(start); took > time.Second {
						t.Errorf("after %v", took)
					}
				case <-time.After(10 * time.Second):
					t.Fatal("the peer saw nothing")
				}
			})
		}
	}
}

// churnAnswer answers requests until the connection ends, and says how it did.
func churnAnswer(c net.Conn) error {
	r := bufio.NewReader(c)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return err
		}
		if strings.TrimSpace(line) == "" {
			if _, err := io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"); err != nil {
				return err
			}
		}
	}
}
