// Package contract holds nothing but tests: that the stack in place of
// http.DefaultTransport is noticed by nobody while the origin is healthy. The same
// exchanges go through net/http and through the stack, over real sockets.
package contract
