package transport

import (
	"testing"
	"time"

	"github.com/watertight-go/watertight/policy"
)

func TestTimeoutClockTellsThePeersTimeFromTheCallers(t *testing.T) {
	const s = time.Second
	var c clock
	c.begin(10 * s)
	for i, step := range []struct {
		at        time.Duration
		phase     phase
		uploading bool
		asked     time.Duration // when the clock is then read
		age       time.Duration
		waited    time.Duration
		waiting   bool
	}{
		{10 * s, phaseConnect, false, 12 * s, 2 * s, 2 * s, true},
		{13 * s, phaseWrite, false, 15 * s, 5 * s, 2 * s, true},
		{15 * s, phaseWrite, true, 25 * s, 5 * s, 0, false}, // in the caller's request body
		{35 * s, phaseWrite, false, 36 * s, 6 * s, 1 * s, true},
		{37 * s, phaseHeader, false, 37 * s, 7 * s, 0, true},
		{38 * s, phaseIdle, false, 99 * s, 8 * s, 0, false}, // between two reads
		{138 * s, phaseBody, false, 139 * s, 9 * s, 1 * s, true},
		{140 * s, phaseBody, true, 150 * s, 10 * s, 0, false},
		{160 * s, phaseBody, true, 170 * s, 10 * s, 0, false}, // a pause goes on
		{170 * s, phaseDone, false, 200 * s, 10 * s, 0, false},
	} {
		c.shift(step.at, step.phase, step.uploading)
		waited, waiting := c.waited(step.asked)
		if age := c.age(step.asked); age != step.age || waited != step.waited || waiting != step.waiting {
			t.Errorf("step %d, %s: age %v, waited %v, %v; want %v, %v, %v", i, step.phase, age, waited, waiting, step.age, step.waited, step.waiting)
		}
		if age, pauses := c.age(step.asked), c.pauses(step.asked); age+pauses != step.asked-c.start {
			t.Errorf("step %d: %v and %v are not all of the time", i, age, pauses)
		}
	}
}

func TestTimeoutPhasesHaveNames(t *testing.T) {
	seen := map[string]bool{}
	for p := phaseConnect; p <= phaseDone; p++ {
		if seen[p.String()] || p.String() == "" {
			t.Errorf("%d is called %q", p, p)
		}
		seen[p.String()] = true
	}
}

// TestTimeoutIsNotLostWhenTheTimerIsReset: a limit that is due while something
// else arms the timer fires at once, not with the next tick.
func TestTimeoutIsNotLostWhenTheTimerIsReset(t *testing.T) {
	tr := Must(New(Config{}))
	a := &attempt{}
	limits := policy.Timeout{Attempt: time.Second, Read: time.Minute}
	a.init(&call{h: &host{t: tr, policy: &tr.policies.fallback}, opts: &noCall, timeout: &limits})
	a.clock.begin(0)
	due, next := a.look(time.Second)
	if due.expired == nil || due.expired.Kind != ErrAttemptTimeout || next != time.Minute {
		t.Errorf("due %+v, next in %v", due, next)
	}
	if again, _ := a.look(time.Second); again.expired == nil {
		t.Error("looking changes the attempt")
	}
}
