package transport_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestReadmeCodeIsTested finds each Go block of the README, line by line and in
// order, in an example or test, which compiles and runs.
func TestReadmeCodeIsTested(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	var tested []string
	for _, pattern := range []string{"*_test.go", "transporttest/*_test.go", "status/*_test.go", "../otel/*_test.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			tested = append(tested, trimmed(string(text)))
		}
	}
	blocks := strings.Split(string(readme), "```go\n")[1:]
	if len(blocks) < 8 {
		t.Fatalf("%d blocks of Go in the README", len(blocks))
	}
next:
	for _, block := range blocks {
		code, _, _ := strings.Cut(block, "```")
		for _, text := range tested {
			if strings.Contains(text, trimmed(code)) {
				continue next
			}
		}
		t.Errorf("in no test:\n%s", code)
	}
}

// trimmed is text without indentation.
func trimmed(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return strings.Join(lines, "\n")
}
