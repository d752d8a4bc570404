package cachetest

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watertight-go/watertight/cache"
)

// TestStore tests that what open returns keeps the promises of [cache.Store], within the bounds of c. Each subtest is one promise,
// opens a store of its own, some several, and says the promise when it fails. open may be called in a bubble of testing/synctest; what
// needs to be closed it closes in a Cleanup of its t.
//
// Each store is driven as a [cache.Cache] does, and by goroutines that meet at one URI over and over: run it with the race
// detector. It takes a second or two, with -short less. One subtest measures the heap, so nothing else should run beside it.
//
// A Store may drop entries at any moment. TestStore expects that one does so for want of room: as long as all that it was given weighs
// less than half its bound it has all of it, and however full it is, what it has stored it finds right after.
func TestStore(t *testing.T, open func(t *testing.T, c cache.Config) cache.Store) {
	for _, p := range slices.Concat(promises, bounds, races) {
		t.Run(p.name, func(t *testing.T) {
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("the promise: %s", p.says)
				}
			})
			p.test(t, func(t *testing.T, c cache.Config) *shelf {
				s := open(t, c)
				return &shelf{t, newForge(s), s}
			})
		})
	}
}

type opener func(t *testing.T, c cache.Config) *shelf

// promise is one subtest.
type promise struct {
	name, says string
	test       func(t *testing.T, open opener)
}

// roomy bounds a store where nothing is for want of room.
var roomy = cache.Config{MaxBytes: 8 << 20}

var promises = []promise{
	{"StartsEmpty",
		"keys and entries that the store has never seen are nothing to it", startsEmpty},
	{"FindsWhatWasPut",
		"Put stores this very entry, Lookup finds it, and it counts", findsWhatWasPut},
	{"KeepsURIsAndPartitionsApart",
		"Lookup finds what is of this URI and this partition", keepsApart},
	{"PutReplacesTheSameRequest",
		"an answer takes the place of that to the same request, and of no other", putReplaces},
	{"PutHeedsJoin",
		"what Entry.Join refuses is not stored, and changes nothing", putHeedsJoin},
	{"VariantsAreAsJoinSays",
		"of more than 16 variants the oldest goes", asJoinSays},
	{"DeleteIsOfThisVeryEntry",
		"Delete of an entry that is gone or was replaced does nothing", deleteIsExact},
	{"DeleteAllIsOfOneURI",
		"DeleteAll removes every variant in every partition of a URI, and nothing else", deleteAllIsOfOneURI},
	{"SlicesNeverChange",
		"a slice that Lookup has returned stays as it is", slicesNeverChange},
	{"AllMayBeDeletedWhileRangedOver",
		"All is of one moment: whoever ranges over it may change the store, or stop", allWhileDeleting},
	{"LenIsCheap",
		"Len costs next to nothing, however many entries there are", lenIsCheap},
}

func startsEmpty(t *testing.T, open opener) {
	s := open(t, roomy)
	e := s.entry(numbered(1), "text")
	s.store.Delete(e)
	s.store.DeleteAll(e.Key())
	s.store.DeleteAll(cache.Key{})
	s.store.Lookup(cache.Key{}, cache.Partition{})
	s.lacks(e)
	s.adds(0)
}

func findsWhatWasPut(t *testing.T, open opener) {
	s := open(t, roomy)
	var all []*cache.Entry
	for i := range 100 {
		all = append(all, s.put(numbered(i), strconv.Itoa(i)))
		s.has(all[i])
		s.adds(roomy.MaxBytes)
	}
	for _, e := range all {
		s.has(e)
	}
	if n := s.store.Len(); n != len(all) {
		t.Errorf("Len %d", n)
	}
}

func keepsApart(t *testing.T, open opener) {
	s := open(t, roomy)
	var all []*cache.Entry
	for _, url := range []string{"http://a.test/", "https://a.test/", "http://b.test/", "http://a.test/?q", "http://a.test:8080/"} {
		for _, user := range []string{"", "one", "two"} {
			e := s.entry(url, user, "Authorization", user)
			s.lacks(e)
			if !s.store.Put(e) {
				t.Fatalf("Put of %s for %q: false", url, user)
			}
			all = append(all, e)
		}
	}
	for _, e := range all {
		s.has(e)
	}
	s.adds(roomy.MaxBytes)
}

func putReplaces(t *testing.T, open opener) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, roomy)
		old := s.put(numbered(1), "old", "Accept-Language", "de")
		other := s.put(numbered(1), "other", "Accept-Language", "fr")
		early := s.ask(numbered(1), "Accept-Language", "de")
		time.Sleep(time.Second)
		s.has(old, other)
		renewed := s.put(numbered(1), "renewed", "Accept-Language", "de")
		s.has(other, renewed)
		if s.store.Put(early.answered("late")) {
			t.Error("Put of an older answer: true")
		}
		s.has(other, renewed)
		s.adds(roomy.MaxBytes)
	})
}

func putHeedsJoin(t *testing.T, open opener) {
	s := open(t, roomy)
	kept := s.put(numbered(2), "kept")
	for name, end := range map[string]func(){
		"a write": func() { s.write(numbered(1)) },
		"a purge": func() { _, _ = s.Purge("http://b.test/") },
	} {
		for _, stored := range []bool{false, true} {
			begun := s.ask(numbered(1), "Accept-Language", "de")
			end()
			if stored {
				s.put(numbered(1), "since")
			}
			before := slices.Clone(s.found(begun.answered("")))
			if s.store.Put(begun.answered("begun before")) {
				t.Errorf("Put of what was asked for before %s: true", name)
			}
			if !sameSet(s.found(begun.answered("")), before) {
				t.Errorf("Put of what was asked for before %s has changed its URI", name)
			}
		}
		s.store.DeleteAll(s.entry(numbered(1), "").Key())
	}
	s.has(kept)
	s.adds(roomy.MaxBytes)
}

func asJoinSays(t *testing.T, open opener) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, roomy)
		var all []*cache.Entry
		for i := range 40 {
			all = append(all, s.put(numbered(1), strconv.Itoa(i), "Accept-Language", "x-"+strconv.Itoa(i)))
			s.has(all[max(0, len(all)-16):]...)
			if s.adds(roomy.MaxBytes); t.Failed() {
				return
			}
			time.Sleep(time.Second)
		}
	})
}

func deleteIsExact(t *testing.T, open opener) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, roomy)
		old := s.put(numbered(1), "old")
		other := s.put(numbered(1), "other", "Accept-Language", "fr")
		time.Sleep(time.Second)
		renewed := s.put(numbered(1), "renewed")
		s.store.Delete(old)
		s.store.Delete(s.entry(numbered(1), "never stored"))
		s.has(other, renewed)
		s.store.Delete(other)
		s.store.Delete(other)
		s.has(renewed)
		s.adds(roomy.MaxBytes)
		s.store.Delete(renewed)
		s.lacks(renewed)
		s.adds(0)
		s.put(numbered(1), "again")
	})
}

func deleteAllIsOfOneURI(t *testing.T, open opener) {
	s := open(t, roomy)
	fill := func(url string) (all []*cache.Entry) {
		for _, user := range []string{"", "one", "two"} {
			for _, language := range []string{"de", "fr"} {
				all = append(all, s.put(url, user+language, "Authorization", user, "Accept-Language", language))
			}
		}
		return all
	}
	gone, kept := fill(numbered(1)), fill(numbered(12))
	s.store.DeleteAll(gone[0].Key())
	for i, e := range gone {
		s.lacks(e)
		if !among(s.found(kept[i]), kept[i]) {
			t.Error("another URI's entry is gone")
		}
	}
	if n := s.store.Len(); n != len(kept) {
		t.Errorf("Len %d, want %d", n, len(kept))
	}
	s.adds(roomy.MaxBytes)
}

func slicesNeverChange(t *testing.T, open opener) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, cache.Config{MaxBytes: 64 << 10})
		random := rand.New(rand.NewPCG(1, 2))
		var taken, copies [][]*cache.Entry
		for range 2000 {
			url, language := numbered(random.IntN(3)), "x-"+strconv.Itoa(random.IntN(20))
			e := s.entry(url, filled(random.IntN(2000)), "Accept-Language", language)
			found := s.found(e)
			taken, copies = append(taken, found), append(copies, slices.Clone(found))
			switch random.IntN(10) {
			case 0:
				s.store.DeleteAll(e.Key())
			case 1, 2:
				if len(found) > 0 {
					s.store.Delete(found[random.IntN(len(found))])
				}
			default:
				s.store.Put(e)
			}
			time.Sleep(time.Second)
		}
		for i := range taken {
			if !slices.Equal(taken[i], copies[i]) {
				t.Fatal("a slice that was returned has changed")
			}
		}
	})
}

func allWhileDeleting(t *testing.T, open opener) {
	s := open(t, roomy)
	for i := range 100 {
		s.put(numbered(i/2), "text", "Accept-Language", "x-"+strconv.Itoa(i))
	}
	for range s.store.All() {
		break
	}
	done := make(chan int)
	go func() {
		n := 0
		all := s.store.All()
		for e := range all {
			n++
			s.store.Delete(e)
			s.store.DeleteAll(e.Key())
		}
		for range all {
			n++
		}
		done <- n
	}()
	select {
	case n := <-done:
		if n != 100 {
			t.Errorf("%d entries", n)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("Delete waits for the end of All")
	}
	s.adds(0)
}

func lenIsCheap(t *testing.T, open opener) {
	few, many := open(t, roomy), open(t, cache.Config{MaxBytes: 16 << 20})
	few.put(numbered(0), "")
	for i := range 5000 {
		many.put(numbered(i), "")
	}
	one, all := time.Duration(1<<62), time.Duration(1<<62)
	for range 10 { // of which the quickest are not about other programs
		one, all = min(one, timed(few.store)), min(all, timed(many.store))
	}
	if all > 50*one+time.Millisecond {
		t.Errorf("a hundred calls take %v with one entry, and %v with 5,000", one, all)
	}
}

func timed(s cache.Store) time.Duration {
	start := time.Now()
	for range 100 {
		s.Len()
	}
	return time.Since(start)
}
