package cache

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"
)

// Info tells what an answer from the store is.
type Info struct {
	// FromCache is true for every answer from the store, so wherever FromResponse returns true. It tells an Info that is
	// passed on alone from the zero one.
	FromCache bool
	// Stale is true once the answer is older than the lifetime its origin gave it (RFC 9111 section 4.2).
	// One without a lifetime is stale from the start, but not to the caller for whom the origin has just confirmed it.
	Stale bool
	// AsOf is when the origin made or last confirmed the answer, by the local clock: the same for
	// every answer from one stored copy.
	AsOf time.Time
	// Age is the time since then (RFC 9111 section 4.2.3).
	Age time.Duration
	// TTL is the lifetime that is left; negative when stale.
	TTL time.Duration
	// Cause is the failure that the answer stands in for. It is masked, not mended: log it. Nil if there was
	// none: a fresh answer, one that was validated or is refreshed in the background, or only-if-cached.
	Cause error
}

// FromResponse returns what is known of a response that came from the store, and false for every other
// response. It finds the Info in the response's Body, or, for callers with an http.Client.Timeout (which
// wraps the Body), in the context of the response's Request. It finds nothing when something else between the
// store and the caller has replaced both; Cache-Status is left then.
func FromResponse(resp *http.Response) (Info, bool) {
	if resp == nil {
		return Info{}, false
	}
	if b, ok := resp.Body.(*body); ok {
		return b.info, true
	}
	if resp.Request == nil {
		return Info{}, false
	}
	b, ok := resp.Request.Context().Value(infoKey{}).(*body)
	if !ok {
		return Info{}, false
	}
	return b.info, true
}

type infoKey struct{}

// body is the Body of an answer from the store: a reader of the shared bytes, and the Info.
type body struct {
	reader bytes.Reader
	closed atomic.Bool
	info   Info
	status statusError
}

// answer is a response with its body, in one piece.
type answer struct {
	resp http.Response
	body body
}

func (b *body) Read(p []byte) (int, error) {
	if b.closed.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	return b.reader.Read(p)
}

// WriteTo spares io.Copy its buffer.
func (b *body) WriteTo(w io.Writer) (int64, error) {
	if b.closed.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	return b.reader.WriteTo(w)
}

func (b *body) Close() error {
	b.closed.Store(true)
	return nil
}

// statusError is the cause when the failure was an answer.
type statusError struct{ code int }

func (e *statusError) Error() string {
	return "origin answered " + strconv.Itoa(e.code) + " " + http.StatusText(e.code)
}

// response makes the answer to req from e.
func (e *Entry) response(req *http.Request, wall time.Time, why Failure) *http.Response {
	now := wall.Sub(e.owner.start)
	age, ttl := e.ageAt(now), e.ttlAt(now)
	all := &answer{}
	b := &all.body
	b.info = Info{
		FromCache: true,
		Stale:     ttl <= 0 && !why.validated,
		AsOf:      e.owner.start.Add(e.received - e.age).Round(0), // the same for every answer from e
		Age:       age,
		TTL:       ttl,
		Cause:     why.Err,
	}
	if why.Err == nil && why.Status != 0 {
		b.status.code = why.Status
		b.info.Cause = &b.status
	}
	if req.Method != http.MethodHead {
		b.reader.Reset(e.body)
	}
	if req.Cancel != nil {
		req = req.WithContext(context.WithValue(req.Context(), infoKey{}, b))
	}
	all.resp = http.Response{
		Status:        e.statusText,
		StatusCode:    int(e.status),
		Proto:         e.proto,
		ProtoMajor:    int(e.major),
		ProtoMinor:    int(e.minor),
		Header:        e.headerAt(age, ttl, why),
		Body:          b,
		ContentLength: int64(len(e.body)),
		Uncompressed:  e.uncompressed,
		Request:       req,
	}
	return &all.resp
}

// headerAt is a header of its own for one answer: what was stored, Age, and one more member of Cache-Status.
func (e *Entry) headerAt(age, ttl time.Duration, why Failure) http.Header {
	ageText, cacheStatus := e.labelled(age, ttl, why)

	h := make(http.Header, len(e.header)+2)
	values := make([]string, 0, len(e.header)+2)
	labelled := false
	for i := 0; i < len(e.header); {
		name, start := e.header[i].name, len(values)
		if failed := why.Err != nil || why.Status != 0; failed && cookie(name) {
			i++ // of another time
			continue
		}
		for ; i < len(e.header) && e.header[i].name == name; i++ {
			values = append(values, e.header[i].value)
		}
		if name == "Cache-Status" {
			values = append(values, cacheStatus)
			labelled = true
		}
		h[name] = values[start:len(values):len(values)]
	}
	start := len(values)
	values = append(values, ageText)
	h["Age"] = values[start : start+1 : start+1]
	if !labelled {
		values = append(values, cacheStatus)
		h["Cache-Status"] = values[start+1:]
	}
	return h
}

// labels are the last Age and member of Cache-Status that an entry was served with. All that is served of it in the same second, for the
// same reason, has the same.
type labels struct {
	age, ttl  int64 // seconds
	fresh     bool
	why       Failure
	text      string
	ageDigits int
}

// labelled is Age, and the member of Cache-Status, of an answer from e.
func (e *Entry) labelled(age, ttl time.Duration, why Failure) (ageText, cacheStatus string) {
	why.Err, why.At = nil, time.Time{} // which are in neither; an error may not be comparable
	seconds, left := int64(age/time.Second), floorSeconds(ttl)
	last := e.labels.Load()
	if last == nil || last.age != seconds || last.ttl != left || last.fresh != (ttl > 0) || last.why != why {
		var room [128]byte
		b := strconv.AppendInt(room[:0], seconds, 10)
		digits := len(b)
		last = &labels{age: seconds, ttl: left, fresh: ttl > 0, why: why, ageDigits: digits}
		last.text = string(why.appendCacheStatus(b, ttl, e.timed)) // one string for both
		e.labels.Store(last)
	}
	return last.text[:last.ageDigits], last.text[last.ageDigits:]
}

// label says in the header of an answer of the origin's why it was asked for. The header itself may be somebody else's.
func (x *Exchange) label(resp *http.Response, stored bool) {
	b := append(make([]byte, 0, 64), product+"; fwd="...)
	switch {
	case x.role == writer:
		b = append(b, "method"...)
	case x.reuse == nil || x.reuse.forwarded == "":
		b = append(b, "bypass"...)
	default:
		b = append(b, x.reuse.forwarded...)
	}
	if x.reuse != nil && x.reuse.forwarded == "stale" {
		b = strconv.AppendInt(append(b, "; fwd-status="...), int64(resp.StatusCode), 10)
	}
	if stored {
		b = append(b, "; stored"...)
	}
	resp.Header = resp.Header.Clone()
	if resp.Header == nil {
		resp.Header = http.Header{}
	}
	resp.Header["Cache-Status"] = append(resp.Header["Cache-Status"], string(b))
}

const product = "watertight"

// appendCacheStatus appends the member of Cache-Status for an answer that stands in for f (RFC 9211).
func (f Failure) appendCacheStatus(b []byte, ttl time.Duration, timed bool) []byte {
	b = append(b, product...)
	detail := f.Detail
	switch {
	case f.collapsed != "":
		b = append(append(append(b, "; fwd="...), f.collapsed...), "; collapsed"...)
	case f.validated:
		b = append(b, "; fwd=stale; fwd-status=304"...)
	case !f.Forwarded:
		b = append(b, "; hit"...)
	case ttl > 0:
		// The stored answer could have been used and by configuration was not. fwd=request would say that the
		// request's directives asked for that.
		b, detail = append(b, "; fwd=bypass"...), "fallback"
	default:
		b = append(b, "; fwd=stale"...)
		if f.Status != 0 {
			b = append(b, "; fwd-status="...)
			b, detail = strconv.AppendInt(b, int64(f.Status), 10), "stale-if-error"
		}
	}
	if timed {
		b = append(b, "; ttl="...)
		b = strconv.AppendInt(b, floorSeconds(ttl), 10)
	}
	if detail != "" {
		b = appendItem(append(b, "; detail="...), detail)
	}
	return b
}

// floorSeconds rounds down, so that an answer with a ttl of 0 or more and a fraction is still fresh.
func floorSeconds(d time.Duration) int64 {
	s := int64(d / time.Second)
	if d < 0 && d%time.Second != 0 {
		s--
	}
	return s
}

// appendItem appends s as a token of RFC 8941 section 3.3.4 if it is one, and as a string if not, without what a string cannot
// have.
func appendItem(b []byte, s string) []byte {
	if c := s[0] | 0x20; ('a' <= c && c <= 'z' || s[0] == '*') && isToken(s) {
		return append(b, s...)
	}
	b = append(b, '"')
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case ' ' <= c && c <= '~':
			b = append(b, c)
		}
	}
	return append(b, '"')
}
