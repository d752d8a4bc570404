package cache

import (
	"cmp"
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

const (
	maxHeaderBytes = 64 << 10
	entryOverhead  = 512
	fieldOverhead  = 48
)

// Entry is one stored answer. It never changes once it is stored.
type Entry struct {
	entry
	labels atomic.Pointer[labels] // of the last answer that was made of it
}

// entry is what is stored of an Entry.
type entry struct {
	owner     *Cache
	key       Key
	partition Partition
	whose     Partition
	selectors []field

	status              int16
	major, minor        uint8
	uncompressed, timed bool // timed: the origin gave a lifetime
	proto, statusText   string
	header              []field
	body                []byte
	text                int64 // bytes in all strings

	control control

	// Times by the monotonic clock, since owner.start.
	sent, received, useless time.Duration
	epoch, purge            uint64

	date     int64 // Date, in Unix seconds
	age      time.Duration
	lifetime time.Duration
}

// Key is the URI that e answers.
func (e *Entry) Key() Key { return e.key }

// Partition is the partition that e belongs to.
func (e *Entry) Partition() Partition { return e.partition }

// Weight is what e counts against a store's bound, in bytes: the memory of its body, its text, 48 for each line of
// the header and 512 for the rest.
func (e *Entry) Weight() int64 {
	return int64(cap(e.body)) + e.text + fieldOverhead*int64(len(e.header)+len(e.selectors)) + entryOverhead
}

// Useless is when e is past its lifetime and all that its origin and its host's owner granted beyond: a
// store that needs room takes it first.
func (e *Entry) Useless() time.Time { return e.owner.start.Add(e.useless) }

// Join returns variants, all of e's URI and partition, with e in it: in place of the answer to the same request, and at
// most 16 of them, of which the oldest goes. It returns false if e must not be stored: a newer
// answer is there, or the URI was written to or something purged after e was asked for. A [Store] calls it from Put, with
// everything else that changes the URI held off. variants itself stays as it is.
func (e *Entry) Join(variants []*Entry) ([]*Entry, bool) {
	if e.owner.epoch(&e.key).over(&e.key, e.epoch) || e.owner.purges.Load() != e.purge {
		return nil, false
	}
	joined := make([]*Entry, 0, len(variants)+1)
	for _, v := range variants {
		if !slices.Equal(v.selectors, e.selectors) {
			joined = append(joined, v)
			continue
		}
		if v.newer(e) {
			return nil, false
		}
	}
	if len(joined) == maxVariants {
		oldest := slices.Index(joined, slices.MinFunc(joined, func(a, b *Entry) int { return cmp.Compare(a.received, b.received) }))
		joined = slices.Delete(joined, oldest, oldest+1)
	}
	return append(joined, e), true
}

// newer reports whether e is the answer to a later request than old, or to one at the same moment with a later Date.
func (e *Entry) newer(old *Entry) bool {
	return e.sent > old.sent || e.sent == old.sent && e.date > old.date
}

// matches reports whether e answers a request of its URI and partition (RFC 9111 section 4.1).
func (e *Entry) matches(req *http.Request) bool {
	for _, s := range e.selectors {
		if !s.selects(e.owner, req.Header) {
			return false
		}
	}
	return true
}

// ageAt and ttlAt are current_age of RFC 9111 section 4.2.3 and what is left of the lifetime.
func (e *Entry) ageAt(now time.Duration) time.Duration { return e.age + clamp(now-e.received) }
func (e *Entry) ttlAt(now time.Duration) time.Duration { return e.lifetime - e.ageAt(now) }

// value is the only value of a field, or empty.
func (e *Entry) value(name string) string {
	for _, f := range e.header {
		if f.name == name {
			return f.value
		}
	}
	return ""
}

// contradicts reports whether a 200 to HEAD shows that e is outdated (RFC 9111 section 4.3.5). Validators and length
// of an answer that net/http has decompressed are those of another coding.
func (e *Entry) contradicts(resp *http.Response) bool {
	differs := func(name string) bool {
		was, is := e.value(name), resp.Header.Get(name)
		return was != "" && is != "" && was != is
	}
	if differs("Last-Modified") {
		return true
	}
	return !e.uncompressed && (differs("Etag") || resp.ContentLength > 0 && resp.ContentLength != int64(len(e.body)))
}

// revokedBy reports whether a later answer that confirms e grants less than e has: that it be stored, each of its fields, its use once
// stale, what is left of its lifetime. What the later one does not mention stays as it is (RFC 9111 section 3.2).
func (e *Entry) revokedBy(resp *http.Response, wall time.Time) bool {
	if !legible(resp.Header) {
		return true
	}
	was := e.control
	says, omit := e.owner.says(resp.Header)
	left, timed := lifetime(resp.Header, says, wall)
	switch {
	case says.noCache, says.noStore && !says.mustUnderstand, e.owner.rules.Shared && says.private, says.mustRevalidate && !was.mustRevalidate:
		return true
	case says.staleIfError != absent && says.staleIfError < was.staleIfError, says.staleIfError == 0 && was.staleIfError == absent:
		return true
	case timed && left < e.ttlAt(wall.Sub(e.owner.start))-time.Second: // dates are in whole seconds
		return true
	}
	without := names(omit, nil)
	return slices.ContainsFunc(e.header, func(f field) bool { return unstored(f.name, without) })
}

// outdates reports whether the copy that the caller of a conditional request holds may be newer than e.
func (e *Entry) outdates(req *http.Request) bool {
	if tags := req.Header["If-None-Match"]; len(tags) > 0 {
		etag := strings.TrimPrefix(e.value("Etag"), "W/")
		for _, line := range tags {
			for tag := range strings.SplitSeq(line, ",") {
				if etag != "" && strings.TrimPrefix(trim(tag), "W/") == etag {
					return false
				}
			}
		}
		return true
	}
	since, ok := parseDate(req.Header["If-Modified-Since"])
	modified, err := http.ParseTime(e.value("Last-Modified"))
	return !ok || err != nil || modified.Before(since)
}

// The header and key of an entry share one string, so that an entry pins no buffer of whoever made them
// (URLs contain userinfo) and its weight is exact.
type text struct{ b strings.Builder }

func (t *text) add(s string) string {
	start := t.b.Len()
	t.b.WriteString(s)
	return t.b.String()[start:]
}

// describe fills in what e keeps of a response but for its body: the header without what must not be stored (RFC 9111
// section 3.1), without Age, and without Set-Cookie where it is never served again. It returns false if that is too much, or not all of it
// can be read.
func (e *Entry) describe(req *http.Request, resp *http.Response, omit, vary []string, now time.Time) bool {
	date := ""
	if len(resp.Header["Date"]) == 0 {
		date = now.UTC().Format(http.TimeFormat)
	}
	var few [8]string
	without := names(append(omit, resp.Header["Connection"]...), few[:0])
	var room [32]field
	lines, size := room[:0], 0
	for name, values := range resp.Header {
		if !canonical(name) {
			return false
		}
		if unstored(name, without) || cookie(name) && !e.owner.rules.Fresh { // which is only served after a failure
			continue
		}
		for _, value := range values {
			lines = append(lines, field{name, value})
			size += len(name) + len(value)
		}
	}
	if size > maxHeaderBytes {
		return false
	}
	if date != "" {
		lines = append(lines, field{"Date", date})
		size += len("Date") + len(date)
	}
	var selected [4]string
	values := selected[:0]
	for _, name := range vary {
		value := e.owner.selector(name, req.Header[name])
		values = append(values, value)
		size += len(name) + len(value)
	}
	status := resp.Status
	if status == "" {
		status = strconv.Itoa(resp.StatusCode) + " " + http.StatusText(resp.StatusCode)
	}
	e.proto, e.major, e.minor = resp.Proto, uint8(resp.ProtoMajor), uint8(resp.ProtoMinor)
	if e.proto == "" {
		e.proto, e.major, e.minor = "HTTP/1.1", 1, 1
	}

	var t text
	t.b.Grow(size + e.key.size() + len(status) + len(e.proto))
	e.key.Host, e.key.Path, e.key.Query = t.add(e.key.Host), t.add(e.key.Path), t.add(e.key.Query)
	e.key.Scheme = scheme(e.key.Scheme)
	e.statusText, e.proto = t.add(status), t.add(e.proto)
	fields := make([]field, 0, len(lines)+len(vary))
	for _, f := range lines {
		fields = append(fields, field{t.add(f.name), t.add(f.value)})
	}
	for i, name := range vary {
		fields = append(fields, field{t.add(name), t.add(values[i])})
	}
	n := len(lines)
	e.header, e.selectors = fields[:n:n], fields[n:]
	e.text = int64(t.b.Len())
	return true
}

func scheme(s string) string {
	if s == "https" {
		return "https"
	}
	return "http"
}

// cookie reports whether a response field is one that is only for its first caller after a failure.
func cookie(name string) bool { return name == "Set-Cookie" || name == "Set-Cookie2" }

// unstored reports whether a response field is left out of the store. without are the names that no-cache="..." and
// Connection list.
func unstored(name string, without []string) bool {
	switch name {
	case "Age",
		"Connection", "Keep-Alive", "Proxy-Connection", "Te", "Transfer-Encoding", "Trailer", "Upgrade",
		"Proxy-Authenticate", "Proxy-Authentication-Info", "Proxy-Authorization":
		return true
	}
	_, found := slices.BinarySearch(without, name)
	return found
}

// names appends to room the canonical members of lists of field names, sorted. There may be as many as there are fields: an origin could
// keep a caller busy for minutes if each were compared with each.
func names(lists, room []string) []string {
	for _, list := range lists {
		for member := range strings.SplitSeq(list, ",") {
			room = append(room, textproto.CanonicalMIMEHeaderKey(trim(member)))
		}
	}
	slices.Sort(room)
	return room
}
