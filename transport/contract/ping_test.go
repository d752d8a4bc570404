package contract_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/transporttest"
)

// pingCounter is an HTTP/2 server that counts pings as gRPC servers do, and ends
// the connection of a client that sends too many: more than two that came within
// the interval, without an answer in between.
type pingCounter struct {
	interval time.Duration

	mu     sync.Mutex // guards what follows
	pings  []time.Time
	conns  int
	ended  int // for too many pings
	resets int
}

func (p *pingCounter) serve(c net.Conn) {
	p.mu.Lock()
	p.conns++
	p.mu.Unlock()
	_ = p.frames(c)
}

func (p *pingCounter) frames(c net.Conn) error {
	if _, err := io.ReadFull(c, make([]byte, len(http2.ClientPreface))); err != nil {
		return err
	}
	f := http2.NewFramer(c, c)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if err := f.WriteSettings(); err != nil {
		return err
	}
	var last time.Time
	strikes := 0
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return err
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				err = f.WriteSettingsAck()
			}
		case *http2.PingFrame:
			if frame.IsAck() {
				break
			}
			now := time.Now()
			p.mu.Lock()
			p.pings = append(p.pings, now)
			p.mu.Unlock()
			if !last.IsZero() && now.Sub(last) < p.interval {
				strikes++
			}
			last = now
			if strikes > 2 {
				p.mu.Lock()
				p.ended++
				p.mu.Unlock()
				_ = f.WriteGoAway(frame.StreamID, http2.ErrCodeEnhanceYourCalm, []byte("too_many_pings"))
				return errors.New("too many pings")
			}
			err = f.WritePing(true, frame.Data)
		case *http2.RSTStreamFrame:
			p.mu.Lock()
			p.resets++
			p.mu.Unlock()
		case *http2.MetaHeadersFrame:
			if frame.PseudoValue("path") == "/hang" {
				break
			}
			strikes, last = 0, time.Time{}
			err = f.WriteHeaders(http2.HeadersFrameParam{StreamID: frame.StreamID, EndHeaders: true, EndStream: true,
				BlockFragment: []byte{0x88}}) // :status 200
		}
		if err != nil {
			return err
		}
	}
}

// seen returns when pings came since, and how many connections there were.
func (p *pingCounter) seen(since time.Time) (pings []time.Time, conns, ended, resets int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, at := range p.pings {
		if at.After(since) {
			pings = append(pings, at)
		}
	}
	return pings, p.conns, p.ended, p.resets
}

// A server that ends the connections of clients who ping it too often is not
// pinged too often: neither while nothing happens, nor by calls that their callers
// end.
func TestPingsAreFewEnoughForAStrictServer(t *testing.T) {
	for name, p := range map[string]policy.Policy{"default": policy.Default(), "service": policy.Service()} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &pingCounter{interval: 5 * time.Minute}
				o := transporttest.NewNet(t, nil, transporttest.TLS("h2"), transporttest.ServeConn(server.serve))
				tr := stackNew(t, transport.Config{Base: o.Base(), Default: p})
				_ = stackGet(t, tr, o.URL).Body.Close()
				idle := time.Now()
				time.Sleep(61 * time.Second)
				pings, _, _, _ := server.seen(idle)
				if len(pings) != 2 {
					t.Errorf("%d pings in 61 s", len(pings))
				}
				for _, at := range pings {
					if d := at.Sub(idle); d < 29*time.Second {
						t.Errorf("a ping %v after the last", d)
					}
					idle = at
				}
				busy := time.Now()
				for range 100 {
					ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
					if _, err := tr.RoundTrip(stackRequest(t, ctx, http.MethodGet, o.URL+"/hang")); !errors.Is(err, context.DeadlineExceeded) {
						t.Fatal(err)
					}
					cancel()
				}
				_ = stackGet(t, tr, o.URL).Body.Close()
				synctest.Wait() // for the last RST_STREAM
				pings, conns, ended, resets := server.seen(busy)
				if conns != 1 || ended != 0 || resets != 100 || len(pings) > 2 {
					t.Errorf("%d connections, %d ended for too many pings, %d of them for %d calls", conns, ended, len(pings), resets)
				}
				stackInFlight(t, tr, 0)
			})
		})
	}
}

// The interval is the base's, where it has one: for servers stricter than most.
func TestPingsComeAtTheIntervalOfTheBase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &pingCounter{interval: 5 * time.Minute}
		o := transporttest.NewNet(t, nil, transporttest.TLS("h2"), transporttest.ServeConn(server.serve))
		base := o.Base()
		base.HTTP2 = &http.HTTP2Config{SendPingTimeout: 6 * time.Minute}
		base.IdleConnTimeout = 24 * time.Hour
		tr := stackNew(t, transport.Config{Base: base})
		_ = stackGet(t, tr, o.URL).Body.Close()
		idle := time.Now()
		time.Sleep(time.Hour)
		pings, conns, ended, _ := server.seen(idle)
		if len(pings) != 9 && len(pings) != 10 || conns != 1 || ended != 0 {
			t.Errorf("%d pings, %d connections, %d ended", len(pings), conns, ended)
		}
	})
}
