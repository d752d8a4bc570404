package soak

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestACallThatIsLateIsFound lets calls of 300 ms take longer, on machines that are as
// late.
func TestACallThatIsLateIsFound(t *testing.T) {
	for name, c := range map[string]struct {
		took, lag time.Duration
		found     bool
	}{
		"in time":                   {took: 300 * time.Millisecond},
		"within the slack":          {took: 1300 * time.Millisecond},
		"beyond":                    {took: 1301 * time.Millisecond, found: true},
		"as late as the machine":    {took: 2200 * time.Millisecond, lag: 900 * time.Millisecond},
		"later than the machine":    {took: 2201 * time.Millisecond, lag: 900 * time.Millisecond, found: true},
		"a limit that is 10 s late": {took: 10300 * time.Millisecond, lag: time.Second, found: true},
		"on a machine that is so":   {took: 10300 * time.Millisecond, lag: 1001 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &run{stop: func() {}, start: time.Now()}
				v := &visit{run: r, body: r.newBody(errand{}), total: 300 * time.Millisecond, began: time.Now()}
				r.lag.sum = c.lag
				time.Sleep(c.took)
				v.inTime("a")
				if found := r.report() != ""; found != c.found {
					t.Errorf("found: %v, %s", found, r.report())
				}
				if skipped := r.tallies.untimed.Load() == 1; skipped != (c.lag > mostLag) || r.tallies.timed.Load()+r.tallies.untimed.Load() != 1 {
					t.Errorf("skipped: %v", skipped)
				}
			})
		})
	}
}

func TestACallerWhoDoesNotComeBackIsFound(t *testing.T) {
	for name, c := range map[string]struct {
		away, lag time.Duration
		found     bool
	}{
		"still within a call and its stream":  {away: 8 * time.Second},
		"beyond":                              {away: 9100 * time.Millisecond, found: true},
		"half as late as the machine may be":  {away: 12 * time.Second, lag: 2 * time.Second},
		"longer, though the machine was late": {away: 13100 * time.Millisecond, lag: 2 * time.Second, found: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := &run{stop: func() {}}
			r.lag.sum = c.lag
			for i := range r.callers {
				r.callers[i] = &caller{run: r, id: i}
			}
			r.callers[7].busy.Store(int64(time.Second))
			r.late(time.Second + c.away)
			if found := r.report() != ""; found != c.found {
				t.Errorf("found: %v, %s", found, r.report())
			}
		})
	}
}

func TestTheLagIsThatOfTheMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l lag
		ctx, stop := context.WithCancel(t.Context())
		go l.measure(ctx)
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := l.now(); got != 0 {
			t.Errorf("%v on a machine that is never late", got)
		}
		l.mu.Lock() // the goroutine that measures is not woken
		l.awake = time.Now().Add(-2 * time.Second)
		l.mu.Unlock()
		if got := l.now(); got != 2*time.Second {
			t.Errorf("%v while it is 2 s late", got)
		}
		time.Sleep(lookEvery)
		synctest.Wait()
		if got := l.now(); got != 2*time.Second+lookEvery {
			t.Errorf("%v after it was %v late", got, 2*time.Second+lookEvery)
		}
		stop()
		synctest.Wait()
		time.Sleep(time.Hour)
		if got := l.now(); got != 2*time.Second+lookEvery {
			t.Errorf("%v when nobody measures", got)
		}
	})
}

// TestPermitsThatCouldNotBeCountedAreNotTakenForWhole lets hosts hang up, of which one
// in ten may, and more on a machine that is late.
func TestPermitsThatCouldNotBeCountedAreNotTakenForWhole(t *testing.T) {
	for name, c := range map[string]struct {
		dead  int
		lag   time.Duration // a call
		found bool
	}{
		"all hosts are well":                   {},
		"some are not":                         {dead: hosts - mostHosts},
		"too many are not":                     {dead: hosts - mostHosts + 1, found: true},
		"all are not, on a machine that waits": {dead: hosts, lag: lateFilling/3 - time.Millisecond, found: true},
		"all are not, on one that is late":     {dead: hosts, lag: lateFilling},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &run{origin: &origin{}, stop: func() {}, start: time.Now()}
				asked := map[int]int{}
				r.whole(func(host int) error {
					asked[host]++
					r.lag.mu.Lock()
					r.lag.sum += c.lag
					r.lag.mu.Unlock()
					if host < c.dead {
						return errors.New("host down")
					}
					return nil
				})
				if broken := r.report(); (broken != "") != c.found || c.found && !strings.Contains(broken, "host down") {
					t.Errorf("found: %q", broken)
				}
				if len(asked) != hosts || c.dead > 0 && asked[0] != 3 || c.dead < hosts && asked[hosts-1] != 1 {
					t.Errorf("asked: %v", asked)
				}
			})
		})
	}
}
