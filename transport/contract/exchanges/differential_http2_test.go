package exchanges_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/watertight-go/watertight/transport/transporttest"
)

// over2 is an exchange with an HTTP/2 server that takes these steps.
func over2(ask ask, steps ...transporttest.Step) exchange {
	return exchange{origin: originHTTP2, ask: ask, steps: steps, racy: true}
}

func readingOver2(read func(*play, *http.Response) ([]byte, error), step transporttest.Step) exchange {
	x := over2(nil, step)
	x.read = read
	return x
}

var (
	stepOK    = transporttest.Step{Body: "ok"}
	zippedOne = transporttest.Step{Header: http.Header{"Content-Encoding": {"gzip"}}, Body: zip("hello")}
	hints     = transporttest.Step{Status: 103, Header: http.Header{"Link": {"</a>"}}}
)

// stepAsked answers with what of a request a Hit does not tell.
var stepAsked = transporttest.Step{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	_, err := io.Copy(io.Discard, r.Body)
	fmt.Fprintf(w, "%v %d %v %v", err, r.ContentLength, r.Trailer, r.TransferEncoding)
})}

// http2Exchanges are exchanges with net/http's own HTTP/2 server, over TLS.
var http2Exchanges = map[string]exchange{
	"GET":                    over2(nil, stepOK),
	"GET with headers":       over2(askHeader("X-B", "1", "X-A", "2", "X-B", "3", "Cookie", "a=b; c=d"), stepOK),
	"GET with long headers":  over2(askHeader("X-Long", strings.Repeat("x", 100_000)), stepOK),
	"GET with Close":         over2(askFor(func(r *http.Request) { r.Close = true }), stepOK),
	"GET with another Host":  over2(askFor(func(r *http.Request) { r.Host = "other.test" }), stepOK),
	"GET with hop-by-hop":    over2(askHeader("Connection", "keep-alive", "Te", "trailers", "Keep-Alive", "1"), stepOK),
	"GET that is malformed":  over2(askHeader("X Y", "1"), stepOK),
	"GET with an upgrade":    over2(askHeader("Connection", "Upgrade", "Upgrade", "echo"), stepOK),
	"HEAD":                   over2(askMethod("HEAD"), transporttest.Step{Size: 1000}),
	"OPTIONS":                over2(askMethod("OPTIONS"), stepOK),
	"DELETE":                 over2(askMethod("DELETE"), stepOK),
	"a method of one's own":  over2(askMethod("purge"), stepOK),
	"a method that is none":  over2(askMethod("BAD METHOD"), stepOK),
	"CONNECT":                over2(askMethod("CONNECT"), stepOK),
	"POST":                   over2(postKnown, stepAsked),
	"POST of much":           over2(askBody("POST", known(helloes), 0), stepOK),
	"POST of unknown length": over2(askBody("POST", unknown("hello"), 0), stepAsked),
	"POST of NoBody":         over2(uploadExchanges["POST of NoBody"].ask, stepAsked),
	"POST of nothing":        over2(askMethod("POST"), stepAsked),
	"POST through a pipe":    over2(askBody("POST", throughPipe, 0), stepAsked),
	"PUT of a known length":  over2(askBody("PUT", unknown(helloes), 300_000), stepAsked),
	"PATCH with trailers":    over2(uploadExchanges["PATCH with trailers"].ask, stepAsked),
	"PATCH with late ones":   over2(uploadExchanges["PATCH with trailers, set as it is read"].ask, stepAsked),
	"expecting 100":          over2(asks(askBody("PUT", known("hello"), 0), expectContinue), stepOK),
	"expecting 100, refused": looseOver2(asks(askBody("PUT", known("hello"), 0), expectContinue), transporttest.Step{Status: 417, Unread: true, Body: "no"}),
	"a body too long":        looseOver2(askBody("PUT", unknown("hello"), 3), transporttest.Step{Fault: transporttest.Hang}),
	"a body too short":       looseOver2(askBody("PUT", unknown("hello"), 9), stepOK),
	"a body that fails":      looseOver2(malformedExchanges["a body that fails"].ask, stepOK),
	"much, refused at once":  looseOver2(askBody("POST", known(helloes), 0), transporttest.Step{Status: 413, Unread: true, Body: "no"}),
	"an empty body":          over2(nil, transporttest.Step{}),
	"unknown length":         over2(nil, transporttest.Step{Body: "ok", Framing: transporttest.Chunked}),
	"in chunks":              over2(nil, transporttest.Step{Size: 1000, Framing: transporttest.Chunked, Chunk: 10}),
	"a large body":           over2(nil, transporttest.Step{Size: 1 << 20}),
	"trailers":               over2(nil, transporttest.Step{Body: "ok", Trailer: http.Header{"X-Sum": {"1"}}}),
	"trailers, unannounced":  over2(nil, transporttest.Step{Body: "ok", Framing: transporttest.Chunked, Trailer: http.Header{"X-Sum": {"1"}}, Unannounced: true}),
	"103 twice":              over2(nil, transporttest.Step{Interim: []transporttest.Step{hints, {Status: 103}}, Body: "ok"}),
	"204":                    over2(nil, transporttest.Step{Status: 204}),
	"205":                    over2(nil, transporttest.Step{Status: 205}),
	"206":                    over2(askHeader("Range", "bytes=0-1"), transporttest.Step{Status: 206, Header: http.Header{"Content-Range": {"bytes 0-1/9"}}, Body: "ok"}),
	"304":                    over2(askHeader("If-None-Match", `"1"`), transporttest.Step{Status: 304, Header: http.Header{"Etag": {`"1"`}}}),
	"301":                    over2(nil, transporttest.Step{Status: 301, Header: http.Header{"Location": {"/b"}}, Body: "ok"}),
	"404":                    over2(nil, transporttest.Step{Status: 404, Body: "ok"}),
	"418":                    over2(nil, transporttest.Step{Status: 418, Body: "ok"}),
	"500, POST":              over2(postKnown, transporttest.Step{Status: 500, Body: "ok"}),
	"503":                    over2(nil, transporttest.Step{Status: 503, Body: "ok"}),
	"599, POST":              over2(postKnown, transporttest.Step{Status: 599, Body: "ok"}),
	"cookies":                over2(nil, transporttest.Step{Header: http.Header{"Set-Cookie": {"a=1", "b=2"}}, Body: "ok"}),
	"gzip unasked":           over2(nil, zippedOne),
	"gzip asked for":         over2(askHeader("Accept-Encoding", "gzip"), zippedOne),
	"gzip with a Range":      over2(askHeader("Range", "bytes=0-9"), zippedOne),
	"gzip of a HEAD":         over2(askMethod("HEAD"), zippedOne),
	"gzip that is none":      over2(nil, transporttest.Step{Header: http.Header{"Content-Encoding": {"gzip"}}, Body: "hello"}),
	"a stream reset":         over2(nil, transporttest.Step{Fault: transporttest.Reset}),
	"one in the body":        over2(nil, transporttest.Step{Size: 1000, Fault: transporttest.Reset, At: 10}),
	"not read":               readingOver2(readSome(0), transporttest.Step{Size: 1000}),
	"read in part":           readingOver2(readSome(10), transporttest.Step{Size: 1 << 20}),
	"closed, then read":      readingOver2(bodyExchanges["closed, then read to its end"].read, transporttest.Step{Size: 1000}),
	"closed within, read":    readingOver2(bodyExchanges["closed in the middle, then read"].read, transporttest.Step{Size: 1000}),
	"read past its end":      readingOver2(bodyExchanges["read past its end"].read, stepOK),
	"with empty reads":       readingOver2(bodyExchanges["with empty reads"].read, stepOK),
	"a caller who has gone":  over2(func(p *play, _ *http.Request) { p.cancel() }, stepOK),
	"a deadline":             looseOver2(askDeadline(100*time.Millisecond), transporttest.Step{Fault: transporttest.Hang}),
	"a body whose caller goes": readingOver2(readAfter(2, func(p *play) { p.cancel() }),
		transporttest.Step{Size: 1000, Fault: transporttest.Hang, At: 2}),
	"a body whose Cancel is closed": {origin: originHTTP2, racy: true, steps: []transporttest.Step{{Size: 1000, Fault: transporttest.Hang, At: 2}},
		ask: func(p *play, r *http.Request) { r.Cancel = p.legacy }, read: readAfter(2, func(p *play) { close(p.legacy) })},
	"several on a connection": {origin: originHTTP2, racy: true, steps: []transporttest.Step{stepOK}, more: []ask{postKnown, postChunk, askMethod("HEAD")}},
	"redirects":               {origin: originHTTP2, racy: true, steps: []transporttest.Step{{Status: 307, Header: http.Header{"Location": {"/b"}, "Set-Cookie": {"s=1"}}}, stepOK}, ask: asks(credentials, postKnown), client: follow},
	"redirects to a host":     {origin: originHTTP2, racy: true, steps: []transporttest.Step{{Status: 302, Header: http.Header{"Location": {"https://other.test/b"}}}, stepOK}, ask: credentials, client: follow},
}

func looseOver2(ask ask, steps ...transporttest.Step) exchange {
	x := over2(ask, steps...)
	x.loose = true
	return x
}
