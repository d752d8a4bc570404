// Suites runs the tests of other people's HTTP clients with the stack in the place
// of http.DefaultTransport, and without it, and tells which tests pass without and
// fail with it. It exits with 1 if there are any.
//
// Run it in the directory above: go run ./suites. It takes the modules from the
// module cache or proxy, in the versions of go.mod, and copies them to a
// temporary directory.
package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
)

func main() {
	full := flag.Bool("full", false, "also the suites that take long")
	only := flag.String("run", "", "run only the suites whose module matches this `regexp`")
	keep := flag.Bool("keep", false, "keep the temporary directory, and name it")
	flag.Parse()

	pattern, err := regexp.Compile(*only)
	if err != nil {
		exit(2, err)
	}
	var chosen []suite
	for _, s := range suites {
		if pattern.MatchString(s.module) && (*full || !s.full || *only != "") {
			chosen = append(chosen, s)
		}
	}
	st, err := newStage(chosen)
	if err != nil {
		exit(2, err)
	}
	ok := compareAll(st, chosen, os.Stdout)
	if *keep {
		fmt.Println(st.dir)
	} else if err := st.remove(); err != nil {
		exit(2, err)
	}
	if !ok {
		os.Exit(1)
	}
}

func exit(code int, err error) {
	fmt.Fprintln(os.Stderr, "suites:", err)
	os.Exit(code)
}
