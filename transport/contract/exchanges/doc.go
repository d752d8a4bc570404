// Package exchanges holds nothing but tests: the same exchanges, from tables and at
// random, through net/http and through the stack give the same answers, the same
// bytes on the wire and the same hooks, but for what is meant to differ.
package exchanges
