package transport_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/transporttest"
)

// hostCall makes a call and reads its answer to the end.
func hostCall(tr http.RoundTripper, target string) error {
	u, err := url.Parse(target)
	if err != nil {
		return err
	}
	resp, err := tr.RoundTrip(&http.Request{Method: http.MethodGet, URL: u, Header: http.Header{}})
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return errors.Join(err, resp.Body.Close())
}

// hostHold makes a call whose body stays open until it is closed.
func hostHold(t testing.TB, tr http.RoundTripper, target string) io.Closer {
	t.Helper()
	resp, err := tr.RoundTrip(fallbackRequest("GET", target))
	if err != nil {
		t.Fatal(err)
	}
	return resp.Body
}

// hostNames are the hosts that have a state.
func hostNames(tr *transport.Transport) string {
	var names []string
	for _, s := range tr.Snapshot() {
		names = append(names, strings.TrimPrefix(s.Scheme+"://"+s.Host, "://"))
	}
	return strings.Join(names, " ")
}

func TestHostsShareTheirStateHoweverTheyAreWritten(t *testing.T) {
	for _, test := range []struct {
		state   string
		written []string
	}{
		{"http://example.test:80", []string{"http://example.test", "http://EXAMPLE.test/a", "http://Example.Test:80/?b=c", "http://example.test./",
			"http://example.test.:80", "http://user:password@example.test/", "http://example.test:", "http://example.test:080"}},
		{"https://example.test:443", []string{"https://example.test", "https://example.TEST:443", "https://user@example.test", "https://example.test.:443"}},
		{"http://example.test:8080", []string{"http://example.test:8080", "http://EXAMPLE.test.:8080", "http://example.test:08080"}},
		{"http://[::1]:80", []string{"http://[::1]", "http://[::1]:80", "http://[0:0:0:0:0:0:0:1]", "http://[::0001]:80"}},
		{"http://[2001:db8::a]:80", []string{"http://[2001:db8::a]", "http://[2001:DB8::A]", "http://[2001:0db8:0::000a]:80"}},
		{"http://127.0.0.1:80", []string{"http://127.0.0.1", "http://127.0.0.1:80"}},
		{"http://xn--bcher-kva.test:80", []string{"http://bücher.test", "http://BÜCHER.test", "http://xn--bcher-kva.test", "http://XN--BCHER-KVA.TEST:80",
			"http://bu\u0308cher.test", "http://bücher.test.", "http://bücher。test", "http://bücher.test。"}},
		{"http://my_service:80", []string{"http://my_service", "http://My_Service"}},
	} {
		tr := transport.Must(transport.New(transport.Config{Base: newStub(1), Logger: quiet()}))
		for _, target := range test.written {
			if err := hostCall(tr, target); err != nil {
				t.Errorf("%s: %v", target, err)
			}
		}
		if got := hostNames(tr); got != test.state {
			t.Errorf("%q have the states %s, want %s", test.written, got, test.state)
		}
		if n := tr.Snapshot()[0].Counts.Calls; n != int64(len(test.written)) {
			t.Errorf("%s: %d calls", test.state, n)
		}
	}
}

func TestHostsOfAnotherSchemePortOrNameHaveAStateOfTheirOwn(t *testing.T) {
	tr := transport.Must(transport.New(transport.Config{Base: newStub(1), Logger: quiet()}))
	for _, target := range []string{"http://a.test", "https://a.test", "http://a.test:443", "https://a.test:80", "http://a.test:8080", "http://b.a.test", "http://a.test.test"} {
		if err := hostCall(tr, target); err != nil {
			t.Error(err)
		}
	}
	want := "http://a.test.test:80 http://a.test:443 https://a.test:443 http://a.test:80 https://a.test:80 http://a.test:8080 http://b.a.test:80"
	if got := hostNames(tr); got != want {
		t.Errorf("\n%s, want\n%s", got, want)
	}
}

func TestHostsWrittenInManyWaysOpenOneBreaker(t *testing.T) {
	base := transporttest.NewBase(transporttest.Step{Status: 503})
	p := policy.Policy{Breaker: policy.Breaker{ConsecutiveFailures: 5}}
	tr := transport.Must(transport.New(transport.Config{Base: base, Default: p, Logger: quiet()}))
	for i, target := range []string{"http://bücher.test", "http://BÜCHER.test:80", "http://xn--bcher-kva.test.", "http://u:p@xn--bcher-kva.test", "http://bücher.test"} {
		if err := hostCall(tr, target); err != nil {
			t.Errorf("call %d: %v", i+1, err)
		}
	}
	if err := hostCall(tr, "http://Bücher.test"); !errors.Is(err, transport.ErrBreakerOpen) {
		t.Error(err)
	}
}

func TestHostsGetTheirMostSpecificPolicy(t *testing.T) {
	named := func(n int) policy.Policy { return policy.Policy{Bulkhead: policy.Bulkhead{MaxConcurrent: n}} }
	tr := transport.Must(transport.New(transport.Config{Base: newStub(1), Logger: quiet(), Default: named(1), Hosts: map[string]policy.Policy{
		"*.example":           named(2),
		"*.example:8443":      named(3),
		"*.deep.example":      named(4),
		"api.example":         named(5),
		"api.example:8443":    named(6),
		"BÜCHER.example":      named(7),
		"*.bücher.example":    named(8),
		"[::1]":               named(9),
		"[::1]:8443":          named(10),
		"10.0.0.1":            named(11),
		"trailing.example.":   named(12),
		"*.deep.example:0080": named(13),
	}}))
	for target, want := range map[string]int{
		"http://other.test":             1,
		"http://example":                1, // a suffix does not cover itself
		"http://notexample":             1,
		"http://x.example":              2,
		"https://x.example":             2,
		"https://x.example:8443":        3,
		"http://a.b.deep.example:8080":  4,
		"https://a.deep.example:8443":   4, // the longer suffix
		"http://a.deep.example":         13,
		"http://API.example":            5,
		"https://api.example.:443":      5,
		"https://api.example:8443":      6,
		"http://xn--bcher-kva.example":  7,
		"http://a.bücher.example":       8,
		"http://[0:0:0:0:0:0:0:1]":      9,
		"http://[::1]:8443":             10,
		"http://10.0.0.1:9":             11,
		"https://TRAILING.example:1234": 12,
	} {
		if err := hostCall(tr, target); err != nil {
			t.Errorf("%s: %v", target, err)
			continue
		}
		u, _ := url.Parse(target)
		if got := tr.Host(u.Scheme + "://" + u.Host).Snapshot()[0].Policy.Bulkhead.MaxConcurrent; got != want {
			t.Errorf("%s: policy %d, want %d", target, got, want)
		}
	}
}

func TestHostsThatAreNoneGiveAnError(t *testing.T) {
	tr := transport.Must(transport.New(transport.Config{Base: newStub(1), Logger: quiet()}))
	for _, host := range []string{"user:password@a.test", "user:password@a.test:80", "password@a.test", "a:b:c", "[::1", "::g", "büc her_.test"} {
		req := fallbackRequest("PUT", "http://a.test/")
		closed := false
		req.URL.Host, req.Body = host, hostBody{func() { closed = true }}
		if resp, err := tr.RoundTrip(req); err == nil || strings.Contains(err.Error(), "password") || !closed {
			t.Errorf("%q: %v, %v, body closed: %v", host, resp, err, closed)
		}
	}
	if got := hostNames(tr); got != "" {
		t.Errorf("states %s", got)
	}
}

type hostBody struct{ close func() }

func (hostBody) Read([]byte) (int, error) { return 0, io.EOF }
func (b hostBody) Close() error           { b.close(); return nil }

func TestHostsThatAreIdleMakeRoomForNewOnes(t *testing.T) {
	tr := transport.Must(transport.New(transport.Config{Base: newStub(1), MaxHosts: 3, Logger: quiet()}))
	for i := range 100 {
		if err := hostCall(tr, fmt.Sprintf("http://h%d.test", i)); err != nil {
			t.Fatal(err)
		}
		if n := len(tr.Snapshot()); n != min(i+1, 3) {
			t.Fatalf("%d states after %d hosts", n, i+1)
		}
	}
	if s := tr.Host("http://h99.test").Snapshot(); len(s) != 1 {
		t.Error("the newest has no state")
	}
}

func TestHostsInUseKeepTheirState(t *testing.T) {
	tr := transport.Must(transport.New(transport.Config{Base: newStub(1), MaxHosts: 2, Logger: quiet()}))
	for i := range 100 {
		for _, target := range []string{"http://hot.test", fmt.Sprintf("http://h%d.test", i)} {
			if err := hostCall(tr, target); err != nil {
				t.Fatal(err)
			}
		}
	}
	if c := tr.Host("http://hot.test").Snapshot()[0].Counts; c.Calls < 90 {
		t.Errorf("the hot host was forgotten: %d calls", c.Calls)
	}
}

func TestHostsThatMatterAreNeverDropped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := transporttest.NewBase()
		base.ScriptFunc(func(h transporttest.Hit) transporttest.Step {
			if strings.HasPrefix(h.Host, "bad") {
				return transporttest.Step{Status: 503}
			}
			return transporttest.Step{Body: "good"}
		})
		seen := &transporttest.Recorder{}
		p := policy.Policy{
			Timeout:  policy.Timeout{Read: time.Second},
			Bulkhead: policy.Bulkhead{MaxConcurrent: 1},
			Breaker:  policy.Breaker{ConsecutiveFailures: 1, OpenFor: 10 * time.Second},
		}
		tr := transport.Must(transport.New(transport.Config{Base: base, Default: p, MaxHosts: 4, Observer: seen, Logger: quiet()}))
		_ = hostCall(tr, "http://bad.test")
		tr.Host("http://forced-open.test").ForceOpen()
		_ = hostCall(tr, "http://forced-open.test")
		tr.Host("http://forced-closed.test").ForceClosed()
		_ = hostCall(tr, "http://forced-closed.test")
		held := hostHold(t, tr, "http://held.test")
		time.Sleep(30 * time.Second) // bad.test would be half-open
		for i := range 35 {          // until its evidence is almost as old as its window
			if err := hostCall(tr, fmt.Sprintf("http://h%d.test", i)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		want := "http://bad.test:80 http://forced-closed.test:80 http://forced-open.test:80 http://held.test:80 overflow"
		if got := hostNames(tr); got != want {
			t.Errorf("states\n%s, want\n%s", got, want)
		}
		if s := tr.Host("http://bad.test").Snapshot()[0]; s.State != transport.HalfOpen {
			t.Error(s.State)
		}
		if err := hostCall(tr, "http://forced-open.test"); !errors.Is(err, transport.ErrBreakerOpen) {
			t.Error(err)
		}
		if err := hostCall(tr, "http://held.test"); !errors.Is(err, transport.ErrBulkheadFull) {
			t.Error(err)
		}
		if n := seen.Count(transport.EventOverflow); n != 1 {
			t.Errorf("%d events tell of the overflow", n)
		}
		_ = held.Close()
		tr.Host("http://forced-open.test").Reset()
		time.Sleep(2 * time.Second) // vain searches are not repeated at once
		for _, target := range []string{"http://new1.test", "http://new2.test"} {
			if err := hostCall(tr, target); err != nil || len(tr.Host(target).Snapshot()) != 1 {
				t.Errorf("%s has no state of its own: %v", target, err)
			}
		}
	})
}

func TestHostsThatDiedAndAreNeverCalledAgainMakeRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		seen := &transporttest.Recorder{}
		p := policy.Policy{Breaker: policy.Breaker{ConsecutiveFailures: 1, OpenFor: 10 * time.Second, Window: 30 * time.Second}}
		tr := transport.Must(transport.New(transport.Config{Base: transporttest.NewBase(transporttest.Step{Status: 503}),
			Default: p, MaxHosts: 4, Observer: seen, Logger: quiet()}))
		for i := range 4 {
			_ = hostCall(tr, fmt.Sprintf("http://dead%d.test", i))
		}
		time.Sleep(25 * time.Second)
		_ = hostCall(tr, "http://dead3.test") // tripped once more, and not long ago
		_ = hostCall(tr, "http://too-soon.test")
		if n := seen.Count(transport.EventOverflow); n != 1 {
			t.Errorf("%d overflows while all are fresh in mind, want 1", n)
		}
		time.Sleep(20 * time.Second)
		for i := range 5 {
			_ = hostCall(tr, fmt.Sprintf("http://new%d.test", i))
			_ = hostCall(tr, fmt.Sprintf("http://new%d.test", i)) // refused: there is a breaker
		}
		if want, got := "http://dead3.test:80 http://new0.test:80 http://new1.test:80 http://new2.test:80 overflow", hostNames(tr); got != want {
			t.Errorf("states\n%s, want\n%s", got, want)
		}
		state := map[string]transport.State{}
		for _, e := range seen.Events(transport.EventTransition) {
			if e.Transition.From != state[e.Host] {
				t.Errorf("%s: from %s, was %s", e.Host, e.Transition.From, state[e.Host])
			}
			state[e.Host] = e.Transition.To
			if e.Reason == "abandoned" && e.Transition.To != transport.Closed {
				t.Errorf("%s: %+v", e.Host, e.Transition)
			}
		}
		open := 0
		for _, s := range state {
			if s != transport.Closed {
				open++
			}
		}
		if open != 4 {
			t.Errorf("%d breakers are open for a listener, want those of the 4 states: %v", open, state)
		}
	})
}

func TestHostsBeyondTheBoundShareABulkheadAndNoBreaker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := transporttest.NewBase(transporttest.Step{Body: "held"})
		logs := &transporttest.Logs{}
		p := policy.Policy{
			Timeout:  policy.Timeout{Read: time.Second},
			Bulkhead: policy.Bulkhead{MaxConcurrent: 2},
			Breaker:  policy.Breaker{ConsecutiveFailures: 1},
		}
		tr := transport.Must(transport.New(transport.Config{Base: base, Default: p, MaxHosts: 1, Logger: slogTo(logs)}))
		held := hostHold(t, tr, "http://first.test")
		base.Script(transporttest.Step{Status: 503})
		for range 3 {
			if err := hostCall(tr, "http://second.test"); err != nil {
				t.Errorf("a breaker stands before the overflow: %v", err)
			}
		}
		base.Script(transporttest.Step{Fault: transporttest.Hang})
		start := time.Now()
		var calls sync.WaitGroup
		for i := range 2 {
			calls.Go(func() {
				err := hostCall(tr, fmt.Sprintf("http://hangs%d.test", i))
				if !errors.Is(err, transport.ErrReadTimeout) || time.Since(start) != time.Second {
					t.Errorf("%v after %v", err, time.Since(start))
				}
			})
		}
		synctest.Wait()
		if err := hostCall(tr, "http://third.test"); !errors.Is(err, transport.ErrBulkheadFull) {
			t.Error(err)
		}
		calls.Wait()
		_ = held.Close()
		if n := strings.Count(logs.String(), "too many hosts"); n != 1 {
			t.Errorf("logged %d times:\n%s", n, logs)
		}
	})
}

func TestHostsForcedByHandHaveAStateOfTheirOwnWhateverTheBound(t *testing.T) {
	tr := transport.Must(transport.New(transport.Config{Base: newStub(1), MaxHosts: 1, Logger: quiet()}))
	held := hostHold(t, tr, "http://held.test")
	defer held.Close()
	for _, name := range []string{"a.test", "b.test"} {
		tr.Host(name).ForceOpen()
		for _, scheme := range []string{"http://", "https://"} {
			if err := hostCall(tr, scheme+name); !errors.Is(err, transport.ErrBreakerOpen) {
				t.Errorf("%s%s: %v", scheme, name, err)
			}
		}
	}
}

func TestHostsByTheHundredThousandTakeNoMoreMemoryThanTheBound(t *testing.T) {
	tr := transport.Must(transport.New(transport.Config{Base: newStub(1), MaxHosts: 1000, Logger: quiet()}))
	goroutines := runtime.NumGoroutine()
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	visit := func(from, to int) {
		for i := from; i < to; i++ {
			if err := hostCall(tr, fmt.Sprintf("http://h%d.test", i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	visit(0, 2_000)
	full := heap()
	names := 100_000
	if raceEnabled {
		names = 8_000
	}
	visit(2_000, names)
	if after := heap(); after > full+1<<20 {
		t.Errorf("heap grew from %d to %d", full, after)
	}
	if n := len(tr.Snapshot()); n != 1000 {
		t.Errorf("%d states", n)
	}
	if n := runtime.NumGoroutine(); n > goroutines {
		t.Errorf("%d goroutines, %d before", n, goroutines)
	}
}

func TestHostsThatAreDroppedCloseTheirConnections(t *testing.T) {
	transporttest.CheckLeaks(t)
	o := transporttest.NewOrigin(t)
	tr := transport.Must(transport.New(transport.Config{Base: o.Base(), MaxHosts: 5, Logger: quiet()}))
	defer tr.Close()
	for i := range 50 {
		if err := hostCall(tr, fmt.Sprintf("http://h%d.test", i)); err != nil {
			t.Fatal(err)
		}
	}
	o.WaitOpen(5)
	if opened, _ := o.Connections(); opened != 50 {
		t.Errorf("%d connections", opened)
	}
	transporttest.CheckPermits(t, tr)
}

func TestHostsComeAndGoUnderConcurrentCalls(t *testing.T) {
	base := transporttest.NewBase(transporttest.Step{Body: "x"})
	p := policy.Policy{Bulkhead: policy.Bulkhead{MaxConcurrent: 8}, Breaker: policy.Breaker{FailureRate: 0.5}}
	tr := transport.Must(transport.New(transport.Config{Base: base, Default: p, MaxHosts: 4, Logger: quiet()}))
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for i := range 400 {
				name := fmt.Sprintf("h%d.test", (i*7+g)%23)
				if err := hostCall(tr, "http://"+name); err != nil && !errors.Is(err, transport.ErrBreakerOpen) {
					t.Error(err)
				}
				switch {
				case g == 0 && i%10 == 0:
					tr.Host(name).ForceOpen()
				case g == 0 && i%10 == 5:
					for k := range 23 {
						tr.Host(fmt.Sprintf("h%d.test", k)).Reset()
					}
				case g == 1:
					tr.Snapshot()
				case g == 2 && i%20 == 0:
					tr.CloseIdleConnections()
				}
			}
		})
	}
	all.Wait()
	transporttest.CheckPermits(t, tr)
}

func TestHostCanBeForcedBeforeAnyCall(t *testing.T) {
	tr := transport.Must(transport.New(transport.Config{Base: newStub(1), Logger: quiet()}))
	tr.Host("A.test.").ForceOpen()
	var e *transport.Error
	err := hostCall(tr, "http://a.test")
	if !errors.As(err, &e) || e.Kind != transport.ErrBreakerOpen || e.State != transport.ForcedOpen || e.RetryIn != 0 || e.Host != "a.test:80" || e.Attempts != 0 {
		t.Errorf("%+v", err)
	}
	if err := hostCall(tr, "https://a.test"); !errors.Is(err, transport.ErrBreakerOpen) {
		t.Errorf("https: %v", err)
	}
	if err := hostCall(tr, "http://a.test:8080"); !errors.Is(err, transport.ErrBreakerOpen) {
		t.Errorf("another port: %v", err)
	}
	if err := hostCall(tr, "http://b.a.test"); err != nil {
		t.Errorf("another name: %v", err)
	}
	tr.Host("a.test:8443").Reset()
	if err := hostCall(tr, "http://a.test:8443"); err != nil {
		t.Errorf("a port that was reset before its first call: %v", err)
	}
	tr.Host("a.test").Reset()
	for _, target := range []string{"http://a.test", "https://a.test", "http://a.test:8080", "https://a.test:9090"} {
		if err := hostCall(tr, target); err != nil {
			t.Errorf("%s after Reset: %v", target, err)
		}
	}
}

func TestHostWithASchemeIsThatSchemeAlone(t *testing.T) {
	tr := transport.Must(transport.New(transport.Config{Base: newStub(1), Logger: quiet()}))
	tr.Host("HTTPS://a.test").ForceOpen()
	if err := hostCall(tr, "http://a.test"); err != nil {
		t.Error(err)
	}
	if err := hostCall(tr, "https://a.test:443"); !errors.Is(err, transport.ErrBreakerOpen) {
		t.Error(err)
	}
	tr.Host("a.test:8443").ForceOpen()
	for _, target := range []string{"http://a.test:8443", "https://a.test:8443"} {
		if err := hostCall(tr, target); !errors.Is(err, transport.ErrBreakerOpen) {
			t.Errorf("%s: %v", target, err)
		}
	}
	if n := len(tr.Host("a.test").Snapshot()); n != 4 {
		t.Errorf("%d snapshots, want those of both schemes on two ports", n)
	}
	if n := len(tr.Host("https://a.test").Snapshot()); n != 1 {
		t.Errorf("%d snapshots of one scheme and port", n)
	}
}

func TestHostForcedClosedLetsEverythingThrough(t *testing.T) {
	base := transporttest.NewBase(transporttest.Step{Status: 503})
	p := policy.Policy{Breaker: policy.Breaker{ConsecutiveFailures: 1}}
	tr := transport.Must(transport.New(transport.Config{Base: base, Default: p, Logger: quiet()}))
	tr.Host("a.test").ForceClosed()
	for range 10 {
		if err := hostCall(tr, "http://a.test"); err != nil {
			t.Error(err)
		}
	}
	tr.Host("a.test").Reset()
	if err := hostCall(tr, "http://a.test"); err != nil {
		t.Error("the first after Reset:", err)
	}
	if err := hostCall(tr, "http://a.test"); !errors.Is(err, transport.ErrBreakerOpen) {
		t.Error("the second:", err)
	}
}

func TestHostWithABadNameDoesNothingAndSaysWhy(t *testing.T) {
	tr := transport.Must(transport.New(transport.Config{Base: newStub(1), Logger: quiet()}))
	for _, name := range []string{"", "ftp://a.test", "a.test/path", "a b", "https://", "https://user:S3CRET@a.test", "a.test?sig=S3CRET", "ftp://a.test#S3CRET", "a:b:c"} {
		h := tr.Host(name)
		if h.Err() == nil || strings.Contains(h.Err().Error(), "S3CRET") {
			t.Errorf("%q: %v", name, h.Err())
		}
		h.ForceOpen()
		h.ForceClosed()
		h.Reset()
		if s := h.Snapshot(); s != nil {
			t.Errorf("%q: %+v", name, s)
		}
	}
	if got := hostNames(tr); got != "" {
		t.Errorf("states %s", got)
	}
	if err := tr.Host("a.test").Err(); err != nil {
		t.Error(err)
	}
}

func TestHostConnectionsOfCallsThatOutliveCloseAreClosedAfterThem(t *testing.T) {
	for _, opts := range [][]transporttest.Option{nil, {transporttest.TLS("h2")}} {
		transporttest.CheckLeaks(t)
		o := transporttest.NewOrigin(t, opts...)
		o.Script(transporttest.Step{Body: "hello"})
		tr := transport.Must(transport.New(transport.Config{Base: o.Base(), Logger: quiet()}))
		scheme, _, _ := strings.Cut(o.URL, ":")
		resp, err := tr.RoundTrip(fallbackRequest("GET", scheme+"://a.test"))
		if err != nil {
			t.Fatal(err)
		}
		if err := tr.Close(); err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(resp.Body); err != nil || string(text) != "hello" {
			t.Error(string(text), err)
		}
		_ = resp.Body.Close()
		o.WaitOpen(0)
		if err := hostCall(tr, "http://a.test"); !errors.Is(err, transport.ErrClosed) {
			t.Error(err)
		}
		if err := tr.Close(); err != nil {
			t.Error("a second time:", err)
		}
	}
}

func TestHostsByTheThousandStacksLeaveNoConnections(t *testing.T) {
	transporttest.CheckLeaks(t)
	o := transporttest.NewOrigin(t)
	base := o.Base()
	for range 200 {
		tr := transport.Must(transport.New(transport.Config{Base: base, Logger: quiet()}))
		if err := hostCall(tr, "http://a.test"); err != nil {
			t.Fatal(err)
		}
		_ = tr.Close()
	}
	o.WaitOpen(0)
}

func TestHostOfACallIsThatOfItsURLWhateverItsHostField(t *testing.T) {
	tr := transport.Must(transport.New(transport.Config{Base: newStub(1), Logger: quiet()}))
	req := fallbackRequest("GET", "http://a.test").WithContext(context.Background())
	req.Host = "virtual.test"
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if got := hostNames(tr); got != "http://a.test:80" {
		t.Error(got)
	}
}

func TestHostsGetNoCredentialsThatWereMeantForAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base := transporttest.NewBase()
		failed := map[string]bool{}
		base.ScriptFunc(func(h transporttest.Hit) transporttest.Step {
			if !failed[h.Host+h.Path] { // each hop is retried
				failed[h.Host+h.Path] = true
				return transporttest.Step{Status: 503}
			}
			to := map[string]string{"a.test/": "http://b.test/1", "b.test/1": "http://b.test/2", "b.test/2": "http://a.test/3"}[h.Host+h.Path]
			if to == "" {
				return transporttest.Step{Body: "end"}
			}
			return transporttest.Step{Status: 302, Header: http.Header{"Location": {to}, "Cache-Control": {"max-age=60"}}}
		})
		p := policy.Service()
		p.Fallback.MaxStale = time.Hour
		tr := transport.Must(transport.New(transport.Config{Base: base, Default: p, Logger: quiet()}))
		req := fallbackRequest("GET", "http://a.test/", "Authorization", "Bearer 1", "Cookie", "session=1")
		for range 2 {
			resp, err := tr.Client().Do(req)
			if err != nil || resp.Request.URL.Path != "/3" {
				t.Fatal(resp, err)
			}
			_ = resp.Body.Close()
		}
		for _, h := range base.Hits() {
			if h.Host == "b.test" && (h.Header["Authorization"] != nil || h.Header["Cookie"] != nil) {
				t.Errorf("%s%s got %v", h.Host, h.Path, h.Header)
			}
		}
		if n := len(base.Hits()); n != 2*4+4 {
			t.Errorf("%d requests", n)
		}
	})
}

func TestHostByItsNameIsEveryPortAndScheme(t *testing.T) {
	targets := []string{"http://a.test", "https://a.test", "http://a.test:8080", "https://a.test:8080", "http://a.test:443"}
	for _, called := range []bool{false, true} {
		t.Run(fmt.Sprintf("called before %v", called), func(t *testing.T) {
			tr := transport.Must(transport.New(transport.Config{Base: newStub(1), Logger: quiet()}))
			call := func(target string, refused bool) {
				t.Helper()
				err := hostCall(tr, target)
				if refused != errors.Is(err, transport.ErrBreakerOpen) || !refused && err != nil {
					t.Errorf("%s: %v, want refused %v", target, err, refused)
				}
			}
			if called {
				for _, target := range targets {
					call(target, false)
				}
			}
			all := tr.Host("A.test")
			all.ForceOpen()
			if n := len(all.Snapshot()); n != map[bool]int{true: len(targets)}[called] {
				t.Errorf("%d states", n)
			}
			for _, target := range targets {
				call(target, true)
			}
			call("http://b.test", false)
			call("http://www.a.test", false)

			tr.Host("a.test:8080").Reset() // less than was forced
			tr.Host("https://a.test").Reset()
			tr.Host("a.test:7777").Reset() // which was never called
			call("https://a.test:7777", false)
			call("http://a.test", true)
			call("https://a.test", false)
			call("http://a.test:8080", false)
			call("https://a.test:8080", false)
			call("http://a.test:443", true)
			call("http://a.test:9999", true) // which nobody has named

			tr.Host("a.test:8080").ForceOpen()
			all.Reset() // more than was forced
			for _, target := range append(targets, "http://a.test:9999", "https://a.test:1") {
				call(target, false)
			}
		})
	}
}

func TestHostThatIsAPatternOrATypoHasAnErr(t *testing.T) {
	tr := transport.Must(transport.New(transport.Config{Base: newStub(1), Logger: quiet()}))
	if err := hostCall(tr, "http://a.test"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"*", "*.test", "http://*", "a.test:80/", "http//a.test", "http:/a.test", "://a.test", "a.test:http", "a.test:99999", "[::1", "a test", "a.test,b.test"} {
		h := tr.Host(name)
		if h.Err() == nil {
			t.Errorf("%q has no Err", name)
		}
		h.ForceOpen()
	}
	if err := hostCall(tr, "http://a.test"); err != nil {
		t.Error(err)
	}
}

func TestTransportThatNewDidNotMakeSaysSo(t *testing.T) {
	var tr transport.Transport
	closed := false
	req := fallbackRequest("POST", "http://a.test/")
	req.Body = hostBody{func() { closed = true }}
	resp, err := tr.RoundTrip(req)
	if resp != nil || !errors.Is(err, transport.ErrClosed) || !strings.Contains(err.Error(), "a.test") || !closed {
		t.Errorf("%v, %v, body closed %v", resp, err, closed)
	}
	if _, err := tr.Client().Get("http://a.test/"); !errors.Is(err, transport.ErrClosed) {
		t.Error(err)
	}
	if _, err := tr.RoundTrip(&http.Request{}); !errors.Is(err, transport.ErrClosed) {
		t.Error(err)
	}
	tr.CloseIdleConnections()
	if s := tr.Snapshot(); len(s) != 0 {
		t.Errorf("%+v", s)
	}
	tr.Host("a.test").ForceOpen()
	if err := tr.Close(); err != nil {
		t.Error(err)
	}
}
