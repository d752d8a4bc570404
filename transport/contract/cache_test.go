package contract_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watertight-go/watertight/cache"
	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/transporttest"
)

// cacheLong is a body of a length that nobody says.
type cacheLong struct{ left int64 }

func (b *cacheLong) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, io.EOF
	}
	n := min(int64(len(p)), b.left)
	b.left -= n
	return int(n), nil
}

func (b *cacheLong) Close() error { return nil }

// However long a body is, no more of it is held than an entry may have.
func TestCacheHoldsNothingOfALongBody(t *testing.T) {
	const size = 512 << 20
	buf := make([]byte, 8<<20)
	for name, header := range map[string]http.Header{
		"cacheable":     {"Cache-Control": {"max-age=600"}},
		"within policy": {},
	} {
		for how, use := range map[string]func(*http.Response) (int64, error){
			"in small pieces": func(r *http.Response) (int64, error) { return io.Copy(io.Discard, r.Body) },
			"in large ones": func(r *http.Response) (int64, error) {
				return io.CopyBuffer(struct{ io.Writer }{io.Discard}, r.Body, buf)
			},
		} {
			t.Run(name+", "+how, func(t *testing.T) {
				store, _ := cache.NewMemory(cache.Config{})
				p := policy.Default()
				p.Fallback.MaxStale = time.Hour
				tr := stackNew(t, transport.Config{Default: p, Store: store, Base: stackBase(func(r *http.Request) (*http.Response, error) {
					resp := stackAnswer(r, 200, &cacheLong{size})
					resp.Header, resp.TransferEncoding = header.Clone(), []string{"chunked"}
					return resp, nil
				})})
				runtime.GC()
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				before, most := m.HeapAlloc, uint64(0)
				resp := stackGet(t, tr, "http://x.test/")
				total := int64(0)
				for range 4 {
					part := *resp
					part.Body = io.NopCloser(io.LimitReader(resp.Body, size/4))
					n, err := use(&part)
					if err != nil {
						t.Fatal(err)
					}
					total += n
					runtime.GC()
					runtime.ReadMemStats(&m)
					most = max(most, m.HeapAlloc)
				}
				if n, err := resp.Body.Read(make([]byte, 1)); n != 0 || err != io.EOF || total != size {
					t.Errorf("%d bytes, then %d, %v", total, n, err)
				}
				_ = resp.Body.Close()
				if most > before+4<<20 || store.Len() != 0 {
					t.Errorf("heap grew from %d to %d, %d entries", before, most, store.Len())
				}
				stackInFlight(t, tr, 0)
			})
		}
	}
}

func TestCacheKeepsItsBoundWhateverIsAskedFor(t *testing.T) {
	const urls = 4000
	store, _ := cache.NewMemory(cache.Config{MaxBytes: 8 << 20})
	p := policy.Default()
	p.Fallback.MaxStale = time.Hour
	body := bytes.Repeat([]byte("x"), 2<<20)
	random := rand.New(rand.NewPCG(1, 2))
	var size int
	tr := stackNew(t, transport.Config{Default: p, Store: store, Base: stackBase(func(r *http.Request) (*http.Response, error) {
		resp := stackAnswer(r, 200, bytes.NewReader(body[:size]))
		resp.ContentLength = int64(size)
		resp.Header.Set("Vary", "X-A")
		return resp, nil
	})})
	for i := range urls {
		switch size = random.IntN(8 << 10); {
		case i%500 == 0:
			size = random.IntN(len(body)) // some are too large
		case i%7 == 0:
			size = 0
		}
		req := stackRequest(t, t.Context(), http.MethodGet, fmt.Sprintf("http://h%d.test/%d", i%50, i))
		req.Header.Set("X-A", fmt.Sprint(i))
		resp, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := io.Copy(io.Discard, resp.Body); n != int64(size) || err != nil {
			t.Fatal(n, err)
		}
		_ = resp.Body.Close()
		if n := store.Bytes(); n > 8<<20 {
			t.Fatalf("%d bytes after %d answers", n, i+1)
		}
	}
	if store.Len() < 100 || store.Bytes() < 4<<20 {
		t.Errorf("%d entries of %d bytes", store.Len(), store.Bytes())
	}
}

// What Vary says decides through the whole stack which answer stands in for one
// that cannot be had.
func TestCacheServesTheVariantThatWasAskedForOrNone(t *testing.T) {
	for name, row := range map[string]struct {
		vary  []string
		first http.Header
		then  http.Header
		found bool
	}{
		"star":                   {[]string{"*"}, nil, nil, false},
		"star among others":      {[]string{"Accept", "Accept-Language, *"}, nil, nil, false},
		"none":                   {nil, http.Header{"Accept": {"a"}}, http.Header{"Accept": {"b"}}, true},
		"the same":               {[]string{"Accept"}, http.Header{"Accept": {"a"}}, http.Header{"Accept": {"a"}}, true},
		"another":                {[]string{"Accept"}, http.Header{"Accept": {"a"}}, http.Header{"Accept": {"b"}}, false},
		"in another case":        {[]string{"aCCEPT"}, http.Header{"Accept": {"a"}}, http.Header{"Accept": {"b"}}, false},
		"second line, same":      {[]string{"Accept", "X-B"}, http.Header{"X-B": {"1"}}, http.Header{"X-B": {"1"}}, true},
		"second line, another":   {[]string{"Accept", "X-B"}, http.Header{"X-B": {"1"}}, http.Header{"X-B": {"2"}}, false},
		"second member, another": {[]string{"Accept,X-B"}, http.Header{"X-B": {"1"}}, http.Header{"X-B": {"2"}}, false},
		"missing, then there":    {[]string{"Accept-Language"}, nil, http.Header{"Accept-Language": {"de"}}, false},
		"there, then missing":    {[]string{"Accept-Language"}, http.Header{"Accept-Language": {"de"}}, nil, false},
		"empty, then missing":    {[]string{"Accept-Language"}, http.Header{"Accept-Language": {""}}, nil, false},
		"an order without sense": {[]string{"Accept-Language"}, http.Header{"Accept-Language": {"de, en"}}, http.Header{"Accept-Language": {"en", "de"}}, true},
	} {
		for kind, opts := range stackProtocols {
			t.Run(name+", "+kind, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					o := transporttest.NewNet(t, nil, opts...)
					header := http.Header{"Cache-Control": {"max-age=60"}}
					if row.vary != nil {
						header["Vary"] = row.vary
					}
					o.Script(transporttest.Step{Header: header, Body: "stored"}, transporttest.Step{Status: 503})
					p := policy.Service()
					p.Fallback.MaxStale = time.Hour
					tr := stackNew(t, transport.Config{Base: o.Base(), Default: p})
					ask := func(h http.Header) string {
						req := stackRequest(t, t.Context(), http.MethodGet, o.URL)
						if h != nil {
							req.Header = h
						}
						resp, err := tr.Client().Do(req)
						if err != nil {
							t.Fatal(err)
						}
						b, err := io.ReadAll(resp.Body)
						_ = resp.Body.Close()
						if err != nil {
							t.Fatal(err)
						}
						return fmt.Sprint(resp.StatusCode, string(b))
					}
					if got := ask(row.first); got != "200stored" {
						t.Fatal(got)
					}
					want := "503"
					if row.found {
						want = "200stored"
					}
					if got := ask(row.then); got != want {
						t.Errorf("got %s, want %s", got, want)
					}
				})
			})
		}
	}
}

// One URL has so many variants and no more, however its callers differ.
func TestCacheKeepsFewVariantsOfAURL(t *testing.T) {
	store, _ := cache.NewMemory(cache.Config{})
	p := policy.Default()
	p.Fallback.MaxStale = time.Hour
	down := false
	tr := stackNew(t, transport.Config{Default: p, Store: store, Base: stackBase(func(r *http.Request) (*http.Response, error) {
		if down {
			return nil, errors.New("down")
		}
		resp, _ := stackHello(r)
		resp.TransferEncoding = []string{"chunked"}
		resp.Header.Set("Vary", "Accept")
		return resp, nil
	})})
	ask := func(i int) error {
		req := stackRequest(t, t.Context(), http.MethodGet, "http://x.test/")
		req.Header.Set("Accept", fmt.Sprintf("text/x%d", i))
		resp, err := tr.RoundTrip(req)
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
		return err
	}
	for i := range 100 {
		if err := ask(i); err != nil {
			t.Fatal(err)
		}
	}
	if n := store.Len(); n == 0 || n > 16 {
		t.Errorf("%d variants", n)
	}
	down = true
	if err := ask(99); err != nil {
		t.Errorf("the newest variant: %v", err)
	}
	if err := ask(0); err == nil {
		t.Error("the oldest variant is still there")
	}
}
