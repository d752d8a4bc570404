package main

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"
)

// tables has one for each work.
func tables(f *figures, s *sources, notes map[string]string) string {
	var b strings.Builder
	for _, work := range f.works {
		fmt.Fprintf(&b, "\n### %s\n\n", work)
		top, _, _ := strings.Cut(work, "/")
		if doc := s.works[top]; doc != "" {
			fmt.Fprintf(&b, "%s\n\n", doc)
		}
		b.WriteString(markdown(rows(f, work, notes)))
	}
	return b.String()
}

// rows are the lines of a work's table, its head first.
func rows(f *figures, work string, notes map[string]string) [][]string {
	units := f.units[work]
	_, compared := f.of(work, "bare", "ns/op")
	head := []string{"peer"}
	for _, unit := range units {
		head = append(head, unit)
		if spreads(unit) {
			head = append(head, "min–max")
		}
		if compared && unit == "ns/op" {
			head = append(head, "x bare")
		}
	}
	all := [][]string{append(head, "what it gets wrong")}
	for _, peer := range f.peers[work] {
		row := []string{peer}
		for _, unit := range units {
			row = append(row, cell(f.of(work, peer, unit)))
			if spreads(unit) {
				least, most, ok := f.spread(work, peer, unit)
				row = append(row, cell(least, ok)+"–"+cell(most, ok))
			}
			if compared && unit == "ns/op" {
				ratio, ok := f.ratio(figure{work, peer, unit}, figure{work, "bare", unit})
				row = append(row, cell(ratio, ok && peer != "bare"))
			}
		}
		all = append(all, append(row, cmp.Or(notes[strings.TrimSuffix(peer, "-per-host")], "—")))
	}
	return all
}

// spreads reports whether a unit is one of time, which is another one in each round.
func spreads(unit string) bool {
	return unit == "ns/op" || unit == "throughput-ratio" || unit == "p99-ratio"
}

func cell(v float64, ok bool) string {
	if !ok {
		return ""
	}
	return number(v)
}

// number has three digits that mean something, and no more than a reader needs.
func number(v float64) string {
	switch a := math.Abs(v); {
	case a < 0.0005:
		return "0"
	case a < 100 && v == math.Trunc(v):
		return strconv.FormatFloat(v, 'f', 0, 64)
	case a < 10:
		return strconv.FormatFloat(v, 'f', 2, 64)
	case a < 100:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	s := strconv.FormatFloat(math.Abs(v), 'f', 0, 64)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	if v < 0 {
		s = "-" + s
	}
	return s
}

// markdown aligns a table, so that it reads as well where nothing renders it. All
// but the first and the last column are figures.
func markdown(rows [][]string) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 1, ' ', 0)
	for i, row := range rows {
		fmt.Fprintf(w, "| %s\t|\n", strings.Join(row, "\t| "))
		if i == 0 {
			rule := make([]string, len(row))
			for j := range rule {
				rule[j] = "--:"
			}
			rule[0], rule[len(rule)-1] = "---", "---"
			fmt.Fprintf(w, "| %s\t|\n", strings.Join(rule, "\t| "))
		}
	}
	_ = w.Flush()
	return b.String()
}
