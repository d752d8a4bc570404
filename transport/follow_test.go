package transport

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/url"
	"strings"
	"testing"
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
func followed(t *testing.T, base *http.Transport, calls int, call func(rt http.RoundTripper, url string)) *spy {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/close" {
			w.Header().Set("Connection", "close")
		}
		_, _ = io.WriteString(w, strings.Repeat("x", 100))
	}))
	t.Cleanup(server.Close)
	tr := Must(New(Config{Base: base}))
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

func getAll(t *testing.T, rt http.RoundTripper, ctx context.Context, url string) {
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
// is through with them.
func TestHooksServeOneAttemptAfterAnother(t *testing.T) {
	const calls = 200
	s := followed(t, &http.Transport{}, calls, func(rt http.RoundTripper, url string) { getAll(t, rt, t.Context(), url) })
	if n := s.distinct(); n > calls*3/4 { // with the race detector, a sync.Pool forgets a quarter
		t.Errorf("%d calls had %d hooks", calls, n)
	}
	for _, ctx := range s.ctx {
		if trace := httptrace.ContextClientTrace(ctx); trace != nil {
			t.Fatal("an attempt that is over leads to the hooks of another")
		}
		select {
		case <-ctx.Done():
		default:
			t.Fatal("the context of an attempt that is over has not ended")
		}
		if ctx.Err() == nil {
			t.Fatal("nor is there an error")
		}
	}
}

// Where others may have seen them, or net/http may call them yet, nobody else gets them.
func TestHooksThatMayBeCalledYetServeNoOtherAttempt(t *testing.T) {
	get := func(rt http.RoundTripper, url string) { getAll(t, rt, t.Context(), url) }
	for _, test := range []struct {
		name string
		base *http.Transport
		call func(rt http.RoundTripper, url string)
	}{
		{"a proxy function sees the request", &http.Transport{Proxy: func(*http.Request) (*url.URL, error) { return nil, nil }}, get},
		{"each call dials", &http.Transport{DisableKeepAlives: true}, get},
		{"the connection is closed", &http.Transport{}, func(rt http.RoundTripper, url string) { get(rt, url+"/close") }},
		{"the body is not read", &http.Transport{}, func(rt http.RoundTripper, url string) {
			req, _ := http.NewRequest(http.MethodGet, url, nil)
			resp, err := rt.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
		}},
	} {
		const calls = 50
		if n := followed(t, test.base, calls, test.call).distinct(); n != calls {
			t.Errorf("%s: %d calls had %d hooks", test.name, calls, n)
		}
	}
}

// A context that somebody waits for ends with the attempt.
func TestAContextThatEndsIsNotThatOfTheNextAttempt(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := followed(t, &http.Transport{}, 50, func(rt http.RoundTripper, url string) { getAll(t, rt, ctx, url) })
	for _, ctx := range s.ctx {
		select {
		case <-ctx.Done():
		default:
			t.Fatal("it has not ended")
		}
	}
}

// What net/http has registered with the context of an attempt is taken out when that is
// over, or a little later; only then are its hooks somebody else's.
func TestHooksWaitForWhatIsRegistered(t *testing.T) {
	for _, test := range []struct {
		name   string
		order  string // r: registered, u: unregistered, l: the attempt leaves, s: it is stopped
		free   string // after which of them the hooks are
		called bool
	}{
		{"nothing was", "l", "l", false},
		{"taken out before the end", "rul", "l", false},
		{"taken out after it", "rlu", "u", false},
		{"called", "rs", "", true},
		{"called, and taken out", "rsu", "", true},
	} {
		tr := Must(New(Config{}))
		a := uncalled()
		a.call.h = &host{t: tr}
		f := newFollower()
		f.of.Store(a)
		a.follower.Store(f)
		var stop func() bool
		called := false
		for _, step := range test.order {
			isFree := false
			switch step {
			case 'r':
				stop = a.AfterFunc(func() { called = true })
			case 'u':
				if was := stop(); was == test.called {
					t.Errorf("%s: taken out: %v", test.name, was)
				}
				isFree = f.of.Load() == nil
			case 'l':
				a.mu.Lock()
				isFree = f.leave(a) != nil
				a.mu.Unlock()
			case 's':
				a.stop()
			}
			if want := strings.ContainsRune(test.free, step); isFree != want {
				t.Errorf("%s: after %c the hooks are free: %v", test.name, step, isFree)
			}
		}
		if called != test.called {
			t.Errorf("%s: called: %v", test.name, called)
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
		{"a Middleware", &http.Transport{}, []Middleware{nil}, false},
	} {
		if got := private(test.base, test.around); got != test.want {
			t.Errorf("%s: %v", test.name, got)
		}
	}
}
