package cache_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func TestVaryDecidesWhichVariantAnswers(t *testing.T) {
	for _, test := range []struct {
		vary  string
		first []string // fields of the request that was answered
		then  []string // fields of the next
		want  bool
	}{
		{"Accept", []string{"Accept", "a/b"}, []string{"Accept", "a/b"}, true},
		{"accept", []string{"Accept", "a/b"}, []string{"Accept", "c/d"}, false},
		{"Accept", []string{"Accept", "a/b"}, nil, false},
		{"Accept", nil, []string{"Accept", "a/b"}, false},
		{"Accept", nil, []string{"Accept", ""}, false},
		{"Accept", nil, []string{"Accept", ","}, false},
		{"Accept", nil, []string{"Accept", "\x00"}, false},
		{"Accept", nil, nil, true},
		{"Accept", []string{"Accept", "a/b,c/d"}, []string{"Accept", " a/b ,\tc/d "}, true},
		{"Accept", []string{"Accept", "a/b, c/d"}, []string{"Accept", "a/b", "Accept", "c/d"}, true},
		{"Accept", []string{"Accept", "a/b, c/d"}, []string{"Accept", "c/d, a/b"}, false},
		{"Accept", []string{"Accept", "a/b"}, []string{"Accept", "A/B"}, false},
		{"Accept-Language", []string{"Accept-Language", "en, fr"}, []string{"Accept-Language", "FR,en"}, true},
		{"Accept-Language", []string{"Accept-Language", "en"}, []string{"Accept-Language", "fr"}, false},
		{"X-Quote", []string{"X-Quote", `"a, b"`}, []string{"X-Quote", `"a,b"`}, false},
		{"Accept, X-A", []string{"Accept", "a/b", "X-A", "1"}, []string{"Accept", "a/b", "X-A", "2"}, false},
		{",, Accept ,Accept", []string{"Accept", "a/b"}, []string{"Accept", "a/b"}, true},
		{"Cookie", []string{"Cookie", "a=b"}, []string{"Cookie", "a=b"}, true},
		{"Cookie", []string{"Cookie", "a=b"}, []string{"Cookie", "a=c"}, false},
		{"", []string{"Accept", "a/b"}, nil, true},
	} {
		c := newClient(t)
		c.do(get(test.first...), answer(200, "hello", "Vary", test.vary), minutes)
		if _, ok := c.fail(get(test.then...), failed, minutes); ok != test.want {
			t.Errorf("Vary: %s; %q, then %q: served %t", test.vary, test.first, test.then, ok)
		}
	}
}

func TestAllLinesOfVaryCount(t *testing.T) {
	c := newClient(t)
	c.do(get("X-A", "1", "X-B", "1"), answer(200, "hello", "Vary", "X-A", "Vary", "X-B"), minutes)
	c.servesNothing(t, get("X-A", "1", "X-B", "2"), minutes)
	c.serves(t, "hello", get("X-A", "1", "X-B", "1"), minutes)
}

func TestOfSeveralThatMatchTheNewestAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t)
		c.do(get("Accept", "a/b"), answer(200, "any"), minutes)
		time.Sleep(time.Second)
		c.do(get("Accept", "a/b"), answer(200, "a/b", "Vary", "Accept"), minutes)
		c.serves(t, "a/b", get("Accept", "a/b"), minutes)
		c.serves(t, "any", get("Accept", "c/d"), minutes)
		time.Sleep(time.Second)
		c.do(get("Accept", "a/b"), answer(200, "any again"), minutes)
		c.serves(t, "any again", get("Accept", "a/b"), minutes)
	})
}

// The newest once went alone, and the next failure brought back what it had hidden.
func TestAnAnswerPastItsUseTakesTheOlderOnesWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t)
		c.do(get("Accept", "a/b"), answer(200, "old", "Cache-Control", "max-age=3600"), none)
		c.do(get("Accept", "c/d"), answer(200, "other", "Vary", "Accept", "Cache-Control", "max-age=3600"), none)
		time.Sleep(time.Second)
		c.do(get("Accept", "a/b"), answer(200, "new", "Vary", "Accept", "Cache-Control", "max-age=10"), none)
		time.Sleep(time.Minute)
		c.servesNothing(t, get("Accept", "a/b"), none)
		c.servesNothing(t, get("Accept", "a/b"), none)
		c.serves(t, "other", get("Accept", "c/d"), none)
	})
}

func TestAURIHasAtMostSixteenVariantsTheNewest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t)
		for i := range 20 {
			c.do(get("Accept", fmt.Sprint(i)), answer(200, "hello", "Vary", "Accept"), minutes)
			time.Sleep(time.Second)
		}
		if c.store.Len() != 16 {
			t.Errorf("%d variants", c.store.Len())
		}
		c.servesNothing(t, get("Accept", "3"), minutes)
		c.serves(t, "hello", get("Accept", "4"), minutes)
	})
}

func TestManyNamesInVaryAreNotStored(t *testing.T) {
	c := newClient(t)
	resp := answer(200, "hello")
	for i := range 33 {
		resp.Header.Add("Vary", fmt.Sprintf("X-%d-Timeout", i))
	}
	c.do(get(), resp, minutes)
	c.servesNothing(t, get(), minutes)
}

func TestACodingIsForThoseWhoAskedForIt(t *testing.T) {
	c := newClient(t)
	c.do(get("Accept-Encoding", "gzip"), answer(200, "\x1f\x8b", "Content-Encoding", "gzip"), minutes)
	c.servesNothing(t, get(), minutes)
	c.serves(t, "\x1f\x8b", get("Accept-Encoding", "gzip"), minutes)
}
