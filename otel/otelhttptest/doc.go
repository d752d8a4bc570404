// Package otelhttptest tests the three ways to live with otelhttp. It is a module of
// its own, so that nobody else needs otelhttp.
package otelhttptest
