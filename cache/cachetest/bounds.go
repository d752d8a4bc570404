package cachetest

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watertight-go/watertight/cache"
)

var bounds = []promise{
	{"MaxEntryBytesIsHeeded",
		"MaxEntryBytes is what the Config says, and no larger body is stored", maxEntryBytes},
	{"TheBoundIsExact",
		"after any sequence of calls Bytes is the weight of all that is stored, and at most MaxBytes", boundIsExact},
	{"TooHeavyIsRefused",
		"an entry heavier than the whole store may be is not stored, and costs nobody his place", tooHeavy},
	{"RoomIsMadeFirst",
		"a full store takes what is new, and finds it", roomIsMade},
	{"OldestVariantsGoFirst",
		"of the variants of one URI all are dropped, or the oldest first", oldestFirst},
	{"TheHeapIsBounded",
		"after ten times as much was offered the heap holds at most 1.2 times MaxBytes", heapIsBounded},
}

func maxEntryBytes(t *testing.T, open opener) {
	s := open(t, cache.Config{MaxBytes: 1 << 20, MaxEntryBytes: 1000})
	if n := s.store.MaxEntryBytes(); n != 1000 {
		t.Errorf("MaxEntryBytes %d, want 1000", n)
	}
	s.has(s.put(numbered(1), filled(1000)))
	if n := open(t, cache.Config{}).store.MaxEntryBytes(); n != 1<<20 {
		t.Errorf("MaxEntryBytes %d of the zero Config, want %d", n, 1<<20)
	}
	if n := open(t, cache.Config{MaxBytes: 5000}).store.MaxEntryBytes(); n != 5000 {
		t.Errorf("MaxEntryBytes %d with 5000 bytes in all, want 5000", n)
	}
}

func boundIsExact(t *testing.T, open opener) {
	const bound = 64 << 10
	s := open(t, cache.Config{MaxBytes: bound})
	random := rand.New(rand.NewPCG(1, 2))
	most := int64(0)
	for range steps(3000) {
		size := random.IntN(3000)
		if random.IntN(50) == 0 {
			size = random.IntN(bound)
		}
		e := s.entry(numbered(random.IntN(20)), filled(size),
			"Authorization", strconv.Itoa(random.IntN(3)), "Accept-Language", "x-"+strconv.Itoa(random.IntN(20)))
		switch random.IntN(10) {
		case 0:
			s.store.DeleteAll(e.Key())
		case 1:
			for _, v := range s.found(e) {
				s.store.Delete(v)
			}
		case 2:
			s.found(e)
		default:
			s.store.Put(e)
		}
		most = max(most, s.store.Bytes())
		if s.adds(bound); t.Failed() {
			return
		}
	}
	if most < bound/2 {
		t.Errorf("never held more than %d of %d bytes", most, bound)
	}
}

// steps is how many of n to make.
func steps(n int) int {
	if testing.Short() {
		return n / 10
	}
	return n
}

func tooHeavy(t *testing.T, open opener) {
	c := cache.Config{MaxBytes: 8000}
	s := open(t, c)
	kept := s.put(numbered(1), "kept")
	old := s.put(numbered(2), "old")
	heavy := s.entry(numbered(2), filled(7900))
	if heavy.Weight() <= c.MaxBytes {
		t.Fatalf("weighs %d", heavy.Weight())
	}
	if s.store.Put(heavy) {
		t.Error("Put: true")
	}
	s.has(kept)
	if among(s.found(heavy), heavy) {
		t.Error("is stored")
	}
	s.adds(c.MaxBytes)
	s.store.Delete(old)
	just := s.entry(numbered(3), filled(6000))
	for just.Weight() < c.MaxBytes {
		just = s.entry(numbered(3), filled(6000+int(c.MaxBytes-just.Weight())))
	}
	if just.Weight() == c.MaxBytes && !s.store.Put(just) {
		t.Errorf("Put of an entry as heavy as the store may be: false")
	}
	s.adds(c.MaxBytes)
}

func roomIsMade(t *testing.T, open opener) {
	const bound = 100_000
	s := open(t, cache.Config{MaxBytes: bound})
	random := rand.New(rand.NewPCG(1, 2))
	for i := range steps(3000) {
		e := s.put(numbered(i), filled(random.IntN(10_000)))
		s.has(e)
		if random.IntN(3) == 0 {
			s.found(s.entry(numbered(random.IntN(i+1)), ""))
		}
	}
	s.adds(bound)
	if s.store.Bytes() < bound/2 {
		t.Errorf("%d of %d bytes are used", s.store.Bytes(), bound)
	}
}

func oldestFirst(t *testing.T, open opener) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, cache.Config{MaxBytes: 40_000})
		random := rand.New(rand.NewPCG(1, 2))
		stored := map[string][]*cache.Entry{} // of each URI, in the order of their Put
		languages := map[*cache.Entry]string{}
		for range steps(2000) {
			url, language := numbered(random.IntN(5)), "x-"+strconv.Itoa(random.IntN(12))
			e := s.put(url, filled(random.IntN(5000)), "Accept-Language", language)
			languages[e] = language
			stored[url] = append(slices.DeleteFunc(stored[url], func(v *cache.Entry) bool { return languages[v] == language }), e)
			for url, all := range stored {
				found := s.found(all[0])
				left := slices.DeleteFunc(slices.Clone(all), func(v *cache.Entry) bool { return !among(found, v) })
				if !slices.Equal(left, all[len(all)-len(left):]) {
					t.Fatalf("%s: of %d variants the %d that are left are not the newest", url, len(all), len(left))
				}
				if stored[url] = left; len(left) == 0 {
					delete(stored, url)
				}
			}
			time.Sleep(time.Second)
		}
	})
}

func heapIsBounded(t *testing.T, open opener) {
	if testing.Short() {
		t.Skip("offers ten times the bound")
	}
	const bound = 1 << 20
	for _, size := range []int{100, 4000, 200_000} {
		s := open(t, cache.Config{MaxBytes: bound})
		before := heap()
		for i, offered := 0, int64(0); offered < 10*bound; i++ {
			e := s.entry(numbered(i), filled(size), "Authorization", strconv.Itoa(i%7))
			s.store.Put(e)
			offered += e.Weight()
		}
		s.mould.last = nil
		used := heap() - before
		t.Logf("bodies of %d: held %.2f, heap %.2f of the bound", size, float64(s.store.Bytes())/bound, float64(used)/bound)
		if used > bound*12/10 {
			t.Errorf("bodies of %d: %d bytes on the heap, for %d of %d bytes held", size, used, s.store.Bytes(), bound)
		}
		runtime.KeepAlive(s)
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC() // pools take two
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
