//go:build !race

package transport_test

// raceEnabled makes the largest tests smaller.
const raceEnabled = false

// fewer is how often a test is to repeat what it repeats n times; see race_on_test.go.
func fewer(n int) int { return n }
