package cachetest_test

import (
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/watertight-go/watertight/cache/cachetest"
)

// wrong names what a child of this process tests, in its environment.
const wrong = "CACHETEST_WRONG"

var failed = regexp.MustCompile(`(?m)^ *--- FAIL: [^/\s]+/(\S+)`)

// bites runs a test of this file again, in a process of its own for each wrong store or cache, which fails it; and checks that those
// subtests fail that ought to, and that there is no subtest that nothing fails.
func bites(t *testing.T, wrongs map[string][]string, all []string) {
	var mu sync.Mutex // guards bitten
	bitten := map[string]bool{}
	var children sync.WaitGroup
	slots := make(chan struct{}, 2)
	for name, want := range wrongs {
		children.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$/^("+strings.Join(want, "|")+")$", "-test.v", "-test.timeout=5m")
			child.Env = append(os.Environ(), wrong+"="+name)
			out, err := child.CombinedOutput()
			mu.Lock()
			defer mu.Unlock()
			bit := map[string]bool{}
			for _, m := range failed.FindAllStringSubmatch(string(out), -1) {
				bit[m[1]], bitten[m[1]] = true, true
			}
			if missed := slices.DeleteFunc(slices.Clone(want), func(name string) bool { return bit[name] }); len(missed) > 0 || err == nil {
				t.Errorf("%s: %v pass, %v\n%s", name, missed, err, out)
			}
		})
	}
	children.Wait()
	for _, name := range all {
		if !bitten[name] {
			t.Errorf("%s: nothing fails it", name)
		}
	}
	if n := len(bitten); n > len(all) {
		t.Errorf("%d subtests have failed: %v", n, slices.Sorted(maps.Keys(bitten)))
	}
}

func TestEachPromiseCanBeBroken(t *testing.T) {
	if fault := os.Getenv(wrong); fault != "" {
		cachetest.TestStore(t, openPlain(fault))
		return
	}
	bites(t, wrongStores, cachetest.Promises())
}
