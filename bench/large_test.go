package bench_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/watertight-go/watertight/policy"
)

// large is the size of a large body: 1 GiB, or so many MiB as LARGE says.
func large(b *testing.B) int64 {
	v := os.Getenv("LARGE")
	if v == "" {
		return 1 << 30
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n <= 0 {
		b.Fatalf("LARGE=%s: must be a number of MiB", v)
	}
	return n << 20
}

// BenchmarkLarge is a body of 1 GiB (LARGE=n: of n MiB) over HTTP/1.1 on loopback: downwards, and upwards
// from a file and from a reader that is nothing else.
func BenchmarkLarge(b *testing.B) {
	size := large(b)
	piece := make([]byte, 256<<10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			_, _ = io.Copy(io.Discard, r.Body)
			return
		}
		w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
		for left := size; left > 0; left -= int64(len(piece)) {
			if _, err := w.Write(piece[:min(left, int64(len(piece)))]); err != nil {
				return
			}
		}
	}))
	b.Cleanup(server.Close)

	b.Run("down", func(b *testing.B) {
		transfers(b, server, size, http.MethodGet, func() io.Reader { return nil })
	})
	b.Run("up-file", func(b *testing.B) {
		name := filepath.Join(b.TempDir(), "large")
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			b.Fatal(err)
		}
		if err := os.Truncate(name, size); err != nil {
			b.Fatal(err)
		}
		if _, err := readAll(name); err != nil { // so that it is in memory for all alike
			b.Fatal(err)
		}
		transfers(b, server, size, http.MethodPost, func() io.Reader {
			f, err := os.Open(name)
			if err != nil {
				b.Fatal(err)
			}
			return f // which the transport closes
		})
	})
	b.Run("up-reader", func(b *testing.B) {
		transfers(b, server, size, http.MethodPost, func() io.Reader { return io.LimitReader(zeros{}, size) })
	})
}

// readAll reads a file for nothing but its pages.
func readAll(name string) (int64, error) {
	f, err := os.Open(name)
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	return io.Copy(io.Discard, f)
}

// transfers has bare and the complete stack take turns at one transfer each.
func transfers(b *testing.B, server *httptest.Server, size int64, method string, body func() io.Reader) {
	all := sides(b, server, policy.Default(), "bare", "complete")
	rates := make([][]float64, len(all))
	buf := make([]byte, 64<<10)
	turns(b, len(all), func(i int) {
		req, err := http.NewRequest(method, server.URL, body())
		if err != nil {
			b.Fatal(err)
		}
		if method == http.MethodPost {
			req.ContentLength = size
		}
		began := time.Now()
		if err := exchange(all[i].rt, req, buf); err != nil {
			b.Fatal(err)
		}
		rates[i] = append(rates[i], float64(size)/1e6/time.Since(began).Seconds())
	})
	for i, s := range all {
		b.ReportMetric(median(ratios(rates[i], rates[0])), s.name+":throughput-ratio")
		b.ReportMetric(median(slices.Clone(rates[i])), s.name+":MB/s")
	}
}

// zeros has no end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
