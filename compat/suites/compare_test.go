package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// pkg is a package whose test binary is a shell script, in which $MODE says how the
// stack is put underneath and attempt counts one through it.
func pkg(t *testing.T, script string) testPackage {
	t.Helper()
	p := testPackage{path: "example.test/p", dir: t.TempDir(), spent: new(atomic.Int64)}
	p.binary = filepath.Join(p.dir, "p.test")
	const head = `#!/bin/sh
MODE=$WATERTIGHT_COMPAT
attempt() { [ -z "$MODE" ] || printf . >>"$WATERTIGHT_COMPAT_COUNT"; }
pass() { printf '\026--- PASS: %s (0.00s)\n' "$1"; }
fail() { printf '\026--- FAIL: %s (0.00s)\n' "$1"; failed=1; }
`
	if err := os.WriteFile(p.binary, []byte(head+script+"\nexit ${failed:-0}\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestASuiteIsJudgedByWhatItsTestsDo(t *testing.T) {
	const dies = `printf 'panic: nil map\n\ngoroutine 1 [running]:\n'; exit 2`
	for name, c := range map[string]struct {
		script            string
		suite             suite
		errs              []string // what the errors say; none: the suite is fine
		differ, explained int
		unsteady          int
	}{
		"all passes":  {script: "attempt; pass A; pass B"},
		"one differs": {script: `attempt; pass A; [ -z "$MODE" ] && pass B || fail B`, differ: 1},
		"one differs and is explained": {script: `attempt; pass A; [ -z "$MODE" ] && pass B || fail B`,
			suite: suite{explained: each("why", "B")}, explained: 1},
		"one that is explained differs no longer": {script: "attempt; pass A; pass B",
			suite: suite{explained: each("why", "B")}, errs: []string{"B is said to differ, and does not"}},
		"one that is explained differs in one mode only": {script: `attempt; [ "$MODE" != every ] && pass B || fail B`,
			suite: suite{explained: each("why", "B")}, explained: 1},
		"one that is explained was not run":         {script: "attempt; pass A", suite: suite{explained: each("why", "B")}},
		"one fails at first only":                   {script: `attempt; [ -z "$MODE" ] || [ -e "$MODE" ] && pass B || fail B; : >"./${MODE:-none}"`, unsteady: 2},
		"the binary panics with the stack, at last": {script: `attempt; pass A; [ -z "$MODE" ] || { ` + dies + `; }`, errs: []string{"crashed, install", "crashed, every"}},
		"it panics in between": {script: `attempt; pass A; [ "$MODE" != every ] || { ` + dies + `; }; pass B`,
			errs: []string{"crashed, every: exit status 2\n    panic: nil map"}},
		"it panics where the tests are run together": {script: `attempt; case "$MODE $*" in "install "*-test.run=*) pass B ;; install*) ` + dies + `;; *) pass B; esac`,
			errs: []string{"crashed, install"}},
		"it panics without the stack":              {script: `attempt; pass A; [ -n "$MODE" ] || { ` + dies + `; }`, errs: []string{"crashed without the stack"}},
		"it fails, but no test does":               {script: `attempt; pass A; [ -z "$MODE" ] || exit 1`, errs: []string{"crashed, install", "crashed, every"}},
		"it is killed":                             {script: `attempt; pass A; [ "$MODE" != every ] || kill -9 $$`, errs: []string{"crashed, every: signal: killed"}},
		"it is killed after a failure":             {script: `attempt; pass A; fail B; [ "$MODE" != every ] || kill -9 $$`, errs: []string{"crashed, every: signal: killed"}},
		"it prints of a panic, and passes":         {script: "attempt; echo 'panic: in a log'; pass A"},
		"nothing goes through":                     {script: "pass A", errs: []string{"nothing was tested"}},
		"nothing goes through, which is known":     {script: "pass A", suite: suite{untouched: "it has its own"}},
		"something goes through, against the list": {script: "attempt; pass A", suite: suite{untouched: "it has its own"}, errs: []string{"although it has its own"}},
		"one fails, in a child that panics": {script: `attempt; pass A; [ "$MODE" != every ] || { printf 'panic: nil map\n\ngoroutine 1 [running]:\n'; fail A; }`,
			errs: []string{"crashed, every"}},
		"one fails on either side": {script: "attempt; pass A; fail B"},
	} {
		t.Run(name, func(t *testing.T) {
			r := gather([]*report{pkg(t, c.script).compare(c.suite)}, c.suite)
			if r.differ != c.differ || len(r.explained) != c.explained || len(r.unsteady) != c.unsteady || len(r.errs) != len(c.errs) {
				t.Errorf("%d differ, %v explained, %v unsteady, errors %v", r.differ, r.explained, r.unsteady, r.errs)
			}
			for i, want := range c.errs {
				if i < len(r.errs) && !strings.Contains(fmt.Sprint(r.errs[i]), want) {
					t.Errorf("error %q, want %q", r.errs[i], want)
				}
			}
		})
	}
}
