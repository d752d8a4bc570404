package scene

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
	page "github.com/watertight-go/watertight/transport/status"
)

// rig is one run's scene: dependencies, assembler, load, and what is recorded.
type rig struct {
	setting setting
	view    *view
	export  *export // nil: none
	endless bool    // no claims are made of it, and nothing is kept
	deps    map[string]*dependency
	service *assembler
	load    *load
	stack   *transport.Transport // nil: the bare client
	bare    *http.Transport      // nil: the stack
	page    *server              // of the stack's state
	mounted *page.Handler        // the same under -serve's address
	cancel  context.CancelFunc   // of the load
	running sync.WaitGroup

	mu     sync.Mutex // guards record
	record record
}

// record is what a run was, as far as the claims need it.
type record struct {
	start, end       time.Time
	injected, lifted time.Time
	empty            time.Time // when the workers' pool was
	peak             int       // workers held at most
	samples          []int     // workers held, once a step
	step             time.Duration
	arrivals         []arrival
	transitions      []transition
	good             transport.Evidence     // telemetry's window when the fault came
	probes           int                    // requests that telemetry got half-open
	hits             map[string][]time.Time // when requests came, by dependency
	hosts            map[string]transport.HostSnapshot
	inFlight         int // permits held when all was over
	stalls           *stalls
}

// transition is one change of a dependency's breaker.
type transition struct {
	name string
	transport.Transition
}

// newRig starts the servers; withStack chooses the client between them, and x
// exports what that does, unless it is nil.
func newRig(s setting, v *view, withStack, endless bool, x *export) (*rig, error) {
	r := &rig{setting: s, view: v, endless: endless, export: x, deps: map[string]*dependency{}, record: record{stalls: &stalls{}}}
	var deps []*dependency
	for _, name := range names {
		d, err := newDependency(name, s.latency)
		if err != nil {
			r.close()
			return nil, err
		}
		d.forget = endless
		r.deps[name] = d
		deps = append(deps, d)
	}
	client, err := r.client(withStack)
	if err == nil && withStack && !endless { // under -serve it is mounted there
		err = r.servePage()
	}
	if err == nil {
		r.service, err = newAssembler(s.workers, client, deps)
	}
	if err != nil {
		r.close()
		return nil, err
	}
	r.load = newLoad("http://" + r.service.server.host)
	r.load.endless = endless
	return r, nil
}

// client is the difference between the two runs.
func (r *rig) client(withStack bool) (*http.Client, error) {
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.Proxy, base.DialContext = nil, r.dial
	if !withStack {
		r.bare = base
		return &http.Client{Transport: base}, nil
	}
	rt, err := transport.New(transport.Config{
		Default:  r.setting.policy,
		Hosts:    map[string]policy.Policy{r.deps[slowOne].address(): r.setting.telemetry},
		Base:     base,
		Observer: r.export.of(r),
		Logger:   slog.New(slog.DiscardHandler), // the view tells of transitions
	})
	if err != nil {
		return nil, err
	}
	r.stack = rt
	return rt.Client(), nil
}

// dial leads to a dependency by its name: that is what metrics, traces and the status
// page then call it.
func (r *rig) dial(ctx context.Context, network, address string) (net.Conn, error) {
	for _, d := range r.deps {
		if d.address() == address {
			address = d.server.host
		}
	}
	dialer := net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second} // as http.DefaultTransport has it
	return dialer.DialContext(ctx, network, address)
}

// begin starts the load, the sampling and the live line.
func (r *rig) begin(ctx context.Context) {
	ctx, r.cancel = context.WithCancel(ctx)
	s := r.setting
	r.mu.Lock()
	r.record.start = time.Now()
	r.record.step = s.step
	r.mu.Unlock()
	r.running.Go(func() { r.load.arrive(ctx, "/mission", s.missions, 0) })
	r.running.Go(func() { r.load.arrive(ctx, "/ping", s.pings, s.patience) })
	r.running.Go(func() { r.tell(ctx) })
	if r.endless {
		return
	}
	r.running.Go(func() { r.sample(ctx) })
	r.running.Go(func() { r.record.stalls.watch(ctx) })
}

// finish ends the load, then all that it held, and returns what was seen.
func (r *rig) finish() record {
	r.mu.Lock()
	r.record.end = time.Now()
	r.mu.Unlock()
	r.cancel()
	r.running.Wait()
	r.load.wait()
	r.close()

	r.mu.Lock()
	defer r.mu.Unlock()
	r.record.arrivals = r.load.ended()
	r.record.hits = map[string][]time.Time{}
	for name, d := range r.deps {
		r.record.hits[name] = d.seen()
	}
	r.service.mu.Lock()
	r.record.peak, r.record.empty = r.service.peak, r.service.empty
	r.service.mu.Unlock()
	return r.record
}

// close stops the servers; it is bounded, whatever they hold.
func (r *rig) close() {
	var all sync.WaitGroup
	if r.service != nil {
		all.Go(r.service.server.close)
	}
	for _, d := range r.deps {
		all.Go(d.close)
	}
	if r.page != nil {
		all.Go(r.page.close)
	}
	all.Wait()
	if r.stack != nil {
		r.record.hosts = map[string]transport.HostSnapshot{}
		for _, h := range r.stack.Snapshot() {
			r.record.hosts[r.nameOf(h.Host)] = h
			r.record.inFlight += h.InFlight
		}
		_ = r.stack.Close()
	}
	if r.bare != nil {
		r.bare.CloseIdleConnections()
	}
}

// sample notes how many workers are held, once a step.
func (r *rig) sample(ctx context.Context) {
	tick := time.NewTicker(r.record.step)
	defer tick.Stop()
	for {
		n := int(r.service.held.Load())
		r.mu.Lock()
		r.record.samples = append(r.record.samples, n)
		r.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// inject puts a fault into telemetry, and notes when and what was known then.
func (r *rig) inject(f fault) {
	r.mu.Lock()
	if r.stack != nil {
		for _, h := range r.stack.Host(r.deps[slowOne].address()).Snapshot() {
			r.record.good = h.Window
		}
	}
	r.record.injected = time.Now()
	r.mu.Unlock()
	r.deps[slowOne].set(f)
	r.view.note("telemetry %v from now on", f)
}

// lift makes telemetry healthy again.
func (r *rig) lift() {
	r.mu.Lock()
	r.record.lifted = time.Now()
	r.mu.Unlock()
	r.deps[slowOne].set(fault{})
	r.view.note("telemetry is healthy again")
}

// nameOf is the dependency at an address.
func (r *rig) nameOf(host string) string {
	for name, d := range r.deps {
		if d.address() == host {
			return name
		}
	}
	return host
}

// Start is the first half of transport.Observer.
func (r *rig) Start(ctx context.Context, _ transport.Start) context.Context { return ctx }

// Observe notes what the breakers do.
func (r *rig) Observe(_ context.Context, e transport.Event) {
	if e.Kind != transport.EventTransition {
		return
	}
	t := transition{r.nameOf(e.Host), *e.Transition}
	r.mu.Lock()
	if !r.endless {
		r.record.transitions = append(r.record.transitions, t)
	}
	since := t.At.Sub(r.record.injected)
	if r.record.injected.IsZero() {
		since = t.At.Sub(r.record.start)
	}
	r.mu.Unlock()
	r.view.note("%s: %s -> %s after %s: %s", t.name, t.From, t.To, short(since), evidence(t.Evidence))
}

// recovered reports whether telemetry's breaker has closed again.
func (r *rig) recovered() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := moved(r.record.transitions, transport.Closed, r.record.lifted)
	return ok
}

// moved finds the first transition of telemetry's breaker to a state.
func moved(all []transition, to transport.State, after time.Time) (time.Time, bool) {
	for _, t := range all {
		if t.name == slowOne && t.To == to && !t.At.Before(after) {
			return t.At, true
		}
	}
	return time.Time{}, false
}

// runBare is run A.
func runBare(ctx context.Context, s setting, v *view) (record, error) {
	r, err := newRig(s, v, false, false, nil)
	if err != nil {
		return record{}, err
	}
	v.title("A", "a bare http.DefaultTransport, no timeout")
	r.begin(ctx)
	sleep(ctx, s.warmA)
	r.inject(fault{kind: delay, delay: s.delay, share: 1})
	if await(ctx, 3*s.lasts(), func() bool { return int(r.service.held.Load()) == s.workers }) {
		v.note("the last worker is taken after %s, pings wait too", short(time.Since(r.record.injected)))
	}
	sleep(ctx, s.emptyA)
	return r.finish(), ctx.Err()
}

// runStack is run B.
func runStack(ctx context.Context, s setting, v *view, x *export) (record, error) {
	r, err := newRig(s, v, true, false, x)
	if err != nil {
		return record{}, err
	}
	v.title("B", "the stack: policy.Service(), telemetry may be 10 min stale")
	r.tellAddresses()
	r.begin(ctx)
	sleep(ctx, s.warmB)
	r.inject(fault{kind: delay, delay: s.delay, share: 1})
	sleep(ctx, s.slowB)
	r.lift()
	if await(ctx, 2*s.telemetry.Breaker.OpenFor, r.recovered) {
		sleep(ctx, s.restB)
	}
	rec := r.finish()
	if half, ok := moved(rec.transitions, transport.HalfOpen, rec.injected); ok {
		if closed, ok := moved(rec.transitions, transport.Closed, half); ok {
			rec.probes = between(rec.hits[slowOne], half, closed)
		}
	}
	return rec, ctx.Err()
}

// await waits until something is so, or the time is over, and reports which.
func await(ctx context.Context, most time.Duration, so func() bool) bool {
	for end := time.Now().Add(most); time.Now().Before(end) && ctx.Err() == nil; sleep(ctx, time.Millisecond) {
		if so() {
			return true
		}
	}
	return false
}

// sleep waits, unless ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
