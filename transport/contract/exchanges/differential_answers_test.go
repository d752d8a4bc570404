package exchanges_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// answerWith is an answer with a body of two bytes.
func answerWith(status string, lines ...string) exchange {
	return exchange{answer: "HTTP/1.1 " + status + "\r\n" + strings.Join(append(lines, "Content-Length: 2\r\n\r\nok"), "\r\n")}
}

// posted is an exchange whose request is a POST, which is not tried again.
func posted(x exchange) exchange {
	x.ask = askBody("POST", known("hello"), 0)
	return x
}

// zipped is an answer whose body is said to be zipped.
func zipped(body string) string {
	return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

func zip(s string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = io.WriteString(w, s)
	_ = w.Close()
	return b.String()
}

func uncompressed(_ *play, b *http.Transport) { b.DisableCompression = true }

// answerExchanges are about the status, header and framing of answers.
var answerExchanges = map[string]exchange{
	"201":                 answerWith("201 Created", "Location: /b"),
	"202":                 answerWith("202 Accepted"),
	"203":                 answerWith("203 Non-Authoritative Information"),
	"204":                 {answer: "HTTP/1.1 204 No Content\r\n\r\n"},
	"204 with a length":   {answer: "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n"},
	"205":                 {answer: "HTTP/1.1 205 Reset Content\r\nContent-Length: 0\r\n\r\n"},
	"206 unasked":         answerWith("206 Partial Content", "Content-Range: bytes 0-1/9"),
	"299":                 answerWith("299 Odd"),
	"300":                 answerWith("300 Multiple Choices"),
	"301":                 answerWith("301 Moved Permanently", "Location: /b"),
	"302 without target":  answerWith("302 Found"),
	"302 without a body":  {answer: "HTTP/1.1 302 Found\r\nLocation: /b\r\nContent-Length: 0\r\n\r\n"},
	"303":                 answerWith("303 See Other", "Location: /b"),
	"304 unasked":         {answer: "HTTP/1.1 304 Not Modified\r\nContent-Length: 1000\r\n\r\n"},
	"307":                 answerWith("307 Temporary Redirect", "Location: /b"),
	"308":                 answerWith("308 Permanent Redirect", "Location: /b"),
	"400":                 answerWith("400 Bad Request"),
	"401":                 answerWith("401 Unauthorized", "WWW-Authenticate: Basic realm=x"),
	"402":                 answerWith("402 Payment Required"),
	"403":                 answerWith("403 Forbidden"),
	"404":                 answerWith("404 Not Found"),
	"405":                 answerWith("405 Method Not Allowed", "Allow: PUT"),
	"407":                 answerWith("407 Proxy Authentication Required"),
	"408":                 answerWith("408 Request Timeout"),
	"408, POST":           posted(answerWith("408 Request Timeout")),
	"409":                 answerWith("409 Conflict"),
	"410":                 answerWith("410 Gone"),
	"412":                 answerWith("412 Precondition Failed"),
	"413":                 answerWith("413 Content Too Large"),
	"416":                 answerWith("416 Range Not Satisfiable", "Content-Range: bytes */9"),
	"417":                 answerWith("417 Expectation Failed"),
	"418":                 answerWith("418 I'm a teapot"),
	"421":                 answerWith("421 Misdirected Request"),
	"425":                 answerWith("425 Too Early"),
	"429":                 answerWith("429 Too Many Requests", "Retry-After: 3600"),
	"429, POST":           posted(answerWith("429 Too Many Requests", "Retry-After: 1")),
	"451":                 answerWith("451 Unavailable For Legal Reasons"),
	"499":                 answerWith("499 Odd"),
	"500":                 answerWith("500 Internal Server Error"),
	"500, POST":           posted(answerWith("500 Internal Server Error")),
	"501":                 answerWith("501 Not Implemented"),
	"502, POST":           posted(answerWith("502 Bad Gateway")),
	"503":                 answerWith("503 Service Unavailable", "Retry-After: 1"),
	"503, POST":           posted(answerWith("503 Service Unavailable", "Retry-After: 1")),
	"504, POST":           posted(answerWith("504 Gateway Timeout")),
	"505":                 answerWith("505 HTTP Version Not Supported"),
	"511":                 answerWith("511 Network Authentication Required"),
	"599":                 answerWith("599 Odd"),
	"600":                 answerWith("600 Odd"),
	"999":                 answerWith("999"),
	"099":                 answerWith("099 Odd"),
	"a reason of its own": answerWith("200 Fine, thanks"),
	"no reason":           answerWith("200"),

	"100 unasked":         {answer: "HTTP/1.1 100 Continue\r\n\r\n" + answerOK},
	"102":                 {answer: "HTTP/1.1 102 Processing\r\n\r\n" + answerOK},
	"103 twice":           {answer: "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </b>\r\n\r\n" + answerOK},
	"199":                 {answer: "HTTP/1.1 199 Odd\r\nX: 1\r\n\r\n" + answerOK},
	"103 of a 404":        {answer: "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno"},
	"103 over and over":   {answer: strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", 20) + answerOK},
	"103 while it sends":  {interim: "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", racy: true, ask: askBody("POST", known(helloes), 0)},
	"too much of 103":     {loose: true, answer: strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: "+strings.Repeat("x", 1000)+"\r\n\r\n", 20) + answerOK, base: func(_ *play, b *http.Transport) { b.MaxResponseHeaderBytes = 4000 }},
	"101 that none asked": {answer: "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n", end: endCut},

	"HTTP/1.0":                 {answer: "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", end: endCut},
	"HTTP/1.0 kept alive":      {answer: "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok"},
	"HTTP/1.0 until it closes": {answer: "HTTP/1.0 200 OK\r\n\r\nok", end: endCut},
	"HTTP/1.2":                 {answer: "HTTP/1.2 200 OK\r\nContent-Length: 2\r\n\r\nok"},
	"HTTP/2.0 as it is not":    {answer: "HTTP/2.0 200 OK\r\nContent-Length: 2\r\n\r\nok", end: endCut},

	"cookies":          answerWith("200 OK", "Set-Cookie: a=1", "Set-Cookie: b=2; Secure", "Set-Cookie: ="),
	"odd headers":      answerWith("200 OK", "x-lower: 1", "X-Empty:", "X-Space:   2  ", "X-Folded: a\r\n b"),
	"many headers":     answerWith("200 OK", strings.TrimSuffix(strings.Repeat("X-Many: 1\r\n", 500), "\r\n")),
	"long headers":     answerWith("200 OK", "X-Long: "+strings.Repeat("x", 100_000)),
	"headers to store": answerWith("200 OK", "Cache-Control: max-age=60, stale-if-error=60", "Etag: \"1\"", "Age: 10", "Vary: Accept"),
	"headers of ours":  answerWith("200 OK", "Cache-Status: theirs; hit", "Age: 7", "Warning: 110 - stale"),
	"hop-by-hop ones":  answerWith("200 OK", "Keep-Alive: timeout=1, max=1", "Proxy-Authenticate: x", "Connection: X-Hop", "X-Hop: 1"),
	"a stream by type": answerWith("200 OK", "Content-Type: text/event-stream"),
	"Pragma: no-cache": answerWith("200 OK", "Pragma: no-cache"),
	"an early hint":    answerWith("200 OK", "Alt-Svc: h3=\":443\"", "Strict-Transport-Security: max-age=1"),

	"chunked":                       {answer: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"},
	"chunked, empty":                {answer: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
	"chunked with extensions":       {answer: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;a=b\r\nok\r\n0\r\n\r\n"},
	"chunked byte by byte":          {answer: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + strings.Repeat("1\r\nx\r\n", 1000) + "0\r\n\r\n"},
	"chunked 404":                   {answer: "HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n"},
	"trailers":                      {answer: "HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 1\r\n\r\n"},
	"trailers that did not come":    {answer: "HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"},
	"trailers, unannounced":         {answer: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 1\r\nX-More: 2\r\n\r\n"},
	"trailers, announced or not":    {answer: "HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 1\r\nX-Sum: 3\r\nX-More: 2\r\n\r\n"},
	"trailers of an empty body":     {answer: "HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-Sum: 1\r\n\r\n"},
	"trailers announced, fixed":     {answer: "HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nContent-Length: 2\r\n\r\nok"},
	"trailers of a HEAD":            {ask: askMethod("HEAD"), answer: "HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n"},
	"until the connection closes":   {answer: "HTTP/1.1 200 OK\r\n\r\nok", end: endCut},
	"until it closes, empty":        {answer: "HTTP/1.1 200 OK\r\n\r\n", end: endCut},
	"an empty body":                 {answer: "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"},
	"Connection close":              {answer: "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", end: endCut},
	"a large body":                  {answer: "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + strings.Repeat("0123456789", 100_000)},
	"both lengths":                  {answer: "HTTP/1.1 200 OK\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"},
	"two lengths that agree":        {answer: "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok"},
	"gzip unasked":                  {answer: zipped(zip("hello"))},
	"gzip of much":                  {answer: zipped(zip(strings.Repeat("hello ", 100_000)))},
	"gzip, chunked with trailers":   {answer: fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\nX-Sum: 1\r\n\r\n", len(zip("hello")), zip("hello"))},
	"gzip asked for":                {answer: zipped(zip("hello")), ask: askHeader("Accept-Encoding", "gzip")},
	"gzip among others asked for":   {answer: zipped(zip("hello")), ask: askHeader("Accept-Encoding", "br, gzip;q=0.5")},
	"identity asked for":            {ask: askHeader("Accept-Encoding", "identity")},
	"gzip with a Range":             {answer: zipped(zip("hello")), ask: askHeader("Range", "bytes=0-9")},
	"gzip with compression off":     {answer: zipped(zip("hello")), base: uncompressed},
	"gzip of a 404":                 {answer: strings.Replace(zipped(zip("hello")), "200 OK", "404 Not Found", 1)},
	"gzip that is none":             {answer: zipped("hello")},
	"gzip that is cut":              {answer: zipped(zip("hello")[:20])},
	"gzip of nothing":               {answer: zipped("")},
	"gzip twice in a row":           {answer: zipped(zip("hello") + zip("hello"))},
	"deflate unasked":               answerWith("200 OK", "Content-Encoding: deflate"),
	"gzip in upper case":            {answer: strings.Replace(zipped(zip("hello")), "gzip", "GZIP", 1)},
	"gzip and more":                 {answer: strings.Replace(zipped(zip("hello")), "gzip", "gzip, br", 1)},
	"101 with data at once":         {answer: upgraded + "welcome", end: endCut, ask: askUpgrade},
	"101, both ways":                {answer: upgraded, end: endEcho, ask: askUpgrade, read: readPing},
	"101 that is closed at once":    {answer: upgraded, end: endEcho, ask: askUpgrade, read: readSome(0)},
	"101 with a POST":               {answer: upgraded, end: endEcho, ask: asks(askBody("POST", known("hello"), 0), askUpgrade), read: readPing},
	"101 over TLS":                  {origin: originEncrypted, answer: upgraded, end: endEcho, ask: askUpgrade, read: readPing},
	"101 whose peer goes":           {answer: upgraded, end: endCut, ask: askUpgrade},
	"an upgrade that is refused":    {answer: "HTTP/1.1 426 Upgrade Required\r\nUpgrade: other\r\nContent-Length: 2\r\n\r\nno", ask: askUpgrade},
	"an upgrade that is overlooked": {ask: askUpgrade},
}

const upgraded = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"

func askUpgrade(p *play, r *http.Request) {
	askHeader("Connection", "Upgrade", "Upgrade", "echo")(p, r)
}

// readPing writes to an upgraded connection, and reads what comes back.
func readPing(_ *play, resp *http.Response) ([]byte, error) {
	rw, ok := resp.Body.(io.ReadWriteCloser)
	if !ok {
		return nil, errors.New("cannot be written to")
	}
	b := make([]byte, 4)
	for range 2 {
		if _, err := io.WriteString(rw, "ping"); err != nil {
			return nil, err
		}
		if _, err := io.ReadFull(rw, b); err != nil {
			return b, err
		}
	}
	return b, nil
}

// brokenExchanges are about answers that are none.
var brokenExchanges = map[string]exchange{
	"two lengths that do not agree": {answer: "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok", end: endCut},
	"a length that is none":         {answer: "HTTP/1.1 200 OK\r\nContent-Length: two\r\n\r\nok", end: endCut},
	"a negative length":             {answer: "HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\nok", end: endCut},
	"an encoding that is not known": {answer: "HTTP/1.1 200 OK\r\nTransfer-Encoding: zip\r\n\r\nok", end: endCut},
	"a chunk that is none":          {answer: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\nzz\r\n", end: endCut},
	"a chunk that is too long":      {answer: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nokay\r\n0\r\n\r\n", end: endCut},
	"a trailer that is none":        {answer: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nno colon\r\n\r\n", end: endCut},
	"a trailer that is cut":         {answer: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Su", end: endCut},
	"a status line that is none":    {answer: "HELLO\r\n\r\n", end: endCut},
	"a status that is none":         {answer: "HTTP/1.1 OK 200\r\n\r\n", end: endCut},
	"a status of two digits":        {answer: "HTTP/1.1 20 OK\r\n\r\n", end: endCut},
	"a protocol that is none":       {answer: "HTTP/x 200 OK\r\n\r\n", end: endCut},
	"a header that is none":         {answer: "HTTP/1.1 200 OK\r\nno colon\r\n\r\n", end: endCut},
	"a header name that is none":    {answer: "HTTP/1.1 200 OK\r\nX Y: 1\r\nContent-Length: 2\r\n\r\nok", end: endCut},
	"a NUL in a header":             {answer: "HTTP/1.1 200 OK\r\nX: \x00\r\nContent-Length: 2\r\n\r\nok", end: endCut},
	"headers that are too long":     {answer: "HTTP/1.1 200 OK\r\nX-Long: " + strings.Repeat("x", 9000) + "\r\n\r\n", end: endCut, base: func(_ *play, b *http.Transport) { b.MaxResponseHeaderBytes = 1000 }},
	"another protocol":              {answer: "SSH-2.0-OpenSSH_9.6\r\n", end: endCut},
	"HTTP/2 where none was agreed":  {answer: "\x00\x00\x00\x04\x00\x00\x00\x00\x00", end: endCut},
	"nothing":                       {end: endCut},
	"half a header":                 {answer: "HTTP/1.1 200 OK\r\nX-", end: endCut},
	"half a 100":                    {answer: "HTTP/1.1 100 Conti", end: endCut},
	"nothing after 103":             {answer: "HTTP/1.1 103 Early Hints\r\n\r\n", end: endCut},
	"a reset":                       {end: endReset},
	"a reset after the answer":      {loose: true, answer: answerOK, end: endReset},
	"half a body":                   {answer: "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok", end: endCut},
	"half a chunked body":           {answer: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nok", end: endCut},
	"chunks without an end":         {answer: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n", end: endCut},
	"half a zipped body":            {answer: strings.Replace(zipped(zip(helloes)[:100]), "Content-Length: 100", "Content-Length: 900", 1), end: endCut},
	"nothing, POST":                 {ask: askBody("POST", unknown("hello"), 0), end: endCut},
	"half a body, POST":             {ask: askBody("POST", unknown("hello"), 0), answer: "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok", end: endCut},
	"more than was asked for":       {loose: true, answer: answerOK + "HTTP/1.1 200 OK\r\n"},
}
