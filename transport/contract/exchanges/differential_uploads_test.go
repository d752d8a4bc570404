package exchanges_test

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

var helloes = strings.Repeat("hello ", 50_000) // more than any buffer on the way

// uploadExchanges are about the bodies of requests.
var uploadExchanges = map[string]exchange{
	"GET with a body":              {ask: askBody("GET", known("hello"), 0)},
	"DELETE with a body":           {ask: askBody("DELETE", known("hello"), 0)},
	"POST":                         {ask: askBody("POST", known("hello"), 0)},
	"POST of bytes":                {ask: askBody("POST", func() io.Reader { return bytes.NewReader([]byte("hello")) }, 0)},
	"POST of a buffer":             {ask: askBody("POST", func() io.Reader { return bytes.NewBufferString("hello") }, 0)},
	"POST of a file":               {ask: askFile},
	"POST of much":                 {ask: askBody("POST", known(helloes), 0)},
	"POST of unknown length":       {ask: askBody("POST", unknown("hello"), 0)},
	"POST of unknown length, much": {ask: askBody("POST", unknown(helloes), 0)},
	"POST of unknown length, none": {ask: askBody("POST", unknown(""), 0)},
	"POST of unknown length, late": {ask: askBody("POST", func() io.Reader {
		return &stackFuncs{OnRead: func([]byte) (int, error) { time.Sleep(250 * time.Millisecond); return 0, io.EOF }, OnClose: func() error { return nil }}
	}, 0)}, // net/http waits 200 ms for the first byte
	"POST of length -1":           {ask: askBody("POST", unknown("hello"), -1)},
	"POST of nothing":             {ask: askMethod("POST")},
	"POST of NoBody":              {ask: askFor(func(r *http.Request) { r.Method, r.Body = "POST", http.NoBody })},
	"POST of NoBody with GetBody": {ask: askBody("POST", known(""), 0)},
	"PUT of NoBody, length -1":    {ask: askFor(func(r *http.Request) { r.Method, r.Body, r.ContentLength = "PUT", http.NoBody, -1 })},
	"GET of unknown length":       {ask: askBody("GET", unknown("hello"), -1)},
	"HEAD with a body":            {ask: askBody("HEAD", unknown("hello"), -1), answer: "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"},
	"POST through a pipe":         {ask: askBody("POST", throughPipe, 0)},
	"POST byte by byte": {ask: askBody("POST", func() io.Reader {
		return io.MultiReader(strings.NewReader("h"), strings.NewReader("e"), strings.NewReader(""), strings.NewReader("y"))
	}, 0)},
	"POST as Transfer-Encoding":   {ask: asks(askBody("POST", known("hello"), 0), askFor(func(r *http.Request) { r.TransferEncoding = []string{"chunked"} }))},
	"POST as identity":            {ask: asks(askBody("POST", known("hello"), 0), askFor(func(r *http.Request) { r.TransferEncoding = []string{"identity"} }))},
	"POST of none, chunked":       {ask: askFor(func(r *http.Request) { r.Method, r.TransferEncoding = "POST", []string{"chunked"} })},
	"POST with its own length":    {ask: asks(askBody("POST", known("hello"), 0), askHeader("Content-Length", "99", "Transfer-Encoding", "zip"))},
	"POST, then closed":           {ask: asks(askBody("POST", unknown("hello"), 0), askFor(func(r *http.Request) { r.Close = true }))},
	"PUT of a known length":       {ask: askBody("PUT", unknown("hello"), 5)},
	"PUT of a known length, much": {ask: askBody("PUT", unknown(helloes), 300_000)},
	"PATCH with trailers": {ask: asks(askBody("PATCH", unknown("hello"), -1), askFor(func(r *http.Request) {
		r.Trailer = http.Header{"X-Sum": {"5d41"}}
	}))},
	"PATCH with trailers, set as it is read": {ask: asks(askBody("PATCH", unknown("hello"), -1), askFor(func(r *http.Request) {
		r.Trailer = http.Header{"X-Sum": nil, "X-More": nil}
		trailer, src := r.Trailer, r.Body
		r.Body = &stackFuncs{OnClose: src.Close, OnRead: func(p []byte) (int, error) {
			n, err := src.Read(p)
			if err == io.EOF {
				trailer.Set("X-Sum", "5d41")
			}
			return n, err
		}}
	}))},
	"PATCH with trailers of a known length": {ask: asks(askBody("PATCH", known("hello"), 0), askFor(func(r *http.Request) {
		r.Trailer = http.Header{"X-Sum": {"5d41"}}
	}))},

	"expecting 100":             {interim: "HTTP/1.1 100 Continue\r\n\r\n", ask: asks(askBody("PUT", known("hello"), 0), expectContinue)},
	"expecting 100, much":       {interim: "HTTP/1.1 100 Continue\r\n\r\n", ask: asks(askBody("PUT", unknown(helloes), 300_000), expectContinue)},
	"expecting 100, unknown":    {interim: "HTTP/1.1 100 Continue\r\n\r\n", ask: asks(askBody("POST", unknown("hello"), -1), expectContinue)},
	"expecting 100, with hints": {interim: "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n", ask: asks(askBody("PUT", known("hello"), 0), expectContinue)},
	"expecting 100, in vain": {ask: asks(askBody("PUT", known("hello"), 0), expectContinue),
		base: func(_ *play, b *http.Transport) { b.ExpectContinueTimeout = 20 * time.Millisecond }},
	"expecting 100, without waiting": {ask: asks(askBody("PUT", known("hello"), 0), expectContinue),
		base: func(_ *play, b *http.Transport) { b.ExpectContinueTimeout = 0 }},
	"expecting 100 for nothing": {ask: asks(askMethod("PUT"), expectContinue)},
	"expecting 100, refused": {racy: true, unread: true, answer: "HTTP/1.1 417 Expectation Failed\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno", end: endCut,
		ask: asks(askBody("PUT", unknown("hello"), 5), expectContinue)},
	"expecting 100, refused and kept": {racy: true, unread: true, answer: "HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno",
		ask: asks(askBody("POST", unknown("hello"), 5), expectContinue)},
	"expecting 100, answered": {racy: true, unread: true, answer: answerOK,
		ask: asks(askBody("PUT", unknown("hello"), 5), expectContinue)},

	// The origin does not read what it refuses; whether its answer or the reset
	// comes first is the weather's to say, unless there is no reset.
	"much, refused at once": {loose: true, unread: true, answer: "HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno",
		ask: askBody("POST", unknown(helloes), 300_000)},
	"much of unknown length, refused at once": {loose: true, unread: true, answer: "HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno",
		ask: askBody("POST", unknown(helloes), -1)},
	"endless, refused at once": {loose: true, unread: true, answer: "HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno",
		ask: askBody("POST", func() io.Reader { return io.LimitReader(contractZeros{}, 1<<40) }, -1)},

	// With and without a body, in the ways that net/http can send it again.
	"POST with an idempotency key": {ask: asks(askBody("POST", unknown("hello"), 0), askHeader("Idempotency-Key", "1"))},
	"POST with X-Idempotency-Key":  {ask: asks(askBody("POST", unknown("hello"), 0), askFor(func(r *http.Request) { r.Header["X-Idempotency-Key"] = nil }))},
}

// askBody gives a request a method and a body of the given length; zero: the one
// that http.NewRequest finds.
func askBody(method string, body func() io.Reader, length int64) ask {
	return askFor(func(r *http.Request) {
		fresh, _ := http.NewRequest(method, r.URL.String(), body())
		r.Method, r.Body, r.GetBody, r.ContentLength = method, fresh.Body, fresh.GetBody, fresh.ContentLength
		if length != 0 {
			r.ContentLength = length
		}
	})
}

// unknown is a body of a kind that net/http does not know.
func unknown(s string) func() io.Reader {
	return func() io.Reader { return io.MultiReader(strings.NewReader(s)) }
}

// known is one that it does, and can send again.
func known(s string) func() io.Reader {
	return func() io.Reader { return strings.NewReader(s) }
}

func throughPipe() io.Reader {
	r, w := io.Pipe()
	go func() {
		for range 3 {
			_, _ = io.WriteString(w, "hello")
		}
		_ = w.Close()
	}()
	return r
}

func askFile(p *play, r *http.Request) {
	f, err := os.CreateTemp("", "contract")
	if err != nil {
		p.t.Fatal(err)
	}
	_ = os.Remove(f.Name())
	_, _ = io.WriteString(f, helloes)
	_, _ = f.Seek(0, io.SeekStart)
	r.Method, r.Body, r.ContentLength = "POST", f, int64(len(helloes))
}

func expectContinue(_ *play, r *http.Request) { r.Header["Expect"] = []string{"100-continue"} }
