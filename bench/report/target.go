package main

import (
	"fmt"
	"strconv"
	"strings"
)

// target is a bound for one figure of the complete stack.
type target struct {
	what  string
	limit float64
	least bool // it is a lower bound
	time  bool // it is nanoseconds, which machines differ in
	value func(f *figures, peer string) (float64, bool)
}

// reference is what a call of the peer named timeout took beyond the stub, in
// nanoseconds, on the machine for which the times were set.
const reference = 500

func figureOf(work, unit string) func(*figures, string) (float64, bool) {
	return func(f *figures, peer string) (float64, bool) { return f.of(work, peer, unit) }
}

// beyondStub is what a call of a peer takes more than one of the stub alone.
func beyondStub(f *figures, peer string) (float64, bool) {
	return f.difference(figure{"Call", peer, "ns/op"}, figure{"Call", "bare", "ns/op"})
}

// targets are what the stack means to cost.
func targets() []target {
	all := []target{
		{what: "a call, ns beyond the stub", limit: 1000, time: true, value: beyondStub},
		{what: "a call, allocations, those of the stub included", limit: 10, value: figureOf("Call", "allocs/op")},
		{what: "a call, of failsafe-go's per host", limit: 0.45, value: func(f *figures, peer string) (float64, bool) {
			return f.ratio(figure{"Call", peer, "ns/op"}, figure{"Call", "failsafe-go-per-host", "ns/op"})
		}},
		{what: "64 goroutines, CPU of a call to that of a serial one", limit: 1.3, value: func(f *figures, peer string) (float64, bool) {
			return f.ratio(figure{"CallParallel64", peer, "cpu-ns/op"}, figure{"Call", peer, "cpu-ns/op"})
		}},
		{what: "a refusal by an open breaker, ns", limit: 100, time: true, value: figureOf("RefusalOpen", "ns/op")},
		{what: "a refusal by an open breaker, allocations", limit: 1, value: figureOf("RefusalOpen", "allocs/op")},
		{what: "a stale answer of 1 KiB, ns", limit: 900, time: true, value: figureOf("Stale1KiB", "ns/op")},
		{what: "a stale answer of 1 KiB, allocations", limit: 9, value: figureOf("Stale1KiB", "allocs/op")},
	}
	for _, workers := range []string{"1", "8", "64"} {
		work := "Loopback/h1/" + workers
		all = append(all,
			target{what: "HTTP/1.1 on loopback, workers: " + workers + ", throughput to bare's", limit: 0.95, least: true, value: figureOf(work, "throughput-ratio")},
			target{what: "HTTP/1.1 on loopback, workers: " + workers + ", p99 to bare's", limit: 1.1, value: figureOf(work, "p99-ratio")})
	}
	for _, way := range []string{"down", "up-file", "up-reader"} {
		all = append(all, target{what: "1 GiB, " + way + ", throughput to bare's", limit: 0.98, least: true, value: figureOf("Large/"+way, "throughput-ratio")})
	}
	return append(all,
		target{what: "an idle host, bytes", limit: 1024, value: figureOf("IdleHosts", "heap-B/host")},
		target{what: "an idle host whose connections are gone, bytes", limit: 1024, value: figureOf("IdleHostsPooled", "heap-B/host")},
		target{what: "a call in flight, bytes", limit: 1024, value: figureOf("Hung", "B/call")},
		target{what: "a call in flight, goroutines", limit: 0, value: figureOf("Hung", "goroutines/call")},
		target{what: "100,000 hosts, heap to that after 10,000", limit: 1.1, value: figureOf("Hosts100000", "heap-growth")},
		target{what: "100,000 hosts, ns that a call takes more than those of one host", limit: 2000, time: true, value: func(f *figures, peer string) (float64, bool) {
			return f.difference(figure{"Hosts100000", peer, "ns/op"}, figure{"Call", peer, "ns/op"})
		}},
	)
}

// number has enough digits to be told from the limit, where it is not the limit.
func (t target) number(v float64) string {
	s := number(v)
	if v == t.limit || s != number(t.limit) {
		return s
	}
	for digits := 1; ; digits++ {
		s = strconv.FormatFloat(v, 'f', digits, 64)
		if s != strconv.FormatFloat(t.limit, 'f', digits, 64) {
			return s
		}
	}
}

func (t target) met(v float64) string {
	if t.least && v >= t.limit || !t.least && v <= t.limit {
		return "met"
	}
	return "not met"
}

// scale is what times are multiplied with to be those of the reference machine.
func scale(f *figures) (float64, bool) {
	ns, ok := beyondStub(f, "timeout")
	if !ok || ns <= 0 {
		return 0, false
	}
	return reference / ns, true
}

// beside are the peers whose figures stand beside that of the stack: what the work costs
// at least, and what it costs who wants all of it from another library.
var beside = [][]string{{"timeout"}, {"floor", "floor-per-host"}, {"failsafe-go", "failsafe-go-per-host"}}

// targetTable says which targets are met. A time is compared as it was measured, and
// as it would be where the peer named timeout takes as long as the reference.
func targetTable(f *figures) string {
	factor, known := scale(f)
	rows := [][]string{{"target", "limit", "figure", "", "scaled", "", "`timeout`", "`floor`", "`failsafe-go`"}}
	for _, t := range targets() {
		bound := "at most "
		if t.least {
			bound = "at least "
		}
		row := []string{t.what, bound + number(t.limit), "not measured", "", "", ""}
		if v, ok := t.value(f, "complete"); ok {
			row[2], row[3] = t.number(v), t.met(v)
			if t.time && known {
				row[4], row[5] = t.number(v*factor), t.met(v*factor)
			}
		}
		for _, peers := range beside {
			text := ""
			for _, peer := range peers {
				if v, ok := t.value(f, peer); ok && text == "" {
					text = number(v)
				}
			}
			row = append(row, text)
		}
		rows = append(rows, row)
	}
	var b strings.Builder
	b.WriteString("Each figure is the median of that of each round. Beside it stands what the others come to, which do less, or otherwise.\n\n")
	if known {
		ns, _ := beyondStub(f, "timeout")
		fmt.Fprintf(&b, "A call of `timeout` takes %s ns beyond the stub here and %d ns on the machine for which the times were set: times are scaled by %s, to compare machines. What was measured decides, not what it is scaled to.\n\n",
			number(ns), reference, number(factor))
	}
	return b.String() + markdown(rows)
}
