package scene

import (
	"fmt"
	"strings"
	"time"
)

// table shows the claims of both runs side by side.
func table(l look, all []claim) string {
	find := func(run, row string) (claim, bool) {
		for _, c := range all {
			if c.run == run && c.row == row {
				return c, true
			}
		}
		return claim{}, false
	}
	var b strings.Builder
	line := func(name string, cells ...string) {
		fmt.Fprintf(&b, "%s%s\n", pad(name, 28), strings.TrimRight(strings.Join(cells, " "), " "))
	}
	line("", l.bold(pad("A  bare client", 27)), l.bold("B  the stack"))
	line("claim", l.dim(pad("expected", 14)+pad("measured", 13)), l.dim(pad("expected", 17)+"measured"))
	for _, row := range rows {
		cells := []string{pad("", 27), ""}
		for i, run := range []string{"A", "B"} {
			if c, ok := find(run, row); ok {
				cells[i] = pad(c.Expected, 14+3*i) + pad(c.Measured, 11) + l.verdict(c.OK)
			}
		}
		line(row, cells...)
	}
	return b.String()
}

// picture draws the workers held over time, both runs to the same measure.
func picture(l look, s setting, a, b record) string {
	var out strings.Builder
	for _, r := range []struct {
		name string
		record
	}{{"A  bare client", a}, {"B  the stack", b}} {
		fmt.Fprintf(&out, "%s%s\n", l.bold(r.name), l.dim(", workers held"))
		out.WriteString(r.record.picture(l, s.workers))
	}
	return out.String()
}

const (
	pictureRows    = 4
	samplesPerCell = 2
)

// picture is the workers held over time, with a mark where the fault came and
// where it was lifted.
func (r record) picture(l look, workers int) string {
	levels := l.levels()
	steps := len(levels) - 1
	corner, side, foot := "┤", "│", "└"
	if !l.unicode {
		corner, side, foot = "|", "|", "+"
	}
	var cells []int
	for i := 0; i < len(r.samples); i += samplesPerCell {
		most := 0
		for _, n := range r.samples[i:min(i+samplesPerCell, len(r.samples))] {
			most = max(most, n)
		}
		cells = append(cells, (most*pictureRows*steps+workers-1)/workers)
	}
	var b strings.Builder
	for row := pictureRows - 1; row >= 0; row-- {
		label, edge := "", side
		switch row {
		case pictureRows - 1:
			label, edge = fmt.Sprint(workers), corner
		case 0:
			label, edge = "0", corner
		}
		var line strings.Builder
		for _, n := range cells {
			line.WriteRune(levels[min(max(n-row*steps, 0), steps)])
		}
		fmt.Fprintf(&b, "%5s %s%s\n", label, edge, strings.TrimRight(line.String(), " "))
	}
	at := func(t time.Time) int { return int(t.Sub(r.start) / (r.step * samplesPerCell)) }
	marks := ""
	mark := func(t time.Time, what string) {
		if !t.IsZero() {
			marks = pad(marks, at(t)) + foot + " " + what
		}
	}
	mark(r.injected, "fault")
	mark(r.lifted, "lifted")
	fmt.Fprintf(&b, "%7s%s\n", "", l.dim(marks))
	return b.String()
}
