package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/watertight-go/watertight/compat/internal/underneath"
)

// results are what a run of a package says of each test: PASS, FAIL or SKIP.
type results struct {
	of     map[string]string
	output []byte
	err    error // of the binary
}

func (r results) passed(test string) bool { return r.of[test] == "PASS" }

// crashed is how the run ended, if not by the verdicts on its tests: by a panic, a
// limit, a signal or os.Exit.
func (r results) crashed() error {
	var exit *exec.ExitError
	failed := errors.As(r.err, &exit) && exit.ExitCode() == 1 && slices.Contains(slices.Collect(maps.Values(r.of)), "FAIL")
	if failed && !panicked.Match(r.output) {
		return nil
	}
	return r.err
}

// panicked is what the runtime says when it ends a program.
var panicked = regexp.MustCompile(`(?m)^(panic|fatal error): .*\n(.+\n)*\ngoroutine \d+`)

// died is the end of what a run that crashed has printed.
func (r results) died() string {
	out := r.output
	if i := panicked.FindIndex(out); i != nil {
		out = out[i[0]:]
	} else {
		out = out[max(0, len(out)-2000):]
	}
	return string(bytes.ReplaceAll(out[:min(len(out), 2000)], []byte{0x16}, nil))
}

// verdict is a line of a test binary that says what became of a test. The mark
// tells it from what the test itself has printed.
var verdict = regexp.MustCompile(`\x16\s*--- (PASS|FAIL|SKIP): (.+) \(`)

const (
	packageLimit = 2 * time.Minute
	aloneLimit   = time.Minute
)

// running bounds the tests that run side by side. Most wait for a clock most of the
// time.
var running = make(chan struct{}, 3*runtime.NumCPU())

// run runs the tests of a package, all of them or one.
func (p testPackage) run(mode, count, test, skip string, limit time.Duration) results {
	args := []string{"-test.v=test2json", "-test.paniconexit0", "-test.timeout=" + limit.String()}
	if skip != "" {
		args = append(args, "-test.skip="+skip)
	}
	if test != "" {
		args = append(args, "-test.run="+exactly(test))
	}
	running <- struct{}{}
	defer func(begin time.Time) {
		p.spent.Add(int64(time.Since(begin)))
		<-running
	}(time.Now())
	ctx, cancel := context.WithTimeout(context.Background(), limit+30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.binary, args...)
	cmd.Dir = p.dir
	cmd.WaitDelay = time.Second
	cmd.Env = append(os.Environ(), "PWD="+p.dir, underneath.ModeVar+"="+mode, underneath.CountVar+"="+count)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	r := results{of: map[string]string{}}
	r.err = cmd.Run()
	r.output = out.Bytes()
	for _, m := range verdict.FindAllSubmatch(r.output, -1) {
		name := string(m[2])
		if r.of[name] != "FAIL" {
			r.of[name] = string(m[1])
		}
	}
	return r
}

// exactly is the pattern that matches one test.
func exactly(test string) string {
	parts := strings.Split(test, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	return strings.Join(parts, "/")
}

// said is what a run printed about a test, and after it.
func (r results) said(test string) string {
	top, _, _ := strings.Cut(test, "/")
	i := bytes.Index(r.output, fmt.Appendf(nil, "=== RUN   %s", top))
	if i < 0 {
		i = max(0, len(r.output)-4096)
	}
	out := r.output[i:]
	if end := bytes.Index(out, fmt.Appendf(nil, "--- FAIL: %s ", top)); end >= 0 {
		out = out[:end]
	}
	out = bytes.ReplaceAll(out, []byte{0x16}, nil)
	if len(out) > 6000 {
		out = out[:6000]
	}
	return string(out)
}
