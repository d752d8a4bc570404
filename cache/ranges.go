package cache

import (
	"net/http"
	"strconv"
	"strings"
)

// cut makes of a whole answer the one range that was asked for (RFC 9110 section 14.2). Several ranges, ones that cannot be
// read, and those of another answer than the caller has a part of are answered with the whole.
func (e *Entry) cut(req *http.Request, resp *http.Response) {
	lines := req.Header["Range"]
	if len(lines) != 1 || req.Method == http.MethodHead || e.uncompressed || !e.sameAs(req.Header["If-Range"]) {
		return
	}
	from, to, ok := oneRange(lines[0], int64(len(e.body)))
	if !ok {
		return
	}
	b := resp.Body.(*body)
	if from > to { // beyond the end
		b.reader.Reset(nil)
		resp.Status, resp.StatusCode = "416 Requested Range Not Satisfiable", http.StatusRequestedRangeNotSatisfiable
		resp.ContentLength = 0
		resp.Header["Content-Length"] = []string{"0"}
		resp.Header["Content-Range"] = []string{"bytes */" + strconv.Itoa(len(e.body))}
		return
	}
	b.reader.Reset(e.body[from : to+1])
	resp.Status, resp.StatusCode = "206 Partial Content", http.StatusPartialContent
	resp.ContentLength = to + 1 - from
	resp.Header["Content-Length"] = []string{strconv.FormatInt(resp.ContentLength, 10)}
	resp.Header["Content-Range"] = []string{"bytes " + strconv.FormatInt(from, 10) + "-" + strconv.FormatInt(to, 10) + "/" + strconv.Itoa(len(e.body))}
}

// sameAs reports whether e is what a part is of: If-Range needs a strong match (RFC 9110 section 13.1.5). A Last-Modified is a
// strong validator if the origin answered at least a second later: else it may have changed once more (section 8.8.2.2).
func (e *Entry) sameAs(ifRange []string) bool {
	switch len(ifRange) {
	case 0:
		return true
	case 1:
	default:
		return false
	}
	v := trim(ifRange[0])
	if strings.HasPrefix(v, `"`) {
		return v == e.value("Etag")
	}
	if v == "" || v != e.value("Last-Modified") {
		return false
	}
	modified, err := http.ParseTime(v)
	return err == nil && modified.Unix() < e.date
}

// oneRange reads a Range of bytes (RFC 9110 section 14.1.2) of something of this size: from the first to the last, which is
// before it where there is none. It returns false for several, and for what cannot be read.
func oneRange(s string, size int64) (from, to int64, ok bool) {
	unit, spec, found := strings.Cut(s, "=")
	if !found || !strings.EqualFold(trim(unit), "bytes") || strings.Contains(spec, ",") {
		return 0, 0, false
	}
	first, last, found := strings.Cut(trim(spec), "-")
	if !found {
		return 0, 0, false
	}
	if first == "" { // the last so many
		n, good := position(last)
		if !good {
			return 0, 0, false
		}
		return max(size-n, 0), size - 1, n > 0
	}
	from, ok = position(first)
	if !ok {
		return 0, 0, false
	}
	to = size - 1
	if last != "" {
		n, good := position(last)
		if !good || n < from {
			return 0, 0, false
		}
		to = min(to, n)
	}
	if from >= size {
		return 1, 0, true
	}
	return from, to, true
}

// position reads digits and nothing else.
func position(s string) (int64, bool) {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}
