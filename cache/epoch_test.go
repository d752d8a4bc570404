package cache

import "testing"

// The tag of the oldest write that is remembered must not have been overwritten by that of one that is not counted yet: an
// answer from before the write would be stored after it.
func TestAWriteIsNotForgottenWhileAnotherIsUnderWay(t *testing.T) {
	k, other := Key{hash: 1 << 32}, Key{hash: 2 << 32}
	for others := range 3 * epochWrites {
		var e epoch
		since := e.now()
		e.end(&k)
		for range others {
			e.end(&other)
		}
		if !e.over(&k, since) {
			t.Errorf("forgotten after %d others", others)
		}
		e.last[(e.writes.Load()+1)%epochWrites].Store(other.tag()) // what end does first
		if !e.over(&k, since) {
			t.Errorf("forgotten after %d others, while the next one is under way", others)
		}
	}
}

func TestAWriteIsNotForgottenAsAnotherIsMade(t *testing.T) {
	k, other := Key{hash: 1 << 32}, Key{hash: 2 << 32}
	for range 2000 {
		var e epoch
		since := e.now()
		e.end(&k)
		for range epochWrites - 2 {
			e.end(&other)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			for range 3 {
				e.end(&other)
			}
		}()
		for over := false; !over; {
			if !e.over(&k, since) {
				t.Fatal("forgotten")
			}
			select {
			case <-done:
				over = true
			default:
			}
		}
	}
}

func TestWritesToOtherURIsKeepNoAnswerOut(t *testing.T) {
	k, other := Key{hash: 1 << 32}, Key{hash: 2 << 32}
	var e epoch
	e.end(&k)
	since := e.now()
	for n := 1; n < epochWrites; n++ {
		e.end(&other)
		if e.over(&k, since) {
			t.Errorf("kept out by %d", n)
		}
	}
	if e.end(&other); !e.over(&k, since) {
		t.Error("more writes than are remembered keep it in")
	}
}
