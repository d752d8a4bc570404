// Package contract holds nothing but tests: that the stack in place of
// http.DefaultTransport is noticed by nobody while the origin is healthy. The
// packages below it play whole exchanges, break the network, and watch connections.
package contract
