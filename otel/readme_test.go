package otel_test

import (
	"os"
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
