package otel_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestTheReadmeHasEachErrorType compares its list with the catalogue, which is all that
// error.type can be but for statuses and _OTHER.
func TestTheReadmeHasEachErrorType(t *testing.T) {
	source := part(t, "../transport/errors.go", "func (e *Error) ErrorType() string {", "\n}\n")
	want := []string{"_OTHER"}
	for _, m := range regexp.MustCompile(`return "(\w+)"`).FindAllStringSubmatch(source, -1) {
		want = append(want, m[1])
	}
	var got []string
	for _, m := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(part(t, "../README.md", "`error.type` is the same", "\n\n"), -1) {
		got = append(got, m[1])
	}
	slices.Sort(want)
	slices.Sort(got)
	want, got = slices.Compact(want), slices.Compact(got)
	if !slices.Equal(got, want) || len(want) < 10 {
		t.Errorf("the README lists\n%v, want\n%v", got, want)
	}
}

// TestTheReadmeHasWhatSpansHave looks for every attribute and event in the source.
func TestTheReadmeHasWhatSpansHave(t *testing.T) {
	readme := part(t, "../README.md", "### Traces and metrics\n", "\n### ")
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, m := range regexp.MustCompile(`(?:attribute\.\w+\(|addEvent\(c.span, )"([\w.]+)"`).FindAllStringSubmatch(string(source), -1) {
			found++
			if name := m[1]; !strings.Contains(readme, name) && !strings.Contains(readme, strings.Replace(name, "resilience.fallback.", ".", 1)) {
				t.Errorf("%s: the README has no %s", file, name)
			}
		}
	}
	if found < 30 {
		t.Errorf("%d attributes and events, want more", found)
	}
}

// TestTheReadmeHasEachReasonOfATransition compares its list with that of Evidence.
func TestTheReadmeHasEachReasonOfATransition(t *testing.T) {
	source := part(t, "../transport/evidence.go", "Its Trigger is one", "type Evidence struct")
	listed := part(t, "../README.md", "`…circuit_breaker.previous_state`, `…circuit_breaker.reason` = ", " |")
	var want []string
	for _, m := range regexp.MustCompile(`//   - ([\w, ]+):`).FindAllStringSubmatch(source, -1) {
		want = append(want, m[1])
	}
	if got := strings.Join(want, ", "); !sameWords(got, listed) || len(want) < 5 {
		t.Errorf("the README lists %s, want %s", listed, got)
	}
}

func sameWords(a, b string) bool {
	as, bs := strings.Split(a, ", "), strings.Split(b, ", ")
	slices.Sort(as)
	slices.Sort(bs)
	return slices.Equal(as, bs)
}

// part is what a file has from one text to the next other one.
func part(t *testing.T, file, from, to string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), from)
	inner, _, ends := strings.Cut(rest, to)
	if !found || !ends {
		t.Fatalf("%s has no %q", file, from)
	}
	return inner
}
