//go:build race

package transport_test

// raceEnabled makes the largest tests smaller.
const raceEnabled = true

// fewer is how often a test is to repeat what it would repeat n times without the
// race detector, under which twenty rounds of all tests have to fit ten minutes.
func fewer(n int) int { return max(n/6, 1) }
