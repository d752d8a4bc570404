package cache_test

import (
	"bytes"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/watertight-go/watertight/cache"
)

// capture begins a call whose answer is worth keeping.
func (c client) capture(t testing.TB, resp *http.Response) *cache.Capture {
	t.Helper()
	req := get()
	x := c.Begin(req)
	capture := c.Received(&x, req, resp, minutes)
	if capture == nil {
		t.Fatal("no capture")
	}
	return capture
}

func TestCommitsOnlyWhatIsKnownToBeWhole(t *testing.T) {
	known := func() *http.Response { return answer(200, "hello") }
	unknown := func() *http.Response { return chunked(answer(200, "hello")) }
	write := func(s string) func(*cache.Capture) { return func(c *cache.Capture) { c.Write([]byte(s)) } }
	end := func(c *cache.Capture) { c.Complete(true) }
	closed := func(c *cache.Capture) { c.Complete(false) }
	discard := func(c *cache.Capture) { c.Discard() }
	trailers := func(c *cache.Capture) { c.Trailers() }
	for _, test := range []struct {
		name  string
		resp  *http.Response
		steps []func(*cache.Capture)
		want  string
	}{
		{"known, read to the end", known(), []func(*cache.Capture){write("hel"), write("lo"), end}, "hello"},
		{"known, closed at the last byte", known(), []func(*cache.Capture){write("hello"), closed}, "hello"},
		{"known, closed early", known(), []func(*cache.Capture){write("hel"), closed}, ""},
		{"known, cut short", known(), []func(*cache.Capture){write("hel"), end}, ""},
		{"known, too much", known(), []func(*cache.Capture){write("hello!"), end}, ""},
		{"known, broken", known(), []func(*cache.Capture){write("hello"), discard, end}, ""},
		{"unknown, read to the end", unknown(), []func(*cache.Capture){write("hel"), write("lo"), end}, "hello"},
		{"unknown, closed early", unknown(), []func(*cache.Capture){write("hello"), closed}, ""},
		{"unknown, closed, then its end", unknown(), []func(*cache.Capture){write("hello"), closed, end}, ""},
		{"unknown, broken", unknown(), []func(*cache.Capture){write("hello"), discard}, ""},
		{"trailers", unknown(), []func(*cache.Capture){write("hello"), trailers, end}, ""},
		{"after the end", known(), []func(*cache.Capture){write("hello"), end, write("!"), discard, trailers}, "hello"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newClient(t)
			capture := c.capture(t, test.resp)
			for _, step := range test.steps {
				step(capture)
			}
			if test.want == "" {
				c.servesNothing(t, get(), minutes)
			} else {
				c.serves(t, test.want, get(), minutes)
			}
		})
	}
}

func TestAnEmptyBodyOfUnknownLengthIsStoredAtItsEndOnly(t *testing.T) {
	c := newClient(t)
	resp := chunked(answer(200, "x"))
	c.capture(t, resp).Complete(false)
	c.servesNothing(t, get(), minutes)
	c.capture(t, resp).Complete(true)
	c.serves(t, "", get(), minutes)
}

func TestALengthOfZeroThatNobodySaidIsUnknown(t *testing.T) {
	c := newClient(t)
	resp := answer(200, "hello")
	resp.ContentLength = 0
	resp.Header.Del("Content-Length")
	c.do(get(), resp, minutes)
	c.serves(t, "hello", get(), minutes)
}

func TestADiscardedAnswerLeavesTheOldOne(t *testing.T) {
	c := newClient(t)
	c.do(get(), answer(200, "hello"), minutes)
	capture := c.capture(t, answer(200, "newer"))
	capture.Write([]byte("new"))
	capture.Discard()
	c.serves(t, "hello", get(), minutes)
}

func TestAnAnswerThatCannotBeKeptRemovesTheOldOne(t *testing.T) {
	for _, test := range []struct {
		name string
		resp *http.Response
	}{
		{"too long, announced", answer(200, strings.Repeat("x", 101))},
		{"too long, not announced", chunked(answer(200, strings.Repeat("x", 101)))},
		{"trailers announced", answer(200, "x", "Trailer", "X-Sum")},
		{"ends with the connection", func() *http.Response {
			resp := answer(200, "x")
			resp.ContentLength = -1
			return resp
		}()},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newSizedClient(t, cache.Config{MaxEntryBytes: 100})
			c.do(get(), answer(200, "hello"), minutes)
			c.do(get(), test.resp, minutes)
			if c.store.Len() != 0 {
				t.Error("something is stored")
			}
		})
	}
}

func TestTrailersThatArriveUnannouncedRemoveTheOldOne(t *testing.T) {
	c := newClient(t)
	c.do(get(), answer(200, "hello"), minutes)
	c.capture(t, chunked(answer(200, "newer"))).Trailers()
	c.servesNothing(t, get(), minutes)
}

// Only the one with the same Vary was once removed; the other came back with the next outage.
func TestAnAnswerThatCannotBeKeptRemovesTheOldOneWhateverItsVary(t *testing.T) {
	for _, vary := range [][2]string{{"", "Accept"}, {"Accept", ""}, {"Accept", "Accept-Language"}, {"Accept, X-Request-Id", "Accept"}} {
		for name, settle := range settling {
			c := newSizedClient(t, cache.Config{MaxEntryBytes: 100})
			fields := []string{"Accept", "text/html", "Accept", "text/plain", "Accept-Language", "en", "X-Request-Id", "1"}
			c.do(get(fields...), answer(200, "hello", "Vary", vary[0]), minutes)
			c.do(get("Accept", "text/csv"), answer(200, "csv", "Vary", "Accept"), minutes)
			slow := get(fields...)
			late := c.Begin(slow)

			req, resp := get(fields...), chunked(answer(200, "newer", "Vary", vary[1]))
			x := c.Begin(req)
			capture := c.Received(&x, req, resp, minutes)
			clear(req.Header) // the caller's again
			settle(capture)
			if name == "complete" {
				c.serves(t, "", get(fields...), minutes)
				continue
			}
			older := answer(200, "hello")
			c.read(c.Received(&late, slow, older, minutes), older)
			if resp, ok := c.fail(get(fields...), failed, minutes); ok {
				t.Errorf("Vary: %s, then %s, %s: served %q", vary[0], vary[1], name, text(t, resp))
			}
			c.serves(t, "csv", get("Accept", "text/csv"), minutes)
		}
	}
}

func TestABodyThatEndsWithItsHTTP2StreamIsStored(t *testing.T) {
	c := newClient(t)
	resp := answer(200, "hello")
	resp.Proto, resp.ProtoMajor, resp.ProtoMinor, resp.ContentLength = "HTTP/2.0", 2, 0, -1
	c.do(get(), resp, minutes)
	c.serves(t, "hello", get(), minutes)
}

func TestNeedsEndWhileTheLengthIsUnknownAndNoLimitPassed(t *testing.T) {
	c := newSizedClient(t, cache.Config{MaxEntryBytes: 100})
	if c.capture(t, answer(200, "hello")).NeedsEnd() {
		t.Error("known length")
	}
	capture := c.capture(t, chunked(answer(200, "hello")))
	if !capture.NeedsEnd() {
		t.Error("unknown length")
	}
	capture.Write(make([]byte, 101))
	if capture.NeedsEnd() {
		t.Error("limit passed")
	}
}

func TestANilCaptureDoesNothing(t *testing.T) {
	var capture *cache.Capture
	if n, err := capture.Write([]byte("hello")); n != 5 || err != nil {
		t.Error(n, err)
	}
	if capture.NeedsEnd() {
		t.Error("needs its end")
	}
	capture.Complete(true)
	capture.Discard()
	capture.Trailers()
}

// What is kept is what came by, however much of it was there before and however it was cut up.
func TestKeepsWhatCameByWhateverWasStoredBefore(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	c := newClient(t)
	base := make([]byte, 100<<10)
	for i := range base {
		base[i] = byte(rng.Uint32())
	}
	body := bytes.Clone(base)
	for range 300 {
		switch rng.IntN(4) {
		case 0: // the same again
		case 1:
			body = bytes.Clone(base[:1+rng.IntN(len(base)-1)])
		case 2:
			body = bytes.Clone(base)
		case 3:
			body = bytes.Clone(body)
			body[rng.IntN(len(body))]++
		}
		resp := answer(200, string(body))
		if rng.IntN(2) == 0 {
			resp = chunked(resp)
		}
		capture := c.capture(t, resp)
		for p := body; len(p) > 0; {
			n := 1 + rng.IntN(len(p))
			capture.Write(p[:n])
			p = p[n:]
		}
		capture.Complete(true)
		if got := text(t, c.mustFail(t, get(), failed, minutes)); got != string(body) {
			t.Fatalf("served %d bytes that differ from the %d that came", len(got), len(body))
		}
	}
}

func TestABodyThatIsTheSameAgainIsNotCopied(t *testing.T) {
	c := newClient(t)
	const size = 512 << 10
	body := bytes.Repeat([]byte("x"), size)
	resp := answer(200, string(body))
	c.do(get(), resp, minutes)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 20 {
		capture := c.capture(t, resp)
		capture.Write(body)
		capture.Complete(true)
	}
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > size {
		t.Errorf("%d bytes allocated for 20 answers of %d", got, size)
	}
}

func TestACaptureMayBeClosedWhileItIsWritten(t *testing.T) {
	c := newClient(t)
	for range 100 {
		capture := c.capture(t, chunked(answer(200, "hello")))
		var wg sync.WaitGroup
		wg.Go(func() {
			for range 10 {
				capture.Write([]byte("hello"))
			}
		})
		wg.Go(func() {
			if capture.NeedsEnd() {
				capture.Complete(false)
			}
		})
		wg.Wait()
	}
	c.servesNothing(t, get(), minutes)
}

// foreign is a Store of somebody else's, which does something of its own first. Both are nil while a test prepares.
type foreign struct {
	*cache.Memory
	onPut, onLookup func()
}

func (f *foreign) Put(e *cache.Entry) bool {
	if f.onPut != nil {
		f.onPut()
	}
	return f.Memory.Put(e)
}

func (f *foreign) Lookup(k cache.Key, p cache.Partition) []*cache.Entry {
	if f.onLookup != nil {
		f.onLookup()
	}
	return f.Memory.Lookup(k, p)
}

func newForeign(t *testing.T) (*foreign, client) {
	t.Helper()
	store, err := cache.NewMemory(cache.Config{MaxEntryBytes: 100})
	if err != nil {
		t.Fatal(err)
	}
	f := &foreign{Memory: store}
	return f, client{cache.New(f), store}
}

// settling are the ways in which a Capture comes to call its Store.
var settling = map[string]func(*cache.Capture){
	"complete": func(c *cache.Capture) { c.Complete(true) },
	"trailers": func(c *cache.Capture) { c.Trailers() },
	"too long": func(c *cache.Capture) { c.Write(make([]byte, 101)) },
}

// The Store was once called under the lock of the Capture, where one that waits for another call waits for ever.
func TestACaptureIsNotLockedWhileTheStoreIsCalled(t *testing.T) {
	for name, settle := range settling {
		t.Run(name, func(t *testing.T) {
			store, c := newForeign(t)
			capture := c.capture(t, chunked(answer(200, "hello")))
			called := 0
			others := func() {
				called++
				done := make(chan struct{})
				go func() {
					defer close(done)
					capture.Write([]byte("more"))
					if capture.NeedsEnd() {
						t.Error("not settled before the Store is called")
					}
					capture.Complete(true)
					capture.Trailers()
					capture.Discard()
				}()
				select {
				case <-done:
				case <-time.After(10 * time.Second):
					t.Error("locked while the Store is called")
				}
			}
			store.onPut, store.onLookup = others, others
			settle(capture)
			if called != 1 {
				t.Errorf("the Store was called %d times", called)
			}
		})
	}
}

func TestACaptureIsSettledByAStoreThatPanics(t *testing.T) {
	for name, settle := range settling {
		t.Run(name, func(t *testing.T) {
			store, c := newForeign(t)
			capture := c.capture(t, chunked(answer(200, "hello")))
			calls := 0
			panics := func() {
				calls++
				panic("store")
			}
			store.onPut, store.onLookup = panics, panics
			func() {
				defer func() {
					if recover() != "store" {
						t.Error("the panic is lost")
					}
				}()
				settle(capture)
			}()
			if capture.NeedsEnd() {
				t.Error("not settled")
			}
			capture.Write(make([]byte, 101))
			capture.Complete(true)
			capture.Trailers()
			capture.Discard()
			if calls != 1 {
				t.Errorf("the Store was called %d times", calls)
			}
			store.onPut, store.onLookup = nil, nil
			c.do(get(), answer(200, "hello"), minutes)
			c.serves(t, "hello", get(), minutes)
		})
	}
}

// It took minutes when each name was compared with each field.
func TestAHeaderOfManyFieldsAndAsManyNamesIsReadAtOnce(t *testing.T) {
	const n = 50_000
	for _, name := range []string{"Cache-Control", "Connection"} {
		list := strings.Repeat("x,", n)
		if name == "Cache-Control" {
			list = strings.Repeat(`no-cache="x",`, n)
		}
		resp := answer(200, "hello", name, list)
		for i := range n {
			resp.Header["X"+strconv.Itoa(i)] = []string{""}
		}
		start := time.Now()
		newClient(t).do(get(), resp, minutes)
		if d := time.Since(start); d > 10*time.Second {
			t.Errorf("%s: %v", name, d)
		}
	}
}
