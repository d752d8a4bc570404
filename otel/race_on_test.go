//go:build race

package otel_test

// raceEnabled makes the largest tests smaller.
const raceEnabled = true
