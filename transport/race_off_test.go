//go:build !race

package transport_test

// raceEnabled makes the largest tests smaller.
const raceEnabled = false
