package cache_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watertight-go/watertight/cache"
)

func numbered(i int) *http.Request { return request("GET", "https://a.test/"+strconv.Itoa(i)) }

func (c client) put(i int, body string) { c.do(numbered(i), answer(200, body), minutes) }

func TestConfigIsValidated(t *testing.T) {
	for _, test := range []struct {
		config cache.Config
		want   int // how many faults
	}{
		{cache.Config{}, 0},
		{cache.Config{MaxBytes: 1 << 10}, 0},
		{cache.Config{MaxBytes: 1 << 10, MaxEntryBytes: 1 << 10}, 0},
		{cache.Config{MaxBytes: 1 << 10, MaxEntryBytes: 1<<10 + 1}, 1},
		{cache.Config{MaxEntryBytes: 65 << 20}, 1},
		{cache.Config{MaxBytes: -1, MaxEntryBytes: -1}, 2},
	} {
		store, err := cache.NewMemory(test.config)
		faults := 0
		if joined, ok := err.(interface{ Unwrap() []error }); ok {
			faults = len(joined.Unwrap())
		}
		if faults != test.want || (store == nil) != (err != nil) {
			t.Errorf("%+v: %v", test.config, err)
		}
	}
}

func TestTheZeroConfigHasTheDocumentedBounds(t *testing.T) {
	if got := newClient(t).store.MaxEntryBytes(); got != 1<<20 {
		t.Error(got)
	}
	if got := newSizedClient(t, cache.Config{MaxBytes: 5000}).store.MaxEntryBytes(); got != 5000 {
		t.Error(got)
	}
}

func TestTheBoundHoldsAfterEveryStep(t *testing.T) {
	const bound = 100 << 10
	rng := rand.New(rand.NewPCG(1, 2))
	c := newSizedClient(t, cache.Config{MaxBytes: bound})
	most := int64(0)
	for range 10_000 {
		i, n := rng.IntN(200), rng.IntN(4<<10)
		if rng.IntN(100) == 0 {
			n = rng.IntN(bound)
		}
		url := fmt.Sprintf("https://a.test/%d", i)
		switch rng.IntN(10) {
		case 0:
			c.do(request("PUT", url), answer(204, ""), minutes)
		case 1:
			c.do(request("GET", url), answer(404, ""), minutes)
		case 2:
			c.fail(request("GET", url), failed, minutes)
		default:
			c.do(request("GET", url, "X-User", strconv.Itoa(i%3), "X-A", strconv.Itoa(rng.IntN(20))),
				answer(200, strings.Repeat("x", n), "Vary", "X-A"), minutes)
		}
		most = max(most, c.store.Bytes())
		if c.store.Bytes() > bound || c.store.Bytes() < 0 {
			t.Fatalf("%d bytes, bound %d", c.store.Bytes(), bound)
		}
	}
	if most < bound*9/10 {
		t.Errorf("never held more than %d of %d bytes", most, bound)
	}
	for i := range 200 {
		c.do(request("DELETE", fmt.Sprintf("https://a.test/%d", i)), answer(204, ""), minutes)
	}
	if c.store.Len() != 0 || c.store.Bytes() != 0 {
		t.Errorf("%d entries, %d bytes after all are deleted", c.store.Len(), c.store.Bytes())
	}
}

func TestTheHeapStaysWithinAFifthOfTheBound(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector has a heap of its own")
	}
	const bound = 16 << 20
	for _, size := range []int{0, 100, 1000, 20_000, 40_000, 600_000} {
		c := newSizedClient(t, cache.Config{MaxBytes: bound})
		before := heap()
		for i := 0; i < 3*bound/(size+800); i++ {
			resp := answer(200, strings.Repeat("x", size), "Content-Type", "application/json", "Etag", `"33a64df551425fcc"`, "X-Request-Id", strconv.Itoa(i))
			if i%2 == 0 {
				resp = chunked(resp)
			}
			c.do(request("GET", fmt.Sprintf("https://a.test/%d", i), "X-User", strconv.Itoa(i%7)), resp, minutes)
		}
		held, used := c.store.Bytes(), heap()-before
		if used > bound*12/10 {
			t.Errorf("bodies of %d: %d bytes on the heap for %d held, bound %d", size, used, held, bound)
		}
		t.Logf("bodies of %d: %d entries, held %.2f, heap %.2f of the bound", size, c.store.Len(), float64(held)/bound, float64(used)/bound)
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC() // pools take two
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestAnEntryHeavierThanTheStoreIsRefused(t *testing.T) {
	c := newSizedClient(t, cache.Config{MaxBytes: 2000})
	c.put(1, "hello")
	c.put(2, strings.Repeat("x", 1900))
	if _, ok := c.fail(numbered(1), failed, minutes); !ok || c.store.Len() != 1 {
		t.Errorf("%d entries", c.store.Len())
	}
	c.put(1, strings.Repeat("x", 1900))
	c.servesNothing(t, numbered(1), minutes)
}

func TestVariantsOfOneURIStayWithinTheBoundToo(t *testing.T) {
	c := newSizedClient(t, cache.Config{MaxBytes: 10_000})
	for i := range 16 {
		c.do(get("X-A", strconv.Itoa(i)), answer(200, strings.Repeat("x", 2000), "Vary", "X-A"), minutes)
		if c.store.Bytes() > 10_000 {
			t.Fatalf("%d bytes", c.store.Bytes())
		}
	}
	c.servesNothing(t, get("X-A", "0"), minutes)
	if _, ok := c.fail(get("X-A", "15"), failed, minutes); !ok {
		t.Error("the newest is gone")
	}
}

func TestEvictsWhatNobodyAskedForAgain(t *testing.T) {
	c := newSizedClient(t, cache.Config{MaxBytes: 20_000})
	for i := range 10 {
		c.put(i, strings.Repeat("x", 1000))
	}
	for i := range 1000 {
		c.put(3, strings.Repeat("x", 1000)) // answered again
		c.fail(numbered(5), failed, minutes)
		c.put(10+i, strings.Repeat("x", 1000))
	}
	for _, i := range []int{3, 5} {
		if _, ok := c.fail(numbered(i), failed, minutes); !ok {
			t.Errorf("%d is gone", i)
		}
	}
}

func TestEvictsWhatIsPastItsUseFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newSizedClient(t, cache.Config{MaxBytes: 10_000})
		c.do(numbered(0), answer(200, strings.Repeat("x", 2000)), cache.Window{MaxStale: time.Hour})
		c.do(numbered(1), answer(200, strings.Repeat("x", 2000)), cache.Window{MaxStale: time.Second})
		c.do(numbered(2), answer(200, strings.Repeat("x", 2000)), cache.Window{MaxStale: time.Hour})
		c.fail(numbered(1), failed, minutes)
		time.Sleep(time.Minute)
		c.put(3, strings.Repeat("x", 2000))
		for i, want := range []bool{true, false, true, true} {
			if _, ok := c.fail(numbered(i), failed, cache.Window{MaxStale: time.Hour}); ok != want {
				t.Errorf("%d: still there: %t", i, ok)
			}
		}
	})
}

func TestManyCallersOfOneURICostNoMoreThanManyURIs(t *testing.T) {
	c := newClient(t)
	const callers = 20_000 // copying a list of all would take minutes
	for i := range callers {
		c.do(get("Cookie", strconv.Itoa(i)), answer(200, "hello"), minutes)
	}
	if c.store.Len() != callers {
		t.Errorf("%d entries", c.store.Len())
	}
	c.do(request("PUT", "https://a.test/doc"), answer(204, ""), minutes)
	if c.store.Len() != 0 {
		t.Errorf("%d entries after a write", c.store.Len())
	}
}

func TestDeletingWhatIsGoneDoesNothing(t *testing.T) {
	c := newClient(t)
	req := numbered(1)
	x := c.Cache.Begin(req)
	c.put(1, "hello")
	e := c.store.Lookup(cache.KeyOf(x), cache.Partition{})[0]
	c.put(1, "newer")
	c.store.Delete(e)
	c.serves(t, "newer", numbered(1), minutes)
	if e.Partition() != (cache.Partition{}) || e.Key().Path != "/1" {
		t.Errorf("%+v", e.Key())
	}
}

func TestReadersWritersAndEvictionTogether(t *testing.T) {
	c := newSizedClient(t, cache.Config{MaxBytes: 50_000})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 1))
			for range 1000 {
				i := rng.IntN(100)
				switch {
				case rng.IntN(20) == 0:
					c.do(request("PUT", numbered(i).URL.String()), answer(204, ""), minutes)
				case g%2 == 0:
					c.put(i, strings.Repeat(strconv.Itoa(i%10), 1000))
				default:
					resp, ok := c.fail(numbered(i), failed, minutes)
					if ok && text(t, resp) != strings.Repeat(strconv.Itoa(i%10), 1000) {
						t.Errorf("%d: another's body", i)
					}
				}
				if n := c.store.Bytes(); n > 50_000 {
					t.Errorf("%d bytes", n)
				}
			}
		})
	}
	wg.Wait()
}

func TestGrowingNeverHidesAnEntry(t *testing.T) {
	c := newClient(t)
	c.put(0, "hello")
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 1; i < 5000; i++ {
			c.put(i, "")
		}
	}()
	for {
		if _, ok := c.fail(numbered(0), failed, minutes); !ok {
			t.Fatal("hidden")
		}
		select {
		case <-done:
			return
		default:
		}
	}
}

func TestTheNewestAnswerWinsAgainstAnyWriter(t *testing.T) {
	c := newClient(t)
	for range 200 {
		req := get()
		x := c.Begin(req)
		var wg sync.WaitGroup
		wg.Go(func() {
			resp := answer(200, "from before")
			c.read(c.Received(&x, req, resp, minutes), resp)
		})
		wg.Go(func() { c.do(request("PUT", "https://a.test/doc"), answer(204, ""), minutes) })
		wg.Wait()
		c.servesNothing(t, get(), minutes)
	}
}
