package cachetest

import (
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/watertight-go/watertight/cache"
)

var races = []promise{
	{"DeleteAllWaitsForPut",
		"a Put that has called Join is waited for by DeleteAll: nothing from before a write is stored after it", deleteAllWaits},
	{"AllWaitsForPut",
		"a Put that has called Join is waited for by All: nothing from before a purge is stored after it", allWaits},
	{"PutsAreNotInterleaved",
		"two Puts of one URI come one after the other: both variants are stored, and of one request the newer answer", putsTogether},
	{"PutAndDeleteAreNotInterleaved",
		"a Put and a Delete of one URI come one after the other: what was put is stored, what was deleted is not", putAndDelete},
	{"ManyTogetherKeepThePromises",
		"under any number of callers the bound holds, a slice never changes, and the sums are right in the end", manyTogether},
}

// meet calls functions at once, as near as that can be had: all spin until the last is there, and each a little longer, by an
// amount that is another in each round. They take turns in who is started first, which on one processor is who comes last.
func meet(round int, fs ...func()) {
	var there atomic.Int32
	var all sync.WaitGroup
	for i := range fs {
		f := fs[(i+round)%len(fs)]
		all.Go(func() {
			there.Add(1)
			for there.Load() < int32(len(fs)) {
				runtime.Gosched()
			}
			for range (round * (i + 1) * 7) % 400 {
				there.Load()
			}
			f()
		})
	}
	all.Wait()
}

func deleteAllWaits(t *testing.T, open opener) {
	s := open(t, roomy)
	for round := range steps(1000) {
		url := numbered(round % 3)
		if round%2 == 0 { // Join has more to do
			for i := range round / 2 % 15 {
				s.put(url, "before", "Accept-Language", "x-"+strconv.Itoa(i))
			}
		}
		e := s.entry(url, "before")
		meet(round,
			func() { s.store.Put(e) },
			func() { s.write(url) })
		if n := len(s.found(e)); n > 0 {
			t.Fatalf("%d entries after a write, in round %d", n, round)
		}
		s.adds(roomy.MaxBytes)
		if round%10 == 0 {
			s.put(numbered(4), "so that the store is not always empty")
		} else if round%10 == 5 {
			s.write(numbered(4))
		}
	}
}

func allWaits(t *testing.T, open opener) {
	s := open(t, roomy)
	for round := range steps(1000) {
		if round%2 == 0 {
			for i := range round / 2 % 15 {
				s.put(numbered(1), "before", "Accept-Language", "x-"+strconv.Itoa(i))
			}
		}
		e := s.entry(numbered(1), "before")
		meet(round,
			func() { s.store.Put(e) },
			func() { _, _ = s.Purge("") })
		if n := s.store.Len(); n > 0 || s.found(e) != nil {
			t.Fatalf("%d entries after a purge, in round %d", n, round)
		}
	}
	s.adds(0)
}

func putsTogether(t *testing.T, open opener) {
	s := open(t, roomy)
	for round := range steps(1000) {
		url := numbered(round)
		old, oldVariant := s.entry(url, "old"), s.entry(url, "variant", "Accept-Language", "fr")
		tick() // the next is asked for later
		renewed := s.entry(url, "renewed")
		meet(round,
			func() { s.store.Put(old) },
			func() { s.store.Put(renewed) },
			func() { s.store.Put(oldVariant) })
		if s.has(renewed, oldVariant); t.Failed() {
			return
		}
		s.store.DeleteAll(old.Key())
	}
	s.adds(0)
}

func putAndDelete(t *testing.T, open opener) {
	s := open(t, roomy)
	for round := range steps(1000) {
		url := numbered(round)
		old := s.put(url, "old", "Accept-Language", "de")
		other := s.entry(url, "other", "Accept-Language", "fr")
		meet(round,
			func() { s.store.Delete(old) },
			func() { s.store.Put(other) })
		if s.has(other); t.Failed() {
			return
		}
		renewed := s.entry(url, "renewed", "Accept-Language", "fr")
		meet(round,
			func() { s.store.Put(renewed) },
			func() { s.store.Delete(other) })
		if s.has(renewed); t.Failed() {
			return
		}
		s.store.DeleteAll(old.Key())
	}
	s.adds(0)
}

// manyTogether makes its entries beforehand, with one forge for each goroutine that puts them. What is put may so be older than what
// is there, and refused.
func manyTogether(t *testing.T, open opener) {
	const bound = 100_000
	s := open(t, cache.Config{MaxBytes: bound})
	var all, watch sync.WaitGroup
	var over atomic.Bool
	watch.Go(func() {
		for !over.Load() {
			if n := s.store.Bytes(); n < 0 || n > bound {
				t.Errorf("%d bytes, bound %d", n, bound)
				return
			}
			if n := s.store.Len(); n < 0 {
				t.Errorf("Len %d", n)
				return
			}
			runtime.Gosched()
		}
	})
	for seed := range 8 {
		random := rand.New(rand.NewPCG(uint64(seed), 1))
		entries := make([]*cache.Entry, steps(1000))
		for i := range entries {
			entries[i] = s.entry(numbered(random.IntN(20)), filled(random.IntN(3000)),
				"Authorization", strconv.Itoa(random.IntN(2)), "Accept-Language", "x-"+strconv.Itoa(random.IntN(20)))
		}
		all.Go(func() {
			for _, e := range entries {
				found := s.found(e)
				for _, v := range found {
					if v.Key() != e.Key() || v.Partition() != e.Partition() {
						t.Errorf("Lookup of %s has %s, or another partition's", e.Key().Path, v.Key().Path)
					}
				}
				switch random.IntN(20) {
				case 0:
					s.store.DeleteAll(e.Key())
				case 1, 2:
					for _, v := range found {
						s.store.Delete(v)
					}
				case 3:
					for v := range s.store.All() {
						_ = v.Weight()
					}
				default:
					s.store.Put(e)
				}
			}
		})
	}
	all.Wait()
	over.Store(true)
	watch.Wait()
	s.adds(bound)
}
