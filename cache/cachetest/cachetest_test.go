package cachetest_test

import (
	"net/http"
	"testing"

	"github.com/watertight-go/watertight/cache"
	"github.com/watertight-go/watertight/cache/cachetest"
	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
)

func stack(t *testing.T, base http.RoundTripper) http.RoundTripper {
	tr := transport.Must(transport.New(transport.Config{Base: base, Default: policy.Policy{Cache: policy.Cache{Fresh: true}}}))
	t.Cleanup(func() { _ = tr.Close() })
	return tr
}

func TestTheStackIsAPrivateCache(t *testing.T) { cachetest.TestRoundTripper(t, stack) }

func TestMemoryIsAStore(t *testing.T) {
	cachetest.TestStore(t, func(t *testing.T, c cache.Config) cache.Store {
		m, err := cache.NewMemory(c)
		if err != nil {
			t.Fatal(err)
		}
		return m
	})
}
