package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// describe says when, where and how the figures were made, as a list.
func describe(began time.Time, took time.Duration, rounds int, benchtime time.Duration) string {
	var b strings.Builder
	line := func(name, format string, args ...any) { fmt.Fprintf(&b, "- "+name+": "+format+"\n", args...) }
	line("date", "%s, %v", began.UTC().Format("2006-01-02 15:04 UTC"), took.Round(time.Second))
	line("command", "`%s`, in bench/", command(rounds, benchtime))
	if n := os.Getenv("LARGE"); n != "" {
		line("bodies that are said to be of 1 GiB", "%s MiB", n)
	}
	line("commit", "%s", commit())
	line("machine", "%s, %d processors, %s/%s", processor(), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH)
	if load := load(); load != "" {
		line("load when it ended, of 1, 5 and 15 minutes, its own included", "%s", load)
	}
	line("system", "%s", system())
	line("Go", "%s", strings.TrimPrefix(runtime.Version(), "go"))
	line("modules", "%s", strings.Join(modules(), ", "))
	return b.String()
}

// commit is that of the tree, and whether it was changed since.
func commit() string {
	out, err := exec.Command("git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

// processor is its model, as far as the system tells.
func processor() string {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown processor"
	}
	for line := range strings.Lines(string(info)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown processor"
}

// load is what the system says of its load, if it does.
func load() string {
	all, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return ""
	}
	return strings.Join(strings.Fields(string(all))[:3], ", ")
}

func system() string {
	release, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return runtime.GOOS
	}
	for line := range strings.Lines(string(release)) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), "PRETTY_NAME="); ok {
			return strings.Trim(value, `"`)
		}
	}
	return runtime.GOOS
}

// modules are the peers' modules, those that module bench requires itself.
func modules() []string {
	out, err := exec.Command("go", "list", "-m", "-f", "{{if not (or .Main .Indirect .Replace)}}{{.Path}} {{.Version}}{{end}}", "all").Output()
	if err != nil {
		return []string{"unknown"}
	}
	var all []string
	for line := range strings.Lines(string(out)) {
		if line = strings.TrimSpace(line); line != "" {
			all = append(all, line)
		}
	}
	return all
}
