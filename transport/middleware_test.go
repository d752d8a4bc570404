package transport_test

import (
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/transporttest"
)

// middleware is around base, and puts what wrap says around each pool.
type middleware struct {
	base http.RoundTripper
	wrap func(next http.RoundTripper) http.RoundTripper
}

func (m *middleware) RoundTrip(req *http.Request) (*http.Response, error) {
	return m.wrap(m.base).RoundTrip(req)
}

func (m *middleware) Unwrap() http.RoundTripper { return m.base }

func (m *middleware) Around(next http.RoundTripper) http.RoundTripper { return m.wrap(next) }

// roundTrip is a RoundTripper of a function.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// It used to run under a lock, which a panic left held.
func TestAnAroundMayPanicOrUseTheStack(t *testing.T) {
	for _, test := range []string{"panics", "uses the stack"} {
		t.Run(test, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := transporttest.NewNet(t, nil)
				var tr *transport.Transport
				var first atomic.Bool
				call := func() (err error) {
					defer func() {
						if recover() != nil {
							err = io.EOF
						}
					}()
					_, err = fetch(tr.Client(), get(t, o.URL))
					return err
				}
				tr = under(t, transport.Config{Base: &middleware{o.Base(), func(next http.RoundTripper) http.RoundTripper {
					switch {
					case first.Swap(true):
					case test == "panics":
						panic("Around")
					default:
						if err := call(); err != nil {
							t.Error(err)
						}
					}
					return next
				}}})
				if err := call(); (err != nil) != (test == "panics") {
					t.Error(err)
				}
				if err := call(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// Each builds one meanwhile; all but one are thrown away unused.
func TestACrowdOfFirstCallsSharesOnePool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := transporttest.NewNet(t, nil)
		tr := under(t, transport.Config{Base: &middleware{o.Base(), func(next http.RoundTripper) http.RoundTripper {
			time.Sleep(time.Second)
			return next
		}}})
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if _, err := fetch(tr.Client(), get(t, o.URL)); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		tr.CloseIdleConnections()
		time.Sleep(time.Second)
		if _, open := o.Connections(); open != 0 {
			t.Errorf("%d connections are open in pools that are lost", open)
		}
	})
}
