package exchanges_test

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// frames is what an origin of bare HTTP/2 does with one request; nil: answers it.
type frames struct {
	early bool // when it has the header, not when it has all
	send  func(*stream)
}

// stream is a request on a connection of bare HTTP/2.
type stream struct {
	*http2.Framer
	conn   net.Conn
	id     uint32
	fields []string
	body   []byte
	whole  bool // it has come to its end
	over   bool // so has the answer
}

// header sends a header, or trailers; fields are names and values.
func (s *stream) header(end bool, fields ...string) {
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	for i := 0; i < len(fields); i += 2 {
		_ = e.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	s.over = s.over || end
	b, first := block.Bytes(), true
	for first || len(b) > 0 {
		n := min(len(b), 16<<10)
		if first {
			_ = s.WriteHeaders(http2.HeadersFrameParam{StreamID: s.id, BlockFragment: b[:n], EndHeaders: n == len(b), EndStream: end})
		} else {
			_ = s.WriteContinuation(s.id, n == len(b), b[:n])
		}
		b, first = b[n:], false
	}
}

func (s *stream) data(end bool, data string) {
	s.over = s.over || end
	_ = s.WriteData(s.id, end, []byte(data))
}

func (s *stream) rst(code http2.ErrCode) { _ = s.WriteRSTStream(s.id, code) }

func (s *stream) goAway(last uint32, code http2.ErrCode) { _ = s.WriteGoAway(last, code, nil) }

func (s *stream) answer() {
	s.header(false, ":status", "200", "content-length", "2")
	s.data(true, "ok")
}

// frames plays an origin of bare HTTP/2 on one connection.
func (s *server) frames(c net.Conn) {
	if _, err := io.ReadFull(c, make([]byte, len(http2.ClientPreface))); err != nil {
		return
	}
	notes := s.notes()
	f := http2.NewFramer(c, c)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	_ = f.WriteSettings(s.p.x.settings...)
	streams := map[uint32]*stream{}
	take := func(id uint32) *stream {
		if streams[id] == nil {
			streams[id] = &stream{Framer: f, conn: c, id: id}
		}
		return streams[id]
	}
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return
		}
		r := take(frame.Header().StreamID)
		end := false
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				_ = f.WriteSettingsAck()
			}
		case *http2.PingFrame:
			if !frame.IsAck() {
				_ = f.WritePing(true, frame.Data)
			}
		case *http2.MetaHeadersFrame:
			for _, field := range frame.Fields {
				r.fields = append(r.fields, field.Name+": "+field.Value)
			}
			end = frame.StreamEnded()
		case *http2.DataFrame:
			r.body = append(r.body, frame.Data()...)
			if n := uint32(len(frame.Data())); n > 0 {
				_ = f.WriteWindowUpdate(0, n)
				_ = f.WriteWindowUpdate(frame.StreamID, n)
			}
			end = frame.StreamEnded()
		case *http2.RSTStreamFrame:
			if r.whole && r.over && frame.ErrCode == http2.ErrCodeCancel {
				continue // net/http has noticed the end of the answer before its own, with or without the stack
			}
			s.note(notes, "stream %d: RST_STREAM %v\n", frame.StreamID, frame.ErrCode)
			continue
		case *http2.GoAwayFrame:
			s.note(notes, "GOAWAY %v\n", frame.ErrCode)
			continue
		}
		r.whole = r.whole || end
		s.framesOf(frame, r, end, notes)
	}
}

// framesOf notes a request that is complete, and sends what is to be sent.
func (s *server) framesOf(frame http2.Frame, r *stream, end bool, notes *strings.Builder) {
	_, header := frame.(*http2.MetaHeadersFrame)
	s.mu.Lock()
	n, x := s.turns, s.p.x
	s.mu.Unlock()
	do := x.frames[min(n, len(x.frames)-1)]
	if !end && !(do.early && header) {
		return
	}
	if end {
		slices.Sort(r.fields)
		s.note(notes, "stream %d: %v %q\n", r.id, r.fields, r.body)
	}
	if end && do.early && !header {
		return // was dealt with
	}
	s.mu.Lock()
	s.turns++
	s.mu.Unlock()
	s.p.got()
	if do.send == nil {
		r.answer()
		return
	}
	do.send(r)
}

// bare is an exchange with an origin of bare HTTP/2.
func bare(ask ask, sends ...func(*stream)) exchange {
	x := exchange{ask: ask, racy: true}
	for _, send := range sends {
		x.frames = append(x.frames, frames{send: send})
	}
	return x
}

// bareLoose is one where what comes first depends on the weather.
func bareLoose(ask ask, sends ...func(*stream)) exchange {
	x := bare(ask, sends...)
	x.loose = true
	return x
}

// bareMore is one of several requests.
func bareMore(more []ask, sends ...func(*stream)) exchange {
	x := bare(nil, sends...)
	x.more = more
	return x
}

func bareMoreLoose(more []ask, sends ...func(*stream)) exchange {
	x := bareMore(more, sends...)
	x.loose = true
	return x
}

// bareEarly answers when it has the request's header.
func bareEarly(ask ask, send func(*stream)) exchange {
	x := bareLoose(ask, send)
	x.frames[0].early = true
	return x
}

var (
	okay         = (*stream).answer
	refuseStream = func(s *stream) { s.rst(http2.ErrCodeRefusedStream) }
	disown       = func(s *stream) { s.goAway(0, http2.ErrCodeNo) }
)

// frameExchanges are about what only HTTP/2 can do, over a connection in the clear.
var frameExchanges = map[string]exchange{
	"GET":              bare(nil, okay),
	"POST":             bare(postKnown, okay),
	"POST of unknown":  bare(postChunk, okay),
	"reused":           bareMore(again(3), okay),
	"a HEAD":           bare(askMethod("HEAD"), func(s *stream) { s.header(true, ":status", "200", "content-length", "1000") }),
	"a HEAD with data": bareLoose(askMethod("HEAD"), func(s *stream) { s.header(false, ":status", "200", "content-length", "2"); s.data(true, "ok") }),
	"a 204":            bare(nil, func(s *stream) { s.header(true, ":status", "204") }),
	"a 204 that ends later": bare(nil, func(s *stream) {
		s.header(false, ":status", "204")
		time.Sleep(20 * time.Millisecond) // the peer's own time
		s.data(true, "")
	}),
	"a 304 that is reset": bare(nil, func(s *stream) { s.header(false, ":status", "304"); s.rst(http2.ErrCodeInternal) }),
	"a 204 with trailers": bare(nil, func(s *stream) { s.header(false, ":status", "204"); s.header(true, "x-sum", "1") }),
	"a 304":               bare(nil, func(s *stream) { s.header(true, ":status", "304", "etag", `"1"`) }),
	"a 418":               bare(nil, func(s *stream) { s.header(true, ":status", "418") }),
	"a 599":               bare(postKnown, func(s *stream) { s.header(true, ":status", "599") }),
	"a 999":               bare(nil, func(s *stream) { s.header(true, ":status", "999") }),
	"a status of none":    bareLoose(nil, func(s *stream) { s.header(true, "x", "1") }),
	"a status of letters": bareLoose(nil, func(s *stream) { s.header(true, ":status", "OK") }),
	"an empty DATA": bare(nil, func(s *stream) {
		s.header(false, ":status", "200")
		s.data(false, "")
		s.data(false, "ok")
		s.data(true, "")
	}),
	"padded DATA": bare(nil, func(s *stream) {
		s.header(false, ":status", "200")
		_ = s.WriteDataPadded(s.id, true, []byte("ok"), make([]byte, 99))
	}),
	"many DATA": bare(nil, func(s *stream) {
		s.header(false, ":status", "200")
		for range 100 {
			s.data(false, "hello ")
		}
		s.data(true, "")
	}),
	"103, 100 and 102": bare(nil, func(s *stream) {
		s.header(false, ":status", "103", "link", "</a>")
		s.header(false, ":status", "100")
		s.header(false, ":status", "102", "x", "1")
		s.answer()
	}),
	"101 that cannot be": bareLoose(nil, func(s *stream) { s.header(false, ":status", "101"); s.answer() }),
	"103 that ends it":   bareLoose(nil, func(s *stream) { s.header(true, ":status", "103") }),
	"trailers": bare(nil, func(s *stream) {
		s.header(false, ":status", "200", "trailer", "X-Sum")
		s.data(false, "ok")
		s.header(true, "x-sum", "1")
	}),
	"trailers, unannounced": bare(nil, func(s *stream) {
		s.header(false, ":status", "200")
		s.data(false, "ok")
		s.header(true, "x-sum", "1", "x-more", "2")
	}),
	"trailers of no body":      bare(nil, func(s *stream) { s.header(false, ":status", "200"); s.header(true, "x-sum", "1") }),
	"trailers that do not end": bareLoose(nil, func(s *stream) { s.header(false, ":status", "200"); s.header(false, "x-sum", "1") }),
	"a request's trailers":     bare(asks(postChunk, uploadExchanges["PATCH with trailers"].ask), okay),
	"long headers":             bare(nil, func(s *stream) { s.header(true, ":status", "200", "x-long", strings.Repeat("xyzw", 20_000)) }),
	"cookies":                  bare(askHeader("Cookie", "a=1; b=2"), func(s *stream) { s.header(true, ":status", "200", "set-cookie", "a=1", "set-cookie", "b=2") }),
	"an upper-case header":     bareLoose(nil, func(s *stream) { s.header(true, ":status", "200", "X-Upper", "1") }),
	"a hop-by-hop header":      bareLoose(nil, func(s *stream) { s.header(true, ":status", "200", "connection", "close") }),
	"less than it said":        bare(nil, func(s *stream) { s.header(false, ":status", "200", "content-length", "9"); s.data(true, "ok") }),
	"more than it said":        bareLoose(nil, func(s *stream) { s.header(false, ":status", "200", "content-length", "1"); s.data(true, "ok") }),
	"gzip": bare(nil, func(s *stream) {
		s.header(false, ":status", "200", "content-encoding", "gzip")
		s.data(true, zip("hello"))
	}),
	"gzip that is none":   bare(nil, func(s *stream) { s.header(false, ":status", "200", "content-encoding", "gzip"); s.data(true, "hello") }),
	"DATA before HEADERS": bareLoose(nil, func(s *stream) { s.data(true, "ok") }),
	"a PING in between":   bare(nil, func(s *stream) { _ = s.WritePing(false, [8]byte{1}); s.answer() }),
	"a frame not known":   bare(nil, func(s *stream) { _ = s.WriteRawFrame(99, 0, s.id, []byte("hello")); s.answer() }),
	"a PRIORITY":          bare(nil, func(s *stream) { _ = s.WritePriority(s.id, http2.PriorityParam{Weight: 1}); s.answer() }),
	"new SETTINGS": bareMore(again(1), func(s *stream) {
		_ = s.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 20_000})
		s.answer()
	}),
	"a PUSH_PROMISE": bareLoose(nil, func(s *stream) {
		_ = s.WritePushPromise(http2.PushPromiseParam{StreamID: s.id, PromiseID: 2, EndHeaders: true})
		s.answer()
	}),

	"REFUSED_STREAM, then an answer":       bare(nil, refuseStream, okay),
	"REFUSED_STREAM, POST":                 bare(postKnown, refuseStream, okay),
	"REFUSED_STREAM, POST that is sent":    bareLoose(postOnce, refuseStream, okay),
	"REFUSED_STREAM, later":                bareMore(again(2), okay, refuseStream, okay),
	"RST_STREAM CANCEL":                    bare(nil, func(s *stream) { s.rst(http2.ErrCodeCancel) }),
	"RST_STREAM INTERNAL_ERROR":            bare(nil, func(s *stream) { s.rst(http2.ErrCodeInternal) }),
	"RST_STREAM PROTOCOL_ERROR":            bare(nil, func(s *stream) { s.rst(http2.ErrCodeProtocol) }, okay),
	"RST_STREAM HTTP_1_1_REQUIRED":         bare(nil, func(s *stream) { s.rst(http2.ErrCodeHTTP11Required) }),
	"RST_STREAM ENHANCE_YOUR_CALM, POST":   bare(postKnown, func(s *stream) { s.rst(http2.ErrCodeEnhanceYourCalm) }),
	"RST_STREAM after the header":          bare(nil, func(s *stream) { s.header(false, ":status", "200"); s.rst(http2.ErrCodeInternal) }),
	"RST_STREAM in the body":               bare(nil, func(s *stream) { s.header(false, ":status", "200"); s.data(false, "ok"); s.rst(http2.ErrCodeCancel) }),
	"RST_STREAM NO_ERROR in the body":      bare(nil, func(s *stream) { s.header(false, ":status", "200"); s.data(false, "ok"); s.rst(http2.ErrCodeNo) }),
	"RST_STREAM NO_ERROR after the answer": bare(nil, func(s *stream) { s.answer(); s.rst(http2.ErrCodeNo) }),
	"RST_STREAM NO_ERROR after an early answer": bareEarly(askBody("POST", known(helloes), 0),
		func(s *stream) { s.header(false, ":status", "413"); s.data(true, "no"); s.rst(http2.ErrCodeNo) }),
	"an early answer": bareEarly(askBody("POST", known(helloes), 0),
		func(s *stream) { s.header(false, ":status", "413"); s.data(true, "no") }),
	"an early answer to the unknown": bareEarly(askBody("POST", unknown(helloes), -1),
		func(s *stream) { s.header(true, ":status", "403") }),
	"an early answer of 200": bareEarly(askBody("PUT", known(helloes), 0), okay),

	"GOAWAY that disowns":       bare(nil, disown, okay),
	"GOAWAY that disowns, POST": bare(postKnown, disown, okay),
	"GOAWAY that disowns, once": bareLoose(postOnce, disown, okay),
	"GOAWAY of all":             bare(nil, func(s *stream) { s.goAway(1<<31-1, http2.ErrCodeNo); s.answer() }),
	"GOAWAY with the answer":    bare(nil, func(s *stream) { s.goAway(s.id, http2.ErrCodeNo); s.answer() }),
	"GOAWAY in the body": bare(nil, func(s *stream) {
		s.header(false, ":status", "200")
		s.goAway(s.id, http2.ErrCodeNo)
		s.data(true, "ok")
	}),
	"GOAWAY, then another": bareMore([]ask{awaiting(nil)}, func(s *stream) { s.goAway(s.id, http2.ErrCodeNo); s.answer() }, okay),
	"GOAWAY with an error": bareLoose(nil, func(s *stream) { s.goAway(s.id, http2.ErrCodeEnhanceYourCalm); _ = s.conn.Close() }),
	"GOAWAY with an error, in a body": bareLoose(nil, func(s *stream) {
		s.header(false, ":status", "200")
		s.goAway(s.id, http2.ErrCodeInternal)
		_ = s.conn.Close()
	}),
	"the end of the connection":      bareLoose(nil, func(s *stream) { _ = s.conn.Close() }),
	"the end of it in the body":      bareLoose(nil, func(s *stream) { s.header(false, ":status", "200"); s.data(false, "ok"); _ = s.conn.Close() }),
	"the end of it after the answer": bareMore([]ask{awaiting(nil)}, func(s *stream) { s.answer(); _ = s.conn.Close() }, okay),
	"not HTTP/2":                     bareLoose(nil, func(s *stream) { _, _ = io.WriteString(s.conn, "HTTP/1.1 400 Bad Request\r\n\r\n"); _ = s.conn.Close() }),

	"one stream at a time":     settings(bareMoreLoose(again(2), okay), http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 1}),
	"a small window":           settings(bare(askBody("POST", known(helloes), 0), okay), http2.Setting{ID: http2.SettingInitialWindowSize, Val: 100}),
	"a small header table":     settings(bareMore(again(1), okay), http2.Setting{ID: http2.SettingHeaderTableSize, Val: 0}),
	"a small limit on headers": settings(bareMore([]ask{askHeader("X-Long", strings.Repeat("x", 2000))}, okay), http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: 1000}),
	"a setting not known":      settings(bare(nil, okay), http2.Setting{ID: 99, Val: 1}),
	"a large frame":            settings(bare(askBody("POST", known(helloes), 0), okay), http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1 << 20}),
	"a setting that is none":   settings(bareLoose(nil, okay), http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1}),

	"a caller who goes": func() exchange {
		x := bareLoose(func(p *play, _ *http.Request) { p.got = p.cancel }, func(*stream) {})
		return x
	}(),
	"a body whose caller goes": func() exchange {
		x := bareLoose(nil, func(s *stream) { s.header(false, ":status", "200"); s.data(false, "ok") })
		x.read = readAfter(2, func(p *play) { p.cancel() })
		return x
	}(),
	"a body that is not read": func() exchange {
		x := bareLoose(nil, func(s *stream) { s.header(false, ":status", "200", "content-length", "9"); s.data(false, "ok") })
		x.read = readSome(0)
		return x
	}(),
	"a body that is read in part, then again": func() exchange {
		x := bareMore(again(1), func(s *stream) { s.header(false, ":status", "200", "content-length", "9"); s.data(false, "hello") })
		x.read = readSome(2)
		return x
	}(),
}

func settings(x exchange, settings ...http2.Setting) exchange {
	x.settings = settings
	return x
}
