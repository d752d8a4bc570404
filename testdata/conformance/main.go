// Conformance runs the public suite of tests for HTTP caches, the npm package
// http-cache-tests, through "demo proxy -fresh", and compares what a private cache
// passes with what it must:
//
//	make conformance
//
// It exits with 0 if that is enough, or if there is no node to run it with, which it
// says; with 1 otherwise.
package main

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	suite   = "http-cache-tests"
	version = "0.4.5"

	leastRequired, leastOptional = 140, 73

	longest = 5 * time.Minute
)

//go:embed run.mjs
var driver []byte

// shared are the tests of what only a shared cache must do. They are played to one, and not counted for the private one.
var shared = []string{
	"freshness-s-maxage-shared", "freshness-max-age-s-maxage-shared-longer", "freshness-max-age-s-maxage-shared-longer-reversed",
	"freshness-max-age-s-maxage-shared-longer-multiple", "cc-resp-private-shared", "other-authorization",
	"freshness-max-age-s-maxage-shared-shorter", "freshness-max-age-s-maxage-shared-shorter-expires",
	"other-authorization-public", "other-authorization-smaxage",
}

// known are the required tests that fail, and why that is right.
var known = map[string]string{
	"age-parse-nonnumeric":            "RFC 9111 section 5.1: an Age that is invalid is ignored",
	"age-parse-negative":              "RFC 9111 section 5.1: an Age that is invalid is ignored",
	"age-parse-prefix-twoline":        "RFC 9111 section 5.1: of several members the first is used",
	"age-parse-dup-0":                 "RFC 9111 section 5.1: of several members the first is used",
	"age-parse-dup-0-twoline":         "RFC 9111 section 5.1: of several members the first is used",
	"age-parse-dup-old":               "RFC 9111 section 5.1: of several members the first is used, and it is fresh",
	"stale-close-must-revalidate":     "RFC 9111 section 4.2.4: nothing stale is served, but a 502, which lacks the field that the test counts by",
	"stale-close-proxy-revalidate":    "RFC 9111 section 5.2.2.8: it does not bind a private cache",
	"stale-close-no-cache":            "RFC 9111 section 4.2.4: nothing stale is served, but a 502, which lacks the field that the test counts by",
	"stale-close-s-maxage=2":          "RFC 9111 section 5.2.2.10: it does not bind a private cache",
	"headers-store-Transfer-Encoding": "net/http refuses an answer with a Transfer-Encoding that does not exist",
}

func main() { os.Exit(command()) }

// command returns the exit code.
func command() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			fmt.Printf("conformance: not run: there is no %s (Debian: apt-get install nodejs npm)\n", program)
			return 0
		}
	}
	dir, err := os.MkdirTemp("", "watertight-conformance-")
	if err == nil {
		defer func() { _ = os.RemoveAll(dir) }()
		var private, common []test
		if private, common, err = run(ctx, dir); err == nil {
			err = errors.Join(judge(os.Stdout, private), judgeShared(os.Stdout, common))
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		return 1
	}
	return 0
}

// test is what became of one.
type test struct {
	ID, Kind string
	Needs    []string
	Passed   bool
	Why      string
}

// run installs the suite, and plays it through the proxy.
func run(ctx context.Context, dir string) (private, common []test, err error) {
	if err := do(ctx, dir, "npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", suite+"@"+version); err != nil {
		return nil, nil, err
	}
	demo := filepath.Join(dir, "demo")
	if err := do(ctx, "", "go", "build", "-o", demo, "./cmd/demo"); err != nil {
		return nil, nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "run.mjs"), driver, 0o644); err != nil {
		return nil, nil, err
	}
	origin, proxy, err := addresses()
	if err != nil {
		return nil, nil, err
	}
	_, port, _ := net.SplitHostPort(origin)
	package_ := filepath.Join(dir, "node_modules", suite)
	env := []string{"npm_config_protocol=http", "npm_config_port=" + port, "npm_config_pidfile=" + filepath.Join(dir, "pid")}
	stopOrigin, err := start(ctx, package_, env, origin, "node", "server/server.mjs")
	if err != nil {
		return nil, nil, err
	}
	defer stopOrigin()
	private, err = play(ctx, dir, demo, origin, proxy, nil, "-one-user")
	if err != nil {
		return nil, nil, err
	}
	common, err = play(ctx, dir, demo, origin, proxy, append(slices.Clip(shared), "other-authorization-must-revalidate"), "-shared")
	return private, common, err
}

// play runs the tests of some ids, or all, against a proxy with some flags.
func play(ctx context.Context, dir, demo, origin, proxy string, ids []string, flags ...string) ([]test, error) {
	stopProxy, err := start(ctx, "", nil, proxy, demo, append([]string{"proxy", "-listen", proxy, "-target", "http://" + origin,
		"-fresh", "-max-stale", "1h", "-attempts", "1", "-failure-rate", "0", "-slow-rate", "0"}, flags...)...)
	if err != nil {
		return nil, err
	}
	defer stopProxy()
	cmd := exec.CommandContext(ctx, "node", append([]string{"--no-warnings", "run.mjs", "http://" + proxy}, ids...)...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("the suite: %w", cmp.Or(context.Cause(ctx), err))
	}
	var tests []test
	return tests, json.Unmarshal(out, &tests)
}

// addresses are two that are free.
func addresses() (one, two string, err error) {
	a, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", "", err
	}
	defer func() { _ = a.Close() }()
	b, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", "", err
	}
	defer func() { _ = b.Close() }()
	return a.Addr().String(), b.Addr().String(), nil
}

// do runs a program to its end.
func do(ctx context.Context, dir, program string, args ...string) error {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", program, strings.Join(args, " "), err, out)
	}
	return nil
}

// start starts a program, and waits until it serves.
func start(ctx context.Context, dir string, env []string, addr, program string, args ...string) (stop func(), err error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	stop = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	for begun := time.Now(); time.Since(begun) < 20*time.Second; time.Sleep(50 * time.Millisecond) {
		if resp, err := http.Get("http://" + addr + "/"); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			return stop, nil
		}
	}
	stop()
	return nil, fmt.Errorf("%s does not serve at %s", program, addr)
}

// judge prints what failed, and reports whether enough has passed. A test passes that
// has, and whose preconditions have.
func judge(w io.Writer, tests []test) error {
	passed := map[string]bool{}
	for _, t := range tests {
		passed[t.ID] = t.Passed
	}
	var wrong []error
	count := map[string]int{}
	all := map[string]int{}
	for _, t := range tests {
		if slices.Contains(shared, t.ID) {
			continue
		}
		all[t.Kind]++
		good := t.Passed && !slices.ContainsFunc(t.Needs, func(id string) bool { return !passed[id] })
		switch why := known[t.ID]; {
		case good && why != "":
			wrong = append(wrong, fmt.Errorf("%s passes, and is listed as one that cannot", t.ID))
			fallthrough
		case good:
			count[t.Kind]++
		case t.Kind == "required" && why == "":
			wrong = append(wrong, fmt.Errorf("%s fails: %s", t.ID, t.Why))
		case t.Kind == "required":
			fmt.Fprintf(w, "  %-34s %s\n", t.ID, why)
		case t.Kind == "optimal":
			fmt.Fprintf(w, "  %-34s optional: %s\n", t.ID, t.Why)
		}
	}
	fmt.Fprintf(w, "%s %s, private cache: %d of %d required, %d of %d optional\n", suite, version,
		count["required"], all["required"], count["optimal"], all["optimal"])
	if count["required"] < leastRequired || count["optimal"] < leastOptional {
		wrong = append(wrong, fmt.Errorf("must be at least %d required and %d optional", leastRequired, leastOptional))
	}
	return errors.Join(wrong...)
}

// judgeShared reports whether a shared cache has passed all that only one must do.
func judgeShared(w io.Writer, tests []test) error {
	var wrong []error
	for _, t := range tests {
		if !t.Passed {
			wrong = append(wrong, fmt.Errorf("shared cache: %s fails: %s", t.ID, t.Why))
		}
	}
	fmt.Fprintf(w, "%s %s, shared cache: %d of %d\n", suite, version, len(tests)-len(wrong), len(tests))
	if len(tests) != len(shared)+1 {
		wrong = append(wrong, fmt.Errorf("shared cache: %d tests were played, not %d", len(tests), len(shared)+1))
	}
	return errors.Join(wrong...)
}
