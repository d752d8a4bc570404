package contract_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/transporttest"
)

// exchange is one scripted exchange over HTTP/1.1. It is played once with a plain
// *http.Transport and then with the stack: both must tell the same, and the origin
// must see the same bytes.
type contractExchange struct {
	// The request: GET of the origin, changed by ask.
	ask func(*contractPlay, *http.Request)

	// What the origin does.
	interim string // sent when it has the request's headers
	unread  bool   // it does not read the request's body
	answer  string // the raw response
	end     contractEnd

	// What the caller does with the answer: reads all of it, if nil.
	read func(*contractPlay, *http.Response) ([]byte, error)

	base  func(*http.Transport) // settings of the base
	loose bool                  // what the origin sees, and which error comes first, depend on the weather
}

// contractEnd is what the origin does after its answer.
type contractEnd int

const (
	contractKeep  contractEnd = iota // serves the next request
	contractClose                    // closes the connection
	contractReset                    // resets it
	contractEcho                     // sends back what it gets
)

// contractPlay is one run of an exchange.
type contractPlay struct {
	cancel context.CancelFunc
	legacy chan struct{} // for Request.Cancel
	got    func()        // runs when the origin has read the request
}

// contractTale is what an exchange comes to, for its caller and for the origin.
type contractTale struct {
	Err       string
	Status    string
	Proto     string
	Header    http.Header
	Trailer   http.Header
	Length    int64
	Encoding  []string
	Close     bool
	Unpacked  bool
	Body      string
	BodyErr   string
	Requested string // the request's bytes, or what stands for them
}

// loosely is the tale without what may differ from one time to the next.
func (c contractTale) loosely() contractTale {
	c.Requested = ""
	if c.Err != "" && !strings.Contains(c.Err, "deadline true") {
		c.Err = "an error"
	}
	return c
}

const contractOK = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

func contractBodyOf(method string, body func() io.Reader, length int64) func(*contractPlay, *http.Request) {
	return func(_ *contractPlay, r *http.Request) {
		fresh, _ := http.NewRequest(method, r.URL.String(), body())
		r.Method, r.Body, r.GetBody, r.ContentLength = method, fresh.Body, fresh.GetBody, fresh.ContentLength
		if length != 0 {
			r.ContentLength = length
		}
	}
}

func contractMethod(method string) func(*contractPlay, *http.Request) {
	return func(_ *contractPlay, r *http.Request) { r.Method = method }
}

func contractHeader(lines ...string) func(*contractPlay, *http.Request) {
	return func(_ *contractPlay, r *http.Request) {
		for i := 0; i < len(lines); i += 2 {
			r.Header[lines[i]] = append(r.Header[lines[i]], lines[i+1])
		}
	}
}

func contractZip(s string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = io.WriteString(w, s)
	_ = w.Close()
	return b.String()
}

func contractZipped(body string) string {
	return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

// contractReadSome reads n bytes and closes the body.
func contractReadSome(n int) func(*contractPlay, *http.Response) ([]byte, error) {
	return func(_ *contractPlay, resp *http.Response) ([]byte, error) {
		b := make([]byte, n)
		_, err := io.ReadFull(resp.Body, b)
		_ = resp.Body.Close()
		return b, err
	}
}

// contractReadAfter lets something happen once the first n bytes are read.
func contractReadAfter(n int, event func(*contractPlay)) func(*contractPlay, *http.Response) ([]byte, error) {
	return func(p *contractPlay, resp *http.Response) ([]byte, error) {
		b := make([]byte, n)
		if _, err := io.ReadFull(resp.Body, b); err != nil {
			return b, err
		}
		event(p)
		rest, err := io.ReadAll(resp.Body)
		return append(b, rest...), err
	}
}

var errContractUpload = errors.New("the caller's own")

func contractReader(s string) func() io.Reader { // of a kind that net/http does not know
	return func() io.Reader { return io.MultiReader(strings.NewReader(s)) }
}

func contractText(s string) func() io.Reader {
	return func() io.Reader { return strings.NewReader(s) }
}

var contractExchanges = map[string]contractExchange{
	// Requests.
	"GET":                         {answer: contractOK},
	"GET with headers":            {answer: contractOK, ask: contractHeader("X-B", "1", "X-A", "2", "X-B", "3", "Cookie", "a=b", "lower-Case", "x")},
	"GET with a query":            {answer: contractOK, ask: func(_ *contractPlay, r *http.Request) { r.URL.RawQuery, r.URL.Fragment = "b=2&a=1;x", "part" }},
	"GET with an escaped path":    {answer: contractOK, ask: func(_ *contractPlay, r *http.Request) { r.URL.Path, r.URL.RawPath = "/a/b c", "/a%2Fb%20c" }},
	"GET of an opaque URL":        {answer: contractOK, ask: func(_ *contractPlay, r *http.Request) { r.URL.Opaque = "//origin.test/%2f/x" }},
	"GET with another Host":       {answer: contractOK, ask: func(_ *contractPlay, r *http.Request) { r.Host = "other.test:81" }},
	"GET with userinfo":           {answer: contractOK, ask: func(_ *contractPlay, r *http.Request) { r.URL.User = url.UserPassword("u", "p") }},
	"GET with a port":             {answer: contractOK, ask: func(_ *contractPlay, r *http.Request) { r.URL.Host = "origin.test:8080" }},
	"GET of an upper-case host":   {answer: contractOK, ask: func(_ *contractPlay, r *http.Request) { r.URL.Host = "ORIGIN.test" }},
	"GET of an international one": {answer: contractOK, ask: func(_ *contractPlay, r *http.Request) { r.URL.Host = "bücher.test" }},
	"GET of an IPv6 host":         {answer: contractOK, ask: func(_ *contractPlay, r *http.Request) { r.URL.Host = "[::1]:80" }},
	"GET without a user agent":    {answer: contractOK, ask: contractHeader("User-Agent", "")},
	"GET with a user agent":       {answer: contractOK, ask: contractHeader("User-Agent", "mine/1")},
	"GET with Close":              {answer: contractOK, ask: func(_ *contractPlay, r *http.Request) { r.Close = true }},
	"GET with Connection close":   {answer: contractOK, ask: contractHeader("Connection", "close")},
	"GET with a Range":            {answer: "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-1/9\r\nContent-Length: 2\r\n\r\nok", ask: contractHeader("Range", "bytes=0-1")},
	"GET with a body":             {answer: contractOK, ask: contractBodyOf("GET", contractText("hello"), 0)},
	"GET with If-None-Match":      {answer: "HTTP/1.1 304 Not Modified\r\nEtag: \"1\"\r\n\r\n", ask: contractHeader("If-None-Match", `"1"`)},
	"GET with no method":          {answer: contractOK, ask: contractMethod("")},
	"HEAD":                        {answer: "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", ask: contractMethod("HEAD")},
	"HEAD chunked":                {answer: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", ask: contractMethod("HEAD")},
	"OPTIONS *": {answer: contractOK, ask: func(_ *contractPlay, r *http.Request) {
		r.Method, r.URL.Path, r.URL.Opaque = "OPTIONS", "", "*"
	}},
	"TRACE":                        {answer: contractOK, ask: contractMethod("TRACE")},
	"DELETE":                       {answer: contractOK, ask: contractMethod("DELETE")},
	"DELETE with a body":           {answer: contractOK, ask: contractBodyOf("DELETE", contractText("hello"), 0)},
	"a method of one's own":        {answer: contractOK, ask: contractMethod("PURGE")},
	"POST":                         {answer: contractOK, ask: contractBodyOf("POST", contractText("hello"), 0)},
	"POST of much":                 {answer: contractOK, ask: contractBodyOf("POST", contractText(strings.Repeat("hello ", 50_000)), 0)},
	"POST of unknown length":       {answer: contractOK, ask: contractBodyOf("POST", contractReader("hello"), 0)},
	"POST of unknown length, much": {answer: contractOK, ask: contractBodyOf("POST", contractReader(strings.Repeat("hello ", 50_000)), 0)},
	"POST of unknown length, none": {answer: contractOK, ask: contractBodyOf("POST", contractReader(""), 0)},
	"POST of length -1":            {answer: contractOK, ask: contractBodyOf("POST", contractReader("hello"), -1)},
	"POST of nothing":              {answer: contractOK, ask: contractMethod("POST")},
	"POST of NoBody":               {answer: contractOK, ask: func(_ *contractPlay, r *http.Request) { r.Method, r.Body = "POST", http.NoBody }},
	"POST of NoBody with GetBody":  {answer: contractOK, ask: contractBodyOf("POST", contractText(""), 0)},
	"POST through a pipe":          {answer: contractOK, ask: contractBodyOf("POST", contractPipe, 0)},
	"POST as Transfer-Encoding":    {answer: contractOK, ask: contractWith(contractBodyOf("POST", contractText("hello"), 0), func(r *http.Request) { r.TransferEncoding = []string{"chunked"} })},
	"POST as identity":             {answer: contractOK, ask: contractWith(contractBodyOf("POST", contractText("hello"), 0), func(r *http.Request) { r.TransferEncoding = []string{"identity"} })},
	"PUT of a known length":        {answer: contractOK, ask: contractBodyOf("PUT", contractReader("hello"), 5)},
	"PUT of a known length, much":  {answer: contractOK, ask: contractBodyOf("PUT", contractReader(strings.Repeat("hello ", 50_000)), 300_000)},
	"PATCH with trailers":          {answer: contractOK, ask: contractWith(contractBodyOf("PATCH", contractReader("hello"), -1), func(r *http.Request) { r.Trailer = http.Header{"X-Sum": {"5d41"}} })},
	"PUT that is too short":        {loose: true, answer: contractOK, ask: contractBodyOf("PUT", contractReader("hello"), 9)},
	"PUT that is too long":         {loose: true, ask: contractBodyOf("PUT", contractReader("hello"), 3)},
	"POST that fails": {loose: true, answer: contractOK, ask: contractBodyOf("POST", func() io.Reader {
		return io.MultiReader(strings.NewReader("he"), &contractBody{err: errContractUpload})
	}, 0)},
	"PUT expecting 100":            {interim: "HTTP/1.1 100 Continue\r\n\r\n", answer: contractOK, ask: contractWith(contractBodyOf("PUT", contractText("hello"), 0), contractExpect)},
	"PUT expecting 100, refused":   {unread: true, answer: "HTTP/1.1 417 Expectation Failed\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno", end: contractClose, ask: contractWith(contractBodyOf("PUT", contractReader("hello"), 5), contractExpect)},
	"PUT expecting 100, in vain":   {answer: contractOK, ask: contractWith(contractBodyOf("PUT", contractText("hello"), 0), contractExpect), base: func(b *http.Transport) { b.ExpectContinueTimeout = 20 * time.Millisecond }},
	"POST with an idempotency key": {answer: contractOK, ask: contractWith(contractBodyOf("POST", contractReader("hello"), 0), func(r *http.Request) { r.Header["Idempotency-Key"] = []string{"1"} })},
	"POST with X-Idempotency-Key":  {answer: contractOK, ask: contractWith(contractBodyOf("POST", contractReader("hello"), 0), func(r *http.Request) { r.Header["X-Idempotency-Key"] = nil })},
	"a method that is none":        {answer: contractOK, ask: contractMethod("BAD METHOD")},
	"a header name that is none":   {answer: contractOK, ask: contractHeader("X Y", "1")},
	"a header value that is none":  {answer: contractOK, ask: contractHeader("X-Y", "1\n2")},
	"a host that is none":          {answer: contractOK, ask: func(_ *contractPlay, r *http.Request) { r.Host = "a b\n" }},
	"a scheme that is none":        {answer: contractOK, ask: func(_ *contractPlay, r *http.Request) { r.URL.Scheme = "gopher" }},
	"a scheme in upper case":       {answer: contractOK, ask: func(_ *contractPlay, r *http.Request) { r.URL.Scheme = "HTTP" }},
	"no scheme":                    {answer: contractOK, ask: func(_ *contractPlay, r *http.Request) { r.URL.Scheme = "" }},
	"no host":                      {answer: contractOK, ask: func(_ *contractPlay, r *http.Request) { r.URL.Host = "" }},
	"no URL":                       {answer: contractOK, ask: func(_ *contractPlay, r *http.Request) { r.URL = nil }},
	"https where http is spoken":   {loose: true, answer: contractOK, ask: func(_ *contractPlay, r *http.Request) { r.URL.Scheme = "https" }},
	"GET that nobody listens to":   {ask: func(_ *contractPlay, r *http.Request) { r.URL.Host = "refused.test" }},
	"POST that nobody listens to":  {ask: contractWith(contractBodyOf("POST", contractReader("hello"), 0), func(r *http.Request) { r.URL.Host = "refused.test" })},
	"a name that is not known":     {ask: func(_ *contractPlay, r *http.Request) { r.URL.Host = "unknown.test" }},
	"a caller who has gone":        {answer: contractOK, ask: func(p *contractPlay, _ *http.Request) { p.cancel() }},
	"a caller who has gone, POST":  {answer: contractOK, ask: contractWith2(contractBodyOf("POST", contractReader("hello"), 0), func(p *contractPlay) { p.cancel() })},
	"Cancel closed before":         {answer: contractOK, ask: func(p *contractPlay, r *http.Request) { r.Cancel = p.legacy; close(p.legacy) }},
	"a caller who goes":            {end: contractEcho, ask: func(p *contractPlay, _ *http.Request) { p.got = p.cancel }},
	"Cancel closed without an answer": {end: contractEcho, ask: func(p *contractPlay, r *http.Request) {
		r.Cancel = p.legacy
		p.got = func() { close(p.legacy) }
	}},
	"a deadline": {loose: true, end: contractEcho, ask: func(p *contractPlay, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), 30*time.Millisecond)
		context.AfterFunc(ctx, cancel)
		*r = *r.WithContext(ctx)
	}},

	// Responses.
	"chunked":                       {answer: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"},
	"chunked, empty":                {answer: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
	"chunked with extensions":       {answer: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;a=b\r\nok\r\n0\r\n\r\n"},
	"trailers":                      {answer: "HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 1\r\n\r\n"},
	"trailers that did not come":    {answer: "HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"},
	"trailers, unannounced":         {answer: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 1\r\nX-More: 2\r\n\r\n"},
	"until the connection closes":   {answer: "HTTP/1.1 200 OK\r\n\r\nok", end: contractClose},
	"an empty body":                 {answer: "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"},
	"Connection close":              {answer: "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", end: contractClose},
	"a large body":                  {answer: "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + strings.Repeat("0123456789", 100_000)},
	"204":                           {answer: "HTTP/1.1 204 No Content\r\n\r\n"},
	"205":                           {answer: "HTTP/1.1 205 Reset Content\r\nContent-Length: 0\r\n\r\n"},
	"301":                           {answer: "HTTP/1.1 301 Moved Permanently\r\nLocation: /b\r\nContent-Length: 2\r\n\r\nok"},
	"302 without a Location":        {answer: "HTTP/1.1 302 Found\r\nContent-Length: 2\r\n\r\nok"},
	"404":                           {answer: "HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nok"},
	"429":                           {answer: "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 3600\r\nContent-Length: 2\r\n\r\nok"},
	"500":                           {answer: "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 2\r\n\r\nok"},
	"503":                           {answer: "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 2\r\n\r\nok"},
	"999":                           {answer: "HTTP/1.1 999\r\nContent-Length: 2\r\n\r\nok"},
	"a reason of its own":           {answer: "HTTP/1.1 200 Fine, thanks\r\nContent-Length: 2\r\n\r\nok"},
	"103 twice":                     {answer: "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </b>\r\n\r\n" + contractOK},
	"100 unasked":                   {answer: "HTTP/1.1 100 Continue\r\n\r\n" + contractOK},
	"102":                           {answer: "HTTP/1.1 102 Processing\r\n\r\n" + contractOK},
	"HTTP/1.0":                      {answer: "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", end: contractClose},
	"HTTP/1.0 kept alive":           {answer: "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok"},
	"HTTP/1.0 until it closes":      {answer: "HTTP/1.0 200 OK\r\n\r\nok", end: contractClose},
	"cookies":                       {answer: "HTTP/1.1 200 OK\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2; Secure\r\nContent-Length: 2\r\n\r\nok"},
	"odd headers":                   {answer: "HTTP/1.1 200 OK\r\nx-lower: 1\r\nX-Empty:\r\nX-Space:   2  \r\nX-Folded: a\r\n b\r\nContent-Length: 2\r\n\r\nok"},
	"both lengths":                  {answer: "HTTP/1.1 200 OK\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"},
	"two lengths that agree":        {answer: "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok"},
	"two lengths that do not":       {answer: "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok", end: contractClose},
	"a length that is none":         {answer: "HTTP/1.1 200 OK\r\nContent-Length: two\r\n\r\nok", end: contractClose},
	"an encoding that is not known": {answer: "HTTP/1.1 200 OK\r\nTransfer-Encoding: zip\r\n\r\nok", end: contractClose},
	"a chunk that is none":          {answer: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\nzz\r\n", end: contractClose},
	"a status line that is none":    {answer: "HELLO\r\n\r\n", end: contractClose},
	"a header that is none":         {answer: "HTTP/1.1 200 OK\r\nno colon\r\n\r\n", end: contractClose},
	"headers that are too long":     {answer: "HTTP/1.1 200 OK\r\nX-Long: " + strings.Repeat("x", 9000) + "\r\n\r\n", end: contractClose, base: func(b *http.Transport) { b.MaxResponseHeaderBytes = 1000 }},
	"nothing":                       {answer: "", end: contractClose},
	"half a header":                 {answer: "HTTP/1.1 200 OK\r\nX-", end: contractClose},
	"a reset":                       {answer: "", end: contractReset},
	"half a body":                   {answer: "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok", end: contractClose},
	"half a chunked body":           {answer: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nok", end: contractClose},
	"chunks without an end":         {answer: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n", end: contractClose},
	"more than was asked for":       {loose: true, answer: contractOK + "HTTP/1.1 200 OK\r\n"},
	"gzip unasked":                  {answer: contractZipped(contractZip("hello"))},
	"gzip of much":                  {answer: contractZipped(contractZip(strings.Repeat("hello ", 100_000)))},
	"gzip asked for":                {answer: contractZipped(contractZip("hello")), ask: contractHeader("Accept-Encoding", "gzip")},
	"gzip with compression off":     {answer: contractZipped(contractZip("hello")), base: func(b *http.Transport) { b.DisableCompression = true }},
	"gzip that is none":             {answer: contractZipped("hello")},
	"gzip that is cut":              {answer: contractZipped(contractZip("hello")[:20])},
	"a body that is read in part":   {answer: "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + strings.Repeat("x", 1000), read: contractReadSome(10)},
	"a body that is not read":       {answer: "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + strings.Repeat("x", 1000), read: contractReadSome(0)},
	"a body whose caller goes": {answer: "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nok", end: contractEcho,
		read: contractReadAfter(2, func(p *contractPlay) { p.cancel() })},
	"a body whose Cancel is closed": {answer: "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nok", end: contractEcho,
		ask:  func(p *contractPlay, r *http.Request) { r.Cancel = p.legacy },
		read: contractReadAfter(2, func(p *contractPlay) { close(p.legacy) })},
	"a body with a deadline": {answer: "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nok", end: contractEcho,
		ask: func(p *contractPlay, r *http.Request) {
			ctx, cancel := context.WithTimeout(r.Context(), 150*time.Millisecond)
			context.AfterFunc(ctx, cancel)
			*r = *r.WithContext(ctx)
		}},
	"101": {answer: "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n", end: contractEcho,
		ask: contractHeader("Connection", "Upgrade", "Upgrade", "echo"),
		read: func(_ *contractPlay, resp *http.Response) ([]byte, error) {
			rw, ok := resp.Body.(io.ReadWriteCloser)
			if !ok {
				return nil, errors.New("cannot be written to")
			}
			if _, err := io.WriteString(rw, "ping"); err != nil {
				return nil, err
			}
			b := make([]byte, 4)
			_, err := io.ReadFull(rw, b)
			_ = rw.Close()
			return b, err
		}},
	"101 with data at once": {answer: "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nwelcome", end: contractClose,
		ask: contractHeader("Connection", "Upgrade", "Upgrade", "echo")},
}

func contractWith(ask func(*contractPlay, *http.Request), change func(*http.Request)) func(*contractPlay, *http.Request) {
	return func(p *contractPlay, r *http.Request) { ask(p, r); change(r) }
}

func contractWith2(ask func(*contractPlay, *http.Request), then func(*contractPlay)) func(*contractPlay, *http.Request) {
	return func(p *contractPlay, r *http.Request) { ask(p, r); then(p) }
}

func contractExpect(r *http.Request) { r.Header["Expect"] = []string{"100-continue"} }

func contractPipe() io.Reader {
	r, w := io.Pipe()
	go func() {
		for range 3 {
			_, _ = io.WriteString(w, "hello")
		}
		_ = w.Close()
	}()
	return r
}

// TestContractExchanges plays every exchange without and with the stack, without
// and with retries where they make no difference.
func TestContractExchanges(t *testing.T) {
	off := policy.Default()
	off.Retry = policy.Retry{}
	none := policy.Policy{Timeout: policy.Timeout{Total: time.Hour}}
	stale := policy.Service()
	stale.Fallback.MaxStale = time.Hour
	for _, name := range slices.Sorted(maps.Keys(contractExchanges)) {
		x := contractExchanges[name]
		t.Run(name, func(t *testing.T) {
			plain := x.play(t, nil)
			policies := map[string]policy.Policy{"next to no limit": none, "Default without retries": off}
			if plain.Err == "" && (plain.Status < "4" || plain.Status == "404 Not Found") {
				policies["Default"] = policy.Default()
				policies["Service, with copies of answers"] = stale
			}
			for which, p := range policies {
				got := x.play(t, &p)
				if x.loose {
					got, plain = got.loosely(), plain.loosely()
				}
				if !reflect.DeepEqual(got, plain) {
					t.Errorf("%s:\ngot  %.1000q\nwant %.1000q", which, fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", plain))
				}
			}
		})
	}
}

// play does the exchange through the stack, or without a policy through net/http
// alone.
func (x contractExchange) play(t *testing.T, p *policy.Policy) contractTale {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	play := &contractPlay{cancel: cancel, legacy: make(chan struct{}), got: func() {}}
	var served sync.WaitGroup
	var seen strings.Builder
	served.Go(func() {
		for { // one connection at a time
			c, err := l.Accept()
			if err != nil {
				return
			}
			x.serve(c.(*net.TCPConn), &seen, play)
		}
	})

	base := &http.Transport{
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			switch addr {
			case "refused.test:80":
				return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
			case "unknown.test:80":
				return nil, &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "unknown.test", IsNotFound: true}}
			}
			return (&net.Dialer{}).DialContext(ctx, "tcp", l.Addr().String())
		},
		ExpectContinueTimeout: 10 * time.Second,
	}
	if x.base != nil {
		x.base(base)
	}
	var rt http.RoundTripper = base
	var tr *transport.Transport
	if p != nil {
		tr = transport.Must(transport.New(transport.Config{Default: *p, Base: base, Logger: quiet(), MaxConcurrent: 256}))
		rt = tr
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://origin.test/path", nil)
	if err != nil {
		t.Fatal(err)
	}
	if x.ask != nil {
		x.ask(play, req)
	}
	var tale contractTale
	resp, err := rt.RoundTrip(req)
	if (resp == nil) == (err == nil) {
		t.Errorf("RoundTrip returned %v and %v", resp, err)
	}
	tale.Err = contractClass(err)
	if err == nil {
		if resp.Request != req {
			t.Error("Response.Request is not the caller's")
		}
		tale.Status, tale.Proto, tale.Header = resp.Status, resp.Proto, resp.Header.Clone()
		tale.Length, tale.Encoding, tale.Close, tale.Unpacked = resp.ContentLength, resp.TransferEncoding, resp.Close, resp.Uncompressed
		read := x.read
		if read == nil {
			read = func(_ *contractPlay, resp *http.Response) ([]byte, error) { return io.ReadAll(resp.Body) }
		}
		b, err := read(play, resp)
		tale.Body, tale.BodyErr, tale.Trailer = string(b), contractClass(err), resp.Trailer
		_ = resp.Body.Close()
	}
	if tr != nil {
		transporttest.CheckPermits(t, tr)
		_ = tr.Close()
	}
	base.CloseIdleConnections()
	_ = l.Close()
	served.Wait()
	tale.Requested = seen.String()
	return tale
}

// serve plays the origin on one connection, and keeps what it reads.
func (x contractExchange) serve(c *net.TCPConn, seen *strings.Builder, play *contractPlay) {
	defer c.Close()
	var raw bytes.Buffer
	br := bufio.NewReader(io.TeeReader(c, &raw))
	req, err := http.ReadRequest(br)
	if err != nil {
		return
	}
	head, _, _ := strings.Cut(raw.String(), "\r\n\r\n")
	seen.WriteString(head + "\r\n\r\n")
	_, _ = io.WriteString(c, x.interim)
	if !x.unread { // but where it is cut into chunks is nobody's business
		_, err := io.Copy(seen, req.Body)
		fmt.Fprintf(seen, "%v", req.Trailer)
		if err != nil {
			return
		}
	}
	play.got()
	_, _ = io.WriteString(c, x.answer)
	switch x.end {
	case contractEcho:
		_, _ = io.Copy(c, br)
	case contractReset:
		_ = c.SetLinger(0)
	case contractKeep:
		_, _ = io.Copy(io.Discard, br)
	}
}

var contractAddr = regexp.MustCompile(`\d+\.\d+\.\d+\.\d+:\d+|\[::1\]:\d+`)

// contractClass is what a caller can tell of an error.
func contractClass(err error) string {
	if err == nil {
		return ""
	}
	if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		return "reset"
	}
	text := err.Error()
	if quoting := textproto.ProtocolError(""); errors.As(err, &quoting) { // which the stack does not repeat
		text = "malformed header from the peer"
	}
	var timeout interface{ Timeout() bool }
	return fmt.Sprintf("%s (EOF %v, unexpected EOF %v, canceled %v, deadline %v, timeout %v, refused %v)",
		strings.TrimSuffix(contractAddr.ReplaceAllString(text, "addr"), " while waiting for connection"), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded),
		errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, syscall.ECONNREFUSED))
}

// contractExchange2 is one scripted exchange over HTTP/2.
type contractExchange2 struct {
	ask   func(*contractPlay, *http.Request)
	step  transporttest.Step
	read  func(*contractPlay, *http.Response) ([]byte, error)
	loose bool
}

var contractExchanges2 = map[string]contractExchange2{
	"GET":                    {step: transporttest.Step{Body: "ok"}},
	"GET with headers":       {step: transporttest.Step{Body: "ok"}, ask: contractHeader("X-B", "1", "X-A", "2", "X-B", "3", "Cookie", "a=b; c=d")},
	"HEAD":                   {step: transporttest.Step{Size: 1000}, ask: contractMethod("HEAD")},
	"POST":                   {step: transporttest.Step{Body: "ok"}, ask: contractBodyOf("POST", contractText("hello"), 0)},
	"POST of much":           {step: transporttest.Step{Body: "ok"}, ask: contractBodyOf("POST", contractText(strings.Repeat("hello ", 50_000)), 0)},
	"POST of unknown length": {step: transporttest.Step{Body: "ok"}, ask: contractBodyOf("POST", contractReader("hello"), 0)},
	"POST of NoBody":         {step: transporttest.Step{Body: "ok"}, ask: func(_ *contractPlay, r *http.Request) { r.Method, r.Body = "POST", http.NoBody }},
	"POST of nothing":        {step: transporttest.Step{Body: "ok"}, ask: contractMethod("POST")},
	"POST through a pipe":    {step: transporttest.Step{Body: "ok"}, ask: contractBodyOf("POST", contractPipe, 0)},
	"PUT of a known length":  {step: transporttest.Step{Body: "ok"}, ask: contractBodyOf("PUT", contractReader(strings.Repeat("hello ", 50_000)), 300_000)},
	"PUT that is too long":   {loose: true, step: transporttest.Step{Body: "ok"}, ask: contractBodyOf("PUT", contractReader("hello"), 3)},
	"POST that fails": {loose: true, step: transporttest.Step{Body: "ok"}, ask: contractBodyOf("POST", func() io.Reader {
		return io.MultiReader(strings.NewReader("he"), &contractBody{err: errContractUpload})
	}, 0)},
	"PATCH with trailers":         {step: transporttest.Step{Body: "ok"}, ask: contractWith(contractBodyOf("PATCH", contractReader("hello"), -1), func(r *http.Request) { r.Trailer = http.Header{"X-Sum": {"5d41"}} })},
	"DELETE":                      {step: transporttest.Step{Body: "ok"}, ask: contractMethod("DELETE")},
	"an empty body":               {},
	"unknown length":              {step: transporttest.Step{Body: "ok", Framing: transporttest.Chunked}},
	"a large body":                {step: transporttest.Step{Size: 1 << 20}},
	"trailers":                    {step: transporttest.Step{Body: "ok", Trailer: http.Header{"X-Sum": {"1"}}}},
	"trailers, unannounced":       {step: transporttest.Step{Body: "ok", Framing: transporttest.Chunked, Trailer: http.Header{"X-Sum": {"1"}}, Unannounced: true}},
	"204":                         {step: transporttest.Step{Status: 204}},
	"304":                         {step: transporttest.Step{Status: 304}},
	"301":                         {step: transporttest.Step{Status: 301, Header: http.Header{"Location": {"/b"}}, Body: "ok"}},
	"404":                         {step: transporttest.Step{Status: 404, Body: "ok"}},
	"503":                         {step: transporttest.Step{Status: 503, Body: "ok"}},
	"103 twice":                   {step: transporttest.Step{Interim: []transporttest.Step{{Status: 103, Header: http.Header{"Link": {"</a>"}}}, {Status: 103}}, Body: "ok"}},
	"gzip unasked":                {step: transporttest.Step{Header: http.Header{"Content-Encoding": {"gzip"}}, Body: contractZip("hello")}},
	"gzip asked for":              {step: transporttest.Step{Header: http.Header{"Content-Encoding": {"gzip"}}, Body: contractZip("hello")}, ask: contractHeader("Accept-Encoding", "gzip")},
	"a stream reset":              {step: transporttest.Step{Fault: transporttest.Reset}},
	"a stream reset in the body":  {step: transporttest.Step{Size: 1000, Fault: transporttest.Reset, At: 10}},
	"a body that is not read":     {step: transporttest.Step{Size: 1000}, read: contractReadSome(0)},
	"a body that is read in part": {step: transporttest.Step{Size: 1 << 20}, read: contractReadSome(10)},
	"a caller who has gone":       {ask: func(p *contractPlay, _ *http.Request) { p.cancel() }},
	"a deadline": {loose: true, step: transporttest.Step{Fault: transporttest.Hang}, ask: func(p *contractPlay, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), 30*time.Millisecond)
		context.AfterFunc(ctx, cancel)
		*r = *r.WithContext(ctx)
	}},
	"a body whose caller goes": {step: transporttest.Step{Size: 1000, Fault: transporttest.Hang, At: 2},
		read: contractReadAfter(2, func(p *contractPlay) { p.cancel() })},
	"a body whose Cancel is closed": {step: transporttest.Step{Size: 1000, Fault: transporttest.Hang, At: 2},
		ask:  func(p *contractPlay, r *http.Request) { r.Cancel = p.legacy },
		read: contractReadAfter(2, func(p *contractPlay) { close(p.legacy) })},
}

// TestContractExchangesOverHTTP2 is TestContractExchanges for HTTP/2.
func TestContractExchangesOverHTTP2(t *testing.T) {
	off := policy.Default()
	off.Retry = policy.Retry{}
	none := policy.Policy{Timeout: policy.Timeout{Total: time.Hour}}
	o := transporttest.NewOrigin(t, transporttest.TLS("h2"))
	for _, name := range slices.Sorted(maps.Keys(contractExchanges2)) {
		x := contractExchanges2[name]
		t.Run(name, func(t *testing.T) {
			plain := x.play(t, o, nil)
			policies := map[string]policy.Policy{"next to no limit": none, "Default without retries": off}
			if plain.Err == "" && (plain.Status < "4" || plain.Status == "404 Not Found") {
				policies["Default"] = policy.Default()
			}
			for which, p := range policies {
				got := x.play(t, o, &p)
				if x.loose {
					got, plain = got.loosely(), plain.loosely()
				}
				if !reflect.DeepEqual(got, plain) {
					t.Errorf("%s:\ngot  %.1000q\nwant %.1000q", which, fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", plain))
				}
			}
		})
	}
}

func (x contractExchange2) play(t *testing.T, o *transporttest.Origin, p *policy.Policy) contractTale {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	play := &contractPlay{cancel: cancel, legacy: make(chan struct{})}
	before := len(o.Hits())
	o.Script(x.step)
	base := o.Base()
	var rt http.RoundTripper = base
	var tr *transport.Transport
	if p != nil {
		tr = transport.Must(transport.New(transport.Config{Default: *p, Base: base, Logger: quiet()}))
		rt = tr
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, o.URL+"/path?q=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	if x.ask != nil {
		x.ask(play, req)
	}
	var tale contractTale
	resp, err := rt.RoundTrip(req)
	tale.Err = contractStream.ReplaceAllString(contractClass(err), "stream ID n")
	if err == nil {
		tale.Status, tale.Proto, tale.Header = resp.Status, resp.Proto, resp.Header.Clone()
		tale.Header.Del("Date")
		tale.Length, tale.Unpacked = resp.ContentLength, resp.Uncompressed
		read := x.read
		if read == nil {
			read = func(_ *contractPlay, resp *http.Response) ([]byte, error) { return io.ReadAll(resp.Body) }
		}
		b, err := read(play, resp)
		tale.Body, tale.BodyErr, tale.Trailer = string(b), contractStream.ReplaceAllString(contractClass(err), "stream ID n"), resp.Trailer
		_ = resp.Body.Close()
	}
	if tr != nil {
		transporttest.CheckPermits(t, tr)
		_ = tr.Close()
	}
	stackWait(t, "the connection to close", func() bool {
		base.CloseIdleConnections() // which a stream that is just ending forestalls
		if tr != nil {
			tr.CloseIdleConnections()
		}
		_, open := o.Connections()
		return open == 0
	})
	for _, h := range o.Hits()[before:] {
		tale.Requested += fmt.Sprintf("%s %s %s %s %v %d %q\n", h.Proto, h.Method, h.Host, h.Path, h.Header, h.BodySize, h.Body)
	}
	return tale
}

var contractStream = regexp.MustCompile(`stream ID \d+`)
