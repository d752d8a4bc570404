// Package bench measures watertight beside a bare base, beside what is written by
// hand, and beside other people's libraries, and shows by tests what those get wrong.
//
// Each Benchmark is a work, each of its sub-benchmarks one of package peer that can do
// it. A metric whose unit begins with a peer's name and a colon is that peer's: works
// over sockets measure several in short turns, so that the noise of a shared machine
// meets all of them alike. The command in ./report runs all in rounds and makes the
// tables. It is a module of its own, so that none of the peers is ever required by the
// stack's.
package bench
