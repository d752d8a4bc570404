package main

import (
	"encoding/xml"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
)

const output = `goos: linux
pkg: github.com/watertight-go/watertight/bench
BenchmarkCall/bare-2         	  492267	       100.0 ns/op	     192 B/op	       3 allocs/op
BenchmarkCall/timeout-2      	   84297	       1000 ns/op	     824 B/op	      10 allocs/op
BenchmarkCall/complete-2     	   24134	       500.0 ns/op	    1608 B/op	      10 allocs/op
BenchmarkLoopback/h1/8-2     	       6	    145276 bare:p50-ns	         1.000 bare:p99-ratio	    177384 complete:p50-ns	         1.024 complete:p99-ratio
--- SKIP: BenchmarkHungKnown/gobreaker
PASS
`

// parsed has the ns/op of the complete call in each of some rounds.
func parsed(t *testing.T, complete ...string) *figures {
	t.Helper()
	f := newFigures()
	for round, ns := range complete {
		if err := f.parse(strings.ReplaceAll(output, "500.0 ns/op", ns+" ns/op"), round); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

func TestLinesAreTakenApart(t *testing.T) {
	f := parsed(t, "500")
	for _, test := range []struct {
		work, peer, unit string
		want             float64
	}{
		{"Call", "bare", "ns/op", 100},
		{"Call", "complete", "allocs/op", 10},
		{"Loopback/h1/8", "bare", "p50-ns", 145276},
		{"Loopback/h1/8", "complete", "p99-ratio", 1.024},
	} {
		if got, ok := f.of(test.work, test.peer, test.unit); !ok || got != test.want {
			t.Errorf("%s of %s at %s: %v, %v; want %v", test.unit, test.peer, test.work, got, ok, test.want)
		}
	}
	if want := []string{"Call", "Loopback/h1/8"}; !reflect.DeepEqual(f.works, want) {
		t.Errorf("works are %q, want %q", f.works, want)
	}
	if want := []string{"bare", "timeout", "complete"}; !reflect.DeepEqual(f.peers["Call"], want) {
		t.Errorf("peers are %q, want %q", f.peers["Call"], want)
	}
}

func TestWhatIsNoFigureIsAnError(t *testing.T) {
	if err := newFigures().parse("BenchmarkCall/bare-2 1 x ns/op\n", 0); err == nil {
		t.Error("no error")
	}
}

func TestMediansAreOfAllRounds(t *testing.T) {
	f := parsed(t, "900", "500", "600")
	if got, _ := f.of("Call", "complete", "ns/op"); got != 600 {
		t.Errorf("%v, want 600", got)
	}
	if got, _ := parsed(t, "500", "600").of("Call", "complete", "ns/op"); got != 550 {
		t.Errorf("of two rounds: %v, want 550", got)
	}
	f.add(figure{"Call", "spread", "ns/op"}, 0, 7)
	f.add(figure{"Call", "spread", "ns/op"}, 1, 3)
	if least, most, ok := f.spread("Call", "spread", "ns/op"); least != 3 || most != 7 || !ok {
		t.Errorf("%v to %v, want 3 to 7", least, most)
	}
	if _, ok := f.of("Call", "nobody", "ns/op"); ok {
		t.Error("a figure of nobody")
	}
}

// A machine that was slow in one round was slow for all.
func TestRatiosAreOfOneRound(t *testing.T) {
	f := newFigures()
	for round, factor := range []float64{1, 10, 1} {
		f.add(figure{"Call", "bare", "ns/op"}, round, 100*factor)
		f.add(figure{"Call", "complete", "ns/op"}, round, 500*factor)
	}
	f.add(figure{"Call", "complete", "ns/op"}, 3, 1) // which bare has none of
	f.add(figure{"Call", "complete", "ns/op"}, 4, 1)
	f.add(figure{"Call", "bare", "ns/op"}, 4, 0) // of which there is no ratio
	if got, ok := f.ratio(figure{"Call", "complete", "ns/op"}, figure{"Call", "bare", "ns/op"}); !ok || got != 5 {
		t.Errorf("%v, %v; want 5", got, ok)
	}
}

func TestTableHasRatiosAndLetters(t *testing.T) {
	rows := rows(parsed(t, "500"), "Call", map[string]string{"timeout": "a–c"})
	for i, want := range [][]string{
		{"peer", "ns/op", "min–max", "x bare", "B/op", "allocs/op", "what it gets wrong"},
		{"bare", "100", "100–100", "", "192", "3", "—"},
		{"timeout", "1,000", "1,000–1,000", "10", "824", "10", "a–c"},
		{"complete", "500", "500–500", "5", "1,608", "10", "—"},
	} {
		if !reflect.DeepEqual(rows[i], want) {
			t.Errorf("row %d is %q, want %q", i, rows[i], want)
		}
	}
}

func TestNumbersAreReadable(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 0.0001: "0", 3: "3", 3.01: "3.01", 0.123: "0.12", 9.994: "9.99", 12.34: "12.3", 123.4: "123", 1234567: "1,234,567", -155.6: "-156", -1234: "-1,234",
	} {
		if got := number(v); got != want {
			t.Errorf("%v: %s, want %s", v, got, want)
		}
	}
}

func TestTargetsAreComparedRawAndScaled(t *testing.T) {
	table := targetTable(parsed(t, "1500"))
	line := ""
	for l := range strings.Lines(table) {
		if strings.Contains(l, "a call, ns") {
			line = strings.Join(strings.Fields(l), " ")
		}
	}
	if want := "| a call, ns beyond the stub | at most 1,000 | 1,400 | not met | 778 | met | 900 | | |"; line != want {
		t.Errorf("%q, want %q", line, want)
	}
	if !strings.Contains(table, "not measured") {
		t.Error("targets that were not measured are not said to be")
	}
}

func TestFiguresAreToldFromTheirLimits(t *testing.T) {
	for _, test := range []struct {
		limit, v float64
		want     string
	}{
		{1.1, 1.1, "1.10"}, {1.1, 1.2, "1.20"}, {1.1, 1.1004, "1.1004"}, {1.1, 1.10049, "1.1005"},
		{0.95, 0.9499, "0.9499"}, {1000, 1000.3, "1000.3"}, {0, 0.0001, "0.0001"}, {0, 0, "0"},
	} {
		if got := (target{limit: test.limit}).number(test.v); got != test.want {
			t.Errorf("%v beside a limit of %v: %s, want %s", test.v, test.limit, got, test.want)
		}
	}
}

func TestAlternativesHaveSubBenchmarksOfTheirOwn(t *testing.T) {
	names := []string{"BenchmarkCall", "BenchmarkCallParallel2", "BenchmarkLoopback", "ok"}
	for pattern, want := range map[string][]work{
		"Call$|Loopback/h1/8":        {{"BenchmarkCall", nil}, {"BenchmarkLoopback", []string{"h1/8"}}},
		"Loopback/h1/8|Loopback/h2":  {{"BenchmarkLoopback", []string{"h1/8", "h2"}}},
		"Loopback/h1/8|Loop|CallPar": {{"BenchmarkCallParallel2", nil}, {"BenchmarkLoopback", nil}},
		"Nothing":                    nil,
	} {
		if got, err := named(names, pattern); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, %v; want %v", pattern, got, err, want)
		}
	}
	if got, want := (work{"BenchmarkLoopback", []string{"h1/8", "h2"}}).pattern(), "^BenchmarkLoopback$/h1/8|^BenchmarkLoopback$/h2"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if _, err := named(names, "Loopback/(h1|h2)/8"); err == nil || !strings.Contains(err.Error(), "parentheses") {
		t.Errorf("with parentheses: %v", err)
	}
}

func TestEveryWorkAndFaultSaysWhatItIs(t *testing.T) {
	s, err := readSources("..")
	if err != nil {
		t.Fatal(err)
	}
	if len(s.faults) == 0 || len(s.works) == 0 {
		t.Fatalf("%d faults, %d works", len(s.faults), len(s.works))
	}
	for work, doc := range s.works {
		if !strings.HasPrefix(doc, work+" ") {
			t.Errorf("%s: %q", work, doc)
		}
	}
}

func TestLettersAreARangeAndGoOnAfterZ(t *testing.T) {
	faults := make([]fault, 28)
	for i := range faults {
		faults[i].peer = "one"
		if i == 27 {
			faults[i].peer = "other"
		}
	}
	if got := notes(faults); got["one"] != "a–aa" || got["other"] != "ab" {
		t.Errorf("%v", got)
	}
}

// The chart is XML, has a bar for each peer of its works, and cuts what would leave
// no room for the others.
func TestChartIsXMLAndCutsLongBars(t *testing.T) {
	f := parsed(t, "500")
	f.add(figure{"Call", "a<b", "ns/op"}, 0, 1e6)
	svg := chart(f)
	for d := xml.NewDecoder(strings.NewReader(svg)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{">watertight<", ">500 ns<", "a&lt;b", "» 1 ms"} {
		if !strings.Contains(svg, want) {
			t.Errorf("no %q in %s", want, svg)
		}
	}
	if strings.Contains(svg, ">bare<") {
		t.Error("bare has a bar")
	}
}
