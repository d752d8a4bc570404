// Command report runs the benchmarks of module bench in rounds, and makes tables of
// the medians, the targets they meet or miss, and a chart.
//
//	go run ./report                     # everything, into RESULTS.md and peers.svg
//	go run ./report -bench 'Call|Stale' # the tables of these alone, printed
//
// It is run in the module's directory. Every statement on what a peer gets wrong is the
// comment of a test, which is run too: one that fails fails the report.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"time"
)

func main() {
	rounds := flag.Int("rounds", 5, "how often everything is measured")
	bench := flag.String("bench", "", "print the tables of these benchmarks only, and write nothing")
	benchtime := flag.Duration("benchtime", 500*time.Millisecond, "how long one benchmark over memory is measured")
	flag.Parse()
	if err := report(*rounds, *bench, *benchtime); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

func report(rounds int, bench string, benchtime time.Duration) error {
	if rounds < 1 {
		return errors.New("-rounds: must be a positive number")
	}
	if _, err := regexp.Compile(bench); err != nil {
		return fmt.Errorf("-bench: %w", err)
	}
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt)

	s, err := readSources(".")
	if err != nil {
		return err
	}
	r, err := newRunner(benchtime, interrupted)
	if err != nil {
		return err
	}
	defer r.close()
	if err := r.prove(s.faults); err != nil {
		return err
	}
	works, err := r.works(bench)
	if err != nil {
		return err
	}
	began := time.Now()
	f, err := r.measure(works, rounds)
	if err != nil {
		return err
	}
	if len(f.works) == 0 {
		return fmt.Errorf("-bench %s: no such part of a benchmark", bench)
	}
	fmt.Print(tables(f, s, notes(s.faults)))
	if bench != "" {
		return nil
	}
	doc := results(f, s, describe(began, time.Since(began), rounds, benchtime))
	fmt.Print(targetTable(f))
	return errors.Join(
		os.WriteFile("RESULTS.md", []byte(doc), 0o644),
		os.WriteFile("peers.svg", []byte(chart(f)), 0o644),
	)
}

// command is what was run, for those who read the results.
func command(rounds int, benchtime time.Duration) string {
	return fmt.Sprintf("go run ./report -rounds %d -benchtime %v", rounds, benchtime)
}
