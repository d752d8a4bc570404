package transporttest

import (
	"cmp"
	"io"
	"net/http"
	"slices"
	"time"
)

// Hit is a request as the peer saw it.
type Hit struct {
	Number int       // of the request, from 1
	Time   time.Time // when its headers were there
	Method string
	Host   string
	Path   string // with its query
	Proto  string
	Header http.Header

	Body     []byte // what was read of it, the first MiB at most
	BodySize int64  // how much was read of it

	Conn   int // number of its connection, from 1; zero at a Base
	OnConn int // number of the request on that connection, from 1; zero at a Base
}

const keptBody = 1 << 20

// hits are the requests that a peer saw.
type hits struct {
	board board
	all   []*Hit // under board
}

// Hits returns the requests so far, in order. One that is still being read has
// the part of its body that has come.
func (h *hits) Hits() []Hit {
	h.board.mu.Lock()
	defer h.board.mu.Unlock()
	all := make([]Hit, len(h.all))
	for i, hit := range h.all {
		all[i] = *hit
		all[i].Body = slices.Clone(hit.Body)
	}
	return all
}

func (h *hits) add(req *http.Request, path string, conn, onConn int) *Hit {
	hit := &Hit{Time: time.Now(), Method: cmp.Or(req.Method, http.MethodGet), Host: req.Host, Path: path, Proto: req.Proto,
		Header: req.Header.Clone(), Conn: conn, OnConn: onConn}
	if hit.Host == "" {
		hit.Host = req.URL.Host
	}
	h.board.update(func() {
		h.all = append(h.all, hit)
		hit.Number = len(h.all)
	})
	return hit
}

// recording is a request body that is kept as it is read.
type recording struct {
	io.ReadCloser
	hits *hits
	hit  *Hit
}

func (r *recording) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	r.hits.board.update(func() {
		keep := min(n, keptBody-len(r.hit.Body))
		r.hit.Body = append(r.hit.Body, p[:keep]...)
		r.hit.BodySize += int64(n)
	})
	return n, err
}
