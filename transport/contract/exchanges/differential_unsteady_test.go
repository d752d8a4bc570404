package exchanges_test

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
)

// unsteady are the exchanges that differed, and then did not: by the machine's chance,
// or by the stack's.
type unsteady struct {
	mu    sync.Mutex        // guards what follows
	diffs map[string]string // by the exchange's name
}

// note takes the difference of an exchange that was equal in the end; empty: there
// was none.
func (u *unsteady) note(name, diff string) {
	if diff == "" {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.diffs == nil {
		u.diffs = map[string]string{}
	}
	u.diffs[name] = diff
}

const (
	plays       = 10 // of an unsteady exchange, with nothing beside it
	mostDiffers = 2  // of those: one that differs half the time does so more often in 19 of 20 runs
)

// settle plays each again, and says which differ too often to be the machine's
// chance.
func (u *unsteady) settle(once func(name string) (diff string)) (told, wrong []string) {
	for _, name := range slices.Sorted(maps.Keys(u.diffs)) {
		differs := 0
		for range plays {
			if once(name) != "" {
				differs++
			}
		}
		said := fmt.Sprintf("%s differed, then not; of %d times alone, it differed %d times: %s", name, plays, differs, u.diffs[name])
		if differs > mostDiffers {
			wrong = append(wrong, said)
		} else {
			told = append(told, said)
		}
	}
	return told, wrong
}

func TestExchangesThatDifferNowAndThenAreFound(t *testing.T) {
	for name, c := range map[string]struct {
		every int // which comparison differs
		found bool
	}{
		"every other time": {every: 2, found: true},
		"one in three":     {every: 3, found: true},
		"one in five":      {every: 5},
		"only then":        {every: plays + 1},
	} {
		t.Run(name, func(t *testing.T) {
			var u unsteady
			u.note("x", "a difference")
			u.note("y", "")
			n := 0
			told, wrong := u.settle(func(name string) string {
				if n++; name != "x" || n%c.every == 0 {
					return "another"
				}
				return ""
			})
			if len(told)+len(wrong) != 1 || len(wrong) == 1 != c.found || n != plays {
				t.Errorf("told %v, wrong %v, after %d", told, wrong, n)
			}
		})
	}
}
