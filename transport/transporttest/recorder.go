package transporttest

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/watertight-go/watertight/transport"
)

// Recorder is a [transport.Observer] that keeps everything it is told. The zero
// Recorder is ready for use, and safe for concurrent use.
type Recorder struct {
	board  board
	events []transport.Event // under board
	starts []transport.Start // under board
}

// Start keeps s.
func (r *Recorder) Start(ctx context.Context, s transport.Start) context.Context {
	r.board.update(func() { r.starts = append(r.starts, s) })
	return ctx
}

// Observe keeps e.
func (r *Recorder) Observe(_ context.Context, e transport.Event) {
	r.board.update(func() { r.events = append(r.events, e) })
}

// Starts returns the calls and attempts that have begun, in order.
func (r *Recorder) Starts() []transport.Start {
	r.board.mu.Lock()
	defer r.board.mu.Unlock()
	return slices.Clone(r.starts)
}

// Events returns the events of these kinds, or all of them, in order.
func (r *Recorder) Events(kinds ...transport.EventKind) []transport.Event {
	r.board.mu.Lock()
	defer r.board.mu.Unlock()
	return r.of(kinds)
}

// Count returns the number of events of a kind.
func (r *Recorder) Count(kind transport.EventKind) int { return len(r.Events(kind)) }

// WaitFor waits until each kind was seen as often as it is named, and returns the
// events of these kinds. It fails the test if that takes more than 10 seconds, and
// must be called from the test's goroutine.
func (r *Recorder) WaitFor(t testing.TB, kinds ...transport.EventKind) []transport.Event {
	t.Helper()
	want := map[transport.EventKind]int{}
	for _, k := range kinds {
		want[k]++
	}
	var got []transport.Event
	r.board.await(t, func() bool {
		got = r.of(kinds)
		for k, n := range want {
			if len(r.of([]transport.EventKind{k})) < n {
				return false
			}
		}
		return true
	}, func() string { return fmt.Sprintf("events of kinds %v, have %+v", kinds, r.events) })
	return got
}

// of is called under board.
func (r *Recorder) of(kinds []transport.EventKind) []transport.Event {
	var found []transport.Event
	for _, e := range r.events {
		if len(kinds) == 0 || slices.Contains(kinds, e.Kind) {
			found = append(found, e)
		}
	}
	return found
}

var _ transport.Observer = (*Recorder)(nil)
