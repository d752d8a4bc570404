package main

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// figure is what was measured of a peer at a work, in one unit.
type figure struct{ work, peer, unit string }

// figures are all of them, by round, and their parts in the order in which they came.
type figures struct {
	values map[figure]map[int]float64
	works  []string
	peers  map[string][]string // by work
	units  map[string][]string // by work
}

func newFigures() *figures {
	return &figures{values: map[figure]map[int]float64{}, peers: map[string][]string{}, units: map[string][]string{}}
}

// procs is how the testing package ends a name where there is more than one.
var procs = regexp.MustCompile(`-\d+$`)

// parse adds the lines of one run: a name, a count, and values with their units. A
// unit that begins with a peer and a colon is that peer's; else the last part of the
// name is the peer.
func (f *figures) parse(out string, round int) error {
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		if len(fields) < 4 || len(fields)%2 != 0 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		name := procs.ReplaceAllString(strings.TrimPrefix(fields[0], "Benchmark"), "")
		for i := 2; i < len(fields); i += 2 {
			v, err := strconv.ParseFloat(fields[i], 64)
			if err != nil {
				return fmt.Errorf("%s: %w", fields[0], err)
			}
			peer, unit, ok := strings.Cut(fields[i+1], ":")
			work := name
			if !ok {
				work, peer, unit = path.Dir(name), path.Base(name), fields[i+1]
			}
			f.add(figure{work, peer, unit}, round, v)
		}
	}
	return nil
}

func (f *figures) add(of figure, round int, v float64) {
	if f.values[of] == nil {
		f.values[of] = map[int]float64{}
	}
	f.values[of][round] = v
	if !slices.Contains(f.works, of.work) {
		f.works = append(f.works, of.work)
	}
	if !slices.Contains(f.peers[of.work], of.peer) {
		f.peers[of.work] = append(f.peers[of.work], of.peer)
	}
	if !slices.Contains(f.units[of.work], of.unit) {
		f.units[of.work] = append(f.units[of.work], of.unit)
	}
}

// of is the median over the rounds.
func (f *figures) of(work, peer, unit string) (float64, bool) {
	var all []float64
	for _, v := range f.values[figure{work, peer, unit}] {
		all = append(all, v)
	}
	return median(all)
}

// spread is the least and the most of the rounds.
func (f *figures) spread(work, peer, unit string) (least, most float64, ok bool) {
	for _, v := range f.values[figure{work, peer, unit}] {
		if !ok {
			least, most, ok = v, v, true
		}
		least, most = min(least, v), max(most, v)
	}
	return least, most, ok
}

// difference is the median of the differences of each round.
func (f *figures) difference(a, b figure) (float64, bool) {
	var all []float64
	for round, v := range f.values[a] {
		if w, ok := f.values[b][round]; ok {
			all = append(all, v-w)
		}
	}
	return median(all)
}

// ratio is the median of the ratios of each round, those left out that are none.
func (f *figures) ratio(a, b figure) (float64, bool) {
	var all []float64
	for round, v := range f.values[a] {
		if w := f.values[b][round]; w != 0 {
			all = append(all, v/w)
		}
	}
	return median(all)
}

func median(all []float64) (float64, bool) {
	n := len(all)
	if n == 0 {
		return 0, false
	}
	slices.Sort(all)
	return (all[(n-1)/2] + all[n/2]) / 2, true
}
