package cache

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// Where credentials do not separate callers, Vary may name them still.
func TestSecretsThatVaryNamesAreNotKeptInClear(t *testing.T) {
	for name, rules := range map[string]Rules{
		"shared":    {Fresh: true, Shared: true},
		"by tenant": {Fresh: true, Partition: func(*http.Request) (string, bool) { return "a", true }},
		"by caller": {Fresh: true},
		"fallback":  {},
	} {
		for _, field := range []string{"Authorization", "Cookie", "X-Api-Key", "Private-Token", "X-Client-Secret"} {
			store, err := NewMemory(Config{})
			if err != nil {
				t.Fatal(err)
			}
			c := New(store).For(rules)
			ask := func(secret string) (*http.Request, Exchange) {
				req, err := http.NewRequest(http.MethodGet, "https://a.test/doc", nil)
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set(field, secret)
				return req, c.Begin(req)
			}
			req, x := ask("hunter2")
			resp := &http.Response{
				StatusCode: 200, ProtoMajor: 1, ProtoMinor: 1, Body: http.NoBody, Request: req,
				Header: http.Header{"Cache-Control": {"public, max-age=60"}, "Content-Length": {"0"}, "Vary": {field}},
			}
			c.Received(&x, req, resp, Window{})
			stored := 0
			for e := range store.All() {
				stored++
				if kept := fmt.Sprintf("%q %q %q %q", e.selectors, e.header, e.partition, e.whose); strings.Contains(kept, "hunter2") {
					t.Errorf("%s: %s is kept in clear: %s", name, field, kept)
				}
			}
			if stored != 1 {
				t.Fatalf("%s: %s: %d are stored", name, field, stored)
			}
			for secret, want := range map[string]bool{"hunter2": true, "hunter3": false, "": false} {
				req, x := ask(secret)
				if secret == "" {
					req.Header.Del(field)
					x = c.Begin(req)
				}
				if got := c.Serves(&x, req, Window{}); got != want {
					t.Errorf("%s: %s: %q is served: %v", name, field, secret, got)
				}
			}
		}
	}
}
