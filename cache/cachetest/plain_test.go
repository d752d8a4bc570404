package cachetest_test

import (
	"hash/maphash"
	"iter"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/watertight-go/watertight/cache"
	"github.com/watertight-go/watertight/cache/cachetest"
)

// plain is a store as simple as can be, with at most one fault.
type plain struct {
	fault  string
	config cache.Config
	bytes  atomic.Int64
	len    atomic.Int64

	mu    sync.Mutex // guards all below
	slots map[slot][]*cache.Entry
	leak  []*cache.Entry
}

// slot is the hash of a URI and a partition: two such are not met within a test, and a small one leaves the heap to the entries.
type slot uint64

var seed = maphash.MakeSeed()

func openPlain(fault string) func(t *testing.T, c cache.Config) cache.Store {
	return func(_ *testing.T, c cache.Config) cache.Store {
		if c.MaxBytes == 0 {
			c.MaxBytes = 64 << 20
		}
		if c.MaxEntryBytes == 0 || fault == "has a limit of its own" {
			c.MaxEntryBytes = min(1<<20, c.MaxBytes)
		}
		return &plain{fault: fault, config: c, slots: map[slot][]*cache.Entry{}}
	}
}

func (p *plain) of(k cache.Key, partition cache.Partition) slot {
	if p.fault == "mixes partitions" {
		partition = cache.Partition{}
	}
	return slot(maphash.Comparable(seed, struct {
		cache.Key
		cache.Partition
	}{k, partition}))
}

func (p *plain) Lookup(k cache.Key, partition cache.Partition) []*cache.Entry {
	p.mu.Lock()
	defer p.mu.Unlock()
	found := p.slots[p.of(k, partition)]
	if found == nil && p.fault == "finds an empty slice" {
		return []*cache.Entry{}
	}
	return found
}

func (p *plain) Put(e *cache.Entry) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := p.of(e.Key(), e.Partition())
	before := p.slots[at]
	joined, ok := e.Join(before)
	switch p.fault {
	case "joins without the lock":
		p.mu.Unlock()
		gap()
		p.mu.Lock()
	case "ends a write before it is told", "ends a purge before it is told":
		gap()
	case "stores what Join refuses":
		if !ok {
			joined, ok = append(slices.Clone(before), e), true
		}
	case "does not replace":
		joined = append(slices.Clone(before), e)
	case "changes slices":
		if n := len(before); ok && n > 0 && len(joined) == n {
			copy(before, joined)
		}
	}
	if !ok || e.Weight() > p.config.MaxBytes && p.fault != "takes what is too heavy" {
		return false
	}
	full := func() bool { return p.bytes.Load()+weigh(joined)-weigh(p.slots[at]) > p.config.MaxBytes }
	switch {
	case p.fault == "has no bound", p.fault == "makes room afterwards":
	case p.fault == "takes nothing when full" && full():
		return false
	default:
		p.makeRoom(at, full)
		for full() {
			if p.fault == "drops newer variants first" && len(joined) > 2 {
				joined = slices.Delete(joined, len(joined)-2, len(joined)-1)
				continue
			}
			if joined = joined[1:]; len(joined) == 0 {
				break
			}
		}
	}
	p.set(at, joined)
	if p.fault == "makes room afterwards" {
		gap()
		p.makeRoom(at, func() bool { return p.bytes.Load() > p.config.MaxBytes })
	}
	if p.fault == "leaks" {
		p.leak = append(p.leak, e)
	}
	return true
}

// gap lets everyone else go first.
func gap() {
	for range 100 {
		runtime.Gosched()
	}
}

// makeRoom drops slots, but for one.
func (p *plain) makeRoom(keep slot, full func() bool) {
	if p.fault == "drops newer variants first" {
		return
	}
	for at := range p.slots {
		if !full() {
			return
		}
		if at != keep {
			p.set(at, nil)
		}
	}
}

// set gives a slot its variants.
func (p *plain) set(at slot, variants []*cache.Entry) {
	weight := func(variants []*cache.Entry) int64 {
		if p.fault == "weighs by guess" {
			return int64(len(variants)) * 600
		}
		return weigh(variants)
	}
	before := p.slots[at]
	p.bytes.Add(weight(variants) - weight(before))
	p.len.Add(int64(len(variants) - len(before)))
	if len(variants) == 0 {
		delete(p.slots, at)
		return
	}
	p.slots[at] = variants
}

func weigh(variants []*cache.Entry) (n int64) {
	for _, e := range variants {
		n += e.Weight()
	}
	return n
}

func (p *plain) Delete(e *cache.Entry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := p.of(e.Key(), e.Partition())
	variants := p.slots[at]
	if p.fault == "deletes without the lock" {
		p.mu.Unlock()
		gap()
		p.mu.Lock()
	}
	if p.fault == "deletes the URI for an entry" {
		p.set(at, nil)
	} else if i := slices.Index(variants, e); i >= 0 {
		p.set(at, slices.Delete(slices.Clone(variants), i, i+1))
	}
}

func (p *plain) DeleteAll(k cache.Key) {
	if p.fault == "ends a write before it is told" && p.Len() == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for at, variants := range p.slots {
		e := variants[0]
		other := e.Key() != k
		switch p.fault {
		case "deletes by prefix":
			other = !strings.HasPrefix(e.Key().Path, k.Path)
		case "deletes one partition":
			other = other || e.Partition() != cache.Partition{}
		}
		if !other {
			p.set(at, nil)
		}
	}
}

func (p *plain) All() iter.Seq[*cache.Entry] {
	return func(yield func(*cache.Entry) bool) {
		if p.fault == "ends a purge before it is told" && p.Len() == 0 {
			return
		}
		p.mu.Lock()
		var all []*cache.Entry
		for _, variants := range p.slots {
			all = append(all, variants...)
		}
		p.mu.Unlock()
		for i, e := range all {
			if p.fault == "forgets where it was" && i >= p.Len()+i/2 {
				return
			}
			if !yield(e) {
				return
			}
		}
	}
}

func (p *plain) Len() int {
	if p.fault == "counts by hand" {
		p.mu.Lock()
		defer p.mu.Unlock()
		n := 0
		for _, variants := range p.slots {
			n += len(variants)
		}
		return n
	}
	return int(p.len.Load())
}

func (p *plain) Bytes() int64         { return p.bytes.Load() }
func (p *plain) MaxEntryBytes() int64 { return p.config.MaxEntryBytes }

func TestAPlainStoreIsAStore(t *testing.T) { cachetest.TestStore(t, openPlain("")) }

// wrongStores are faults of a plain store, and promises that each of them breaks.
var wrongStores = map[string][]string{
	"finds an empty slice":           {"StartsEmpty"},
	"mixes partitions":               {"KeepsURIsAndPartitionsApart"},
	"stores what Join refuses":       {"PutHeedsJoin", "PutReplacesTheSameRequest"},
	"does not replace":               {"PutReplacesTheSameRequest", "VariantsAreAsJoinSays"},
	"changes slices":                 {"SlicesNeverChange"},
	"deletes the URI for an entry":   {"DeleteIsOfThisVeryEntry"},
	"deletes by prefix":              {"DeleteAllIsOfOneURI"},
	"deletes one partition":          {"DeleteAllIsOfOneURI"},
	"forgets where it was":           {"AllMayBeDeletedWhileRangedOver"},
	"counts by hand":                 {"LenIsCheap"},
	"has a limit of its own":         {"MaxEntryBytesIsHeeded"},
	"weighs by guess":                {"FindsWhatWasPut", "TheBoundIsExact"},
	"has no bound":                   {"TheBoundIsExact"},
	"takes what is too heavy":        {"TooHeavyIsRefused"},
	"takes nothing when full":        {"RoomIsMadeFirst"},
	"drops newer variants first":     {"OldestVariantsGoFirst"},
	"leaks":                          {"TheHeapIsBounded"},
	"joins without the lock":         {"DeleteAllWaitsForPut", "AllWaitsForPut", "PutsAreNotInterleaved", "PutAndDeleteAreNotInterleaved"},
	"deletes without the lock":       {"PutAndDeleteAreNotInterleaved"},
	"ends a write before it is told": {"DeleteAllWaitsForPut"},
	"ends a purge before it is told": {"AllWaitsForPut"},
	"makes room afterwards":          {"ManyTogetherKeepThePromises"},
}
