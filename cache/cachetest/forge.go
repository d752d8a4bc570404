package cachetest

import (
	"io"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/watertight-go/watertight/cache"
)

// forge makes entries for the store under test. Only a Cache can: this is one over a mould, which takes what is put and
// hands on all else.
type forge struct {
	*cache.Cache
	mould *mould
}

// mould is a Store that keeps no entry, but shows the last that it was given.
type mould struct {
	cache.Store
	last *cache.Entry
}

func (m *mould) Put(e *cache.Entry) bool {
	m.last = e
	return true
}

func newForge(s cache.Store) *forge {
	m := &mould{Store: s}
	return &forge{cache.New(m).For(cache.Rules{Fresh: true}), m}
}

// call is a GET that has begun.
type call struct {
	f   *forge
	x   cache.Exchange
	req *http.Request
}

// ask begins a GET with the given fields, name and value in turn. Authorization makes a partition, Accept-Language a variant.
func (f *forge) ask(url string, fields ...string) *call {
	req := request(http.MethodGet, url, fields...)
	return &call{f, f.Begin(req), req}
}

// answered is the entry of a call's answer.
func (c *call) answered(body string) *cache.Entry {
	a := says(body, "Cache-Control", "max-age=3600", "Vary", "Accept-Language")
	resp := a.response(c.req)
	c.f.mould.last = nil
	capture := c.f.Received(&c.x, c.req, resp, cache.Window{})
	if _, err := io.Copy(capture, resp.Body); err != nil {
		panic(err)
	}
	capture.Complete(true)
	if c.f.mould.last == nil {
		panic("cachetest: no entry was made")
	}
	return c.f.mould.last
}

// entry is an answer to a GET that was sent now.
func (f *forge) entry(url, body string, fields ...string) *cache.Entry {
	return f.ask(url, fields...).answered(body)
}

// write makes a whole call that changes a URI.
func (f *forge) write(url string) {
	req := request(http.MethodPut, url)
	x := f.Begin(req)
	f.Received(&x, req, answer{status: http.StatusNoContent}.response(req), cache.Window{})
}

// shelf is a store under test, with a forge that makes entries for it.
type shelf struct {
	*testing.T
	*forge
	store cache.Store
}

func numbered(i int) string { return "http://a.test/" + strconv.Itoa(i) }

// put stores a new answer, which nothing is against.
func (s *shelf) put(url, body string, fields ...string) *cache.Entry {
	s.Helper()
	e := s.entry(url, body, fields...)
	if !s.store.Put(e) {
		s.Fatalf("Put of %s %v: false", url, fields)
	}
	return e
}

// found are the variants stored beside e.
func (s *shelf) found(e *cache.Entry) []*cache.Entry { return s.store.Lookup(e.Key(), e.Partition()) }

// has tests that beside the first of these entries these are stored, and no others, in any order.
func (s *shelf) has(entries ...*cache.Entry) {
	s.Helper()
	if found := s.found(entries[0]); !sameSet(found, entries) {
		s.Errorf("Lookup of %s: %d entries, want the %d that were put last", entries[0].Key().Path, len(found), len(entries))
	}
}

// lacks tests that nothing is stored beside e.
func (s *shelf) lacks(e *cache.Entry) {
	s.Helper()
	if found := s.found(e); found != nil {
		s.Errorf("Lookup of %s: %d entries, want nil", e.Key().Path, len(found))
	}
}

func sameSet(a, b []*cache.Entry) bool {
	if len(a) != len(b) {
		return false
	}
	set := map[*cache.Entry]bool{}
	for _, e := range a {
		set[e] = true
	}
	for _, e := range b {
		if !set[e] {
			return false
		}
	}
	return len(set) == len(b)
}

// adds tests that Len and Bytes are those of what All has, each entry of which is found, and within the bound. Nobody may change the
// store meanwhile.
func (s *shelf) adds(bound int64) {
	s.Helper()
	var weight int64
	seen := map[*cache.Entry]bool{}
	for e := range s.store.All() {
		if seen[e] {
			s.Errorf("All: %s twice", e.Key().Path)
		}
		seen[e] = true
		weight += e.Weight()
	}
	for e := range seen {
		if !among(s.found(e), e) {
			s.Errorf("All: %s, which Lookup has not", e.Key().Path)
		}
	}
	if n := s.store.Len(); n != len(seen) {
		s.Errorf("Len %d, want %d as All", n, len(seen))
	}
	if n := s.store.Bytes(); n != weight {
		s.Errorf("Bytes %d, want %d as All", n, weight)
	}
	if weight > bound {
		s.Errorf("Bytes %d, bound %d", weight, bound)
	}
}

func among(entries []*cache.Entry, e *cache.Entry) bool {
	for _, v := range entries {
		if v == e {
			return true
		}
	}
	return false
}

// tick returns when the clock has moved on.
func tick() {
	for start := time.Now(); time.Since(start) <= 0; {
		runtime.Gosched()
	}
}

func filled(n int) string { return strings.Repeat("x", n) }
