package soak

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"strconv"
	"testing"
	"time"

	"github.com/watertight-go/watertight/transport/transporttest"
)

// toEnd is what the checks after a soak may take, all of which have limits of their own.
const toEnd = 10 * time.Minute

// TestEverythingHoldsWhileEverythingGoesWrong is the soak. The environment says how
// long (SOAK, 3s) and with which decisions (SEED, 1; "random" are others every time).
func TestEverythingHoldsWhileEverythingGoesWrong(t *testing.T) {
	length, err := time.ParseDuration(cmp.Or(os.Getenv("SOAK"), "3s"))
	if err != nil || length <= 0 {
		t.Fatalf("SOAK=%s: must be a positive duration, such as 60s", os.Getenv("SOAK"))
	}
	seed := rand.Uint64N(1_000_000)
	if s := cmp.Or(os.Getenv("SEED"), "1"); s != "random" {
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("SEED=%s: must be a number, or random", s)
		}
	}
	transporttest.CheckLeaks(t)
	hangs := time.AfterFunc(length+toEnd, func() {
		debug.SetTraceback("all")
		panic(fmt.Sprintf("the soak does not come to its end within %v of its %v", toEnd, length))
	})
	defer hangs.Stop()
	fmt.Fprintf(os.Stderr, "soak: %v, SEED=%d\n", length, seed)
	r := &run{plan: plan{seed}, length: length, stop: func() {}}
	if err := r.build(); err != nil {
		t.Fatal(err)
	}
	r.soak()
	if r.report() == "" {
		r.settle()
	}
	r.tell(time.Since(r.start))
	if broken := r.report(); broken != "" {
		t.Errorf("%s\nmake soak SOAK=%v SEED=%d repeats the decisions of this run", broken, length, seed)
	}
}
