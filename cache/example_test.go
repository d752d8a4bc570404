package cache_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/watertight-go/watertight/cache"
)

// A RoundTripper that falls back to the last good answer for ten minutes.
func Example() {
	store, err := cache.NewMemory(cache.Config{MaxBytes: 16 << 20})
	if err != nil {
		panic(err)
	}
	c, window := cache.New(store), cache.Window{MaxStale: 10 * time.Minute}

	down := false
	origin := func(*http.Request) (*http.Response, error) {
		if down {
			return nil, errors.New("connection refused")
		}
		return answer(200, "21 degrees"), nil
	}
	roundTrip := func(req *http.Request) (*http.Response, error) {
		x := c.Begin(req)
		resp, err := origin(req)
		if err != nil {
			why := cache.Failure{Err: err, Detail: "dial-error", Forwarded: true}
			if stale, ok := c.Serve(&x, req, why, window); ok {
				return stale, nil
			}
			return nil, err
		}
		capture := c.Received(&x, req, resp, window)
		body, err := io.ReadAll(io.TeeReader(resp.Body, capture)) // a real one would do this as its caller reads
		capture.Complete(err == nil)
		_ = body
		return resp, err
	}

	for range 2 {
		resp, err := roundTrip(get())
		if err != nil {
			panic(err)
		}
		info, ok := cache.FromResponse(resp)
		fmt.Println(resp.Status, ok, info.Stale, info.Cause)
		down = true
	}
	// Output:
	// 200 OK false false <nil>
	// 200 OK true true connection refused
}
