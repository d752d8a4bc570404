// Package compat runs other people's programs over the stack. What differs, and why
// it is meant to, is said test by test in ./suites.
//
// Its tests are programs written against well-known clients, over a stack put
// underneath with transport.Install: upgrades, bidirectional streams over HTTP/2,
// large uploads and downloads. The command in ./suites runs the clients' own tests,
// with the stack and without. It is a module of its own, so that none of them is
// ever required by the stack's.
package compat
