package faults_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/transporttest"
)

// TestMain lets many cells run at a time, since many of them mostly wait.
func TestMain(m *testing.M) {
	flag.Parse()
	log.SetOutput(io.Discard) // where net/http tells of garbage on an idle connection
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", "40")
	}
	os.Exit(m.Run())
}

// noise is no record of TLS, no frame of HTTP/2 that could be, and no status line.
var noise = []byte(strings.Repeat("\xffnoise\r\n\x00", 8))

// result is what has become of a cell.
type result struct {
	want
	took     time.Duration // the first attempt
	problems []string
}

func (r *result) wrong(format string, args ...any) {
	r.problems = append(r.problems, fmt.Sprintf(format, args...))
}

// strike sets the fault; what comes before it must have been delivered.
func (w *world) strike() {
	way := w.relay.Down // what the peer says is late
	if w.point == writing {
		way = w.relay.Up
	}
	switch w.fault {
	case late:
		way.Delay(short)
	case tooLate:
		way.Delay(long)
	case blackHole:
		w.relay.BlackHole()
	case fin:
		w.relay.Cut()
	case rst:
		w.relay.Reset()
	case garbage:
		w.relay.Down.Garbage(noise)
	}
}

// prepare does what comes before the call.
func (w *world) prepare(r *result) {
	switch w.point {
	case connecting:
		switch w.fault {
		case blackHole:
			w.relay.Ignore()
		case rst:
			w.relay.Refuse()
		}
	case handshaking, tunnelling:
		w.strike()
	case idling, reusing:
		resp, err := w.tr.Client().Get(w.url + "before")
		if err != nil {
			r.wrong("before the call: %v", err)
			return
		}
		_ = resp.Body.Close()
		if w.point == reusing {
			w.relay.Up.BlackHole()
			return
		}
		w.strike()
		if w.noticed() {
			await(r, "the idle connection to be closed", func() bool { return w.open.Load() == 0 })
		}
	}
}

// await waits for what should come soon.
func await(r *result, what string, done func() bool) { within(5*time.Second, r, what, done) }

func within(d time.Duration, r *result, what string, done func() bool) {
	for deadline := time.Now().Add(d); !done(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			r.wrong("waited in vain for %s", what)
			return
		}
	}
}

// call makes the request, and reads the answer to its end.
func (w *world) call(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, w.request.method(), w.url, nil)
	if err != nil {
		return err
	}
	req.Header.Set("X-Padding", padding)
	if w.request != get {
		req.Body, req.ContentLength = w.body(), int64(w.bodySize())
		if w.request != putStreamed {
			req.GetBody = func() (io.ReadCloser, error) { return w.body(), nil }
		}
	}
	resp, err := w.tr.RoundTrip(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	half := make([]byte, len(firstHalf))
	if _, err := io.ReadFull(resp.Body, half); err != nil {
		return err
	}
	if w.point == receiving {
		w.arrive()
	}
	rest, err := io.ReadAll(resp.Body)
	if err == nil && string(half)+string(rest) != firstHalf+secondHalf {
		return fmt.Errorf("other bytes: %q", rest)
	}
	return err
}

// busy bounds the cells that do not wait for a limit: those that do are not to wait
// for the processor too.
var busy = make(chan struct{}, 3)

// run runs a cell and compares it with the rules.
func run(t *testing.T, c cell) *result {
	busy <- struct{}{}
	working := true
	pause := func() {
		if working {
			<-busy
		}
		working = false
	}
	defer pause()
	w := newWorld(t, c)
	r := &result{want: c.want()}
	w.prepare(r)
	if len(r.problems) > 0 {
		return r
	}
	before := w.tr.Snapshot()
	taken, _ := w.relay.Up.Bytes()
	done := make(chan error, 1)
	start := time.Now()
	go func() { done <- w.call(context.Background()) }()
	switch c.point {
	case writing, awaiting, receiving:
		select {
		case <-w.reached:
			w.strike()
		case err := <-done:
			r.wrong("the call was over before the fault: %v", err)
			done <- err
		}
	case reusing:
		await(r, "the request", func() bool { now, _ := w.relay.Up.Bytes(); return now > taken+int64(len(padding))/2 })
		w.strike()
	}
	close(w.struck)
	if c.silent() {
		pause()
	}
	err := <-done
	if took := time.Since(start); took > time.Duration(r.attempts)*r.atMost+limit {
		r.wrong("the call took %v", took)
	}
	var e *transport.Error
	if r.err != nil && r.attempts > 1 && (!errors.As(err, &e) || e.Attempts != r.attempts) {
		r.wrong("%v does not tell of %d attempts", err, r.attempts)
	}
	w.compare(r, err, before)
	w.cleanUp(r)
	return r
}

// compare compares what has happened with what the rules say.
func (w *world) compare(r *result, err error, before []transport.HostSnapshot) {
	if !is(err, r.err) {
		r.wrong("the call: %v, want %v", err, r.err)
	}
	var ends []transport.Event
	await(r, "the ends of the attempts", func() bool {
		ends = slices.DeleteFunc(w.seen.Events(transport.EventAttemptEnd), func(e transport.Event) bool { return e.Duration == 0 })
		if w.point == idling || w.point == reusing { // the first was that of the call before
			ends = ends[min(1, len(ends)):]
		}
		return len(ends) >= r.attempts
	})
	if len(ends) != r.attempts {
		r.wrong("%d attempts, want %d", len(ends), r.attempts)
		return
	}
	first := ends[0]
	r.took = first.Duration
	if !is(first.Err, r.first) {
		r.wrong("the first attempt: %v, want %v", first.Err, r.first)
	}
	var e *transport.Error
	if r.phase != "" && errors.As(first.Err, &e) && e.Phase != r.phase {
		r.wrong("phase %s, want %s", e.Phase, r.phase)
	}
	if r.took < r.atLeast || r.took > r.atMost {
		r.wrong("the first attempt took %v, want %v to %v", r.took, r.atLeast, r.atMost)
	}
	var verdicts []policy.Verdict
	for _, e := range ends {
		verdicts = append(verdicts, e.Verdict)
	}
	if !slices.Equal(verdicts, r.verdicts) {
		r.wrong("verdicts %v, want %v", verdicts, r.verdicts)
	}
	var good, bad int64
	for _, v := range r.verdicts {
		if v == policy.Success {
			good++
		} else {
			bad++
		}
	}
	if len(before) > 0 {
		good += before[0].Counts.Success
	}
	after := w.tr.Snapshot()[0]
	if n := after.Counts; n.Success != good || n.Failure != bad || n.Neutral != 0 {
		r.wrong("counted %d, %d, %d; want %d successes, %d failures", n.Success, n.Failure, n.Neutral, good, bad)
	}
	var why string
	for _, e := range w.seen.Events(transport.EventRetrySuppressed) {
		why = e.Reason
	}
	if why != r.suppressed {
		r.wrong("not repeated for %q, want %q", why, r.suppressed)
	}
	if retries := w.seen.Count(transport.EventRetry); retries != r.attempts-1 {
		r.wrong("%d retries told of", retries)
	}
	if hits, whole := w.hits.Load(), w.whole.Load(); int(hits) != r.hits || int(whole) < r.whole || int(whole) > r.whole+r.more {
		r.wrong("%d requests have arrived, %d of them whole; want %d, %d", hits, whole, r.hits, r.whole)
	}
}

// cleanUp finds what is left: permits, bodies, connections; and what arrives late.
func (w *world) cleanUp(r *result) {
	await(r, "the permits", func() bool { s := w.tr.Snapshot()[0]; return s.InFlight == 0 && s.Waiting == 0 })
	await(r, "the request bodies to be closed", w.closed)
	if w.distrusted() {
		within(limit, r, "the connection that has failed to be closed", func() bool { return w.spoiled.Load() == 0 })
	}
	tried := w.tr.Snapshot()[0].Counts.Attempts
	resp, err := w.tr.Client().Get(w.url + "after") // with the one permit there is
	if err == nil {
		_ = resp.Body.Close()
	}
	if err != nil && !w.lasting || errors.Is(err, transport.ErrBulkheadFull) {
		r.wrong("the next call: %v", err)
	}
	if n := w.tr.Snapshot()[0].Counts.Attempts - tried; n != 1 && !w.stays() && !w.lasting {
		r.wrong("the next call takes %d attempts", n)
	}
	w.tr.CloseIdleConnections()
	await(r, "the client's connections to be closed", func() bool { return w.open.Load() == 0 })
	w.relay.Pass() // what was held back arrives now
	for name, gone := range map[string]func() bool{
		"relay":  func() bool { _, open := w.relay.Connections(); return open == 0 },
		"origin": func() bool { _, open := w.origin.Connections(); return open == 0 },
	} {
		await(r, "the connections of the "+name, gone)
	}
	if hits, whole := w.hits.Load(), w.whole.Load(); w.request == post && (hits > 1 || whole > 1) && !w.unsent() {
		r.wrong("the POST has arrived %d times", hits)
	}
	_ = w.tr.Close()
}

// is reports whether an error is what the rules call it.
func is(err, want error) bool {
	switch want {
	case nil:
		return err == nil
	case errConnection: // of the network, and not one of ours
		var e *transport.Error
		timeout := err != nil && errors.Is(err, context.DeadlineExceeded)
		return err != nil && !timeout && !errors.Is(err, context.Canceled) && (!errors.As(err, &e) || e.Kind == nil)
	}
	return errors.Is(err, want) && errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled)
}

// TestWhatBecomesOfACallWhenTheNetworkFails runs all cells of the matrix.
func TestWhatBecomesOfACallWhenTheNetworkFails(t *testing.T) {
	transporttest.CheckLeaks(t)
	before := sockets()
	var mu sync.Mutex
	results := map[cell]*result{}
	skipped := map[string]int{}
	t.Run("cells", func(t *testing.T) {
		pulse := feelPulse(t)
		for _, c := range cells() {
			if why := c.skipped(); why != "" {
				skipped[why]++
				continue
			}
			t.Run(c.String(), func(t *testing.T) {
				t.Parallel()
				r := pulse.again(t, func() *result { return run(t, c) })
				for _, p := range r.problems {
					t.Errorf("%v: %s", c, p)
				}
				mu.Lock()
				results[c] = r
				mu.Unlock()
			})
		}
	})
	if now := sockets(); now > before {
		t.Errorf("%d sockets before, and %d after", before, now)
	}
	t.Logf("%d cells\n%s", len(results), picture(results))
	n := 0
	for why, count := range skipped {
		t.Logf("%d cells skipped: %s", count, why)
		n += count
	}
	if all := len(cells()); len(results)+n != all {
		t.Errorf("%d cells and %d skipped of %d", len(results), n, all)
	}
}

// sockets is how many this process has, where that can be seen.
func sockets() int {
	n := 0
	fds, _ := os.ReadDir("/proc/self/fd")
	for _, fd := range fds {
		if what, _ := os.Readlink("/proc/self/fd/" + fd.Name()); strings.HasPrefix(what, "socket:") {
			n++
		}
	}
	return n
}

// pulse knows when the machine has last stood still, so that what was late for that
// reason is not held against the stack.
type pulse struct {
	stood atomic.Int64 // how often
}

const (
	beat  = 5 * time.Millisecond
	pause = limit / 12
)

func feelPulse(t *testing.T) *pulse {
	p := &pulse{}
	stop := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for last := time.Now(); ; {
			select {
			case <-stop:
				return
			case <-time.After(beat):
			}
			now := time.Now()
			if now.Sub(last) > pause {
				p.stood.Add(1)
			}
			last = now
		}
	}()
	t.Cleanup(func() { close(stop); <-ended })
	return p
}

// again runs a cell again whose result is wrong, if the machine stood still
// meanwhile.
func (p *pulse) again(t *testing.T, run func() *result) *result {
	for tries := 1; ; tries++ {
		before := p.stood.Load()
		r := run()
		if len(r.problems) == 0 || p.stood.Load() == before || tries == 5 {
			return r
		}
		t.Logf("the machine stood still: once more, after %q", r.problems)
	}
}
