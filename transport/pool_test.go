package transport_test

import (
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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
