package scene

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/watertight-go/watertight/transport"
)

// claim is one figure: what the arithmetic says, and what was seen.
type claim struct {
	Name     string `json:"name"`
	Expected string `json:"expected"`
	Measured string `json:"measured"`
	OK       bool   `json:"ok"`

	run string // A or B
	row string // of the table
}

// claims compares two runs with the arithmetic. It is a pure function.
//
// Where a machine has other work to do, time stands still for us now and then. A
// limit on time is therefore widened by what was lost under it (see stalls), at
// most to twice what it was; shares leave out what was too late to be answered
// by the end.
func claims(s setting, a, b record) []claim {
	return append(bareClaims(s, a), stackClaims(s, b)...)
}

// sheet collects the claims of one run.
type sheet struct {
	run  string
	all  []claim
	seen *record
}

func (c *sheet) add(row, expected, measured string, ok bool) {
	c.all = append(c.all, claim{Name: c.run + ": " + strings.TrimSpace(row), Expected: expected, Measured: measured, OK: ok, run: c.run, row: row})
}

// atLeast claims that a share of some arrivals was answered; there must be some.
func (c *sheet) atLeast(row string, least float64, t tally) {
	c.add(row, fmt.Sprintf(">= %.0f %%", least*100), t.String(), t.all > 0 && t.share() >= least)
}

// atMost is the opposite of atLeast.
func (c *sheet) atMost(row, expected string, most float64, t tally) {
	c.add(row, expected, t.String(), t.all > 0 && t.share() <= most)
}

// within claims that something took from least to most.
func (c *sheet) within(row string, least, most time.Duration, from, to time.Time) {
	expected := span(least, most)
	if from.IsZero() || to.IsZero() {
		c.add(row, expected, "never", false)
		return
	}
	took := to.Sub(from)
	if lost := c.seen.stalls.between(from, to); took > most && lost > 0 {
		most += min(lost, most)
		expected = span(least, most)
	}
	c.add(row, expected, short(took), least <= took && took <= most)
}

// The rows, in the order of the story.
const (
	rowBefore   = "/mission before the fault"
	rowHeld     = "workers held, at most"
	rowEmpty    = "no worker left after"
	rowMission  = "/mission in the outage"
	rowPing     = "/ping in the outage"
	rowSlowest  = "slowest /mission"
	rowOthers   = "calls to the other four"
	rowOpens    = "breaker opens after"
	rowTrigger  = "  slow calls by then"
	rowHistory  = "  good calls in its window"
	rowLabel    = "/mission labelled as of"
	rowHalfOpen = "half-open after"
	rowProbes   = "probes until it closes"
	rowLive     = "/mission live again"
	rowPermits  = "permits held at the end"
)

// rows is the order of the table.
var rows = []string{rowBefore, rowHeld, rowEmpty, rowMission, rowPing, rowSlowest, rowOthers, rowOpens, rowTrigger,
	rowHistory, rowLabel, rowHalfOpen, rowProbes, rowLive, rowPermits}

// bareClaims is the arithmetic of a pool that drains: telemetry holds each worker
// for the whole delay, so that workers/rate is how long the pool lasts, and
// nothing comes back within the run.
func bareClaims(s setting, r record) []claim {
	c := sheet{run: "A", seen: &r}
	c.atLeast(rowBefore, 0.99, r.missions(r.start, r.injected.Add(-s.settle())))
	c.add(rowHeld, fmt.Sprintf("%d of %d", s.workers, s.workers), fmt.Sprint(r.peak), r.peak == s.workers)
	c.within(rowEmpty, s.lasts()*9/10, s.lasts()*11/10, r.injected, r.empty)
	c.atMost(rowMission, "<= 1 %", 0.01, r.missions(r.injected, r.end))
	after := r.empty
	if after.IsZero() {
		after = r.end
	}
	c.atMost(rowPing, "none", 0, r.pings(after, r.end.Add(-s.patience)))
	c.add(rowOthers, "none come", fmt.Sprint(r.others4(after.Add(s.settle()))), !r.empty.IsZero() && r.others4(after.Add(s.settle())) == 0)
	return c.all
}

// stackClaims is the arithmetic of the stack: telemetry may hold as many workers
// as its bulkhead has permits; the breaker opens SlowCall after the call that
// makes MinCalls, which at this rate is before the first Attempt is over; it asks
// again after OpenFor +-10 %, with HalfOpenProbes calls.
func stackClaims(s setting, r record) []claim {
	c := sheet{run: "B", seen: &r}
	p := s.telemetry
	opened, _ := moved(r.transitions, transport.Open, r.injected)
	half, _ := moved(r.transitions, transport.HalfOpen, r.injected)
	closed, _ := moved(r.transitions, transport.Closed, r.injected)
	over := closed // when the fault was over for the caller
	if over.IsZero() {
		over = r.end.Add(-s.settle())
	}

	c.atLeast(rowBefore, 0.99, r.missions(r.start, r.injected.Add(-s.settle())))
	most := p.Bulkhead.MaxConcurrent + int(math.Ceil(10*s.missions*s.latency.Seconds()))
	c.add(rowHeld, fmt.Sprintf("<= %d", most), fmt.Sprint(r.peak), r.peak <= most)
	c.add(rowEmpty, "never", never(r.injected, r.empty), r.empty.IsZero())
	c.atLeast(rowMission, 0.99, r.missions(r.injected, over))
	c.atLeast(rowPing, 0.95, r.pings(r.injected, over))
	slow := r.slowest(r.injected, over)
	c.within(rowSlowest, 0, p.Timeout.Attempt*11/10, slow.start, slow.end)
	failed := r.othersFailed()
	moved := ""
	for _, t := range r.transitions {
		if t.name != slowOne {
			moved = ", " + t.name + " " + t.To.String()
		}
	}
	c.add(rowOthers, "<= 1 % fail", failed.String()+moved, failed.all > 0 && failed.share() <= 0.01 && moved == "")

	c.within(rowOpens, p.Breaker.SlowCall, p.Timeout.Attempt, r.injected, opened)
	e := r.trip(opened)
	c.add(rowTrigger, fmt.Sprintf(">= %.0f %% of %d", p.Breaker.SlowRate*100, p.Breaker.MinCalls), slowness(e),
		e.Trigger == "slow_call_rate" && e.Timed >= p.Breaker.MinCalls && float64(e.Slow) >= p.Breaker.SlowRate*float64(e.Timed) && e.Failures == 0)
	good, least := r.good.Calls-r.good.Failures, 10*p.Breaker.MinCalls // of the whole window, the slow ones are a tenth at most
	c.add(rowHistory, fmt.Sprintf(">= %d", least), fmt.Sprint(good), good >= least)
	c.add(r.labels(s, opened, half))
	if opened.IsZero() {
		half = time.Time{}
	}
	c.within(rowHalfOpen, p.Breaker.OpenFor*9/10, p.Breaker.OpenFor*11/10+p.Breaker.SlowCall/5, opened, half)
	c.add(rowProbes, fmt.Sprint(p.Breaker.HalfOpenProbes), fmt.Sprint(r.probes), !closed.IsZero() && r.probes == p.Breaker.HalfOpenProbes)
	live := tally{}
	if !closed.IsZero() {
		live = r.count(func(a arrival) (bool, bool) {
			return a.path == "/mission" && a.start.After(closed) && a.start.Before(r.end.Add(-s.settle())), a.ok && a.telemetry.State == "live"
		})
	}
	c.atLeast(rowLive, 0.99, live)
	c.add(rowPermits, "0", fmt.Sprint(r.inFlight), r.inFlight == 0)
	return c.all
}

// failures names the claims that did not hold.
func failures(all []claim) (names []string) {
	for _, c := range all {
		if !c.OK {
			names = append(names, c.Name)
		}
	}
	return names
}

// took is how long a run was.
func (r *record) took() time.Duration { return r.end.Sub(r.start) }

// lost is the time that the machine did not give to a run.
func (r *record) lost() time.Duration { return r.stalls.between(r.start, r.end) }

// disturbed reports whether that was too much to hold the run to its arithmetic.
func (r *record) disturbed() bool { return r.lost() > r.took()/25 }

// tally is some of all.
type tally struct{ some, all int }

func (t tally) String() string { return fmt.Sprintf("%d of %d", t.some, t.all) }

func (t tally) share() float64 { return float64(t.some) / float64(max(t.all, 1)) }

// count counts arrivals, and those of them that something holds for.
func (r *record) count(f func(arrival) (in, holds bool)) (t tally) {
	for _, a := range r.arrivals {
		in, holds := f(a)
		if !in {
			continue
		}
		t.all++
		if holds {
			t.some++
		}
	}
	return t
}

// missions are those that came within a span, and were answered.
func (r *record) missions(from, to time.Time) tally { return r.answered("/mission", from, to) }

// pings are those that came within a span, and were answered.
func (r *record) pings(from, to time.Time) tally { return r.answered("/ping", from, to) }

func (r *record) answered(path string, from, to time.Time) tally {
	return r.count(func(a arrival) (bool, bool) {
		return a.path == path && a.start.After(from) && a.start.Before(to), a.ok
	})
}

// slowest is the mission that took longest.
func (r *record) slowest(from, to time.Time) (slow arrival) {
	for _, a := range r.arrivals {
		if a.path == "/mission" && a.start.After(from) && a.start.Before(to) && a.end.Sub(a.start) > slow.end.Sub(slow.start) {
			slow = a
		}
	}
	return slow
}

// labels claims that every mission answered while the breaker was open said as of
// when telemetry was: before the fault.
func (r *record) labels(s setting, opened, half time.Time) (row, expected, measured string, ok bool) {
	latest := r.injected.Add(s.settle()) // an answer may have been under way
	expected = "all <= " + latest.Format(time.TimeOnly)
	if opened.IsZero() || half.IsZero() {
		return rowLabel, expected, "none", false
	}
	t := r.count(func(a arrival) (bool, bool) {
		p := a.telemetry
		return a.path == "/mission" && a.ok && a.start.After(opened) && a.end.Before(half),
			p.State == "stale" && p.Label != "" && !p.AsOf.IsZero() && !p.AsOf.After(latest)
	})
	return rowLabel, expected, t.String(), t.all > 0 && t.some == t.all
}

// trip is the evidence on which telemetry's breaker opened.
func (r *record) trip(at time.Time) transport.Evidence {
	for _, t := range r.transitions {
		if t.name == slowOne && t.To == transport.Open && t.At.Equal(at) {
			return t.Evidence
		}
	}
	return transport.Evidence{}
}

// slowness is evidence in a few words.
func slowness(e transport.Evidence) string {
	s := fmt.Sprintf("%d of %d", e.Slow, e.Timed)
	if e.Failures > 0 {
		s += fmt.Sprintf(", %d failed", e.Failures)
	}
	return s
}

// others4 counts the calls that came to the other four after a moment.
func (r *record) others4(after time.Time) int {
	n := 0
	for name, hits := range r.hits {
		if name == slowOne {
			continue
		}
		for _, t := range hits {
			if t.After(after) && t.Before(r.end) {
				n++
			}
		}
	}
	return n
}

// othersFailed counts the calls to the other four that failed or were refused.
func (r *record) othersFailed() (t tally) {
	for name, h := range r.hosts {
		if name == slowOne {
			continue
		}
		t.all += int(h.Counts.Calls)
		t.some += int(h.Counts.Failure + h.Counts.Rejected + h.Counts.RefusedOpen + h.Counts.RefusedHalfOpen)
	}
	return t
}

func never(from, at time.Time) string {
	if at.IsZero() {
		return "never"
	}
	return short(at.Sub(from))
}
