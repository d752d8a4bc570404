package transport_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/transporttest"
)

func TestTransitionsOfAllHostsAreRememberedInOrder(t *testing.T) {
	tr := tripping(quiet(), &transporttest.Recorder{})
	none, next := tr.Transitions(0)
	if len(none) != 0 {
		t.Fatal(none)
	}
	for i := range 300 {
		_ = hostCall(tr, fmt.Sprintf("http://h%d.test", i))
	}
	select {
	case <-next:
	default:
		t.Error("the channel of what comes next is open")
	}
	for after, want := range map[uint64]int{0: 256, 44: 256, 45: 255, 299: 1, 300: 0, 301: 0, math.MaxUint64: 0} {
		got, next := tr.Transitions(after)
		if len(got) != want {
			t.Errorf("%d after %d, want %d", len(got), after, want)
		}
		for i, h := range got {
			if id := uint64(300 - want + i + 1); h.ID != id || h.Host != fmt.Sprintf("h%d.test:80", id-1) || h.To != transport.Open || h.Evidence.Failures != 1 {
				t.Fatalf("after %d, at %d: %+v", after, i, h)
			}
		}
		select {
		case <-next:
			t.Error("closed, though nothing has come")
		default:
		}
	}
}
