package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"

	"github.com/watertight-go/watertight/bench/peer"
)

// sources is what the tests and benchmarks say of themselves, in their comments.
type sources struct {
	works  map[string]string // what a benchmark measures, by its name without Benchmark
	faults []fault
}

// fault is what a peer gets wrong, and the test that shows it.
type fault struct{ peer, text, test string }

// readSources reads the comments of a directory. The comment on a test in a file
// whose name begins with faults is a peer, a colon, and what that gets wrong.
func readSources(dir string) (*sources, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return nil, err
	}
	s := &sources{works: map[string]string{}}
	for _, name := range names {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		for _, decl := range file.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || fn.Recv != nil {
				continue
			}
			doc := strings.Join(strings.Fields(fn.Doc.Text()), " ")
			if work, ok := strings.CutPrefix(fn.Name.Name, "Benchmark"); ok {
				s.works[work] = strings.ReplaceAll(doc, "Benchmark", "")
			}
			if strings.HasPrefix(filepath.Base(name), "faults") && strings.HasPrefix(fn.Name.Name, "Test") {
				of, text, ok := strings.Cut(doc, ": ")
				if !ok || !slices.ContainsFunc(peer.All(), func(p peer.Peer) bool { return p.Name == of }) {
					return nil, fmt.Errorf("%s: %s: its comment must begin with the name of a peer and a colon", name, fn.Name.Name)
				}
				s.faults = append(s.faults, fault{of, text, fn.Name.Name})
			}
		}
	}
	place := func(name string) int {
		return slices.IndexFunc(peer.All(), func(p peer.Peer) bool { return p.Name == name })
	}
	slices.SortStableFunc(s.faults, func(a, b fault) int { return place(a.peer) - place(b.peer) })
	return s, nil
}

// letter numbers footnotes: a to z, then aa.
func letter(i int) string {
	s := string(rune('a' + i%26))
	if i >= 26 {
		return letter(i/26-1) + s
	}
	return s
}

// notes are the letters of the faults of each peer, which are in a row.
func notes(faults []fault) map[string]string {
	all := map[string]string{}
	for i, f := range faults {
		first, _, _ := strings.Cut(all[f.peer], "–")
		if first == "" {
			all[f.peer] = letter(i)
		} else {
			all[f.peer] = first + "–" + letter(i)
		}
	}
	return all
}
