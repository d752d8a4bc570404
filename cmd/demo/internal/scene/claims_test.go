package scene

import (
	"strings"
	"testing"
	"time"

	"github.com/watertight-go/watertight/transport"
)

// epoch is when the made-up runs begin; their moments are seconds after it.
var epoch = time.Date(2026, 1, 2, 14, 0, 0, 0, time.UTC)

func at(seconds float64) time.Time { return epoch.Add(time.Duration(seconds * float64(time.Second))) }

// arrivals are requests that came at a rate within a span, each answered, or not,
// after the same time.
func arrivals(path string, rate, from, to, took float64, ok bool, telemetry part) (all []arrival) {
	for s := from + 1/rate/2; s < to; s += 1 / rate {
		all = append(all, arrival{path: path, start: at(s), end: at(s + took), ok: ok, telemetry: telemetry})
	}
	return all
}

// goodBare is run A as the arithmetic has it.
func goodBare() record {
	r := record{start: at(0), injected: at(3), empty: at(7), end: at(12), peak: 200, stalls: &stalls{},
		hits: map[string][]time.Time{"areas": {at(1), at(6.9)}, slowOne: {at(11)}}}
	r.arrivals = append(r.arrivals, arrivals("/mission", 50, 0, 3, 0.03, true, part{State: "live"})...)
	r.arrivals = append(r.arrivals, arrivals("/mission", 50, 3, 12, 9, false, part{})...)
	r.arrivals = append(r.arrivals, arrivals("/ping", 5, 0, 7, 0.01, true, part{})...)
	r.arrivals = append(r.arrivals, arrivals("/ping", 5, 7, 12, 2, false, part{})...)
	return r
}

// goodStack is run B as the arithmetic has it.
func goodStack() record {
	r := record{start: at(0), injected: at(11), lifted: at(19), end: at(27), peak: 22, probes: 3, stalls: &stalls{},
		good: transport.Evidence{Calls: 550, Timed: 550},
		transitions: []transition{
			{slowOne, transport.Transition{To: transport.Open, At: at(13.4), Evidence: transport.Evidence{Trigger: "slow_call_rate", Slow: 20, Timed: 20}}},
			{slowOne, transport.Transition{From: transport.Open, To: transport.HalfOpen, At: at(23.5)}},
			{slowOne, transport.Transition{From: transport.HalfOpen, To: transport.Closed, At: at(23.6)}},
		},
		hosts: map[string]transport.HostSnapshot{"areas": {Counts: transport.Counts{Calls: 1350, Success: 1350}}},
	}
	stale := part{State: "stale", AsOf: at(11), Label: "as of 14:00:11"}
	r.arrivals = append(r.arrivals, arrivals("/mission", 50, 0, 11, 0.03, true, part{State: "live"})...)
	r.arrivals = append(r.arrivals, arrivals("/mission", 50, 11, 11.4, 3, true, stale)...)
	r.arrivals = append(r.arrivals, arrivals("/mission", 50, 11.4, 23.6, 0.03, true, stale)...)
	r.arrivals = append(r.arrivals, arrivals("/mission", 50, 23.6, 27, 0.03, true, part{State: "live"})...)
	r.arrivals = append(r.arrivals, arrivals("/ping", 5, 0, 27, 0.01, true, part{})...)
	return r
}

func TestTheArithmeticHoldsItsOwnClaims(t *testing.T) {
	all := claims(scene(), goodBare(), goodStack())
	if f := failures(all); f != nil {
		t.Errorf("%v\n%s", f, table(look{unicode: true}, all))
	}
	if len(all) != 21 {
		t.Errorf("%d claims", len(all))
	}
	for _, c := range all {
		if want := map[string]string{"A: " + rowEmpty: "3.6 to 4.4 s", "B: " + rowOpens: "2 to 3 s", "B: " + rowHalfOpen: "9 to 11.4 s"}[c.Name]; want != "" && c.Expected != want {
			t.Errorf("%s: expected %q, want %q", c.Name, c.Expected, want)
		}
	}
}

func TestEachClaimCanFail(t *testing.T) {
	s := scene()
	bare := map[string]func(*record){
		rowBefore:  func(r *record) { spoil(r, "/mission", 0, 3, func(a *arrival) { a.ok = false }) },
		rowHeld:    func(r *record) { r.peak = 199 },
		rowEmpty:   func(r *record) { r.empty = at(7.5) },
		rowMission: func(r *record) { spoil(r, "/mission", 3, 12, func(a *arrival) { a.ok = true }) },
		rowPing:    func(r *record) { r.arrivals = append(r.arrivals, arrivals("/ping", 5, 8, 8.3, 0.01, true, part{})...) },
		rowOthers:  func(r *record) { r.hits["crew"] = []time.Time{at(10)} },
	}
	for row, harm := range bare {
		r := goodBare()
		harm(&r)
		if f := failures(claims(s, r, goodStack())); len(f) != 1 || f[0] != "A: "+strings.TrimSpace(row) {
			t.Errorf("%s: failed %v", row, f)
		}
	}
	stack := map[string]func(*record){
		rowBefore:  func(r *record) { spoil(r, "/mission", 0, 5, func(a *arrival) { a.ok = false }) },
		rowHeld:    func(r *record) { r.peak = 36 },
		rowEmpty:   func(r *record) { r.empty = at(15) },
		rowMission: func(r *record) { spoil(r, "/mission", 12, 13, func(a *arrival) { a.ok = false }) },
		rowPing:    func(r *record) { spoil(r, "/ping", 12, 15, func(a *arrival) { a.ok = false }) },
		rowSlowest: func(r *record) {
			spoil(r, "/mission", 11, 11.1, func(a *arrival) { a.end = a.start.Add(9 * time.Second) })
		},
		rowOthers: func(r *record) {
			r.hosts["crew"] = transport.HostSnapshot{Counts: transport.Counts{Calls: 100, Failure: 50}}
		},
		rowOpens:   func(r *record) { r.transitions[0].At = at(14.1) },
		rowTrigger: func(r *record) { r.transitions[0].Evidence.Failures = 1 },
		rowHistory: func(r *record) { r.good.Calls = 150 },
		rowLabel: func(r *record) {
			spoil(r, "/mission", 15, 15.03, func(a *arrival) { a.telemetry = part{State: "live"} })
		},
		rowHalfOpen: func(r *record) { r.transitions[1].At = at(21) },
		rowProbes:   func(r *record) { r.probes = 4 },
		rowLive:     func(r *record) { spoil(r, "/mission", 24, 25, func(a *arrival) { a.telemetry.State = "stale" }) },
		rowPermits:  func(r *record) { r.inFlight = 1 },
	}
	for row, harm := range stack {
		r := goodStack()
		harm(&r)
		if f := failures(claims(s, goodBare(), r)); len(f) != 1 || f[0] != "B: "+strings.TrimSpace(row) {
			t.Errorf("%s: failed %v", row, f)
		}
	}
	if len(bare)+len(stack) != 21 {
		t.Errorf("%d of 21 claims are harmed", len(bare)+len(stack))
	}
}

// spoil changes the arrivals at a path within a span.
func spoil(r *record, path string, from, to float64, f func(*arrival)) {
	for i := range r.arrivals {
		a := &r.arrivals[i]
		if a.path == path && a.start.After(at(from)) && a.start.Before(at(to)) {
			f(a)
		}
	}
}

func TestARunThatSawNothingProvesNothing(t *testing.T) {
	nothing := record{start: at(0), injected: at(3), end: at(12), stalls: &stalls{}}
	for _, c := range claims(scene(), nothing, nothing) {
		harmless := c.Name == "B: "+rowHeld || c.Name == "B: "+rowEmpty || c.Name == "B: "+rowPermits
		if c.OK != harmless && c.Name != "B: "+rowSlowest {
			t.Errorf("%s: %v", c.Name, c.OK)
		}
	}
}

func TestALimitOnTimeIsWidenedByWhatWasLostUnderIt(t *testing.T) {
	s := scene()
	a := goodBare()
	a.empty = at(7.9) // after 4.9 s
	for _, tt := range []struct {
		lost time.Duration
		ok   bool
	}{
		{0, false}, {400 * time.Millisecond, false}, {600 * time.Millisecond, true},
	} {
		a.stalls = &stalls{all: []stall{{at(5), tt.lost}}}
		ok := true
		for _, c := range bareClaims(s, a) {
			if c.row == rowEmpty {
				ok = c.OK
			}
		}
		if ok != tt.ok {
			t.Errorf("%v lost: %v", tt.lost, ok)
		}
	}
	a.empty = at(12) // after 9 s: more than twice the limit
	a.stalls = &stalls{all: []stall{{at(12), 9 * time.Second}}}
	if f := failures(bareClaims(s, a)); len(f) == 0 {
		t.Error("a limit was widened without a limit")
	}
}

func TestStallsCountOnlyWithinTheSpan(t *testing.T) {
	s := &stalls{all: []stall{{at(2), time.Second}, {at(5), time.Second}, {at(9), time.Second}}}
	for _, tt := range []struct {
		from, to float64
		want     time.Duration
	}{
		{0, 10, 3 * time.Second},
		{1.5, 4.5, time.Second},
		{2, 4, 0},
		{4.25, 4.75, 500 * time.Millisecond},
	} {
		if got := s.between(at(tt.from), at(tt.to)); got != tt.want {
			t.Errorf("%v to %v: %v, want %v", tt.from, tt.to, got, tt.want)
		}
	}
}

func TestAScaleKeepsEveryRatio(t *testing.T) {
	one, ten := scene(), scene().faster(10)
	if err := ten.telemetry.Validate(); err != nil {
		t.Error(err)
	}
	if one.lasts() != 4*time.Second || ten.lasts() != 400*time.Millisecond {
		t.Errorf("%v, %v", one.lasts(), ten.lasts())
	}
	p := ten.telemetry
	if p.Breaker.SlowCall != 200*time.Millisecond || p.Breaker.OpenFor != time.Second || p.Timeout.Attempt != 300*time.Millisecond ||
		p.Breaker.Window != 6*time.Second || p.Breaker.Buckets != 60 || p.Fallback.MaxStale != time.Minute || p.Retry.Budget.MinPerSecond != 10 ||
		p.Breaker.MinCalls != 20 || p.Bulkhead.MaxConcurrent != 20 || ten.latency != 3*time.Millisecond || ten.missions != 500 {
		t.Errorf("%+v", ten)
	}
	if one.policy.Fallback.MaxStale != 0 || one.telemetry.Fallback.MaxStale != 10*time.Minute {
		t.Error("only telemetry may be stale")
	}
}
