package cachetest

import (
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
)

// TestRoundTripper tests that what wrap makes is a private cache that reuses fresh answers as RFC 9111 has it, and that a client
// shared by several users may use it. Each subtest is one rule, has a bubble of testing/synctest to itself, and says the
// rule when it fails. wrap is called once in each bubble, with an origin for a base, which answers as net/http would; what needs to be
// closed it closes in a Cleanup.
//
// A cache may always ask the origin instead. So nearly all rules are of what must never be served, which one that stores
// nothing would keep, and that proves nothing: each subtest first sees that the same request is reused where nothing is
// against it. What else is expected though RFC 9111 leaves it open, package documentation lists.
//
// What a cache serves after a failure of the origin's is its own affair: it may serve nothing, and only must not serve what is
// forbidden.
func TestRoundTripper(t *testing.T, wrap func(t *testing.T, base http.RoundTripper) http.RoundTripper) {
	for _, r := range slices.Concat(isolation, bodies, writes, masking, vary, control, headers, labels, validation, ranges, clock, together) {
		t.Run(r.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &probe{T: t, origin: &origin{}}
				t.Cleanup(func() {
					if t.Failed() {
						t.Logf("the rule: %s", r.says)
					}
				})
				p.cache = wrap(t, p.origin)
				r.test(p)
			})
		})
	}
}

// rule is one subtest.
type rule struct {
	name, says string
	test       func(p *probe)
}
