package status_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/watertight-go/watertight/transport/status"
)

// contrasts yields what in the page is not told well enough from what it is on:
// text by WCAG 1.4.3, controls and pictures by 1.4.11.
const contrasts = `(() => {
	const parse = s => { const [r, g, b, a] = s.match(/[\d.]+/g).map(Number); return {c: [r, g, b], a: a ?? 1}; };
	const over = (top, alpha, under) => top.map((v, i) => v * alpha + under[i] * (1 - alpha));
	const light = c => { const [r, g, b] = c.map(v => v / 255).map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4); return .2126 * r + .7152 * g + .0722 * b; };
	const ratio = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + .05) / (y + .05); };
	const style = (e, part) => getComputedStyle(e, part);
	const opacity = e => e ? style(e).opacity * opacity(e.parentElement) : 1;
	const back = e => { if (!e) return [255, 255, 255]; const b = parse(style(e).backgroundColor); return b.a === 1 ? b.c : over(b.c, b.a, back(e.parentElement)); };
	const behind = e => back(document.body); // of what fades with all around it
	const bad = [];
	const check = (what, e, colour, on, least) => {
		const o = opacity(e), is = ratio(over(parse(colour).c, o, behind(e)), over(on, o, behind(e)));
		if (is < least) bad.push(what + ' ' + (e.id || e.getAttribute('class') || e.tagName) + ' ' + e.textContent.trim().slice(0, 40) + ': ' + is.toFixed(2) + ', want ' + least);
	};
	for (const e of document.querySelectorAll('body *')) {
		if (!e.checkVisibility() || e.closest('.skip, noscript, script')) continue;
		const s = style(e), size = parseFloat(s.fontSize);
		if ([...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim())) check('text', e, s.color, back(e), size >= 24 || size >= 18.66 && s.fontWeight >= 700 ? 3 : 4.5);
		if (e.matches('button, input') && s.borderTopStyle !== 'none' && parseFloat(s.borderTopWidth)) for (const on of [back(e), back(e.parentElement)]) check('border', e, s.borderTopColor, on, 3);
		if (e.matches('.card')) for (const on of [back(e), back(e.parentElement)]) check('border', e, s.borderLeftColor, on, 3);
		if (e.matches('rect')) check('rect', e, s.fill, back(e.parentElement), 3);
		if (e.matches('.bar > span, .dot')) check('mark', e, s.backgroundColor, back(e.parentElement), 3);
		if (e.matches('#transitions li')) check('mark', e, style(e, '::before').backgroundColor, back(e), 3);
	}
	return bad;
})()`

func TestPageCanBeReadByWhoeverSeesBadly(t *testing.T) {
	at := time.Now().UTC()
	d := status.Hosts{At: at, Instance: "i", Summary: status.Summary{Hosts: 10, Closed: 3, Open: 3, HalfOpen: 1, ForcedOpen: 1, ForcedClosed: 1, Refusing: 3}, Matched: 10}
	moves := []status.Transition{}
	for i, state := range []string{"open", "half_open", "forced_open", "forced_closed", "open", "open", "closed", "closed", "closed"} {
		h := status.Host{Scheme: "http", Host: fmt.Sprintf("h%d", i), State: state, Shadow: []string{}, Failures: []status.FailureKind{{What: "reset", Count: 3}},
			Permits: status.Permits{InUse: i, Limit: 8, Waiting: 1}, Cause: &status.Evidence{Text: "3 failures in a row"},
			Retries: status.Retries{Budget: &status.Budget{Left: float64(i), Limit: 8}, Suppressed: 1},
			Latency: status.Latency{Attempts: 3, P50: 1, P95: 2, P99: 3},
			Window:  &status.Window{MinCalls: 4, Calls: 10, Failures: i, FailureRate: float64(i) / 10, FailureRateThreshold: .7, Timed: 10, Slow: i, SlowRate: float64(i) / 10, SlowRateThreshold: .8}}
		if i == 4 {
			h.Shadow = []string{"breaker", "retry"}
		}
		if i == 8 {
			h.Shadow = []string{"timeout"}
		}
		if state != "closed" {
			h.Since, h.SinceSeconds = ago(at, 60)
			h.ClosedUntil, h.ClosedUntilSeconds = ago(at, 200)
		}
		if i < 5 {
			m := status.Transition{ID: uint64(i + 1), Scheme: "http", Host: h.Host, From: "closed", To: state, Evidence: status.Evidence{Trigger: "forced"}}
			m.At, m.AgoSeconds = ago(at, 60)
			moves = append(moves, m)
		}
		d.Hosts = append(d.Hosts, h)
	}
	moves = append(moves, status.Transition{ID: 6, Scheme: "http", Host: "h6", From: "half_open", To: "closed", At: at})
	docs := make(chan status.Hosts, 1)
	docs <- d
	b := told(t, status.Transitions{At: at, Instance: "i", SinceSeconds: 300, LastID: 6, Transitions: moves}, docs)
	b.await("document.querySelectorAll('.card').length === 6 && document.querySelectorAll('#closed tbody th').length === 3")
	b.eval("document.querySelectorAll('summary, #closed button').forEach(e => e.click()); document.querySelectorAll('button')[1].setAttribute('aria-pressed', 'true')", nil)
	for _, scheme := range []string{"light", "dark"} {
		b.prefer("prefers-color-scheme", scheme)
		for _, mode := range []string{"live", "polling", "lost"} {
			var bad []string
			b.eval(fmt.Sprintf("document.body.className = %q; %s", mode, contrasts), &bad)
			for _, x := range bad {
				t.Errorf("%s, %s: %s", scheme, mode, x)
			}
		}
	}
	for _, kind := range []string{"rect.open", "rect.half_open", "rect.forced_open", "rect.forced_closed", "rect.away", "rect.closed", ".bar.warn", ".bar.bad", ".near", ".badge.shadow"} {
		if b.count(kind) == 0 {
			t.Errorf("no %s to be looked at", kind)
		}
	}
}
