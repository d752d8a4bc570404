package cache_test

import (
	"strings"
	"testing"
)

// What BeginIn leaves for later is done when it is needed after all: here since another call has stored something meanwhile.
func TestACallFindsWhatWasStoredSinceItBegan(t *testing.T) {
	c := newClient(t)
	x := c.Begin(get())
	c.do(get(), answer(200, "stored", "Cache-Control", "max-age=60"), none)
	resp, ok := c.Serve(&x, get(), failed, none)
	if !ok || text(t, resp) != "stored" {
		t.Errorf("served: %t", ok)
	}
	if resp, ok := c.OnlyIfCached(&x, get("Cache-Control", "only-if-cached")); ok {
		t.Errorf("%d in answer to a request that did not ask for it", resp.StatusCode)
	}
}

func TestTheFirstAnswerOfAHostIsNotStoredAfterAWriteToItsURI(t *testing.T) {
	for _, written := range []string{"https://a.test/doc", "https://a.test/other"} {
		c := newClient(t)
		store := func(write bool) {
			x := c.Begin(get())
			if write {
				c.do(request("PUT", written), answer(200, "written"), none)
			}
			resp := answer(200, "stored", "Cache-Control", "max-age=60")
			c.read(c.Received(&x, get(), resp, none), resp)
		}
		store(true) // to be sure, since it is not known yet which URI it is that was written to
		c.servesNothing(t, get(), none)
		store(true)
		if _, ok := c.fail(get(), failed, none); ok != (written != "https://a.test/doc") {
			t.Errorf("the second answer, with a write to %s: stored is %t", written, ok)
		}
		store(false)
		c.serves(t, "stored", get(), none)
	}
}

// A host whose only writes are to what is not there stores its answers in spite of them.
func TestAnswersThatSupersedeNothingDoNotKeepOthersFromBeingStored(t *testing.T) {
	c := newClient(t)
	for range 2 {
		x := c.Begin(get())
		c.do(request("GET", "https://a.test/missing"), answer(404, "none"), none)
		resp := answer(200, "stored", "Cache-Control", "max-age=60")
		c.read(c.Received(&x, get(), resp, none), resp)
	}
	c.serves(t, "stored", get(), none)
}

func TestAKeyThatIsTooLongIsNoneHoweverLateItIsMade(t *testing.T) {
	c := newClient(t)
	long := request("GET", "https://a.test/"+strings.Repeat("x", 9<<10))
	x := c.Begin(long)
	resp := answer(200, "stored", "Cache-Control", "max-age=60")
	if capture := c.Received(&x, long, resp, none); capture != nil {
		t.Error("an answer is kept whose URI is too long")
	}
}

func TestHostsOfWhichNothingIsStoredAreKnown(t *testing.T) {
	c := newClient(t)
	if c.Holds(get()) {
		t.Error("something is said to be stored before anything is")
	}
	c.do(get(), answer(200, "stored", "Cache-Control", "max-age=60"), none)
	if !c.Holds(get()) || !c.Holds(request("GET", "https://A.TEST:443/other")) {
		t.Error("what is stored of a host is not known")
	}
	if one, other := c.Holds(request("GET", "https://b.test/")), c.Holds(request("GET", "https://c.test/")); one && other {
		t.Error("two more hosts are said to have something stored") // one of them may share a place
	}
}

func TestOnlyIfCachedDoesNotDependOnWhatElseIsStored(t *testing.T) {
	c := newClient(t)
	long := request("GET", "https://a.test/"+strings.Repeat("x", 9<<10), "Cache-Control", "only-if-cached")
	for _, stored := range []bool{false, true} {
		x := c.Begin(long)
		if _, ok := c.OnlyIfCached(&x, long); ok {
			t.Errorf("something stored is %t: answered, though the URI is too long for the cache", stored)
		}
		c.do(get(), answer(200, "stored", "Cache-Control", "max-age=60"), none)
	}
}
