package transporttest

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/watertight-go/watertight/transport"
)

// CheckLeaks fails the test if goroutines that do not run yet still run 10 seconds
// after its end. Call it first: what is cleaned up later than that is not waited
// for. It cannot tell tests apart that run in parallel, and a bubble of
// testing/synctest does not need it.
func CheckLeaks(t testing.TB) {
	t.Helper()
	before := map[string]bool{}
	for _, g := range goroutines() {
		before[id(g)] = true
	}
	t.Cleanup(func() {
		t.Helper()
		var left []string
		if eventually(func() bool {
			left = nil
			for _, g := range goroutines() {
				if !before[id(g)] {
					left = append(left, g)
				}
			}
			return len(left) == 0
		}) {
			return
		}
		t.Errorf("transporttest: %d goroutines left:\n\n%s", len(left), strings.Join(left, "\n\n"))
	})
}

// CheckPermits fails the test if calls still hold permits, or wait for them, after
// 10 seconds.
func CheckPermits(t testing.TB, tr *transport.Transport) {
	t.Helper()
	var held []string
	if eventually(func() bool {
		held = nil
		for _, h := range tr.Snapshot() {
			if h.InFlight != 0 || h.Waiting != 0 {
				held = append(held, fmt.Sprintf("%s://%s: %d in flight, %d waiting", h.Scheme, h.Host, h.InFlight, h.Waiting))
			}
		}
		return len(held) == 0
	}) {
		return
	}
	t.Errorf("transporttest: permits held: %s", strings.Join(held, "; "))
}

// eventually asks, less and less often, until it is told yes.
func eventually(yes func() bool) bool {
	start, wait := time.Now(), 100*time.Microsecond
	for !yes() {
		if time.Since(start) > patience {
			return false
		}
		time.Sleep(wait)
		wait = min(2*wait, 4*time.Millisecond)
	}
	return true
}

// goroutines are the stacks of all but the one that asks.
func goroutines() []string {
	buf := make([]byte, 1<<20)
	for {
		n := runtime.Stack(buf, true)
		if n < len(buf) {
			buf = buf[:n]
			break
		}
		buf = make([]byte, 2*len(buf))
	}
	var all []string
	for stack := range bytes.SplitSeq(buf, []byte("\n\n")) {
		all = append(all, strings.TrimSpace(string(stack)))
	}
	return all[1:]
}

// id is the number of a goroutine, from "goroutine 7 [running]:".
func id(stack string) string {
	_, rest, _ := strings.Cut(stack, " ")
	n, _, _ := strings.Cut(rest, " ")
	return n
}
