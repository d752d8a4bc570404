package cache_test

import (
	"bytes"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/watertight-go/watertight/cache"
)

// twelve are the fields of an ordinary JSON API.
var twelve = []string{
	"Date", "Sat, 01 Jan 2000 00:00:00 GMT", "Content-Type", "application/json", "Cache-Control", "private, max-age=3600000000",
	"Etag", `"33a64df551425fcc55e4d42a148795d9f25f89d4"`, "Vary", "Accept-Encoding", "Server", "nginx",
	"X-Request-Id", "7f0c2c6e", "Strict-Transport-Security", "max-age=31536000", "X-Content-Type-Options", "nosniff",
	"X-Frame-Options", "DENY", "Via", "1.1 proxy",
}

func callerOf(t string) *http.Request {
	return request("GET", "https://api.test/v1/things/42?expand=all", "Accept", "application/json", "User-Agent", "bench/1.0", "X-Request-Id", t)
}

func BenchmarkServe(b *testing.B) {
	for _, bench := range []struct {
		name string
		req  *http.Request
	}{
		{"anonymous", callerOf("1")},
		{"with credentials", request("GET", "https://api.test/v1/things/42?expand=all", "Authorization", "Bearer "+strings.Repeat("x", 600))},
	} {
		b.Run(bench.name, func(b *testing.B) {
			c := newClient(b)
			c.do(bench.req, answer(200, strings.Repeat("x", 1<<10), twelve[:10]...), minutes)
			b.ReportAllocs()
			for b.Loop() {
				x := c.Begin(bench.req)
				if _, ok := c.Serve(&x, bench.req, refused, minutes); !ok {
					b.Fatal("nothing served")
				}
			}
		})
	}
}

func BenchmarkCapture(b *testing.B) {
	for _, bench := range []struct {
		name    string
		chunked bool
		changes bool
		size    int
	}{
		{"4 KiB, as before", false, false, 4 << 10},
		{"4 KiB, changed", false, true, 4 << 10},
		{"4 KiB, changed, length unknown", true, true, 4 << 10},
		{"256 KiB, changed", false, true, 256 << 10},
	} {
		b.Run(bench.name, func(b *testing.B) {
			c := newClient(b)
			req := callerOf("1")
			text := []byte(strings.Repeat("x", bench.size))
			resp := answer(200, string(text), twelve...)
			if bench.chunked {
				resp = chunked(resp)
			}
			n := byte(0)
			b.ReportAllocs()
			for b.Loop() {
				if n++; bench.changes {
					text[0] = n
				}
				x := c.Begin(req)
				capture := c.Received(&x, req, resp, minutes)
				for p := range chunksOf(text) {
					capture.Write(p)
				}
				capture.Complete(true)
			}
			if c.store.Len() != 1 {
				b.Fatal("not stored")
			}
		})
	}
}

func chunksOf(p []byte) func(func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for len(p) > 0 {
			n := min(len(p), 16<<10)
			if !yield(p[:n]) {
				return
			}
			p = p[n:]
		}
	}
}

// BenchmarkPass is what every request pays in a process that has configured nothing.
func BenchmarkPass(b *testing.B) {
	for _, stored := range []int{0, 1000} {
		b.Run("stored="+strconv.Itoa(stored), func(b *testing.B) {
			c := newClient(b)
			for i := range stored {
				c.do(request("GET", "https://a.test/"+strconv.Itoa(i)), answer(200, "hello"), minutes)
			}
			req := callerOf("1")
			resp := answer(200, "hello", "Content-Type", "application/json", "Etag", `"1"`)
			b.ReportAllocs()
			for b.Loop() {
				x := c.Begin(req)
				if c.Received(&x, req, resp, none) != nil {
					b.Fatal("a capture")
				}
			}
		})
	}
}

func BenchmarkLookup(b *testing.B) {
	c := newClient(b)
	for i := range 10_000 {
		c.do(request("GET", "https://a.test/"+strconv.Itoa(i)), answer(200, "hello"), minutes)
	}
	x := c.Begin(request("GET", "https://a.test/77"))
	e := c.store.Lookup(cache.KeyOf(x), cache.Partition{})
	if len(e) != 1 {
		b.Fatal("not stored")
	}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			c.store.Lookup(e[0].Key(), cache.Partition{})
		}
	})
}

// BenchmarkPlain is reading 4 KiB with no capture, to subtract.
func BenchmarkPlain(b *testing.B) {
	text := bytes.Repeat([]byte("x"), 4<<10)
	b.ReportAllocs()
	for b.Loop() {
		io.Copy(io.Discard, bytes.NewReader(text))
	}
}
