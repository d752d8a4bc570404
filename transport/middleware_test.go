package transport_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watertight-go/watertight/policy"
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
	t.Parallel()
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
	t.Parallel()
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

// Without the hooks that tell of a connection, they used to be taken for requests
// that net/http will not send: neutral to the breaker, and sent again if a POST.
func TestErrorsOfAMiddlewareCountAsThoseOfAnyBase(t *testing.T) {
	t.Parallel()
	fails := func(err error) roundTrip {
		return func(req *http.Request) (*http.Response, error) {
			_ = req.Body.Close()
			return nil, err
		}
	}
	hangs := roundTrip(func(req *http.Request) (*http.Response, error) {
		_ = req.Body.Close()
		<-req.Context().Done()
		return nil, context.Cause(req.Context())
	})
	for _, test := range []struct {
		name     string
		rt       http.RoundTripper // nil: the pool itself
		method   string
		attempts int64
		failures int64
	}{
		{"error", fails(errors.New("the token service is down")), "GET", 2, 2},
		{"error of a POST", fails(errors.New("the token service is down")), "POST", 1, 1},
		{"dial error of a POST", fails(&net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}), "POST", 2, 2},
		{"hang", hangs, "GET", 2, 2},
		{"refused by net/http", nil, "BAD METHOD", 1, 0},
	} {
		for _, around := range []bool{true, false} {
			if test.rt == nil && !around {
				continue
			}
			t.Run(fmt.Sprintf("%s, around %v", test.name, around), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					base := test.rt
					if around {
						base = &middleware{transporttest.NewNet(t, nil).Base(), func(next http.RoundTripper) http.RoundTripper {
							if test.rt != nil {
								return test.rt
							}
							return next
						}}
					}
					tr := under(t, transport.Config{Base: base, Default: policy.Policy{
						Timeout: policy.Timeout{Connect: time.Second, Read: time.Second},
						Retry:   policy.Retry{MaxAttempts: 2, ReplayBody: 1 << 10}, Breaker: policy.Breaker{ConsecutiveFailures: 100},
					}})
					req := get(t, "http://a.test/")
					req.Method, req.Body, req.ContentLength = test.method, io.NopCloser(strings.NewReader("x")), 1
					_, err := tr.RoundTrip(req)
					if err == nil || around && test.name == "hang" && !errors.Is(err, transport.ErrConnectTimeout) {
						t.Error(err)
					}
					if c := tr.Snapshot()[0].Counts; c.Attempts != test.attempts || c.Failure != test.failures {
						t.Errorf("%d attempts, %d failures; want %d, %d", c.Attempts, c.Failure, test.attempts, test.failures)
					}
				})
			})
		}
	}
}

// One that sends twice, as for a token that has expired, must not have the stack take
// a failure to connect the second time for a request that was never sent.
func TestARequestThatAMiddlewareHasSentIsNotSentAgain(t *testing.T) {
	eachKind(t, func(t *testing.T, opts []transporttest.Option) {
		synctest.Test(t, func(t *testing.T) {
			o := transporttest.NewNet(t, nil, opts...)
			o.Script(transporttest.Step{Status: http.StatusUnauthorized, Unread: true})
			base := o.Base()
			dial := base.DialContext
			var down atomic.Bool
			base.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
				if down.Load() {
					return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
				}
				return dial(ctx, network, addr)
			}
			tr := under(t, transport.Config{Base: &middleware{base, func(next http.RoundTripper) http.RoundTripper {
				return roundTrip(func(req *http.Request) (*http.Response, error) {
					resp, err := next.RoundTrip(req)
					if err != nil || resp.StatusCode != http.StatusUnauthorized {
						return resp, err
					}
					_ = resp.Body.Close()
					down.Store(true)
					time.Sleep(time.Second) // until it is idle
					if c, ok := next.(interface{ CloseIdleConnections() }); ok {
						c.CloseIdleConnections()
					}
					time.Sleep(time.Second) // until the connection is gone
					req.Body, err = req.GetBody()
					if err != nil {
						return nil, err
					}
					return next.RoundTrip(req)
				})
			}}, Default: policy.Policy{Retry: policy.Retry{MaxAttempts: 3}, Breaker: policy.Breaker{ConsecutiveFailures: 100}}})
			req := get(t, o.URL)
			req.Method, req.ContentLength = http.MethodPost, 1
			req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("x")), nil }
			req.Body, _ = req.GetBody()
			_, err := tr.RoundTrip(req)
			if !errors.Is(err, syscall.ECONNREFUSED) {
				t.Error(err)
			}
			if c := tr.Snapshot()[0].Counts; c.Attempts != 1 || len(o.Hits()) != 1 {
				t.Errorf("%d attempts, %d requests arrived; want one", c.Attempts, len(o.Hits()))
			}
		})
	})
}

func TestInstallMakesNoPool(t *testing.T) {
	var pools atomic.Int64
	tr := under(t, transport.Config{Base: &middleware{&http.Transport{}, func(next http.RoundTripper) http.RoundTripper {
		pools.Add(1)
		return next
	}}})
	transport.Install(tr)()
	if n := pools.Load(); n != 0 {
		t.Errorf("Around was called %d times, outside any call", n)
	}
}
