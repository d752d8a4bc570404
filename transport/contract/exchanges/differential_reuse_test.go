package exchanges_test

import (
	"net/http"
)

// again asks for the same as before.
func again(n int) []ask { return make([]ask, n) }

var (
	turnOK    = turn{answer: answerOK}
	turnBye   = turn{answer: "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", end: endCut}
	turnCut   = turn{end: endCut}
	turnReset = turn{end: endReset}
	postKnown = askBody("POST", known("hello"), 0)
	postOnce  = askBody("POST", unknown("hello"), 5)
	postChunk = askBody("POST", unknown("hello"), -1)
	keyed     = askHeader("Idempotency-Key", "1")
)

// awaiting asks once the client has noticed that its first connection was closed.
func awaiting(next ask) ask {
	return func(p *play, r *http.Request) {
		p.server.awaitClosed(1)
		if next != nil {
			next(p, r)
		}
	}
}

// reuseExchanges are several requests of one client, about what becomes of its
// connection. What is asked of a connection that the origin is just closing,
// net/http asks again where it may, with and without the stack.
var reuseExchanges = map[string]exchange{
	"of a connection":           {more: again(3)},
	"of one over TLS":           {origin: originEncrypted, more: again(2)},
	"after a chunked answer":    {answer: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", more: again(2)},
	"after a zipped answer":     {answer: zipped(zip("hello")), more: again(2)},
	"after a HEAD":              {ask: askMethod("HEAD"), answer: "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", then: []turn{turnOK}, more: again(1)},
	"after a 204":               {answer: "HTTP/1.1 204 No Content\r\n\r\n", more: again(2)},
	"after a 304":               {answer: "HTTP/1.1 304 Not Modified\r\n\r\n", more: again(2)},
	"after a 404":               {answer: "HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno", more: again(2)},
	"after a POST":              {ask: postOnce, more: []ask{postKnown, postChunk, nil}},
	"after a 100":               {interim: "HTTP/1.1 100 Continue\r\n\r\n", ask: asks(postKnown, expectContinue), then: []turn{turnOK}, more: again(1)},
	"after HTTP/1.0":            {answer: "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", end: endCut, more: again(1)},
	"after HTTP/1.0, kept":      {answer: "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok", more: again(1)},
	"after the end of the body": {answer: "HTTP/1.1 200 OK\r\n\r\nok", end: endCut, more: again(1)},
	"after Connection: close":   {answer: turnBye.answer, end: endCut, more: again(2)},
	"after Request.Close":       {ask: askFor(func(r *http.Request) { r.Close = true }), more: again(1)},
	"after a closing header":    {ask: askHeader("Connection", "close"), more: again(1)},
	"with keep-alives off":      {base: func(_ *play, b *http.Transport) { b.DisableKeepAlives = true }, more: again(1)},
	"with one connection only":  {base: func(_ *play, b *http.Transport) { b.MaxConnsPerHost = 1 }, more: again(2)},
	"with Keep-Alive: max=1":    {answer: "HTTP/1.1 200 OK\r\nKeep-Alive: timeout=5, max=1\r\nContent-Length: 2\r\n\r\nok", more: again(1)},
	"of two hosts":              {more: []ask{askFor(func(r *http.Request) { r.URL.Host = "other.test" }), nil}},
	"of two ports":              {more: []ask{askFor(func(r *http.Request) { r.URL.Host = "origin.test:81" }), nil}},
	"of a host in upper case":   {more: []ask{askFor(func(r *http.Request) { r.URL.Host = "ORIGIN.test" })}},
	"of the default port":       {more: []ask{askFor(func(r *http.Request) { r.URL.Host = "origin.test:80" })}},
	"of two schemes":            {more: []ask{askFor(func(r *http.Request) { r.URL.Scheme = "https" }), nil}},
	"of another Host":           {more: []ask{askFor(func(r *http.Request) { r.Host = "other.test" })}},

	"closed after the answer":               {end: endCut, answer: answerOK, more: []ask{awaiting(nil)}},
	"closed after the answer, POST":         {end: endCut, answer: answerOK, more: []ask{awaiting(postOnce)}},
	"closed with a 408":                     {answer: answerOK + "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", end: endCut, loose: true, more: []ask{awaiting(nil)}},
	"closed at the second request":          {then: []turn{turnCut, turnOK}, more: again(1)},
	"closed at the second request, HEAD":    {then: []turn{turnCut, {answer: "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"}}, more: []ask{askMethod("HEAD")}},
	"closed at the second request, OPTIONS": {then: []turn{turnCut, turnOK}, more: []ask{askMethod("OPTIONS")}},
	"closed at the second request, POST":    {then: []turn{turnCut, turnOK}, more: []ask{postKnown}},
	"closed at the second request, keyed":   {then: []turn{turnCut, turnOK}, more: []ask{asks(postKnown, keyed)}},
	"closed at it, keyed but once":          {then: []turn{turnCut, turnOK}, more: []ask{asks(postOnce, keyed)}},
	"closed at the second request, PUT":     {then: []turn{turnCut, turnOK}, more: []ask{askBody("PUT", known("hello"), 0)}},
	"closed at the second request, body":    {then: []turn{turnCut, turnOK}, more: []ask{askBody("GET", known("hello"), 0)}},
	"closed at the second, twice":           {then: []turn{turnCut, turnCut, turnOK}, more: again(1)},
	"closed at the second, in between":      {then: []turn{turnOK, turnCut, turnOK}, more: again(3)},
	"reset at the second request":           {then: []turn{turnReset, turnOK}, more: again(1)},
	"reset at the second request, POST":     {then: []turn{turnReset, turnOK}, more: []ask{postKnown}},
	"cut in the second header":              {then: []turn{{answer: "HTTP/1.1 200", end: endCut}, turnOK}, more: again(1)},
	"refused, then unread":                  {unread: true, racy: true, answer: "HTTP/1.1 417 Expectation Failed\r\nContent-Length: 2\r\n\r\nno", ask: asks(postKnown, expectContinue), then: []turn{turnOK}, more: again(1)},
	"after idle ones were closed": {more: []ask{func(p *play, _ *http.Request) {
		p.closeIdle()
		p.server.awaitClosed(1)
	}}},
}
