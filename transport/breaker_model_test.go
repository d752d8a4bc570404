package transport_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
)

// breakerNever is a time that does not come.
const breakerNever = time.Duration(math.MaxInt64)

// breakerPlan is what is to happen to one call, on the clock of the test.
type breakerPlan struct {
	start   time.Duration
	headers time.Duration // after start; never: it hangs
	refused bool          // an error in place of the headers
	status  int
	body    time.Duration // after the headers
	cut     bool
	leave   time.Duration // after start: when the caller goes
}

// breakerFate is what a breaker with these limits has to make of it.
type breakerFate struct {
	timed, slow, judged time.Duration
	failed              bool
	ended               time.Duration
}

func (p breakerPlan) fate(slowCall, attempt time.Duration) breakerFate {
	f := breakerFate{timed: breakerNever, slow: breakerNever, judged: breakerNever}
	natural := breakerNever
	if p.headers != breakerNever {
		natural = p.headers
		if !p.refused {
			natural += p.body
		}
	}
	end := min(natural, p.leave, attempt)
	if end > slowCall {
		f.slow = slowCall
	}
	answered := !p.refused && p.headers < end
	if answered {
		f.timed = p.headers
	}
	f.timed = min(f.timed, f.slow)
	switch {
	case answered && p.status >= 500:
		f.judged, f.failed = p.headers, true
	case end == p.leave:
	case end == attempt, p.refused, p.cut:
		f.judged, f.failed = end, true
	case p.status < 400:
		f.judged = end
	}
	for _, at := range []*time.Duration{&f.timed, &f.slow, &f.judged} {
		if *at != breakerNever {
			*at += p.start
		}
	}
	f.ended = p.start + end
	return f
}

func breakerRandomPlan(r *rand.Rand, start time.Duration) breakerPlan {
	// No two moments of a call coincide, nor do they with its limits.
	ms := func(most, odd int) time.Duration { return time.Duration(r.IntN(most)*100+odd) * time.Millisecond }
	p := breakerPlan{start: start, headers: ms(25, 7), status: 200, body: ms(25, 13), leave: breakerNever}
	switch r.IntN(8) {
	case 0:
		p.headers = breakerNever
	case 1:
		p.refused = true
	case 2:
		p.status = 500
	case 3:
		p.status = 404
	case 4:
		p.cut = true
	}
	if r.IntN(3) == 0 {
		p.leave = ms(35, 29)
	}
	return p
}

func (p breakerPlan) answer(req *http.Request) (*http.Response, error) {
	if p.headers == breakerNever {
		return breakerHang(req)
	}
	err := io.EOF
	if p.cut {
		err = io.ErrUnexpectedEOF
	}
	then := breakerBody(p.status, p.body, err)
	if p.refused {
		then = breakerError
	}
	return breakerAfter(p.headers, then)(req)
}

// Random calls, each with a life of its own, against what a naive reader of the
// design would count.
func TestBreakerCountsAgreeWithANaiveModel(t *testing.T) {
	t.Parallel()
	const (
		window, slowCall, attempt = 10 * time.Second, 2 * time.Second, 3 * time.Second
		calls                     = 300
	)
	for seed := range uint64(fewer(12)) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 2))
			p := breakerPolicy(policy.Breaker{Window: window, SlowCall: slowCall, FailuresInWindow: 1 << 30})
			p.Timeout.Attempt = attempt
			d := newBreakerDep(t, p)
			d.does(func(req *http.Request) (*http.Response, error) {
				return req.Context().Value(breakerPlanKey{}).(breakerPlan).answer(req)
			})
			epoch := time.Now()
			var fates []breakerFate
			var all sync.WaitGroup
			for i := range calls {
				time.Sleep(time.Duration(r.IntN(200)) * time.Millisecond)
				if r.IntN(100) == 0 {
					time.Sleep(time.Duration(r.IntN(20)) * time.Second)
				}
				time.Sleep(time.Nanosecond) // so that no two calls begin at the same moment
				plan := breakerRandomPlan(r, time.Since(epoch))
				fates = append(fates, plan.fate(slowCall, attempt))
				all.Go(func() {
					ctx, cancel := context.WithCancel(context.WithValue(context.Background(), breakerPlanKey{}, plan))
					defer cancel()
					if plan.leave != breakerNever {
						defer time.AfterFunc(plan.leave, cancel).Stop()
					}
					_, _ = d.do(breakerRequest(ctx))
				})
				synctest.Wait()
				now := time.Since(epoch)
				want := breakerCount(fates, now, window, time.Second)
				got := d.snap().Window
				got.Last, got.SlowCall = "", 0
				if got != want {
					t.Fatalf("seed %d, call %d, %v: the window holds %+v, want %+v", seed, i, now, breakerNoName(got), want)
				}
			}
			all.Wait()
			time.Sleep(window + slowCall)
			w := d.snap().Window
			if w.Calls != 0 || w.Failures != 0 || w.Timed != 0 || w.Slow != 0 {
				t.Errorf("seed %d: the window holds %+v after an idle one", seed, w)
			}
			if c := d.snap().Counts; c.Success+c.Failure+c.Neutral != calls {
				t.Errorf("seed %d: %d verdicts on %d calls", seed, c.Success+c.Failure+c.Neutral, calls)
			}
			d.wantIdle()
		})
	}
}

type breakerPlanKey struct{}

// breakerNoName is an Evidence that prints as its fields.
func breakerNoName(e transport.Evidence) any {
	type fields transport.Evidence
	return fields(e)
}

// breakerCount counts what the window holds from the fates of all calls.
func breakerCount(fates []breakerFate, now, window, width time.Duration) transport.Evidence {
	e := transport.Evidence{Window: window}
	held := func(bucket, at time.Duration) bool { return bucket > at/width-window/width }
	var judged []breakerFate
	for _, f := range fates {
		if f.timed <= now {
			bucket := f.timed / width
			if f.slow <= now {
				bucket = f.slow / width
			}
			if held(bucket, now) {
				e.Timed++
				if f.slow <= now {
					e.Slow++
				}
			}
		}
		if f.judged > now {
			continue
		}
		judged = append(judged, f)
		bucket := f.judged / width
		if f.slow < f.judged && held(f.slow/width, f.judged) {
			bucket = f.slow / width
		}
		if held(bucket, now) {
			e.Calls++
			if f.failed {
				e.Failures++
			}
		}
	}
	slices.SortFunc(judged, func(a, b breakerFate) int { return cmp.Compare(a.judged, b.judged) })
	for _, f := range judged {
		if e.Consecutive++; !f.failed {
			e.Consecutive = 0
		}
	}
	return e
}

// breakerMachine is the breaker as its documentation tells it.
type breakerMachine struct {
	p        policy.Breaker
	state    transport.State
	era      int
	until    time.Time
	admitted int
	proved   int
	row      int
	results  []breakerResult
}

type breakerResult struct {
	at     time.Time
	failed bool
}

type breakerFlight struct {
	era    int
	finish chan string
	leave  context.CancelFunc
	done   chan struct{}
}

func (m *breakerMachine) enter(s transport.State) {
	m.state = s
	m.era++
	m.admitted, m.proved = 0, 0
	if s != transport.Open && s != transport.HalfOpen {
		m.row, m.results = 0, nil
	}
}

// admit reports whether a call is let through.
func (m *breakerMachine) admit() bool {
	switch m.state {
	case transport.ForcedOpen:
		return false
	case transport.Open:
		if time.Now().Before(m.until) {
			return false
		}
		m.enter(transport.HalfOpen)
	}
	if m.state == transport.HalfOpen {
		if m.admitted == m.p.HalfOpenProbes {
			return false
		}
		m.admitted++
	}
	return true
}

// window counts the failures within the window, and all results there.
func (m *breakerMachine) window() (failures, all int) {
	for _, r := range m.results {
		if time.Since(breakerEpoch)/time.Second-r.at.Sub(breakerEpoch)/time.Second < m.p.Window/time.Second {
			all++
			if r.failed {
				failures++
			}
		}
	}
	return failures, all
}

// breakerEpoch is when a bubble begins.
var breakerEpoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// finish takes in a result: ".", "f", "n" or "c" for a caller who left.
func (m *breakerMachine) finish(era int, result string) {
	if era != m.era {
		return
	}
	if m.state == transport.HalfOpen {
		switch result {
		case "f":
			m.enter(transport.Open)
		case "c":
			m.admitted--
		default:
			if m.proved++; m.proved == m.p.HalfOpenProbes {
				m.enter(transport.Closed)
			}
		}
		return
	}
	switch result {
	case ".":
		m.row = 0
		m.results = append(m.results, breakerResult{time.Now(), false})
	case "f":
		m.row++
		m.results = append(m.results, breakerResult{time.Now(), true})
	}
	if failures, _ := m.window(); m.state == transport.Closed && (m.row >= m.p.ConsecutiveFailures || failures >= m.p.FailuresInWindow) {
		m.enter(transport.Open)
	}
}

func (m *breakerMachine) force(to transport.State) {
	if m.state != to || to == transport.Closed {
		m.enter(to)
	}
}

// Random calls that overlap, waits, and hands on the switch.
func TestBreakerStatesAgreeWithANaiveModel(t *testing.T) {
	t.Parallel()
	seen := map[[2]transport.State]int{}
	for seed := range uint64(max(fewer(20), 8)) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 3))
			m := &breakerMachine{p: policy.Breaker{Window: 10 * time.Second, ConsecutiveFailures: 3 + r.IntN(3), FailuresInWindow: 4 + r.IntN(4),
				OpenFor: 5 * time.Second, OpenForMax: 20 * time.Second, HalfOpenProbes: 1 + r.IntN(3)}}
			d := newBreakerDep(t, breakerPolicy(m.p))
			d.does(breakerStatus(200))
			if _, err := d.get(); err != nil { // so that there is a state
				t.Fatal(err)
			}
			d.does(func(req *http.Request) (*http.Response, error) {
				f := req.Context().Value(breakerPlanKey{}).(breakerFlight)
				switch <-f.finish {
				case "f":
					return breakerStatus(503)(req)
				case "n":
					return breakerStatus(404)(req)
				case "c":
					f.leave()
					return nil, errBreakerReset
				}
				return breakerStatus(200)(req)
			})
			host := d.tr.Host("http://dep.test")
			host.Reset()
			var flights []breakerFlight
			finish := func(i int, result string) {
				f := flights[i]
				flights = slices.Delete(flights, i, i+1)
				f.finish <- result
				<-f.done
				m.finish(f.era, result)
			}
			for step := range 800 {
				what := "wait"
				switch n := r.IntN(100); {
				case n < 45:
					what = "begin"
					f := breakerFlight{finish: make(chan string), done: make(chan struct{})}
					var ctx context.Context
					ctx, f.leave = context.WithCancel(context.Background())
					refused := make(chan error, 1)
					go func() {
						defer close(f.done)
						_, err := d.do(breakerRequest(context.WithValue(ctx, breakerPlanKey{}, f)))
						f.leave()
						if errors.Is(err, transport.ErrBreakerOpen) {
							refused <- err
						}
					}()
					synctest.Wait()
					admitted := m.admit()
					if got := len(refused) == 0; got != admitted {
						t.Fatalf("seed %d, step %d: admitted %v, want %v (%v)", seed, step, got, admitted, m.state)
					}
					if admitted {
						f.era = m.era
						flights = append(flights, f)
					}
				case n < 85:
					if len(flights) == 0 {
						break
					}
					results := "...ffffffnc"
					if step/100%2 == 0 {
						results = "......fnc"
					}
					result := results[r.IntN(len(results)):][:1]
					what = "finish " + result
					finish(r.IntN(len(flights)), result)
				case n < 99:
					time.Sleep(time.Duration(r.IntN(2000)) * time.Millisecond)
				default:
					to := []transport.State{transport.ForcedOpen, transport.ForcedClosed, transport.Closed, transport.Closed, transport.Closed}[r.IntN(5)]
					what = fmt.Sprint("force ", to)
					switch to {
					case transport.ForcedOpen:
						host.ForceOpen()
					case transport.ForcedClosed:
						host.ForceClosed()
					case transport.Closed:
						host.Reset()
					}
					m.force(to)
				}
				s := d.snap()
				if n := len(s.Transitions); m.state == transport.Open && n > 0 {
					m.until = s.Transitions[n-1].Until
				}
				want := m.state
				if want == transport.Open && !time.Now().Before(m.until) {
					want = transport.HalfOpen
				}
				if s.State != want {
					t.Fatalf("seed %d, step %d, %s: the breaker is %v, want %v", seed, step, what, s.State, want)
				}
				if failures, all := m.window(); m.state == transport.Closed && (s.Window.Failures != failures || s.Window.Calls != all || s.Window.Consecutive != m.row) {
					t.Fatalf("seed %d, step %d, %s: %+v, want %d failures of %d, %d in a row", seed, step, what, breakerNoName(s.Window), failures, all, m.row)
				}
				if s.InFlight != len(flights) {
					t.Fatalf("seed %d, step %d, %s: %d in flight, want %d", seed, step, what, s.InFlight, len(flights))
				}
			}
			for len(flights) > 0 {
				finish(0, ".")
			}
			told := d.told(transport.EventTransition)
			breakerTransitions(t, told, true)
			for _, e := range told {
				seen[[2]transport.State{e.Transition.From, e.Transition.To}]++
			}
			d.wantIdle()
		})
	}
	for _, move := range [][2]transport.State{
		{transport.Closed, transport.Open}, {transport.Open, transport.HalfOpen}, {transport.HalfOpen, transport.Open}, {transport.HalfOpen, transport.Closed},
	} {
		if seen[move] < 10 {
			t.Errorf("%v to %v was seen %d times only", move[0], move[1], seen[move])
		}
	}
}
