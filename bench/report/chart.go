package main

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// shown are the works of the chart, and what each is called there.
var shown = []struct{ work, title string }{
	{"Call", "A call that succeeds"},
	{"RefusalOpen", "Refused by an open breaker"},
	{"RefusalFull", "Refused by a full bulkhead"},
	{"Stale1KiB", "A stale answer of 1 KiB, while the origin fails: without a breaker it is asked each time"},
	{"Fresh1KiB", "A stored answer of 1 KiB that is fresh"},
	{"Retry", "A call that is repeated once"},
}

// The chart's measures, in pixels.
const (
	chartWidth = 720
	labelWidth = 180
	barWidth   = 430 // of the longest
	lineHeight = 18
	margin     = 16
)

const chartStyle = `.page{fill:#ffffff}text{fill:#57606a}.h{fill:#1f2328;font-weight:600}.p{fill:#8c959f}.w{fill:#0969da}.us{fill:#0969da;font-weight:600}` +
	`@media(prefers-color-scheme:dark){.page{fill:#0d1117}text{fill:#9198a1}.h{fill:#f0f6fc}.p{fill:#656c76}.w{fill:#4493f8}.us{fill:#4493f8}}`

// bar is a peer's.
type bar struct {
	peer string
	ns   float64
}

// chart draws what the works took as horizontal bars, a scale for each work.
func chart(f *figures) string {
	var b strings.Builder
	y := margin + lineHeight
	fmt.Fprintf(&b, `<text class="h" font-size="15" x="%d" y="%d">watertight beside its peers: time of one call, without the network</text>`+"\n", margin, y)
	y += lineHeight
	fmt.Fprintf(&b, `<text x="%d" y="%d">Less is better. Medians; each work has a scale of its own; bars with » are cut. What each does for its time, and what</text>`+"\n", margin, y)
	y += lineHeight
	fmt.Fprintf(&b, `<text x="%d" y="%d">it gets wrong meanwhile, is in bench/RESULTS.md, with machine and date. By hand: written for this, no library.</text>`+"\n", margin, y)
	for _, s := range shown {
		bars := barsOf(f, s.work)
		if len(bars) == 0 {
			continue
		}
		y += 2 * lineHeight
		fmt.Fprintf(&b, `<text class="h" x="%d" y="%d">%s</text>`+"\n", margin, y, html.EscapeString(s.title))
		longest := longest(bars)
		for _, bar := range bars {
			y += lineHeight
			b.WriteString(bar.draw(y, longest))
		}
	}
	height := y + margin
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" font-family="system-ui, sans-serif" font-size="12">
<title>Time of calls through watertight and its peers</title>
<style>%s</style>
<rect class="page" width="%d" height="%d"/>
%s</svg>
`, chartWidth, height, chartWidth, height, chartStyle, chartWidth, height, b.String())
}

// called is what peers are called in the chart whose own name says little.
var called = map[string]string{
	"bare": "the stub alone", "timeout": "by hand: a timeout", "floor": "by hand: all", "floor-per-host": "by hand: all, per host",
	"complete": "watertight", "only-fallback": "watertight, no breaker", "gobreaker": "gobreaker: a breaker",
	"go-retryablehttp": "go-retryablehttp: retries", "httpcache": "httpcache: a cache",
}

// barsOf are those of a work. Most parts of the stack are in the tables only.
func barsOf(f *figures, work string) []bar {
	var all []bar
	for _, peer := range f.peers[work] {
		stale := work == "Stale1KiB" && peer == "only-fallback" // which asks the origin, as others do
		if peer == "none" || strings.HasPrefix(peer, "only-") && !stale || peer == "bare" && work != "Call" {
			continue
		}
		if ns, ok := f.of(work, peer, "ns/op"); ok {
			all = append(all, bar{peer, ns})
		}
	}
	return all
}

// longest is the time that fills the width: four times the median, if anything takes
// longer, so that the others can still be told apart.
func longest(bars []bar) float64 {
	all := make([]float64, len(bars))
	for i, b := range bars {
		all[i] = b.ns
	}
	most := slices.Max(all)
	middle, _ := median(all)
	return min(most, 4*middle)
}

func (b bar) draw(y int, longest float64) string {
	class, label, name, cut := "p", "", b.peer, ""
	if also, ok := called[b.peer]; ok {
		name = also
	}
	if b.peer == "complete" {
		class, label = "w", ` class="us"`
	}
	width := math.Max(1, barWidth*b.ns/longest)
	if width > barWidth {
		width, cut = barWidth, "» "
	}
	return fmt.Sprintf(`<text%s x="%d" y="%d" text-anchor="end">%s</text><rect class="%s" x="%d" y="%d" width="%.1f" height="%d"/><text%s x="%.1f" y="%d">%s%s</text>`+"\n",
		label, margin+labelWidth-8, y, html.EscapeString(name), class, margin+labelWidth, y-lineHeight+7, width, lineHeight-6,
		label, float64(margin+labelWidth+4)+width, y, cut, duration(b.ns))
}

// duration is nanoseconds in the unit that reads best.
func duration(ns float64) string {
	switch {
	case ns < 1e3:
		return number(ns) + " ns"
	case ns < 1e6:
		return number(ns/1e3) + " µs"
	}
	return number(ns/1e6) + " ms"
}
