package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/watertight-go/watertight/compat/internal/underneath"
)

// modes are the ways to put the stack underneath.
var modes = []string{underneath.Install, underneath.Every}

// report is what came of one suite.
type report struct {
	name                    string
	passed, skipped, failed int // without the stack
	attempts                int // with it
	differ                  int
	spent                   time.Duration
	differences             []difference // those, with what they said
	explained               []string
	unsteady                []string // that did not fail again and again
	errs                    []error
}

// difference is a test that passes without the stack and fails with it.
type difference struct {
	pkg, test, mode, said string
}

// rerun is how often, on either side, a test that differs is run again alone, or
// with its whole package, before it is called a difference.
const rerun = 3

// compareAll runs the suites, prints a line for each, and reports whether there is
// no difference.
func compareAll(st *stage, chosen []suite, w io.Writer) bool {
	start := time.Now()
	reports := make(chan *report)
	for _, s := range chosen {
		go func() { reports <- compare(st, s) }()
	}
	var total report
	fmt.Fprintf(w, "%-60s %6s %7s %8s %6s %8s %7s\n", "suite", "passed", "skipped", "baseline", "differ", "attempts", "seconds")
	for range chosen {
		r := <-reports
		r.print(w)
		total.add(r)
	}
	ok := total.differ == 0 && len(total.errs) == 0
	total.differences, total.explained, total.unsteady, total.errs = nil, nil, nil, nil // printed
	total.name = fmt.Sprintf("total, in %v", time.Since(start).Round(time.Second))
	total.print(w)
	fmt.Fprint(w, legend)
	return ok
}

const legend = `
passed: without the stack and with it; baseline: failed without it, so they take no part;
differ: failed only with it, every time; attempts: what went through the stack meanwhile;
seconds: of its compilers and tests, of which several run side by side;
unsteady: failed with it, but not every time, or not only with it
`

func (r *report) add(o *report) {
	r.passed += o.passed
	r.skipped += o.skipped
	r.failed += o.failed
	r.attempts += o.attempts
	r.differ += o.differ
	r.spent += o.spent
	r.differences = append(r.differences, o.differences...)
	r.explained = append(r.explained, o.explained...)
	r.unsteady = append(r.unsteady, o.unsteady...)
	r.errs = append(r.errs, o.errs...)
}

func (r *report) print(w io.Writer) {
	fmt.Fprintf(w, "%-60s %6d %7d %8d %6d %8d %7.1f\n", r.name, r.passed, r.skipped, r.failed, r.differ, r.attempts, r.spent.Seconds())
	for _, d := range r.differences {
		fmt.Fprintf(w, "\n--- %s in %s, %s\n%s\n", d.test, d.pkg, d.mode, indent(d.said))
	}
	for _, e := range r.explained {
		fmt.Fprintf(w, "    differs by intent: %s\n", e)
	}
	for _, u := range r.unsteady {
		fmt.Fprintf(w, "    unsteady: %s\n", u)
	}
	for _, err := range r.errs {
		fmt.Fprintf(w, "    %v\n", err)
	}
}

func indent(text string) string {
	return "    " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n    ")
}

// compare runs one suite.
func compare(st *stage, s suite) *report {
	name := s.module + "@" + st.version[s.module]
	packages, err := st.packages(s)
	if err != nil {
		return &report{name: name, errs: []error{err}}
	}
	reports := make([]*report, len(packages))
	var wg sync.WaitGroup
	for i, p := range packages {
		wg.Go(func() { reports[i] = comparePackage(st, s, p) })
	}
	wg.Wait()
	r := gather(reports, s)
	r.name = name
	if len(packages) > 0 {
		r.spent = time.Duration(packages[0].spent.Load())
	}
	return r
}

// gather makes one report of those on a suite's packages.
func gather(reports []*report, s suite) *report {
	r := &report{}
	for _, one := range reports {
		r.add(one)
	}
	switch {
	case r.attempts == 0 && s.untouched == "":
		r.errs = append(r.errs, errors.New("nothing went through the stack: nothing was tested"))
	case r.attempts > 0 && s.untouched != "":
		r.errs = append(r.errs, fmt.Errorf("%d attempts went through the stack, although %s", r.attempts, s.untouched))
	}
	slices.SortFunc(r.differences, func(a, b difference) int {
		return strings.Compare(a.pkg+a.test+a.mode, b.pkg+b.test+b.mode)
	})
	return r
}

// comparePackage runs a package's tests without the stack, and in each mode.
func comparePackage(st *stage, s suite, p testPackage) *report {
	if err := st.compile(p); err != nil {
		return &report{errs: []error{err}}
	}
	defer os.Remove(p.binary)
	return p.compare(s)
}

// compare does so with a package that is compiled.
func (p testPackage) compare(s suite) *report {
	r := &report{}
	var wg sync.WaitGroup
	var plain results
	wg.Go(func() { plain = p.run("", "", "", s.skip, packageLimit) })
	with := make([]results, len(modes))
	counts := make([]string, len(modes))
	for i, mode := range modes {
		counts[i] = p.binary + "." + mode
		wg.Go(func() { with[i] = p.run(mode, counts[i], "", s.skip, packageLimit) })
	}
	wg.Wait()
	for _, status := range plain.of {
		switch status {
		case "PASS":
			r.passed++
		case "SKIP":
			r.skipped++
		default:
			r.failed++
		}
	}
	if err := plain.crashed(); err != nil {
		r.errs = append(r.errs, fmt.Errorf("%s crashed without the stack: %w\n%s", p.path, err, indent(plain.died())))
	}
	differing := map[string]bool{}
	for i, mode := range modes {
		if info, err := os.Stat(counts[i]); err == nil {
			r.attempts += int(info.Size())
		}
		if err := with[i].crashed(); err != nil {
			r.errs = append(r.errs, fmt.Errorf("%s crashed, %s: %w\n%s", p.path, mode, err, indent(with[i].died())))
			continue // what was not run is no difference
		}
		for _, test := range leaves(plain, with[i]) {
			if !p.differs(s, mode, test) {
				r.unsteady = append(r.unsteady, test+", "+mode)
				continue
			}
			switch why := s.explained[test]; {
			case why == "":
				r.differences = append(r.differences, difference{p.path, test, mode, with[i].said(test)})
				if !differing[test] {
					r.differ++
				}
			case !differing[test]:
				r.explained = append(r.explained, test+": "+why)
			}
			differing[test] = true
		}
	}
	for test := range s.explained {
		if plain.passed(test) && !slices.ContainsFunc(with, func(w results) bool { return !w.passed(test) }) {
			r.errs = append(r.errs, fmt.Errorf("%s: %s is said to differ, and does not", p.path, test))
		}
	}
	r.passed -= len(differing)
	return r
}

// leaves are the tests that pass without the stack and not with it, but for those
// whose subtests tell more exactly which.
func leaves(plain, with results) []string {
	var differ []string
	for test := range plain.of {
		if plain.passed(test) && !with.passed(test) {
			differ = append(differ, test)
		}
	}
	slices.Sort(differ)
	return slices.DeleteFunc(slices.Clone(differ), func(test string) bool {
		return slices.ContainsFunc(differ, func(other string) bool { return strings.HasPrefix(other, test+"/") })
	})
}

// differs runs a test again and again on either side, first alone, then with its
// package, and reports whether it always passes without the stack and always fails
// with it.
func (p testPackage) differs(s suite, mode, test string) bool {
	always := func(only string, limit time.Duration) bool {
		for range rerun {
			if p.run(mode, "", only, s.skip, limit).passed(test) || !p.run("", "", only, s.skip, limit).passed(test) {
				return false
			}
		}
		return true
	}
	return always(test, aloneLimit) || always("", packageLimit)
}
