package bench_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gregjones/httpcache"

	"github.com/watertight-go/watertight/policy"
)

// fresh is a policy that reuses answers as httpcache does.
func fresh() policy.Policy {
	p := policy.Default()
	p.Cache.Fresh = true
	return p
}

func cached(base http.RoundTripper) http.RoundTripper {
	t := httpcache.NewMemoryCacheTransport()
	t.Transport = base
	return t
}

// fetch returns what a GET reads.
func fetch(t *testing.T, rt http.RoundTripper, path string, header ...string) string {
	t.Helper()
	req := request(t, host)
	req.URL.Path = path
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := rt.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(all)
}

// storable is an answer with a Cache-Control field, and whatever else.
func storable(req *http.Request, code int, control string, b io.ReadCloser, header ...string) *http.Response {
	resp := respond(req, code, b)
	resp.Header.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	resp.Header.Set("Cache-Control", control)
	for i := 0; i < len(header); i += 2 {
		resp.Header.Set(header[i], header[i+1])
	}
	return resp
}

// httpcache: what was answered to one user is served to another, as Authorization does
// not separate them.
func TestHTTPCacheServesOneUsersAnswerToAnother(t *testing.T) {
	base := answer(func(req *http.Request) (*http.Response, error) {
		return storable(req, 200, "max-age=60", text("account of "+req.Header.Get("Authorization"))), nil
	})
	second := func(rt http.RoundTripper) string {
		fetch(t, rt, "/account", "Authorization", "alice")
		return fetch(t, rt, "/account", "Authorization", "bob")
	}
	if got := second(cached(base)); got != "account of alice" {
		t.Errorf("httpcache tells users apart by now: %q", got)
	}
	if got := second(stack(t, base, fresh())); got != "account of bob" {
		t.Errorf("watertight served %q", got)
	}
}

// httpcache: its memory has no bound: of 70 MiB of answers all are kept.
func TestHTTPCacheHasNoBound(t *testing.T) {
	const pages, size = 80, 900 << 10 // more than 64 MiB
	page := strings.Repeat("x", size)
	kept := func(over func(http.RoundTripper) http.RoundTripper) int {
		rt := over(answer(func(req *http.Request) (*http.Response, error) {
			return storable(req, 200, "max-age=3600", text(page)), nil
		}))
		n, buf := 0, make([]byte, 256<<10)
		for i := range 2 * pages { // in the second turn what is kept is counted
			req := request(t, host)
			req.URL.Path = fmt.Sprint("/", i%pages)
			if i < pages {
				if err := exchange(rt, req, buf); err != nil {
					t.Fatal(err)
				}
				continue
			}
			req.Header.Set("Cache-Control", "only-if-cached")
			resp, err := rt.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				n++
			}
		}
		return n
	}
	if n := kept(cached); n != pages {
		t.Errorf("httpcache keeps %d of %d pages by now", n, pages)
	}
	if n := kept(func(base http.RoundTripper) http.RoundTripper { return stack(t, base, fresh()) }); n == 0 || n*size > 64<<20 {
		t.Errorf("watertight kept %d pages", n)
	}
}

// httpcache: a large answer that nobody said may be reused is kept in memory as a
// whole.
func TestHTTPCacheKeepsALargeDownload(t *testing.T) {
	const size = 8 << 20
	origin := &base{answer: func(req *http.Request, _ int64) (*http.Response, error) {
		return respond(req, 200, &body{Reader: io.LimitReader(zeros{}, size), size: size}), nil
	}}
	memory := httpcache.NewMemoryCache()
	rt := httpcache.NewTransport(memory)
	rt.Transport = origin
	fetch(t, rt, "/path")
	resp, err := httpcache.CachedResponse(memory, request(t, host))
	if err != nil {
		t.Fatal(err)
	}
	if resp == nil {
		t.Error("httpcache does not keep it by now")
	} else if n, _ := io.Copy(io.Discard, resp.Body); n != size {
		t.Errorf("httpcache keeps %d bytes by now", n)
	}

	tr := stack(t, origin, fresh())
	fetch(t, tr, "/path")
	req := request(t, host)
	req.Header.Set("Cache-Control", "only-if-cached")
	stored, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = stored.Body.Close()
	if stored.StatusCode != http.StatusGatewayTimeout {
		t.Errorf("watertight kept it: %d", stored.StatusCode)
	}
}

// abandoned reports whether the body of a second answer, in whose place a stored one
// is served, is left open.
func abandoned(t *testing.T, rt func(http.RoundTripper) http.RoundTripper, control string, second int) bool {
	t.Helper()
	replaced, n := text(""), 0
	over := rt(answer(func(req *http.Request) (*http.Response, error) {
		if n++; n == 1 {
			return storable(req, 200, control, text("hello"), "Etag", `"1"`), nil
		}
		return storable(req, second, control, replaced, "Etag", `"1"`), nil
	}))
	fetch(t, over, "/path")
	if got := fetch(t, over, "/path"); got != "hello" {
		t.Errorf("served %q", got)
	}
	return !replaced.closed.Load()
}

// httpcache: the body of the answer in whose place a stale one is served stays open.
func TestHTTPCacheLeavesAFailedBodyOpen(t *testing.T) {
	control := "max-age=0, stale-if-error=60"
	if !abandoned(t, cached, control, http.StatusInternalServerError) {
		t.Error("httpcache closes it by now")
	}
	p := fresh()
	p.Retry = policy.Retry{}
	if abandoned(t, func(base http.RoundTripper) http.RoundTripper { return stack(t, base, p) }, control, http.StatusInternalServerError) {
		t.Error("watertight left it open")
	}
}

// httpcache: the body of a 304 stays open.
func TestHTTPCacheLeavesA304Open(t *testing.T) {
	if !abandoned(t, cached, "max-age=0", http.StatusNotModified) {
		t.Error("httpcache closes it by now")
	}
	if abandoned(t, func(base http.RoundTripper) http.RoundTripper { return stack(t, base, fresh()) }, "max-age=0", http.StatusNotModified) {
		t.Error("watertight left it open")
	}
}

// httpcache: a successful POST or PUT does not invalidate what is stored for its URI
// (RFC 9111 section 4.4): who has just written reads what was there before.
func TestHTTPCacheServesWhatWasOverwritten(t *testing.T) {
	written := func(over func(http.RoundTripper) http.RoundTripper) string {
		value := "old"
		rt := over(answer(func(req *http.Request) (*http.Response, error) {
			if req.Method == http.MethodPut {
				value = "new"
				return status(req, http.StatusNoContent), nil
			}
			return storable(req, 200, "max-age=60", text(value)), nil
		}))
		fetch(t, rt, "/path")
		put := request(t, host)
		put.Method = http.MethodPut
		if err := exchange(rt, put, make([]byte, 512)); err != nil {
			t.Fatal(err)
		}
		return fetch(t, rt, "/path")
	}
	if got := written(cached); got != "old" {
		t.Errorf("httpcache serves %q by now", got)
	}
	if got := written(func(base http.RoundTripper) http.RoundTripper { return stack(t, base, fresh()) }); got != "new" {
		t.Errorf("watertight served %q", got)
	}
}
