package main

import (
	"fmt"
	"time"
	"unicode/utf8"
)

// claims are what was expected and what was seen, told as they come.
type claims struct{ all []bool }

func (c *claims) add(name, expected, measured string, ok bool) {
	if len(c.all) == 0 {
		fmt.Printf("\n%s%s%s\n", pad("claim", 48), pad("expected", 22), "measured")
	}
	c.all = append(c.all, ok)
	verdict := "✓"
	if !ok {
		verdict = "✗"
	}
	fmt.Printf("%s%s%s %s\n", pad(name, 48), pad(expected, 22), measured, verdict)
}

// within claims that something took at most so long; took is negative for never.
func (c *claims) within(name string, least, most, took time.Duration) {
	expected := "within " + short(most)
	if least > 0 {
		expected = short(least) + " to " + short(most)
	}
	measured := "never"
	if took >= 0 {
		measured = short(took)
	}
	c.add(name, expected, measured, least <= took && took <= most)
}

func (c *claims) failed() (n int) {
	for _, ok := range c.all {
		if !ok {
			n++
		}
	}
	return n
}

func pad(s string, width int) string {
	return fmt.Sprintf("%s%*s", s, max(width-utf8.RuneCountInString(s), 1), "")
}

func short(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%.3g s", d.Seconds())
}
