package exchanges_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"strings"
	"testing/iotest"
)

var thousand = "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + strings.Repeat("x", 1000)

// bodyExchanges are about what callers do with the bodies of answers.
var bodyExchanges = map[string]exchange{
	"read in part":          {answer: thousand, read: readSome(10)},
	"read in part, chunked": {answer: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n5\r\nhello\r\n0\r\n\r\n", read: readSome(3)},
	"read in part, zipped":  {answer: zipped(zip(helloes)), read: readSome(10)},
	"read in part, and its trailers": {read: readSome(1),
		answer: strings.Replace(answerExchanges["gzip, chunked with trailers"].answer, "Trailer: X-Sum\r\n", "", 1)},
	"read in part, until it ends": {answer: "HTTP/1.1 200 OK\r\n\r\n" + strings.Repeat("x", 1000), end: endCut, read: readSome(10)},
	"not read":                    {answer: thousand, read: readSome(0)},
	"not read, zipped":            {answer: zipped(zip(helloes)), read: readSome(0)},
	"not read, empty":             {answer: "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", read: readSome(0)},
	"not read, one of many bytes": {answer: "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + strings.Repeat("x", 1_000_000), read: readSome(0)},
	"not read, then asked again":  {answer: thousand, read: readSome(0), more: []ask{nil}},
	"in part, then asked again":   {answer: thousand, read: readSome(10), more: []ask{nil}},
	"all but its end, then again": {answer: thousand, read: readSome(1000), more: []ask{nil}},
	"chunked all but its end":     {answer: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", read: readSome(2), more: []ask{nil}},
	"byte by byte":                {answer: thousand, read: readBy(func(r io.Reader) io.Reader { return iotest.OneByteReader(r) })},
	"through a buffer of one's own": {answer: thousand, read: func(_ *play, resp *http.Response) ([]byte, error) {
		var b bytes.Buffer
		n, err := io.CopyBuffer(struct{ io.Writer }{&b}, resp.Body, make([]byte, 7))
		return fmt.Append(b.Bytes(), n), err
	}},
	"with empty reads": {read: func(_ *play, resp *http.Response) ([]byte, error) {
		n, err := resp.Body.Read(nil)
		told := fmt.Appendf(nil, "%d %s,", n, errorClass(err))
		b, err := io.ReadAll(resp.Body)
		n, after := resp.Body.Read(nil)
		return fmt.Appendf(append(told, b...), ", %d %s", n, errorClass(after)), err
	}},
	"read past its end": {read: func(_ *play, resp *http.Response) (told []byte, err error) {
		for range 4 {
			b := make([]byte, 10)
			n, err := resp.Body.Read(b)
			told = fmt.Appendf(told, "%q %s,", b[:n], errorClass(err))
		}
		return told, nil
	}},
	"read past an error": {answer: "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok", end: endCut, read: func(_ *play, resp *http.Response) (told []byte, err error) {
		for range 4 {
			b := make([]byte, 10)
			n, err := io.ReadFull(resp.Body, b)
			told = fmt.Appendf(told, "%q %s,", b[:n], errorClass(err))
		}
		return told, nil
	}},
	"read past a zipped error": {answer: zipped("hello"), read: func(_ *play, resp *http.Response) (told []byte, err error) {
		for range 3 {
			n, err := resp.Body.Read(make([]byte, 10))
			told = fmt.Appendf(told, "%d %s,", n, errorClass(err))
		}
		return told, nil
	}},
	"closed, then read to its end": {answer: thousand, read: func(_ *play, resp *http.Response) ([]byte, error) {
		_ = resp.Body.Close()
		return io.ReadAll(resp.Body)
	}},
	"closed in the middle, then read": {answer: thousand, read: func(_ *play, resp *http.Response) ([]byte, error) {
		_, _ = io.ReadFull(resp.Body, make([]byte, 10))
		_ = resp.Body.Close()
		return io.ReadAll(resp.Body)
	}},
	"closed twice, zipped, then read": {answer: zipped(zip("hello")), read: func(_ *play, resp *http.Response) ([]byte, error) {
		_ = resp.Body.Close()
		_ = resp.Body.Close()
		return io.ReadAll(resp.Body)
	}},
	"closed while it is read": {racy: true, answer: "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nok", end: endEcho, read: func(_ *play, resp *http.Response) ([]byte, error) {
		b := make([]byte, 2)
		_, _ = io.ReadFull(resp.Body, b)
		closed := make(chan error)
		go func() { closed <- resp.Body.Close() }()
		_, err := io.ReadAll(resp.Body)
		if err == nil {
			return b, errors.New("a body that was cut is complete")
		}
		return b, <-closed
	}},
	"as JSON, with more after it": {answer: "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{\"a\": 1}\n", more: []ask{nil}, read: func(_ *play, resp *http.Response) ([]byte, error) {
		var v any
		err := json.NewDecoder(resp.Body).Decode(&v)
		return fmt.Append(nil, v), err
	}},
	"as a dump": {answer: thousand, read: func(_ *play, resp *http.Response) ([]byte, error) { return httputil.DumpResponse(resp, true) }},
	"as a dump, chunked with trailers": {answer: "HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 1\r\n\r\n",
		read: func(_ *play, resp *http.Response) ([]byte, error) { return httputil.DumpResponse(resp, true) }},
	"as a dump of a HEAD": {ask: askMethod("HEAD"), answer: "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n",
		read: func(_ *play, resp *http.Response) ([]byte, error) { return httputil.DumpResponse(resp, true) }},
	"passed on": {answer: "HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 1\r\n\r\n",
		read: func(_ *play, resp *http.Response) ([]byte, error) {
			var b bytes.Buffer
			err := resp.Write(&b)
			return b.Bytes(), err
		}},
}

// readSome reads n bytes, and leaves the rest.
func readSome(n int) func(*play, *http.Response) ([]byte, error) {
	return func(_ *play, resp *http.Response) ([]byte, error) {
		b := make([]byte, n)
		_, err := io.ReadFull(resp.Body, b)
		return b, err
	}
}

func readBy(how func(io.Reader) io.Reader) func(*play, *http.Response) ([]byte, error) {
	return func(_ *play, resp *http.Response) ([]byte, error) { return io.ReadAll(how(resp.Body)) }
}
