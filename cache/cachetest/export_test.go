package cachetest

import "slices"

// Promises and Rules are the names of all subtests.
func Promises() (names []string) {
	for _, p := range slices.Concat(promises, bounds, races) {
		names = append(names, p.name)
	}
	return names
}

func Rules() (names []string) {
	for _, r := range slices.Concat(isolation, bodies, writes, masking, vary, control, headers, labels, validation, ranges, clock, together) {
		names = append(names, r.name)
	}
	return names
}
