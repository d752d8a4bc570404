package transport_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport/transporttest"
)

// gzipped is text as one member of a gzip stream, which may have several.
func gzipped(text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = io.WriteString(w, text)
	_ = w.Close()
	return b.String()
}

// net/http reports a clean end of a gzip stream that was lost before its first byte,
// or between two members; whether that is one the framing has to say.
func TestAnAnswerThatNetHTTPDecompressesIsKeptOnlyIfItsEndIsKnown(t *testing.T) {
	one, two := gzipped("one"), gzipped("two")
	length := fmt.Sprintf("Content-Length: %d\r\n", len(one+two))
	size := fmt.Sprintf("%x\r\n", len(one))
	const http11, http10, last = "HTTP/1.1 200 OK\r\n", "HTTP/1.0 200 OK\r\n", "0\r\n\r\n"
	const chunked = "Transfer-Encoding: chunked\r\n"
	for name, test := range map[string]struct {
		start, header, body string
		kept                bool
	}{
		"nothing, then closed":          {http11, "Connection: close\r\n", "", false},
		"a member, then closed":         {http11, "Connection: close\r\n", one, false},
		"a member, then closed unasked": {http11, "", one, false},
		"HTTP/1.0, nothing":             {http10, "", "", false},
		"HTTP/1.0, a member":            {http10, "Connection: keep-alive\r\n", one, false},
		"nothing of a length":           {http11, length, "", false},
		"a member of a length":          {http11, length, one, false},
		"all of a length":               {http11, length, one + two, true},
		"HTTP/1.0, all of a length":     {http10, "Connection: keep-alive\r\n" + length, one + two, true},
		"no chunk":                      {http11, chunked, "", false},
		"a chunk":                       {http11, chunked, size + one + "\r\n", false},
		"all chunks":                    {http11, chunked, size + one + "\r\n" + last, true},
		"all chunks, then closed":       {http11, chunked + "Connection: close\r\n", size + one + "\r\n" + last, true},
	} {
		t.Run(name, func(t *testing.T) {
			transporttest.CheckLeaks(t)
			o := transporttest.NewOrigin(t)
			o.Script(transporttest.Step{Raw: test.start + "Content-Encoding: gzip\r\nCache-Control: max-age=60\r\n" + test.header + "\r\n" + test.body},
				transporttest.Step{Status: 503})
			p := policy.Service()
			p.Retry = policy.Retry{}
			tr := retryTransport(t, o.Base(), p, nil)
			resp, err := tr.RoundTrip(retryRequest(t, "GET", o.URL, nil))
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if !resp.Uncompressed || test.kept && err != nil {
				t.Fatalf("%q, %v, decompressed: %t", text, err, resp.Uncompressed)
			}
			want := http.StatusServiceUnavailable
			if test.kept {
				want = http.StatusOK
			}
			if status, again := retryDo(t, tr, retryRequest(t, "GET", o.URL, nil)); status != want || test.kept && again != string(text) {
				t.Errorf("%d %q, want %d (before: %q, %v)", status, again, want, text, err)
			}
		})
	}
}
