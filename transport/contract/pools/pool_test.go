package pools_test

import (
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/transporttest"
)

// slowToClose is a request body whose Close takes a while; over HTTP/2 its stream
// counts as open as long.
type slowToClose struct {
	io.Reader
	takes time.Duration
}

func (s slowToClose) Close() error { time.Sleep(s.takes); return nil }

// A retired pool was closed twice within 50 ms, and a connection that was not idle by
// then stayed for the 90 s of its idle timeout.
func TestConnectionsOfARetiredPoolAreClosedHoweverLateTheyAreIdle(t *testing.T) {
	for _, end := range []string{"trip", "Close"} {
		t.Run(end, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := transporttest.NewNet(t, nil, transporttest.TLS("h2"))
				o.Script(transporttest.Step{Status: 500, Unread: true})
				p := policy.Policy{}
				if end == "trip" {
					p.Breaker = policy.Breaker{ConsecutiveFailures: 1}
				}
				tr := transport.Must(transport.New(transport.Config{Base: o.Base(), Hosts: map[string]policy.Policy{"a.test": p}, Logger: slog.New(slog.DiscardHandler)}))
				req, _ := http.NewRequest("PUT", "https://a.test/", slowToClose{strings.NewReader("x"), time.Second})
				resp, err := tr.RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				if end == "Close" {
					tr.Close()
				}
				time.Sleep(500 * time.Millisecond)
				runtime.GC() // an http.Transport with a connection is not garbage
				synctest.Wait()
				o.WaitOpen(1)
				time.Sleep(2 * time.Second)
				synctest.Wait()
				if _, open := o.Connections(); open != 0 {
					t.Errorf("%d connections open", open)
				}
				tr.CloseIdleConnections()
			})
		})
	}
}

// It used to be looked at less and less often from the trip on, here after 51 s.
func TestConnectionsOfARetiredPoolAreClosedSoonAfterItsLastStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := transporttest.NewNet(t, nil, transporttest.TLS("h2"))
		tr := under(t, transport.Config{Base: o.Base(), Default: policy.Policy{Breaker: policy.Breaker{ConsecutiveFailures: 1, OpenFor: time.Hour}}})
		o.Script(
			transporttest.Step{Header: http.Header{"Content-Type": {"text/event-stream"}}, Size: 4, Chunk: 1, Pause: 9 * time.Second, Unread: true},
			transporttest.Step{Status: 500},
		)
		start := time.Now()
		upload, more := io.Pipe() // it ends after the stream
		req, _ := http.NewRequest("PUT", o.URL, slowToClose{upload, time.Second})
		stream, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fetch(tr.Client(), get(t, o.URL)); err != nil {
			t.Fatal(err)
		}
		if s := tr.Snapshot()[0].State; s != transport.Open {
			t.Fatal(s)
		}
		_, _ = io.Copy(io.Discard, stream.Body)
		_ = stream.Body.Close()
		if d := time.Since(start); d < 26*time.Second || d > 40*time.Second { // between two of the later looks
			t.Errorf("the stream took %v", d)
		}
		time.Sleep(500 * time.Millisecond)
		o.WaitOpen(1)
		_ = more.Close()
		time.Sleep(2 * time.Second)
		if _, open := o.Connections(); open != 0 {
			t.Errorf("%d connections are open", open)
		}
	})
}

// Timers used to keep a Transport for 51 s after each trip, and after Close.
func TestNothingKeepsATransportThatIsClosed(t *testing.T) {
	o := transporttest.NewOrigin(t) // over HTTP/2, net/http's own timer of pings is left
	made := func() weak.Pointer[transport.Transport] {
		base := o.Base()
		base.IdleConnTimeout = time.Second
		tr := transport.Must(transport.New(transport.Config{Base: base, Logger: quiet()}))
		if _, err := fetch(tr.Client(), get(t, o.URL)); err != nil {
			t.Fatal(err)
		}
		_ = tr.Close()
		return weak.Make(tr)
	}()
	o.WaitOpen(0)
	// The runtime may keep a timer that was stopped until it would have fired: 10 s here,
	// or IdleConnTimeout.
	for end := time.Now().Add(20 * time.Second); made.Value() != nil; runtime.GC() {
		if time.Now().After(end) {
			t.Fatal("it is still there")
		}
		time.Sleep(10 * time.Millisecond)
	}
}
