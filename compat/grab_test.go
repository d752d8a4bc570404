package compat_test

import (
	"bytes"
	"crypto/sha256"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cavaliergopher/grab/v3"
)

func TestGrabResumesALargeDownload(t *testing.T) {
	whole, err := io.ReadAll(object())
	if err != nil {
		t.Fatal(err)
	}
	var ranges atomic.Int32
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("ETag", `"1"`)
		if req.Method == http.MethodGet && req.Header.Get("Range") == "" { // cut in the middle
			w.Header().Set("Accept-Ranges", "bytes")
			w.Header().Set("Content-Length", strconv.Itoa(objectSize))
			_, _ = io.Copy(w, paced{bytes.NewReader(whole[:objectSize/4])})
			panic(http.ErrAbortHandler)
		}
		if req.Header.Get("Range") != "" {
			ranges.Add(1)
		}
		http.ServeContent(w, req, "", time.Unix(1, 0), slow{bytes.NewReader(whole)})
	}))
	t.Cleanup(srv.Close)
	install(t, nil)
	client := grab.NewClient()
	client.HTTPClient = http.DefaultClient

	file := filepath.Join(t.TempDir(), "file")
	var last *grab.Response
	for range 2 {
		req, err := grab.NewRequest(file, srv.URL)
		if err != nil {
			t.Fatal(err)
		}
		last = client.Do(req.WithContext(bounded(t)))
		if err := last.Err(); (err == nil) != last.DidResume {
			t.Fatalf("resumed: %v, %v", last.DidResume, err)
		}
	}
	if !last.DidResume || ranges.Load() != 1 {
		t.Errorf("resumed: %v, with %d ranges", last.DidResume, ranges.Load())
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if sha256.Sum256(got) != sha256.Sum256(whole) {
		t.Error("other bytes came back")
	}
}
