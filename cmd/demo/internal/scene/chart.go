package scene

import (
	"fmt"
	"strings"
	"time"
)

// What the chart measures, in its own units.
const (
	chartWidth, chartHeight = 720, 300
	plotLeft, plotRight     = 52, 704
	plotTop, plotBottom     = 44, 252
	liftedHeight            = 30 // of a mark that is about the lower line alone
)

// chart is the workers held over time, both runs from the moment of the fault on,
// as an SVG that reads on a light page and on a dark one.
func chart(s setting, a, b record) string {
	before := s.warmA
	most := max(a.end.Sub(a.injected), b.end.Sub(b.injected))
	x := func(since time.Duration) float64 {
		return plotLeft + (plotRight-plotLeft)*float64(since+before)/float64(most+before)
	}
	y := func(held int) float64 {
		return plotBottom - (plotBottom-plotTop)*float64(held)/float64(s.workers)
	}
	var out strings.Builder
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" font-family="system-ui, sans-serif" font-size="12">
<title>Workers held, of %d, by a bare client and by watertight, from the moment one of five dependencies hangs</title>
<style>text{fill:#57606a}.t{font-weight:600}.g{stroke:#8c959f;stroke-opacity:.35}.a{stroke:#cf222e;fill:none}.b{stroke:#1a7f37;fill:none}.ta{fill:#cf222e}.tb{fill:#1a7f37}@media(prefers-color-scheme:dark){text{fill:#9198a1}.a{stroke:#ff7b72}.b{stroke:#56d364}.ta{fill:#ff7b72}.tb{fill:#56d364}}</style>
<text class="t" x="%d" y="18">Workers held, of %d: one of five dependencies starts to hang at 0 s</text>
`, chartWidth, chartHeight, chartWidth, chartHeight, s.workers, plotLeft, s.workers)
	for held := 0; held <= s.workers; held += s.workers / 4 {
		fmt.Fprintf(&out, `<line class="g" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/><text x="%d" y="%.1f" text-anchor="end">%d</text>`+"\n",
			plotLeft, plotRight, y(held), y(held), plotLeft-6, y(held)+4, held)
	}
	mark := func(at time.Duration, top int, label string) {
		fmt.Fprintf(&out, `<line class="g" x1="%.1f" x2="%.1f" y1="%d" y2="%d"/><text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n",
			x(at), x(at), top, plotBottom+4, x(at), plotBottom+18, label)
	}
	mark(0, plotTop, "0 s: fault")
	if at := a.empty.Sub(a.injected); !a.empty.IsZero() {
		mark(at, plotTop, short(at)+": no worker left")
	}
	if !b.lifted.IsZero() {
		at := b.lifted.Sub(b.injected)
		mark(at, plotBottom-liftedHeight, short(at)+": lifted (stack)") // nothing is lifted in the bare client's run
	}
	line := func(r record, class, label string) {
		var points []string
		top, topAt := 0, time.Duration(0)
		for i, held := range r.samples {
			since := r.start.Add(time.Duration(i) * r.step).Sub(r.injected)
			if since < -before {
				continue
			}
			if held > top {
				top, topAt = held, since
			}
			points = append(points, fmt.Sprintf("%.1f,%.1f", x(since), y(held)))
		}
		fmt.Fprintf(&out, `<polyline class="%s" stroke-width="2" points="%s"/>`+"\n", class, strings.Join(points, " "))
		fmt.Fprintf(&out, `<text class="t t%s" x="%.1f" y="%.1f">%s</text>`+"\n", class, x(topAt)+10, y(top)-8, label)
	}
	line(a, "a", "bare client")
	line(b, "b", fmt.Sprintf("watertight: at most %d", b.peak))
	fmt.Fprintf(&out, `<text x="%d" y="%d">Drawn by go run ./cmd/demo -svg FILE, from a run on loopback with %g missions a second.</text>`+"\n</svg>\n",
		plotLeft, chartHeight-8, s.missions)
	return out.String()
}
