package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"time"
)

// stage is a directory with copies of the modules whose tests are run. The module
// cache is not to be written to, and a file is added to each package.
type stage struct {
	dir     string            // temporary
	modfile string            // the go.mod in which the copies take the modules' places
	version map[string]string // of each module
}

// testPackage is a package that has tests.
type testPackage struct {
	path, name, dir string
	binary          string        // compiled
	spent           *atomic.Int64 // by compilers and tests of the suite, in nanoseconds
}

// added goes into each package. An external test package never makes a cycle,
// whatever is tested. What it imports is internal, and elsewhere, but for the overlay.
const added = "package %s_test\n\nimport _ \"github.com/watertight-go/watertight/compat/underneath\"\n"

// newStage copies the modules of the suites to a temporary directory.
func newStage(chosen []suite) (*stage, error) {
	dir, err := os.MkdirTemp("", "watertight-compat-")
	if err != nil {
		return nil, err
	}
	s := &stage{dir: dir, modfile: filepath.Join(dir, "go.mod"), version: map[string]string{}}
	if err := s.fill(chosen); err != nil {
		return nil, errors.Join(err, s.remove())
	}
	return s, nil
}

func (s *stage) remove() error { return os.RemoveAll(s.dir) }

func (s *stage) fill(chosen []suite) error {
	names := make([]string, len(chosen))
	for i, c := range chosen {
		names[i] = c.module
	}
	if _, err := command("go", append([]string{"mod", "download"}, names...)...); err != nil {
		return err
	}
	out, err := command("go", append([]string{"list", "-m", "-json=Path,Version,Dir"}, names...)...)
	if err != nil {
		return err
	}
	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(s.dir, name), text, 0o644); err != nil {
			return err
		}
	}
	above, err := filepath.Abs("..")
	if err != nil {
		return err
	}
	edit := []string{"mod", "edit", "-replace=github.com/watertight-go/watertight=" + above}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var m struct{ Path, Version, Dir string }
		if err := dec.Decode(&m); err == io.EOF {
			break
		} else if err != nil {
			return err
		}
		to := filepath.Join(s.dir, "src", filepath.FromSlash(m.Path))
		if err := copyTree(to, m.Dir); err != nil {
			return err
		}
		s.version[m.Path] = m.Version
		edit = append(edit, "-replace="+m.Path+"="+to)
	}
	if _, err := command("go", append(edit, s.modfile)...); err != nil {
		return err
	}
	return s.hook()
}

// What hook puts into net/http, where t.roundTrip(req) is.
const (
	direct = "\treturn t.roundTrip(req)\n"
	hooked = "\tif Every != nil {\n\t\treturn Every(t, req, t.roundTrip)\n\t}\n" + direct
	every  = "\nvar Every func(*Transport, *Request, func(*Request) (*Response, error)) (*Response, error)\n"
)

// hook makes an overlay with a net/http in which a stack can be put over every
// *http.Transport, and with a package underneath that others can import.
func (s *stage) hook() error {
	goroot, err := command("go", "env", "GOROOT")
	if err != nil {
		return err
	}
	of := filepath.Join(strings.TrimSpace(string(goroot)), "src", "net", "http", "roundtrip.go")
	text, err := os.ReadFile(of)
	if err != nil {
		return err
	}
	if strings.Count(string(text), direct) != 1 {
		return fmt.Errorf("%s: not the file that is known here", of)
	}
	file := filepath.Join(s.dir, "roundtrip.go")
	if err := os.WriteFile(file, []byte(strings.Replace(string(text), direct, hooked, 1)+every), 0o644); err != nil {
		return err
	}
	replace := map[string]string{of: file}
	for _, name := range []string{"underneath.go", "every.go"} {
		internal, err := filepath.Abs(filepath.Join("internal", "underneath", name))
		if err != nil {
			return err
		}
		open, err := filepath.Abs(filepath.Join("underneath", name))
		if err != nil {
			return err
		}
		replace[open] = internal
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	if err != nil {
		return err
	}
	return os.WriteFile(s.overlay(), overlay, 0o644)
}

func (s *stage) overlay() string { return filepath.Join(s.dir, "overlay.json") }

// copyTree copies a module, so that it can be written to.
func copyTree(to, from string) error {
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(to, "go.mod")); err == nil {
		return nil
	}
	return os.WriteFile(filepath.Join(to, "go.mod"), nil, 0o644)
}

// packages finds the packages of a suite that have tests, and adds a file to each.
func (s *stage) packages(c suite) ([]testPackage, error) {
	patterns := []string{c.module + "/..."}
	if len(c.packages) > 0 {
		patterns = nil
		for _, p := range c.packages {
			patterns = append(patterns, strings.TrimSuffix(c.module+"/"+p, "/."))
		}
	}
	const format = "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{.Name}} {{.Dir}}{{end}}"
	out, err := command("go", append([]string{"list", "-modfile=" + s.modfile, "-mod=mod", "-f", format}, patterns...)...)
	if err != nil {
		return nil, err
	}
	var found []testPackage
	spent := new(atomic.Int64)
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		p := testPackage{spent: spent}
		if _, err := fmt.Sscan(lines.Text(), &p.path, &p.name, &p.dir); err != nil {
			continue
		}
		file := filepath.Join(p.dir, "zz_watertight_test.go")
		if err := os.WriteFile(file, fmt.Appendf(nil, added, p.name), 0o644); err != nil {
			return nil, err
		}
		p.binary = filepath.Join(s.dir, "bin", strings.ReplaceAll(p.path, "/", "_")+".test")
		found = append(found, p)
	}
	return found, nil
}

// building bounds the compilers that run side by side.
var building = make(chan struct{}, runtime.NumCPU())

// compile builds the test binary of a package.
func (s *stage) compile(p testPackage) error {
	building <- struct{}{}
	defer func(begin time.Time) {
		p.spent.Add(int64(time.Since(begin)))
		<-building
	}(time.Now())
	_, err := command("go", "test", "-modfile="+s.modfile, "-mod=mod", "-overlay="+s.overlay(), "-tags=every", "-vet=off", "-c", "-o", p.binary, p.path)
	return err
}

// command runs a program in this module and returns its output.
func command(name string, args ...string) ([]byte, error) {
	cmd := exec.Command(name, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w\n%s", name, args[0], err, bytes.TrimSpace(stderr.Bytes()))
	}
	return out, nil
}
