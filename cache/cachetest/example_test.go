package cachetest_test

import (
	"net/http"
	"testing"

	"github.com/watertight-go/watertight/cache"
	"github.com/watertight-go/watertight/cache/cachetest"
	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
)

// TestMemory in a program of yours, with a store of your own in place of Memory.
func ExampleTestStore() {
	var t *testing.T // of your test
	cachetest.TestStore(t, func(t *testing.T, c cache.Config) cache.Store {
		m, err := cache.NewMemory(c)
		if err != nil {
			t.Fatal(err)
		}
		return m
	})
}

// A cache goes around the base that it is given, and is closed in the bubble that it was made in.
func ExampleTestRoundTripper() {
	var t *testing.T // of your test
	cachetest.TestRoundTripper(t, func(t *testing.T, base http.RoundTripper) http.RoundTripper {
		tr := transport.Must(transport.New(transport.Config{Base: base, Default: policy.Policy{Cache: policy.Cache{Fresh: true}}}))
		t.Cleanup(func() { _ = tr.Close() })
		return tr
	})
}
