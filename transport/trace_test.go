package transport_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/transporttest"
)

// everyHook is a trace with all hooks that there are, each of which tells its name.
func everyHook(tell func(string)) (*httptrace.ClientTrace, []string) {
	trace := &httptrace.ClientTrace{}
	v := reflect.ValueOf(trace).Elem()
	var names []string
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		names = append(names, name)
		hook := v.Field(i).Type()
		v.Field(i).Set(reflect.MakeFunc(hook, func([]reflect.Value) []reflect.Value {
			tell(name)
			var none []reflect.Value
			for out := range hook.Outs() {
				none = append(none, reflect.Zero(out))
			}
			return none
		}))
	}
	return trace, names
}

// callHooks calls the hooks that a context has, in their order.
func callHooks(ctx context.Context) {
	v := reflect.ValueOf(httptrace.ContextClientTrace(ctx)).Elem()
	for i := range v.NumField() {
		hook := v.Field(i)
		var args []reflect.Value
		for in := range hook.Type().Ins() {
			args = append(args, reflect.Zero(in))
		}
		hook.Call(args)
	}
}

// kinds are HTTP/1.1 and HTTP/2.
var kinds = map[string][]transporttest.Option{"HTTP/1.1": nil, "HTTP/2": {transporttest.TLS("h2")}}

func eachKind(t *testing.T, f func(t *testing.T, opts []transporttest.Option)) {
	for name, opts := range kinds {
		t.Run(name, func(t *testing.T) { f(t, opts) })
	}
}

func TestTracePassesEveryHookOnOnceUntilItsAttemptIsOver(t *testing.T) {
	failed := errors.New("failed")
	for name, row := range map[string]struct {
		answer func(*http.Request) (*http.Response, error)
		late   []string
	}{
		"answered": {func(r *http.Request) (*http.Response, error) { return ok(r, "x"), nil },
			[]string{"PutIdleConn", "Wait100Continue", "WroteHeaderField", "WroteHeaders", "WroteRequest"}},
		"answered too late": {func(r *http.Request) (*http.Response, error) {
			if r.URL.Path == "/" {
				<-r.Context().Done()
			}
			return ok(r, "x"), nil
		}, nil},
		"failed":       {func(*http.Request) (*http.Response, error) { return nil, failed }, nil},
		"a failed 503": {func(r *http.Request) (*http.Response, error) { a := ok(r, "x"); a.StatusCode = 503; return a, nil }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var told []string // without a lock, so that the race detector sees a hook that runs late
			trace, all := everyHook(func(hook string) { told = append(told, hook) })
			var contexts []context.Context
			p := policy.Service()
			p.Retry.Base, p.Retry.Max = time.Nanosecond, time.Nanosecond
			p.Timeout.Attempt, p.Breaker.SlowCall = 100*time.Millisecond, 0
			p.Fallback.Degraded = func(r *http.Request, _ error) *http.Response { return ok(r, "degraded") }
			tr := under(t, transport.Config{Default: p, Base: rt(func(r *http.Request) (*http.Response, error) {
				contexts = append(contexts, r.Context())
				callHooks(r.Context())
				return row.answer(r)
			})})
			req := get(t, "http://x.test/")
			if _, err := fetch(tr.Client(), req.WithContext(httptrace.WithClientTrace(t.Context(), trace))); err != nil {
				t.Fatal(err)
			}
			var want []string
			for range contexts {
				want = append(want, all...)
			}
			if !slices.Equal(told, want) {
				t.Errorf("told %v, want %v", told, want)
			}
			told = nil
			for _, ctx := range contexts {
				callHooks(ctx)
			}
			slices.Sort(told)
			if !slices.Equal(told, row.late) {
				t.Errorf("afterwards %v, want %v", told, row.late)
			}
		})
	}
}

// The dial of a call goes on, or ends, when the call has failed; net/http then calls
// hooks, which would write to what is the caller's again.
func TestTraceOfAnAbandonedDialEndsWithItsCall(t *testing.T) {
	for name, opts := range kinds {
		for _, wrapped := range []bool{false, true} {
			for _, end := range []string{"the caller", "a limit"} {
				t.Run(fmt.Sprintf("%s, foreign=%v, ended by %s", name, wrapped, end), func(t *testing.T) {
					transporttest.CheckLeaks(t)
					origin := transporttest.NewOrigin(t, opts...)
					returned, dialled := make(chan struct{}), make(chan struct{})
					base := origin.Base()
					base.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
						defer close(dialled)
						d := net.Dialer{ControlContext: func(context.Context, string, string, syscall.RawConn) error {
							<-returned // between ConnectStart and ConnectDone
							return nil
						}}
						return d.DialContext(context.WithoutCancel(ctx), network, origin.URL[strings.Index(origin.URL, "//")+2:])
					}
					var p policy.Policy
					ctx := t.Context()
					if end == "a limit" {
						p.Timeout.Attempt = 50 * time.Millisecond
					} else {
						var cancel context.CancelFunc
						ctx, cancel = context.WithTimeout(ctx, 50*time.Millisecond)
						defer cancel()
					}
					c := transport.Config{Base: base, Default: p}
					if wrapped {
						c.Base = rt(base.RoundTrip)
					}
					tr := under(t, c)
					var told []string
					trace, _ := everyHook(func(hook string) { told = append(told, hook) })
					_, err := tr.RoundTrip(get(t, origin.URL).WithContext(httptrace.WithClientTrace(ctx, trace)))
					if !errors.Is(err, context.DeadlineExceeded) {
						t.Error(err)
					}
					want := []string{"GetConn", "ConnectStart", "ConnectDone"} // by the stack
					if !slices.Equal(told, want) {
						t.Errorf("told %v, want %v", told, want)
					}
					told = nil
					close(returned)
					<-dialled
					_ = tr.Close()
					base.CloseIdleConnections()
					if told != nil {
						t.Errorf("afterwards %v", told)
					}
				})
			}
		}
	}
}

// A base in memory knows nothing of hooks, and is not waited for.
func TestTraceOfABaseWithoutHooksTakesNoTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := transporttest.NewBase(transporttest.Step{Status: 503}, transporttest.Step{})
		p := policy.Policy{Retry: policy.Retry{MaxAttempts: 2, Base: time.Nanosecond, Max: time.Nanosecond}}
		tr := under(t, transport.Config{Base: base, Default: p})
		trace, _ := everyHook(func(string) {})
		start := time.Now()
		if _, err := fetch(tr.Client(), get(t, "http://x.test/").WithContext(httptrace.WithClientTrace(t.Context(), trace))); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took > time.Millisecond {
			t.Errorf("took %v", took)
		}
	})
}

// A call that finds a connection leaves its own dial to whoever comes next.
func TestTraceOfADialThatWasNotNeededEndsWithTheAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		origin := transporttest.NewNet(t, nil)
		origin.Script(transporttest.Step{Delay: time.Second, Body: "first"}, transporttest.Step{Body: "second"})
		base := origin.Base()
		dial := base.DialContext
		base.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if trace := httptrace.ContextClientTrace(ctx); trace.ConnectDone != nil { // the second call
				trace.ConnectStart(network, addr)
				defer func() { trace.ConnectDone(network, addr, nil) }()
				time.Sleep(2 * time.Second)
			}
			return dial(ctx, network, addr)
		}
		tr := under(t, transport.Config{Base: base})
		go func() { _, _ = fetch(tr.Client(), get(t, origin.URL)) }()
		time.Sleep(500 * time.Millisecond)
		var told []string
		trace, _ := everyHook(func(hook string) { told = append(told, hook) })
		trace.ConnectDone = func(_, _ string, err error) { told = append(told, fmt.Sprint("ConnectDone ", err)) }
		text, err := fetch(tr.Client(), get(t, origin.URL).WithContext(httptrace.WithClientTrace(t.Context(), trace)))
		if err != nil || text != "second" {
			t.Fatal(text, err)
		}
		synctest.Wait()
		if !slices.Contains(told, "ConnectDone context canceled") || !slices.Contains(told, "GotConn") || !slices.Contains(told, "PutIdleConn") {
			t.Errorf("told %v", told)
		}
		told = nil
		time.Sleep(5 * time.Second)
		if told != nil {
			t.Errorf("afterwards %v", told)
		}
	})
}

// A hook that runs when its call ends is waited for, but not for long.
func TestTraceHookThatRunsIsGivenTimeToReturn(t *testing.T) {
	t.Parallel()
	for hook, want := range map[time.Duration]time.Duration{
		20 * time.Millisecond: 110 * time.Millisecond, // from 90 ms on
		time.Minute:           150 * time.Millisecond,
	} {
		synctest.Test(t, func(t *testing.T) {
			origin := transporttest.NewNet(t, nil, transporttest.TLS(), transporttest.ServeConn(silent))
			origin.OnDial(transporttest.DialDelay(90 * time.Millisecond))
			tr := bounded(t, origin.Base(), policy.Timeout{Attempt: 100 * time.Millisecond})
			var returned atomic.Bool
			done := 0
			trace := &httptrace.ClientTrace{
				TLSHandshakeStart: func() {
					time.Sleep(hook)
					returned.Store(true)
				},
				TLSHandshakeDone: func(tls.ConnectionState, error) { done++ },
			}
			start := time.Now()
			_, err := tr.RoundTrip(get(t, origin.URL).WithContext(httptrace.WithClientTrace(t.Context(), trace)))
			if !errors.Is(err, transport.ErrAttemptTimeout) {
				t.Error(err)
			}
			mustTake(t, start, want)
			if returned.Load() != (want == 110*time.Millisecond) || done != 1 {
				t.Errorf("returned: %v, then done %d times", returned.Load(), done)
			}
			done = 0
			time.Sleep(2 * time.Minute)
			if done > 0 {
				t.Error("a hook of a call that is over")
			}
		})
	}
}

// Over HTTP/2 an answer may be faster than the news that its request was written.
func TestTraceOfAnAnsweredRequestSaysThatItWasWritten(t *testing.T) {
	for _, status := range []int{200, 503} {
		eachKind(t, func(t *testing.T, opts []transporttest.Option) {
			transporttest.CheckLeaks(t)
			origin := transporttest.NewOrigin(t, opts...)
			origin.Script(transporttest.Step{Status: status, Body: "x"}, transporttest.Step{Body: "x"})
			p := policy.Service()
			p.Retry.Base, p.Retry.Max = time.Nanosecond, time.Nanosecond
			tr := under(t, transport.Config{Base: origin.Base(), Default: p})
			var told []string
			resp, err := tr.RoundTrip(get(t, origin.URL).WithContext(httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
				WroteHeaders: func() { time.Sleep(10 * time.Millisecond) }, // longer than the answer takes
				WroteRequest: func(httptrace.WroteRequestInfo) { told = append(told, "wrote") },
				GotConn:      func(httptrace.GotConnInfo) { told = append(told, "got") },
			})))
			if err != nil {
				t.Fatal(err)
			}
			want := []string{"got", "wrote", "got", "wrote"}
			if status == 200 {
				want = want[:2]
			}
			if !slices.Equal(told, want) {
				t.Errorf("%d: %v", status, told)
			}
			_ = resp.Body.Close()
		})
	}
}

// answerer is a base around the pools that answers in their place.
type answerer struct {
	next   http.RoundTripper
	answer func(*http.Request) (*http.Response, error)
}

func (b *answerer) Unwrap() http.RoundTripper                           { return b.next }
func (b *answerer) Around(next http.RoundTripper) http.RoundTripper     { return &answerer{next, b.answer} }
func (b *answerer) RoundTrip(req *http.Request) (*http.Response, error) { return b.answer(req) }

func TestTraceWaitsForNoHookThatTheCallerHasNot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tr := under(t, transport.Config{Base: &answerer{&http.Transport{}, func(r *http.Request) (*http.Response, error) {
			trace := httptrace.ContextClientTrace(r.Context())
			trace.GetConn(r.URL.Host)
			trace.GotConn(httptrace.GotConnInfo{})
			return ok(r, "x"), nil
		}}})
		got := 0
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { got++ }})
		start := time.Now()
		if _, err := fetch(tr.Client(), get(t, "http://x.test/").WithContext(ctx)); err != nil || got != 1 {
			t.Fatal(got, err)
		}
		mustTake(t, start, 0)
	})
}

// A call that is answered otherwise, or never, keeps no hooks.
func TestTraceOfWhatIsNotHandedOutEndsWithItsCall(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(*http.Request) (*http.Response, error){
		"a failed answer":        func(r *http.Request) (*http.Response, error) { return status(r, 503, "x"), nil },
		"an empty failed answer": func(r *http.Request) (*http.Response, error) { return status(r, 503, ""), nil },
		"a panic":                func(*http.Request) (*http.Response, error) { panic("base") },
		"Goexit":                 func(*http.Request) (*http.Response, error) { runtime.Goexit(); return nil, nil },
	} {
		t.Run(name, func(t *testing.T) {
			for _, around := range []bool{false, true} {
				var below context.Context
				answer := func(r *http.Request) (*http.Response, error) {
					below = r.Context()
					return answer(r)
				}
				c := transport.Config{Base: rt(answer)}
				if around {
					c.Base = &answerer{&http.Transport{}, answer}
				}
				c.Default.Fallback.Degraded = func(r *http.Request, _ error) *http.Response { return ok(r, "degraded") }
				tr := under(t, c)
				var told []string
				trace, _ := everyHook(func(hook string) { told = append(told, hook) })
				done := make(chan struct{})
				go func() {
					defer close(done)
					defer func() { _ = recover() }()
					_, _ = fetch(tr.Client(), get(t, "http://x.test/").WithContext(httptrace.WithClientTrace(t.Context(), trace)))
				}()
				<-done
				callHooks(below)
				if told != nil {
					t.Errorf("around=%v: afterwards %v", around, told)
				}
			}
		})
	}
}

// status is a response to req with a body, if that is not empty.
func status(req *http.Request, code int, body string) *http.Response {
	resp := ok(req, body)
	resp.StatusCode = code
	if body == "" {
		resp.Body, resp.ContentLength = http.NoBody, 0
	}
	return resp
}

// What a Start hook has begun, such as a span, would stay open for good.
func TestTraceEndsWhatAnAbandonedDialHasBegunOnce(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(*http.Request) (*http.Response, error){
		"answered": func(r *http.Request) (*http.Response, error) { return ok(r, "x"), nil },
		"failed":   func(*http.Request) (*http.Response, error) { return nil, errors.New("failed") },
		"a panic":  func(*http.Request) (*http.Response, error) { panic("base") },
	} {
		t.Run(name, func(t *testing.T) {
			var told []string
			tell := func(format string, args ...any) { told = append(told, fmt.Sprintf(format, args...)) }
			var late *httptrace.ClientTrace
			tr := under(t, transport.Config{Base: rt(func(r *http.Request) (*http.Response, error) {
				late = httptrace.ContextClientTrace(r.Context())
				late.DNSStart(httptrace.DNSStartInfo{Host: "x.test"})
				late.DNSDone(httptrace.DNSDoneInfo{})
				late.DNSStart(httptrace.DNSStartInfo{Host: "x.test"})
				late.ConnectStart("tcp", "a")
				late.ConnectStart("tcp", "b")
				late.ConnectStart("tcp", "c")
				late.ConnectDone("tcp", "b", nil)
				late.TLSHandshakeStart()
				late.TLSHandshakeDone(tls.ConnectionState{}, nil)
				late.TLSHandshakeStart()
				told = nil
				return answer(r)
			})})
			ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
				DNSStart:          func(httptrace.DNSStartInfo) {},
				DNSDone:           func(i httptrace.DNSDoneInfo) { tell("DNSDone %v", i.Err) },
				ConnectStart:      func(string, string) {},
				ConnectDone:       func(network, addr string, err error) { tell("ConnectDone %s %s %v", network, addr, err) },
				TLSHandshakeStart: func() {},
				TLSHandshakeDone:  func(_ tls.ConnectionState, err error) { tell("TLSHandshakeDone %v", err) },
			})
			func() {
				defer func() { _ = recover() }()
				_, _ = fetch(tr.Client(), get(t, "http://x.test/").WithContext(ctx))
			}()
			want := []string{"DNSDone context canceled", "ConnectDone tcp a context canceled", "ConnectDone tcp c context canceled", "TLSHandshakeDone context canceled"}
			if !slices.Equal(told, want) {
				t.Errorf("told %q, want %q", told, want)
			}
			told = nil
			late.DNSDone(httptrace.DNSDoneInfo{})
			late.ConnectDone("tcp", "a", nil)
			late.ConnectDone("tcp", "c", nil)
			late.TLSHandshakeDone(tls.ConnectionState{}, nil)
			if told != nil {
				t.Errorf("afterwards %q", told)
			}
		})
	}
}

// Either hook of a pair may be missing, and then there is nothing to end.
func TestTraceEndsNoDialForHalfAPair(t *testing.T) {
	t.Parallel()
	tr := under(t, transport.Config{Base: rt(func(r *http.Request) (*http.Response, error) {
		trace := httptrace.ContextClientTrace(r.Context())
		if trace.ConnectStart != nil {
			trace.DNSStart(httptrace.DNSStartInfo{})
			trace.ConnectStart("tcp", "a")
			trace.TLSHandshakeStart()
		}
		return ok(r, "x"), nil
	})})
	starts := 0
	for _, trace := range []*httptrace.ClientTrace{
		{
			DNSStart:          func(httptrace.DNSStartInfo) { starts++ },
			ConnectStart:      func(string, string) { starts++ },
			TLSHandshakeStart: func() { starts++ },
		},
		{
			DNSDone:          func(httptrace.DNSDoneInfo) { t.Error("DNSDone") },
			ConnectDone:      func(string, string, error) { t.Error("ConnectDone") },
			TLSHandshakeDone: func(tls.ConnectionState, error) { t.Error("TLSHandshakeDone") },
		},
	} {
		ctx := httptrace.WithClientTrace(t.Context(), trace)
		if _, err := fetch(tr.Client(), get(t, "http://x.test/").WithContext(ctx)); err != nil {
			t.Error(err)
		}
	}
	if starts != 3 {
		t.Errorf("%d hooks ran", starts)
	}
}

// The HTTP/2 of net/http calls GetConn with the connections of the host locked.
func TestTraceHookThatDoesNotReturnLocksNoHost(t *testing.T) {
	t.Parallel()
	blocked := make(chan struct{})
	defer close(blocked)
	for name, hook := range map[string]func(){
		"panics":             func() { panic("planned") },
		"ends its goroutine": runtime.Goexit,
		"blocks":             func() { <-blocked },
	} {
		t.Run(name, func(t *testing.T) {
			o := transporttest.NewOrigin(t, transporttest.TLS("h2"))
			tr := bounded(t, o.Base(), policy.Timeout{Attempt: time.Second})
			if _, err := fetch(tr.Client(), get(t, o.URL)); err != nil {
				t.Fatal(err)
			}
			trace := &httptrace.ClientTrace{GetConn: func(string) { hook() }}
			ended := make(chan string)
			go func() {
				how := "ended its goroutine"
				defer func() {
					if v := recover(); v != nil {
						how = fmt.Sprint("panicked: ", v)
					}
					ended <- how
				}()
				_, err := fetch(tr.Client(), get(t, o.URL).WithContext(httptrace.WithClientTrace(t.Context(), trace)))
				how = fmt.Sprint("returned: ", errors.Is(err, transport.ErrAttemptTimeout))
			}()
			want := map[string]string{"panics": "panicked: planned", "ends its goroutine": "ended its goroutine", "blocks": "returned: true"}[name]
			if how := within(t, ended); how != want {
				t.Errorf("the call %s, not %s", how, want)
			}
			answered := make(chan error)
			go func() {
				_, err := fetch(tr.Client(), get(t, o.URL))
				tr.CloseIdleConnections()
				answered <- err
			}()
			if err := within(t, answered); err != nil {
				t.Error(err)
			}
			transporttest.CheckPermits(t, tr)
		})
	}
}

// A hook that panics when its call is over has no caller to tell.
func TestTraceHookThatPanicsTooLateIsLogged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var logged bytes.Buffer // read when all is over
		tr := transport.Must(transport.New(transport.Config{
			Base: rt(func(r *http.Request) (*http.Response, error) {
				httptrace.ContextClientTrace(r.Context()).GetConn("x.test:80")
				return nil, r.Context().Err()
			}),
			Logger:  slog.New(slog.NewTextHandler(&logged, nil)),
			Default: policy.Policy{Timeout: policy.Timeout{Attempt: time.Second}},
		}))
		defer tr.Close()
		trace := &httptrace.ClientTrace{GetConn: func(string) {
			time.Sleep(time.Minute)
			panic("planned")
		}}
		_, err := tr.RoundTrip(get(t, "http://x.test/").WithContext(httptrace.WithClientTrace(t.Context(), trace)))
		if !errors.Is(err, transport.ErrAttemptTimeout) {
			t.Error(err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if !strings.Contains(logged.String(), "httptrace.ClientTrace.GetConn") {
			t.Errorf("logged %q", logged.String())
		}
	})
}

// within is what c gives, in 20 s of a machine that may be busy.
func within[T any](t *testing.T, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(20 * time.Second):
		t.Fatal("hangs")
	}
	return v
}
