package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/watertight-go/watertight/transport"
)

// view writes what happens: a line that is renewed in place on a terminal, and
// lines that stay. A nil writer shows nothing.
type view struct {
	mu   sync.Mutex // guards out and what is on it
	out  io.Writer
	look look
	live bool // a live line stands at the cursor
	name string
}

// title begins a run.
func (v *view) title(name, what string) {
	v.mu.Lock()
	v.name = name
	v.mu.Unlock()
	v.print(fmt.Sprintf("\n%s  %s", v.look.bold(name), v.look.bold(what)))
}

// note writes a line that stays.
func (v *view) note(format string, args ...any) {
	v.print("   " + v.look.mark() + " " + fmt.Sprintf(format, args...))
}

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

// look is how much the output can show.
type look struct {
	terminal bool // lines can be renewed in place
	colour   bool
	unicode  bool
}

func (l look) paint(code, s string) string {
	if !l.colour {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func (l look) bold(s string) string  { return l.paint("1", s) }
func (l look) red(s string) string   { return l.paint("31", s) }
func (l look) green(s string) string { return l.paint("32", s) }
func (l look) dim(s string) string   { return l.paint("2", s) }

func (l look) mark() string {
	if l.unicode {
		return "▸"
	}
	return ">"
}

// levels are the marks of a picture, from nothing to full.
func (l look) levels() []rune {
	if l.unicode {
		return []rune(" ▁▂▃▄▅▆▇█")
	}
	return []rune(" .:#")
}

// bar is a share of a whole as a line of cells.
func (l look) bar(n, of, cells int) string {
	full := min((n*cells+of-1)/of, cells)
	on, off := "█", "░"
	if !l.unicode {
		on, off = "#", "."
	}
	return strings.Repeat(on, full) + strings.Repeat(off, cells-full)
}

// short is a duration with three digits.
func short(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + short(-d)
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Round(time.Millisecond).Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.2f s", d.Seconds())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
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
