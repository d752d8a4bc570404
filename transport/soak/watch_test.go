package soak

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
)

const (
	lookEvery   = 25 * time.Millisecond
	reckonEvery = time.Second
	weighEvery  = 2 * time.Second
	tellEvery   = 10 * time.Second

	unclosedFor = 30 * time.Second // request bodies, at the most
	streamFor   = 2 * time.Second  // of a stream, at the most
	errandFor   = 8 * time.Second  // an errand, at the most: a call, a stream of its answer, the caller's own pauses
)

// watch checks, until ctx ends, what must hold at any moment.
func (r *run) watch(ctx context.Context) {
	var weighed []weight
	last := map[string]transport.Counts{}
	var reckoned []reckoning
	var looked, told, weighedAt time.Duration
	for wait(ctx, lookEvery) == nil {
		r.look(last)
		now := time.Since(r.start)
		if now-looked > reckonEvery {
			looked = now
			reckoned = r.reckon(reckoned, now)
			r.late(now)
			if what := r.unclosed(unclosedFor); what != "" {
				r.fail("every request body is closed", "%s", what)
			}
		}
		if now-weighedAt > max(weighEvery, r.length/30) && now < r.length {
			weighedAt = now
			weighed = append(weighed, weigh())
		}
		if now-told > tellEvery {
			told = now
			r.tell(now)
		}
	}
	r.flat(weighed)
}

// lag is how late the machine is, all in all, which puts off every limit.
type lag struct {
	mu    sync.Mutex // guards what follows
	sum   time.Duration
	awake time.Time // when it is to be; zero: it is not measured
}

// measure adds it up, until ctx ends.
func (l *lag) measure(ctx context.Context) {
	next := func(at time.Time) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.sum, l.awake = l.sum+l.more(), at
	}
	defer next(time.Time{})
	for ok := true; ok; ok = wait(ctx, lookEvery) == nil {
		next(time.Now().Add(lookEvery))
	}
}

// now is the sum so far, with what is still under way.
func (l *lag) now() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sum + l.more()
}

// more is how late it is just now.
func (l *lag) more() time.Duration {
	if l.awake.IsZero() {
		return 0
	}
	return max(0, time.Since(l.awake))
}

// look checks what the stacks tell of themselves.
func (r *run) look(last map[string]transport.Counts) {
	for _, tr := range r.stacks {
		for _, h := range tr.Snapshot() {
			if h.InFlight < 0 || h.InFlight > h.MaxConcurrent || h.Waiting < 0 {
				r.fail("permits are never above the cap, nor below zero", "%s: %d of %d held, %d waiting", h.Host, h.InFlight, h.MaxConcurrent, h.Waiting)
			}
			if h.RetryBudget < -1e-6 || h.RetryBudget > policy.BudgetBurst+1e-6 {
				r.fail("retries stay within the budget", "%s: %v tokens", h.Host, h.RetryBudget)
			}
			if h.State > transport.ForcedClosed {
				r.fail("breakers move legally, and say so in order", "%s: state %v", h.Host, h.State)
			}
			n, l := h.Counts, last[h.Host]
			if n.Calls < l.Calls || n.Attempts < l.Attempts || n.Retries < l.Retries || n.Leaked < l.Leaked || n.Success < l.Success ||
				n.Failure < l.Failure || n.Neutral < l.Neutral {
				r.fail("counts only grow", "%s: %+v after %+v", h.Host, n, l)
			}
			last[h.Host] = n
		}
	}
	for _, m := range r.meters {
		for host := range hosts {
			if m != nil && m.hosts[host].Load() < 0 {
				r.fail("permits are never above the cap, nor below zero", "%s: %d attempts at the base", nameOf(host), m.hosts[host].Load())
			}
		}
	}
}

// reckoning is what the books said at one moment.
type reckoning struct {
	at                       time.Duration
	retries, deposits, calls [hosts]int64
}

// reckon checks the retries against the budget: since the beginning, and over the
// last ten seconds, in which those may have gone out that had their token before.
func (r *run) reckon(all []reckoning, now time.Duration) []reckoning {
	const invariant = "retries stay within the budget"
	var k reckoning
	for host := range hosts {
		a, p := &r.books.hosts[host], policyOf(host).Retry.Budget
		calls := a.calls.Load() - a.callEnds.Load() // before
		retries, most := a.budget(p, time.Since(r.start))
		if float64(retries) > most+1e-6 {
			r.fail(invariant, "%s: %d retries since the beginning, at most %.1f", nameOf(host), retries, most)
		}
		k.retries[host], k.deposits[host] = retries, a.deposits.Load()
		k.calls[host] = max(calls, 0)
		if len(all) >= 10 {
			then := &all[len(all)-10]
			open := a.attempts.Load() - a.attemptEnds.Load()
			most := policy.BudgetBurst + p.Ratio*float64(a.deposits.Load()+open-then.deposits[host]) +
				p.MinPerSecond*(time.Since(r.start)-then.at).Seconds() + float64(then.calls[host])
			if n := retries - then.retries[host]; float64(n) > most+1e-6 {
				r.fail(invariant, "%s: %d retries within %v, at most %.1f", nameOf(host), n, now-then.at, most)
			}
		}
	}
	k.at = now
	if len(all) > 20 {
		all = slices.Delete(all, 0, 10)
	}
	return append(all, k)
}

// late finds callers that do not come back.
func (r *run) late(now time.Duration) {
	for _, c := range r.callers {
		since := time.Duration(c.busy.Load())
		if lag := r.lag.now() - time.Duration(c.lag.Load()); since == 0 || now-since < errandFor+slack+2*lag {
			continue
		}
		r.fail("every call ends within its bound", "caller %d, step %d: %v\n%+v\n%s", c.id, c.step, now-since, r.plan.errand(c.id, c.step), stacks())
	}
}

func stacks() []byte {
	buf := make([]byte, 4<<20)
	return buf[:runtime.Stack(buf, true)]
}

// weight is what the process holds.
type weight struct {
	heap       uint64 // that a garbage collection leaves
	goroutines int
}

func weigh() weight {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return weight{m.HeapAlloc, runtime.NumGoroutine()}
}

// least is the least heap and the median of the goroutines.
func least(all []weight) weight {
	heap := slices.MinFunc(all, func(a, b weight) int { return int(int64(a.heap) - int64(b.heap)) })
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b weight) int { return a.goroutines - b.goroutines })
	return weight{heap.heap, all[len(all)/2].goroutines}
}

// flat compares the second third of the run with the last; the first is to warm up.
func (r *run) flat(all []weight) {
	third := len(all) / 3
	if third < 3 {
		return
	}
	first, before, after := least(all[:third]), least(all[third:2*third]), least(all[2*third:])
	fmt.Fprintf(os.Stderr, "soak: heap %d, %d, %d KiB; goroutines %d, %d, %d in the thirds of the run\n",
		first.heap>>10, before.heap>>10, after.heap>>10, first.goroutines, before.goroutines, after.goroutines)
	if after.heap > before.heap+before.heap/4+4<<20 {
		r.fail("memory is flat", "%d KiB in the last third, %d KiB in that before", after.heap>>10, before.heap>>10)
	}
	if after.goroutines > before.goroutines+before.goroutines/2+100 {
		r.fail("goroutines are flat", "%d in the last third, %d in that before", after.goroutines, before.goroutines)
	}
}

// tell prints a line of progress.
func (r *run) tell(now time.Duration) {
	t := &r.tallies
	var retries, leaks int64
	states := map[string]int{}
	for _, tr := range r.stacks {
		for _, h := range tr.Snapshot() {
			retries += h.Counts.Retries
			leaks += h.Counts.Leaked
			states[h.State.String()]++
		}
	}
	fmt.Fprintf(os.Stderr, "soak: %4.0fs %d requests: %d answers (%d stale), %d refused, %d timeouts, %d cancelled, %d network, %d other; "+
		"%d cut bodies, %d forgotten, %d found; %d retries, %d transitions; %d connections, %d goroutines; %v; "+
		"%d held to their time, %d not: the machine was late\n",
		now.Seconds(), t.trips.Load(), t.answers.Load(), t.stale.Load(), t.refused.Load(), t.timeouts.Load(), t.cancelled.Load(), t.network.Load(),
		t.whatever.Load(), t.bodyErrors.Load(), t.forgotten.Load(), leaks, retries, r.books.kinds[transport.EventTransition].Load(),
		r.origin.open.Load(), runtime.NumGoroutine(), states, t.timed.Load(), t.untimed.Load())
}
