// Package compat shows that other people's programs do not notice the stack.
//
// Its tests are programs written against well-known clients, over a stack put
// underneath with transport.Install: upgrades, bidirectional streams over HTTP/2,
// large uploads and downloads. The command in ./suites runs the clients' own tests,
// with the stack and without. It is a module of its own, so that none of them is
// ever required by the stack's.
package compat
