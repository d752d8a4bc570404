// Package soak holds nothing but a test: 200 callers at 50 hosts, everything that
// can go wrong at random, and what must hold all the same.
//
//	make soak                 # 10 minutes, with decisions that no run had before
//	make soak SOAK=60s SEED=7 # less of them, with the decisions of an earlier run
//
// Each caller's sequence of decisions, each host's and each outage's is a function
// of the seed, of who decides, and of the number of the step. So a seed that is
// printed by a run gives the same callers and the same hosts again. It does not
// give the same interleaving: that is the scheduler's and the network's, and which
// caller meets which step of a host follows from it. Repeat a run that failed a few
// times, and longer.
//
// In an ordinary run of all tests it takes three seconds, always with the same
// decisions.
package soak
