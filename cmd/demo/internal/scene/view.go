package scene

import (
	"fmt"
	"io"
	"sync"

	"github.com/watertight-go/watertight/transport"
)

// view writes what happens: a line that is renewed in place on a terminal, and
// lines that stay.
type view struct {
	look look
	mu   sync.Mutex // guards what follows
	out  io.Writer  // nil: nothing is shown
	live bool       // a live line stands at the cursor
}

// scene says what there is to be seen.
func (v *view) scene(s setting) {
	v.print(fmt.Sprintf(`%d workers, %.0f missions/s and %.0f pings/s whatever happens, five dependencies at %s.
Then %s answers in %s: %.0f/s x %s asks for %.0f workers (Little's law).`,
		s.workers, s.missions, s.pings, brief(s.latency), slowOne, brief(s.delay), s.missions, brief(s.delay), s.missions*s.delay.Seconds()))
}

// title begins a run.
func (v *view) title(name, what string) {
	v.print("\n" + v.look.bold(name+"  "+what))
}

// note writes a line that stays.
func (v *view) note(format string, args ...any) {
	v.print("  " + v.look.mark() + " " + fmt.Sprintf(format, args...))
}

// print writes lines that stay, in place of the live one.
func (v *view) print(line string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.out == nil {
		return
	}
	if v.live {
		fmt.Fprint(v.out, "\r\x1b[K")
		v.live = false
	}
	fmt.Fprintln(v.out, line)
}

// renew replaces the live line; where there is no terminal it is a line like any
// other.
func (v *view) renew(line string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case v.out == nil:
	case v.look.terminal:
		fmt.Fprint(v.out, "\r\x1b[K"+line)
		v.live = true
	default:
		fmt.Fprintln(v.out, line)
	}
}

// end leaves the live line where it is.
func (v *view) end() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.live {
		fmt.Fprintln(v.out)
		v.live = false
	}
}

// evidence is why a breaker moved, as people say it.
func evidence(e transport.Evidence) string {
	switch e.Trigger {
	case "wait_over":
		return "the wait is over, probes go out"
	case "probes_succeeded":
		return "the probes succeeded"
	}
	return e.String()
}
