package compat_test

import (
	"bufio"
	"bytes"
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/watertight-go/watertight/policy"
)

// bucket is as much of S3 as one object in parts takes.
type bucket struct {
	mu    sync.Mutex
	parts map[int][]byte
	whole []byte
	puts  int
}

func (b *bucket) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	q := req.URL.Query()
	switch {
	case req.Method == http.MethodPost && q.Has("uploads"):
		fmt.Fprint(w, `<InitiateMultipartUploadResult><Bucket>bucket</Bucket><Key>object</Key><UploadId>u</UploadId></InitiateMultipartUploadResult>`)
	case req.Method == http.MethodPut:
		part, err := payload(req)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		n, _ := strconv.Atoi(q.Get("partNumber"))
		b.mu.Lock()
		b.parts[n] = part
		b.puts++
		b.mu.Unlock()
		w.Header().Set("ETag", etag(part))
	case req.Method == http.MethodPost:
		b.mu.Lock()
		defer b.mu.Unlock()
		for n := 1; b.parts[n] != nil; n++ {
			b.whole = append(b.whole, b.parts[n]...)
		}
		fmt.Fprint(w, `<CompleteMultipartUploadResult><Bucket>bucket</Bucket><Key>object</Key><ETag>"whole"</ETag></CompleteMultipartUploadResult>`)
	case req.Method == http.MethodDelete: // the upload is given up
		w.WriteHeader(http.StatusNoContent)
	default:
		b.mu.Lock()
		whole := b.whole
		b.mu.Unlock()
		w.Header().Set("ETag", `"whole"`)
		w.Header().Set("Content-Type", "application/octet-stream")
		http.ServeContent(w, req, "", time.Unix(1, 0), slow{bytes.NewReader(whole)})
	}
}

// slow is a file that takes its time to be read.
type slow struct{ *bytes.Reader }

func (s slow) Read(p []byte) (int, error)             { return paced{s.Reader}.Read(p) }
func (s slow) WriteTo(w io.Writer) (n int64, _ error) { return io.Copy(w, paced{s.Reader}) }

func etag(p []byte) string {
	sum := md5.Sum(p)
	return `"` + hex.EncodeToString(sum[:]) + `"`
}

// payload reads the body of a request, slowly, and takes it out of the signed
// chunks in which S3's clients send it over plain HTTP.
func payload(req *http.Request) ([]byte, error) {
	body := bufio.NewReaderSize(paced{req.Body}, mib)
	if req.Header.Get("X-Amz-Decoded-Content-Length") == "" {
		return io.ReadAll(body)
	}
	var whole bytes.Buffer
	for {
		line, err := body.ReadString('\n')
		if err != nil {
			return nil, err
		}
		size, _, _ := strings.Cut(strings.TrimSpace(line), ";")
		n, err := strconv.ParseInt(size, 16, 64)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			_, err := io.Copy(io.Discard, body)
			return whole.Bytes(), err
		}
		if _, err := io.CopyN(&whole, body, n); err != nil {
			return nil, err
		}
		if _, err := body.Discard(len("\r\n")); err != nil {
			return nil, err
		}
	}
}

func TestMinioMovesLargeObjectsInParts(t *testing.T) {
	b := &bucket{parts: map[int][]byte{}}
	srv := httptest.NewServer(b)
	t.Cleanup(srv.Close)
	install(t, nil, func(p *policy.Policy) {
		p.Timeout.Read = 5 * time.Second // what the sockets hold of a part is written, and not read yet
	})
	at, err := url.Parse(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	client, err := minio.New(at.Host, &minio.Options{
		Creds: credentials.NewStaticV4("id", "secret", ""), Region: "us-east-1", BucketLookup: minio.BucketLookupPath,
		Transport: http.DefaultTransport,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx := bounded(t)
	sent := sha256.New()
	info, err := client.PutObject(ctx, "bucket", "object", io.TeeReader(object(), sent), objectSize, minio.PutObjectOptions{PartSize: 16 * mib})
	if err != nil || info.Size != objectSize {
		t.Fatalf("%d bytes: %v", info.Size, err)
	}
	if want := objectSize / (16 * mib); b.puts != want {
		t.Errorf("%d uploads of parts, want %d", b.puts, want)
	}
	start := time.Now()
	o, err := client.GetObject(ctx, "bucket", "object", minio.GetObjectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	got := sha256.New()
	if n, err := io.Copy(got, o); n != objectSize || err != nil {
		t.Fatalf("%d bytes: %v", n, err)
	}
	if took := time.Since(start); took < total {
		t.Errorf("the download took only %v: it should outlive %v", took, total)
	}
	if !bytes.Equal(got.Sum(nil), sent.Sum(nil)) {
		t.Error("other bytes came back")
	}
}
