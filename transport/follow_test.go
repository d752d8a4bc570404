package transport

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watertight-go/watertight/policy"
)

// spy is around the transport of a pool, and notes by which hooks each request is
// followed.
type spy struct {
	http.RoundTripper
	traces []*httptrace.ClientTrace
	ctx    []context.Context
}

func (s *spy) RoundTrip(req *http.Request) (*http.Response, error) {
	s.ctx = append(s.ctx, req.Context())
	s.traces = append(s.traces, httptrace.ContextClientTrace(req.Context()))
	return s.RoundTripper.RoundTrip(req)
}

// followed makes so many calls, and returns what a spy has seen of all but the first.
func followed(t *testing.T, base *http.Transport, p policy.Policy, calls int, call func(rt http.RoundTripper, url string)) *spy {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/close" {
			w.Header().Set("Connection", "close")
		}
		_, _ = io.WriteString(w, strings.Repeat("x", 100))
	}))
	t.Cleanup(server.Close)
	tr := Must(New(Config{Base: base, Default: p}))
	t.Cleanup(func() { _ = tr.Close() })
	call(tr, server.URL)
	var s *spy
	for h := range tr.hosts.all() {
		p := h.pools.current.Load()
		s = &spy{RoundTripper: p.through}
		p.through = s
	}
	for range calls {
		call(tr, server.URL)
	}
	return s
}

func getAll(ctx context.Context, t *testing.T, rt http.RoundTripper, url string) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := rt.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
}

func (s *spy) distinct() int {
	seen := map[*httptrace.ClientTrace]bool{}
	for _, trace := range s.traces {
		seen[trace] = true
	}
	return len(seen)
}

// The hooks of one attempt follow the next one where net/http alone has seen them, and
// is through with them; each context ends with its own attempt all the same.
func TestHooksServeOneAttemptAfterAnother(t *testing.T) {
	ends, cancel := context.WithCancel(context.Background())
	defer cancel()
	for name, ctx := range map[string]context.Context{"a context that ends": ends, "one that never does": context.Background()} {
		const calls = 200
		s := followed(t, &http.Transport{}, policy.Default(), calls, func(rt http.RoundTripper, url string) { getAll(ctx, t, rt, url) })
		if n := s.distinct(); n > calls*3/4 { // with the race detector, a sync.Pool forgets a quarter
			t.Errorf("%s: %d calls had %d hooks", name, calls, n)
		}
		for _, ctx := range s.ctx {
			if trace := httptrace.ContextClientTrace(ctx); trace != nil {
				t.Fatalf("%s: an attempt that is over leads to the hooks of another", name)
			}
			select {
			case <-ctx.Done():
			default:
				t.Fatalf("%s: that of an attempt that is over has not ended", name)
			}
			if ctx.Err() == nil {
				t.Fatalf("%s: nor is there an error", name)
			}
		}
	}
}

// Where others may have seen them, or net/http may call them yet, nobody else gets them.
func TestHooksThatMayBeCalledYetServeNoOtherAttempt(t *testing.T) {
	get := func(rt http.RoundTripper, url string) { getAll(context.Background(), t, rt, url) }
	classifies := policy.Default()
	classifies.Breaker.Classify = func(*http.Response, error) policy.Verdict { return policy.Unclassified }
	for _, test := range []struct {
		name   string
		base   *http.Transport
		policy policy.Policy
		call   func(rt http.RoundTripper, url string)
	}{
		{"a proxy function sees the request", &http.Transport{Proxy: func(*http.Request) (*url.URL, error) { return nil, nil }}, policy.Default(), get},
		{"so does Classify", &http.Transport{}, classifies, get},
		{"each call dials", &http.Transport{DisableKeepAlives: true}, policy.Default(), get},
		{"the connection is closed", &http.Transport{}, policy.Default(), func(rt http.RoundTripper, url string) { get(rt, url+"/close") }},
		{"the body is not read", &http.Transport{}, policy.Default(), func(rt http.RoundTripper, url string) {
			req, err := http.NewRequest(http.MethodGet, url, nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := rt.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
		}},
	} {
		const calls = 50
		if n := followed(t, test.base, test.policy, calls, test.call).distinct(); n != calls {
			t.Errorf("%s: %d calls had %d hooks", test.name, calls, n)
		}
	}
}

// A limit ends a read that follows others over the same hooks.
func TestALimitEndsAReadOverHooksThatWereUsedBefore(t *testing.T) {
	stall := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/stall" {
			w.Header().Set("Content-Length", "10")
			_, _ = io.WriteString(w, "x")
			_ = http.NewResponseController(w).Flush()
			<-stall
		}
	}))
	defer server.Close()
	defer close(stall)
	p := policy.Default()
	p.Timeout.Read = 100 * time.Millisecond
	for name, base := range map[string]http.RoundTripper{"net/http": &http.Transport{}, "a Middleware with a deadline of its own": &deadlined{&http.Transport{}}} {
		tr := Must(New(Config{Base: base, Default: p}))
		for range 5 {
			getAll(context.Background(), t, tr, server.URL)
		}
		req, err := http.NewRequest(http.MethodGet, server.URL+"/stall", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); !errors.Is(err, ErrReadTimeout) {
			t.Errorf("%s: %v", name, err)
		}
		_ = resp.Body.Close()
		_ = tr.Close()
	}
}

// deadlined is a Middleware that does something first for which it makes a context, whose
// cancel it calls twice.
type deadlined struct{ next http.RoundTripper }

func (m *deadlined) RoundTrip(req *http.Request) (*http.Response, error) {
	_, cancel := context.WithTimeout(req.Context(), time.Minute)
	defer cancel()
	cancel()
	return m.next.RoundTrip(req)
}

func (m *deadlined) Unwrap() http.RoundTripper { return m.next }

func (m *deadlined) Around(next http.RoundTripper) http.RoundTripper { return &deadlined{next} }

// What was made in a bubble stays there.
func TestHooksStayInTheirBubble(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	base := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		if addr != "pipe.test:80" {
			return (&net.Dialer{}).DialContext(ctx, network, addr)
		}
		client, peer := net.Pipe()
		go func() {
			in := bufio.NewReader(peer)
			for {
				req, err := http.ReadRequest(in)
				if err != nil {
					return
				}
				_ = req.Body.Close()
				_, _ = io.WriteString(peer, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
			}
		}()
		return client, nil
	}}
	tr := Must(New(Config{Base: base}))
	defer tr.Close()
	inside := func() {
		synctest.Test(t, func(t *testing.T) {
			for range 20 {
				getAll(context.Background(), t, tr, "http://pipe.test/")
			}
			tr.CloseIdleConnections()
		})
	}
	outside := func() {
		for range 20 {
			getAll(context.Background(), t, tr, server.URL)
		}
	}
	for _, step := range []func(){outside, inside, outside, inside, inside, outside} {
		step()
	}
}

// What net/http has registered with the context of an attempt is taken out when that is
// over, or a little later; only then are its hooks somebody else's. What comes second is
// registered elsewhere, so that to take out the first twice does nothing to it.
func TestHooksWaitForWhatIsRegistered(t *testing.T) {
	for _, test := range []struct {
		name   string
		order  string // r, 2: registered, u: the first is unregistered, l: the attempt leaves, s: it is stopped
		free   string // after which of them the hooks are
		called string // of r and 2
	}{
		{"nothing was", "l", "l", ""},
		{"taken out before the end", "rul", "l", ""},
		{"taken out after it", "rlu", "u", ""},
		{"taken out twice", "rluu", "u", ""},
		{"called", "rs", "", "r"},
		{"called, and taken out", "rsu", "", "r"},
		{"a second one, and the first is taken out twice", "ru2us", "", "2"},
	} {
		tr := Must(New(Config{}))
		a := uncalled()
		a.call.h = &host{t: tr}
		a.passage, a.pool = passBack, &pool{private: true}
		f := newFollower()
		f.of.Store(a)
		a.follower.Store(f)
		var stop func() bool
		called := ""
		free := ""
		for _, step := range test.order {
			had := f.of.Load() != nil
			switch step {
			case 'r':
				stop = a.AfterFunc(func() { called += "r" })
			case '2':
				a.AfterFunc(func() { called += "2" })
			case 'u':
				stop()
			case 'l':
				a.mu.Lock()
				left := a.unfollow()
				a.mu.Unlock()
				if left != nil {
					tr.followers.release(left)
				}
			case 's':
				a.stop()
			}
			if had && f.of.Load() == nil {
				free += string(step)
			}
		}
		if called != test.called || free != test.free {
			t.Errorf("%s: called %q, free after %q; want %q and %q", test.name, called, free, test.called, test.free)
		}
		_ = tr.Close()
	}
}

func TestPrivate(t *testing.T) {
	own := &http.Transport{Proxy: func(*http.Request) (*url.URL, error) { return nil, nil }}
	for _, test := range []struct {
		name   string
		base   *http.Transport
		around []Middleware
		want   bool
	}{
		{"no proxy", &http.Transport{}, nil, true},
		{"that of the environment", &http.Transport{Proxy: http.ProxyFromEnvironment}, nil, true},
		{"a fixed one", &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: "p.test"})}, nil, false},
		{"a function", own, nil, false},
		{"a protocol", &http.Transport{TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{"x": nil}}, nil, false},
		{"a Middleware", &http.Transport{}, []Middleware{nil}, false},
	} {
		h := &host{t: &Transport{around: test.around}, policy: &policy.Policy{}}
		if got := h.private(test.base); got != test.want {
			t.Errorf("%s: %v", test.name, got)
		}
	}
}
