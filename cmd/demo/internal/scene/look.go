package scene

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"
)

// look is how much the output can show.
type look struct {
	terminal bool // lines can be renewed in place
	colour   bool
	unicode  bool
}

// lookOf finds out what a writer can show.
func lookOf(w io.Writer) look {
	l := look{unicode: true}
	if locale := cmp.Or(os.Getenv("LC_ALL"), os.Getenv("LC_CTYPE"), os.Getenv("LANG")); locale != "" {
		s := strings.ToUpper(locale)
		l.unicode = strings.Contains(s, "UTF-8") || strings.Contains(s, "UTF8")
	}
	if f, ok := w.(*os.File); ok && os.Getenv("TERM") != "dumb" {
		if info, err := f.Stat(); err == nil {
			l.terminal = info.Mode()&os.ModeCharDevice != 0
		}
	}
	l.colour = l.terminal && os.Getenv("NO_COLOR") == ""
	return l
}

func (l look) paint(code, s string) string {
	if !l.colour || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func (l look) bold(s string) string  { return l.paint("1", s) }
func (l look) dim(s string) string   { return l.paint("2", s) }
func (l look) red(s string) string   { return l.paint("31", s) }
func (l look) green(s string) string { return l.paint("32", s) }

// mark begins a note.
func (l look) mark() string {
	if l.unicode {
		return "▸"
	}
	return ">"
}

// verdict is whether a claim held, in two columns.
func (l look) verdict(ok bool) string {
	switch {
	case ok && l.unicode:
		return l.green("✓ ")
	case ok:
		return l.green("ok")
	case l.unicode:
		return l.red("✗ ")
	}
	return l.red("NO")
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

// pad makes s at least so many columns wide.
func pad(s string, width int) string {
	return s + strings.Repeat(" ", max(width-utf8.RuneCountInString(s), 0))
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

// brief is short without zeros.
func brief(d time.Duration) string {
	if d < time.Second {
		return short(d)
	}
	return fmt.Sprintf("%.3g s", d.Seconds())
}

// span is a range of durations, in one unit.
func span(least, most time.Duration) string {
	switch {
	case least == 0:
		return "<= " + brief(most)
	case most < time.Second:
		return fmt.Sprintf("%d to %s", least.Round(time.Millisecond).Milliseconds(), brief(most))
	}
	return fmt.Sprintf("%.3g to %s", least.Seconds(), brief(most))
}
