package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// runner runs the test binary, which is built once.
type runner struct {
	dir, binary string
	benchtime   time.Duration
	interrupted <-chan os.Signal
}

// duration of a work: those over sockets need many turns, and of those that measure
// bytes, or one moment, a few runs are enough.
func (r *runner) duration(work string) string {
	switch work {
	case "BenchmarkLoopback", "BenchmarkLarge":
		return (10 * r.benchtime).String()
	case "BenchmarkHung":
		return "3x"
	case "BenchmarkIdleHosts", "BenchmarkIdleHostsPooled", "BenchmarkHungKnown":
		return "1x"
	}
	return r.benchtime.String()
}

func newRunner(benchtime time.Duration, interrupted <-chan os.Signal) (*runner, error) {
	dir, err := os.MkdirTemp("", "report")
	if err != nil {
		return nil, err
	}
	r := &runner{dir: dir, binary: filepath.Join(dir, "bench.test"), benchtime: benchtime, interrupted: interrupted}
	build := exec.Command("go", "test", "-c", "-o", r.binary, ".")
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		r.close()
		return nil, fmt.Errorf("building the benchmarks: %w", err)
	}
	return r, nil
}

func (r *runner) close() { _ = os.RemoveAll(r.dir) }

// run runs the binary and returns what it printed.
func (r *runner) run(args ...string) ([]byte, error) {
	var out bytes.Buffer
	cmd := exec.Command(r.binary, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			return nil, fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, out.Bytes())
		}
		return out.Bytes(), nil
	case <-r.interrupted:
		_ = cmd.Process.Kill()
		<-ended
		return nil, errors.New("interrupted")
	}
}

// prove runs the test of each fault.
func (r *runner) prove(faults []fault) error {
	names := make([]string, len(faults))
	for i, f := range faults {
		names[i] = regexp.QuoteMeta(f.test)
	}
	out, err := r.run("-test.v", "-test.run", "^("+strings.Join(names, "|")+")$")
	if err != nil {
		return err
	}
	for _, f := range faults {
		if !bytes.Contains(out, []byte("--- PASS: "+f.test+" ")) {
			return fmt.Errorf("%s: %q is not proved", f.test, f.text)
		}
	}
	return nil
}

// work is one benchmark to run, with patterns of its sub-benchmarks: none is all.
type work struct {
	name string
	subs []string
}

// pattern is for the testing package.
func (w work) pattern() string {
	top := "^" + w.name + "$"
	if len(w.subs) == 0 {
		return top
	}
	return top + "/" + strings.Join(w.subs, "|"+top+"/")
}

// works are the benchmarks that a pattern names.
func (r *runner) works(pattern string) ([]work, error) {
	out, err := r.run("-test.list", "^Benchmark")
	if err != nil {
		return nil, err
	}
	all, err := named(strings.Fields(string(out)), pattern)
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("-bench %s: no such benchmark", pattern)
	}
	return all, err
}

// named are those of some benchmarks that a pattern names: as the go command has it,
// its alternatives are patterns of their own, and what follows a slash in one is for
// sub-benchmarks.
func named(names []string, pattern string) ([]work, error) {
	if strings.ContainsAny(pattern, "()") { // in which there may be alternatives, and slashes
		return nil, fmt.Errorf("-bench %s: parentheses are not understood: write A/x|A/y for A/(x|y)", pattern)
	}
	var all []work
	for _, name := range names {
		if !strings.HasPrefix(name, "Benchmark") { // what the binary says after them
			continue
		}
		var subs []string
		some, whole := false, false
		for alternative := range strings.SplitSeq(pattern, "|") {
			top, sub, _ := strings.Cut(alternative, "/")
			match, err := regexp.MatchString(top, name)
			switch {
			case err != nil:
				return nil, fmt.Errorf("-bench %s: %w", pattern, err)
			case !match:
				continue
			case sub == "":
				whole = true
			}
			some, subs = true, append(subs, sub)
		}
		switch {
		case whole:
			all = append(all, work{name: name})
		case some:
			all = append(all, work{name, subs})
		}
	}
	return all, nil
}

// measure runs all works once a round: the peers of a work one after the other, so
// that what the machine does meanwhile meets them alike.
func (r *runner) measure(works []work, rounds int) (*figures, error) {
	f := newFigures()
	for round := range rounds {
		for _, w := range works {
			fmt.Fprintf(os.Stderr, "round %d of %d: %s\n", round+1, rounds, strings.TrimPrefix(w.name, "Benchmark"))
			out, err := r.run("-test.run", "^$", "-test.bench", w.pattern(), "-test.benchtime", r.duration(w.name), "-test.timeout", "0")
			if err != nil {
				return nil, err
			}
			if err := f.parse(string(out), round); err != nil {
				return nil, err
			}
		}
	}
	return f, nil
}
