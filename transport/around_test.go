package transport_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/transporttest"
)

// around is a base that counts what goes through it.
type around struct {
	http.RoundTripper
	began, ended *int
}

func (a around) Unwrap() http.RoundTripper { return a.RoundTripper }

func (a around) Around(next http.RoundTripper) http.RoundTripper {
	return around{next, a.began, a.ended}
}

func (a around) RoundTrip(req *http.Request) (*http.Response, error) {
	*a.began++
	defer func() { *a.ended++ }()
	return a.RoundTripper.RoundTrip(req)
}

// A middleware below the stack used to cost it the pools, the limits on
// connecting, and the knowledge that a POST never left.
func TestABaseAroundATransportLosesNoLimit(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		hook  transporttest.DialHook
		want  error
		after time.Duration
		dials int
	}{
		{"connect", transporttest.BlackHole, transport.ErrConnectTimeout, 2 * time.Second, 2},
		{"refused", transporttest.Refuse, syscall.ECONNREFUSED, 0, 2},
		{"answered", nil, nil, 0, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := transporttest.NewNet(t, nil)
				o.OnDial(test.hook)
				var outer, inner, ended int
				base := around{around{o.Base(), &inner, &ended}, &outer, &ended}
				tr := transport.Must(transport.New(transport.Config{Base: base, Default: policy.Policy{
					Timeout: policy.Timeout{Connect: time.Second, Read: time.Minute}, Retry: policy.Retry{MaxAttempts: 2},
				}, Logger: slog.New(slog.DiscardHandler)}))
				start := time.Now()
				resp, err := tr.Client().Post("http://a.test/", "text/plain", strings.NewReader("POST"))
				if err == nil {
					resp.Body.Close()
				}
				begun, _, _ := o.Dials()
				if !errors.Is(err, test.want) || time.Since(start) != test.after || begun != test.dials {
					t.Errorf("%v after %v and %d dials", err, time.Since(start), begun)
				}
				if inner != test.dials || outer != test.dials || ended != 2*test.dials {
					t.Errorf("%d outside, %d inside, %d ended; want %d attempts through both", outer, inner, ended, test.dials)
				}
				tr.CloseIdleConnections()
			})
		})
	}
}

func TestAPoolOfABaseAroundATransportIsRetiredAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := transporttest.NewNet(t, nil)
		var n, ended int
		tr := transport.Must(transport.New(transport.Config{Base: around{o.Base(), &n, &ended}, Default: policy.Policy{
			Breaker: policy.Breaker{ConsecutiveFailures: 1, OpenFor: time.Second, HalfOpenProbes: 1},
		}, Logger: slog.New(slog.DiscardHandler)}))
		call := func(host string) {
			if resp, err := tr.Client().Get("http://" + host); err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
			synctest.Wait()
		}
		call("a.test")
		call("b.test")
		o.WaitOpen(2)
		o.Script(transporttest.Step{Status: 500})
		call("a.test")
		o.WaitOpen(1)
		tr.CloseIdleConnections()
		o.WaitOpen(0)
	})
}

func TestInjectedFaultsAreWhatAPeerWouldDo(t *testing.T) {
	t.Parallel()
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	for _, test := range []struct {
		name     string
		step     transporttest.Step
		want     error
		phase    string
		after    time.Duration
		attempts int64
	}{
		{"hang", transporttest.Step{Fault: transporttest.Hang}, transport.ErrReadTimeout, "response_header", 3 * time.Second, 1},
		{"late", transporttest.Step{Delay: time.Minute}, transport.ErrReadTimeout, "response_header", 3 * time.Second, 1},
		{"late 503", transporttest.Step{Status: 503, Delay: time.Minute}, transport.ErrReadTimeout, "response_header", 3 * time.Second, 1},
		{"hung body", transporttest.Step{Fault: transporttest.Hang, At: 2}, transport.ErrReadTimeout, "body", 3 * time.Second, 1},
		{"dripping body", transporttest.Step{Chunk: 1, Pause: 2 * time.Second}, transport.ErrAttemptTimeout, "attempt", 5 * time.Second, 1},
		{"reset", transporttest.Step{Fault: transporttest.Reset}, syscall.ECONNRESET, "", 0, 1},
		{"cut body", transporttest.Step{Fault: transporttest.Cut, At: 2}, io.ErrUnexpectedEOF, "", 0, 1},
		{"refused", transporttest.Step{Err: refused}, syscall.ECONNREFUSED, "", 0, 2},
		{"no connection", transporttest.Step{Err: refused, Delay: time.Minute}, transport.ErrConnectTimeout, "connect", 2 * time.Second, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := transporttest.NewNet(t, nil)
				o.Script(transporttest.Step{Body: "abcd"})
				faults := &transporttest.Faults{Base: o.Base()}
				if err := faults.Set("a.test", transporttest.Injection{Share: 1, Step: test.step}); err != nil {
					t.Fatal(err)
				}
				tr := transport.Must(transport.New(transport.Config{Base: faults, Default: policy.Policy{
					Timeout: policy.Timeout{Connect: time.Second, Read: 3 * time.Second, Attempt: 5 * time.Second},
					Retry:   policy.Retry{MaxAttempts: 2}, Breaker: policy.Breaker{ConsecutiveFailures: 100},
				}, Logger: slog.New(slog.DiscardHandler)}))
				start := time.Now()
				resp, err := tr.Client().Post("http://a.test/", "text/plain", strings.NewReader("POST"))
				if err == nil {
					_, err = io.ReadAll(resp.Body)
					resp.Body.Close()
				}
				var why *transport.Error
				phase := ""
				if errors.As(err, &why) {
					phase = why.Phase
				}
				if !errors.Is(err, test.want) || phase != test.phase || time.Since(start) != test.after {
					t.Errorf("%v in phase %q after %v", err, phase, time.Since(start))
				}
				s := tr.Snapshot()[0]
				if s.InFlight != 0 || s.Counts.Attempts != test.attempts || s.Counts.Failure != test.attempts {
					t.Errorf("%+v", s)
				}
				tr.CloseIdleConnections()
			})
		})
	}
}

func TestABaseAroundAForeignOneIsForeign(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		faults := &transporttest.Faults{Base: transporttest.NewBase()}
		if err := faults.Set("a.test", transporttest.Injection{Share: 1, Step: transporttest.Step{Fault: transporttest.Hang}}); err != nil {
			t.Fatal(err)
		}
		tr := transport.Must(transport.New(transport.Config{Base: faults, Default: policy.Policy{Timeout: policy.Timeout{Connect: time.Second, Read: 3 * time.Second}}}))
		start := time.Now()
		_, err := tr.Client().Get("http://a.test/")
		if !errors.Is(err, transport.ErrReadTimeout) || !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 3*time.Second {
			t.Error(err, time.Since(start))
		}
	})
}

func TestNewRefusesABaseThatCannotBeUnwrapped(t *testing.T) {
	self := &middleware{}
	self.base = self
	for want, base := range map[string]http.RoundTripper{
		"Base: a nil *http.Transport":                              &middleware{base: (*http.Transport)(nil)},
		"Base: a *transport_test.middleware that is around itself": self,
		"Base: Unwrap of a *transporttest.Faults panicked":         (*transporttest.Faults)(nil),
		"Base: Unwrap of a *transport_test.middleware panicked":    &transporttest.Faults{Base: (*middleware)(nil)},
	} {
		if _, err := transport.New(transport.Config{Base: base}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestANilTransportInFaultsIsOneOfTheirOwn(t *testing.T) {
	origin := transporttest.NewOrigin(t)
	var none *http.Transport
	tr := under(t, transport.Config{Base: &transporttest.Faults{Base: none}})
	if _, err := fetch(tr.Client(), get(t, origin.URL)); err != nil {
		t.Error(err)
	}
}

// Of what it is around: nothing, of what it puts around a pool: nothing more.
func TestNilFromAMiddlewareMeansNothingAround(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := transporttest.NewNet(t, nil)
		for name, base := range map[string]http.RoundTripper{
			"Around": &middleware{o.Base(), func(http.RoundTripper) http.RoundTripper { return nil }},
			"Unwrap": &middleware{nil, func(http.RoundTripper) http.RoundTripper { return o.Base() }},
		} {
			tr := under(t, transport.Config{Base: base})
			if _, err := fetch(tr.Client(), get(t, o.URL)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		time.Sleep(time.Second)
	})
}
