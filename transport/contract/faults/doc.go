// Package faults holds nothing but tests: what becomes of a call when the network
// fails it, at each point of its way and in each manner. Rules that follow from
// what the stack promises say what is to happen; real sockets, a relay between
// them, say what does.
package faults
