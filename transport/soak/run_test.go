package soak

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/watertight-go/watertight/cache"
	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/transporttest"
)

// run is one soak.
type run struct {
	plan    plan
	length  time.Duration
	start   time.Time
	origin  *origin
	books   *books
	stacks  [groups]*transport.Transport
	meters  [groups]*meters               // nil: none
	faults  [groups]*transporttest.Faults // nil: none
	callers [callers]*caller
	tallies tallies
	lag     lag
	bodies  sync.Map // request bodies that are not closed yet: *bodyReader, since when

	stop   context.CancelFunc // ends the callers
	mu     sync.Mutex         // guards what follows
	broken map[string][]string
}

// tallies are what the callers have seen, and the callers alone.
type tallies struct {
	trips, tripAnswers, tripErrors, tripsEnded              atomic.Int64
	answers, bodyErrors, stale, tunnels                     atomic.Int64
	forgotten, closedEarly                                  atomic.Int64
	timed, untimed                                          atomic.Int64 // held to the bound on a call, and not: the machine was late
	refused, timeouts, cancelled, network, closed, whatever atomic.Int64
}

// tally sorts an error.
func (r *run) tally(err error) {
	t := &r.tallies
	var why *transport.Error
	var op *net.OpError
	switch ours := errors.As(err, &why); {
	case ours && (why.Kind == transport.ErrBreakerOpen || why.Kind == transport.ErrBulkheadFull):
		t.refused.Add(1)
	case ours && why.Timeout():
		t.timeouts.Add(1)
	case ours && why.Kind == transport.ErrClosed:
		t.closed.Add(1)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), strings.Contains(err.Error(), "request canceled"):
		t.cancelled.Add(1)
	case errors.As(err, &op):
		t.network.Add(1)
	default:
		t.whatever.Add(1)
	}
}

// fail notes that an invariant is broken, and ends the run.
func (r *run) fail(invariant, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.broken == nil {
		r.broken = map[string][]string{}
	}
	if said := r.broken[invariant]; len(said) < 3 {
		r.broken[invariant] = append(said, fmt.Sprintf("after %v: ", time.Since(r.start).Round(time.Millisecond))+fmt.Sprintf(format, args...))
	}
	r.stop()
}

// report is what is broken, and how to repeat it; empty if nothing is.
func (r *run) report() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	for invariant, said := range r.broken {
		fmt.Fprintf(&b, "broken: %s\n", invariant)
		for _, s := range said {
			fmt.Fprintf(&b, "  %s\n", s)
		}
	}
	return b.String()
}

// build makes the origin and the stacks.
func (r *run) build() error {
	o, err := newOrigin(r)
	if err != nil {
		return err
	}
	r.origin, r.books = o, &books{run: r}
	for g := range groups {
		store, err := cache.NewMemory(cache.Config{MaxBytes: 2 << 20})
		if err != nil {
			return err
		}
		c := transport.Config{Hosts: map[string]policy.Policy{}, Base: o.transport(), Store: store, Observer: r.books,
			Logger: slog.New(logs{r.books}), MaxIdleConns: 32}
		for host := range hosts {
			if groupOf(host) == g {
				c.Hosts[nameOf(host)] = policyOf(host)
			}
		}
		if g != bare {
			r.meters[g] = &meters{run: r}
		}
		switch g {
		case metered:
			c.MaxConcurrent, r.meters[g].limit = maxConcurrent, maxConcurrent
			c.Default = policyOf(0)
			c.Base = aroundMeter{meter{c.Base, r.meters[g]}}
		case faulty:
			r.faults[g] = &transporttest.Faults{Base: c.Base, Seed: r.plan.seed}
			c.Base = aroundMeter{meter{r.faults[g], r.meters[g]}}
		case foreign:
			r.faults[g] = &transporttest.Faults{Base: reading{o.transport()}, Seed: r.plan.seed}
			c.Base = meter{r.faults[g], r.meters[g]}
		}
		if r.stacks[g], err = transport.New(c); err != nil {
			return err
		}
	}
	for i := range r.callers {
		r.callers[i] = &caller{run: r, id: i}
	}
	return nil
}

// clientOf is an http.Client for one visit to a host.
func (r *run) clientOf(host int, v *visit) *http.Client {
	v.RoundTripper = r.stacks[groupOf(host)]
	return &http.Client{Transport: v}
}

// control does what an owner might at any time.
func (r *run) control(e errand) {
	tr := r.stacks[groupOf(e.controlled)]
	h := tr.Host(nameOf(e.controlled))
	switch e.control {
	case forceOpen:
		h.ForceOpen()
	case forceClosed:
		h.ForceClosed()
	case reset:
		h.Reset()
	case snapshot:
		_ = tr.Snapshot()
		_ = h.Snapshot()
	case closeIdle:
		tr.CloseIdleConnections()
	}
}

// breed begins and ends outages.
func (r *run) breed(ctx context.Context) {
	for k := 0; ctx.Err() == nil; k++ {
		for host := range hosts {
			f := r.faults[groupOf(host)]
			if f == nil {
				continue
			}
			if injections := r.plan.outage(host, k); len(injections) == 0 {
				_ = f.Clear(nameOf(host)) // it may never have been Set
			} else if err := f.Set(nameOf(host), injections...); err != nil {
				r.fail("outages are valid", "%v", err)
			}
		}
		_ = wait(ctx, 500*time.Millisecond)
	}
}

// soak lets the callers loose, watches, and returns when they are done.
func (r *run) soak() {
	ctx, stop := context.WithTimeout(context.Background(), r.length)
	defer stop()
	r.stop = stop
	r.start = time.Now()
	var living sync.WaitGroup
	for _, c := range r.callers {
		living.Go(func() { c.live(ctx) })
	}
	living.Go(func() { r.breed(ctx) })
	var watching sync.WaitGroup
	watched, enough := context.WithCancel(context.Background())
	watching.Go(func() { r.watch(watched) })
	watching.Go(func() { r.lag.measure(watched) })
	home := make(chan struct{})
	go func() {
		living.Wait()
		close(home)
	}()
	<-ctx.Done()
	select {
	case <-home:
	case <-time.After(patience):
		r.fail("every call ends within its bound", "callers do not come home within %v", patience)
		r.late(time.Since(r.start))
	}
	enough()
	watching.Wait()
}

// patience is how long callers may take to end their last call.
const patience = 40 * time.Second

// settle waits for what is left to end by itself, and checks that nothing does not.
func (r *run) settle() {
	r.await("no permit is left", func() string {
		for _, tr := range r.stacks {
			for _, h := range tr.Snapshot() {
				if h.InFlight != 0 || h.Waiting != 0 {
					return fmt.Sprintf("%s: %d in flight, %d waiting", h.Host, h.InFlight, h.Waiting)
				}
			}
		}
		for _, m := range r.meters {
			if m != nil && m.all.Load() != 0 {
				return fmt.Sprintf("%d attempts still at a base", m.all.Load())
			}
		}
		return ""
	})
	r.await("every Start has its end", func() string {
		for host := range r.books.hosts {
			if a := &r.books.hosts[host]; a.calls.Load() != a.callEnds.Load() || a.attempts.Load() != a.attemptEnds.Load() {
				return fmt.Sprintf("%s: %d calls begun, %d ended; %d attempts begun, %d ended", nameOf(host),
					a.calls.Load(), a.callEnds.Load(), a.attempts.Load(), a.attemptEnds.Load())
			}
		}
		return ""
	})
	r.await("every request body is closed", func() string { return r.unclosed(0) })
	r.await("every transition is told of and logged", func() string {
		for host := range r.books.hosts {
			h := &r.books.hosts[host]
			h.mu.Lock()
			told, logged := slices.Clone(h.told), slices.Clone(h.logged)
			if r.books.lossy.Load() {
				told = nil
			}
			h.mu.Unlock()
			if len(told)+len(logged) > 0 {
				return fmt.Sprintf("%s: only told of %v, only logged %v", nameOf(host), told, logged)
			}
		}
		return ""
	})
	r.balance()
	r.whole(r.fill)
	r.close()
}

// whole takes all permits of each host, now that it is well: none was lost. A host
// that does not give them for another reason is asked again.
func (r *run) whole(fill func(host int) error) {
	r.origin.well.Store(true)
	measured, enough := context.WithCancel(context.Background())
	var measuring sync.WaitGroup
	measuring.Go(func() { r.lag.measure(measured) })
	defer measuring.Wait()
	defer enough()
	filled, late := 0, 0
	var why error
	for host := range hosts {
		if f := r.faults[groupOf(host)]; f != nil {
			_ = f.Clear() // all of them
		}
		before := r.lag.now()
		err := fill(host)
		for range 2 {
			if err != nil {
				err = fill(host)
			}
		}
		switch {
		case err == nil:
			filled++
		case r.lag.now()-before > lateFilling:
			late++
		default:
			why = fmt.Errorf("%s: %w", nameOf(host), err)
		}
	}
	if late > 0 {
		fmt.Fprintf(os.Stderr, "soak: the permits of %d hosts were not counted: the machine was late\n", late)
	}
	if filled+late < mostHosts {
		r.fail("no permit is lost", "not known: %d of %d hosts gave all of theirs, %d not because the machine was late; %v", filled, hosts, late, why)
	}
}

const (
	mostHosts   = hosts * 9 / 10
	lateFilling = 200 * time.Millisecond // of the lag of the machine while a host was asked, which explains that its limits fired
)

// fill takes all permits of a host, and gives them back. Its error is not that there
// are too few, which ends the run.
func (r *run) fill(host int) error {
	tr, most := r.stacks[groupOf(host)], policyOf(host).Bulkhead.MaxConcurrent
	tr.Host(nameOf(host)).Reset()
	for i := range most {
		req, err := http.NewRequest(http.MethodGet, urlOf(host, "/whole"), nil)
		if err != nil {
			return err
		}
		req.Header.Set(idHeader, "0-0")
		resp, err := tr.RoundTrip(req)
		if errors.Is(err, transport.ErrBulkheadFull) {
			r.fail("no permit is lost", "%s: %d of %d are left: %v", nameOf(host), i, most, err)
			return nil
		}
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }()
	}
	return nil
}

// balance compares the stack's own counts with those of everyone else.
func (r *run) balance() {
	const invariant = "requests = answers + errors"
	t := &r.tallies
	if trips, ended := t.trips.Load(), t.tripAnswers.Load()+t.tripErrors.Load()+t.tripsEnded.Load(); trips != ended {
		r.fail(invariant, "%d requests, %d answers, %d errors, %d ended by their caller", trips, t.tripAnswers.Load(), t.tripErrors.Load(), t.tripsEnded.Load())
	}
	for g, tr := range r.stacks {
		for _, h := range tr.Snapshot() {
			a, n := r.books.of(h.Host), h.Counts
			if n.Calls != a.calls.Load() || n.Attempts != a.attempts.Load() || n.Retries != a.retries.Load() {
				r.fail(invariant, "%s counts %d calls, %d attempts, %d retries; told of %d, %d, %d", h.Host, n.Calls, n.Attempts, n.Retries,
					a.calls.Load(), a.attempts.Load(), a.retries.Load())
			}
			if verdicts := n.Success + n.Failure + n.Neutral; verdicts != n.Attempts {
				r.fail(invariant, "%s: %d attempts, %d verdicts", h.Host, n.Attempts, verdicts)
			}
			if h.State != a.state && !(h.State == transport.HalfOpen && a.state == transport.Open) {
				r.fail("breakers move legally, and say so in order", "%s is %v, told of %v", h.Host, h.State, a.state)
			}
			if group(g) != foreign {
				if seen := r.origin.retries[hostOf(h.Host)].Load(); seen > a.retries.Load() {
					r.fail("retries stay within the budget", "%s saw %d retries, told of %d", h.Host, seen, a.retries.Load())
				}
			}
		}
	}
}

// close closes the stacks: no connection may be left, and no call go out.
func (r *run) close() {
	for _, tr := range r.stacks {
		if err := tr.Close(); err != nil {
			r.fail("Close ends everything", "%v", err)
		}
		if _, err := tr.Client().Get(urlOf(0, "/a")); !errors.Is(err, transport.ErrClosed) {
			r.fail("Close ends everything", "a call after Close: %v", err)
		}
	}
	r.await("Close ends everything", func() string {
		if open := r.origin.open.Load(); open != 0 {
			return fmt.Sprintf("%d connections open at the origin: %s\n%s", open, r.origin.opened(), stacks())
		}
		return ""
	})
	r.origin.close()
}

// await lets the garbage collector find what was forgotten until nothing is wrong.
func (r *run) await(invariant string, wrong func() string) {
	var what string
	for begin := time.Now(); time.Since(begin) < patience; time.Sleep(50 * time.Millisecond) {
		if what = wrong(); what == "" {
			return
		}
		runtime.GC()
	}
	r.fail(invariant, "%v after the last call: %s", patience, what)
}

// unclosed tells of a request body that is older, and not closed.
func (r *run) unclosed(older time.Duration) (what string) {
	r.bodies.Range(func(b, since any) bool {
		reader := b.(*bodyReader)
		if !reader.b.given.Load() {
			r.bodies.Delete(reader)
			return true
		}
		if time.Since(since.(time.Time)) > older {
			said := reader.b.said.Load()
			if said == nil {
				said = new(string)
			}
			what = fmt.Sprintf("%d of %d, open for %v, %d bytes left: %+v: %s", reader.number, reader.b.made.Load(),
				time.Since(since.(time.Time)).Round(time.Second), reader.left.Len(), reader.b.of, *said)
		}
		return what == ""
	})
	return what
}
