package status

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/watertight-go/watertight/transport"
)

const (
	tick     = time.Second      // between two looks at what has changed
	quiet    = 10 * time.Second // after which a stream says that it is alive
	patience = 10 * time.Second // for a reader to take what is written
	again    = 2 * time.Second  // after which a browser connects again
)

// events serves a stream of server-sent events. It has no queue: what a slow reader
// has not taken waits in the ring of transitions, and one that takes nothing for
// patience is dropped.
func (h *Handler) events(w http.ResponseWriter, r *http.Request) {
	v, err := viewOf(r.URL.Query(), maxLive, "after")
	if err != nil {
		refuse(w, err)
		return
	}
	last, err := h.resume(r)
	if err != nil {
		refuse(w, err)
		return
	}
	if !flushes(w) {
		(problem{Status: http.StatusNotImplemented, Text: "events: the server cannot flush what it writes: something that wraps its http.ResponseWriter has no Unwrap"}).write(w)
		return
	}
	if h.maxStreams < 0 {
		(problem{Status: http.StatusServiceUnavailable, Text: "events: turned off, see Config.MaxStreams"}).write(w)
		return
	}
	select {
	case <-h.t.Done():
		w.WriteHeader(http.StatusNoContent) // do not connect again
		return
	case <-h.closed:
		w.Header().Set("Retry-After", "5")
		(problem{Status: http.StatusServiceUnavailable, Text: "events: the server is shutting down"}).write(w)
		return
	default:
	}
	defer h.streams.Add(-1)
	if h.streams.Add(1) > h.maxStreams {
		w.Header().Set("Retry-After", "5")
		(problem{Status: http.StatusServiceUnavailable, Text: fmt.Sprintf("events: %d streams are open, see Config.MaxStreams", h.maxStreams)}).write(w)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store, no-transform")
	w.Header().Set("X-Accel-Buffering", "no")
	if r.Method == http.MethodHead {
		return
	}
	s := stream{h: h, w: w, rc: http.NewResponseController(w), view: v, last: last}
	defer s.deadline(patience) // of what the server writes at the end
	s.run(r)
}

// resume is the ID of the transition that a stream goes on after.
func (h *Handler) resume(r *http.Request) (uint64, error) {
	name, id := "Last-Event-ID", r.Header.Get("Last-Event-ID")
	if id == "" {
		name, id = "after", r.URL.Query().Get("after")
	}
	all, _ := h.t.Transitions(0)
	newest := lastOf(all)
	if id == "" {
		return newest, nil
	}
	n, ok := h.after(id)
	if !ok {
		return 0, &problem{Field: name, Value: id, Want: wantID}
	}
	return min(n, newest), nil // beyond it, no transition would ever be after
}

// flushes reports whether what is written can be sent at once.
func flushes(w http.ResponseWriter) bool {
	for {
		switch f := w.(type) {
		case http.Flusher, interface{ FlushError() error }:
			return true
		case interface{ Unwrap() http.ResponseWriter }:
			w = f.Unwrap()
		default:
			return false
		}
	}
}

// stream is one reader of events.
type stream struct {
	h    *Handler
	w    http.ResponseWriter
	rc   *http.ResponseController
	view view
	buf  bytes.Buffer

	last    uint64    // ID of the last transition that was sent
	moved   time.Time // when that was
	version uint64    // of the last hosts that were sent
	sent    time.Time
}

// run writes until the reader, the Transport or the Handler ends.
func (s *stream) run(r *http.Request) {
	fmt.Fprintf(&s.buf, "retry: %d\n\n", again.Milliseconds())
	due := time.Now() // when the hosts are; a transition may only bring it forward
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		since, next := s.h.t.Transitions(s.last)
		s.transitions(since)
		now := time.Now()
		if soon := now.Add(refresh); len(since) > 0 && soon.Before(due) {
			due = soon // they have changed, and can be looked at by then
		}
		if !now.Before(due) {
			due = s.hosts(now)
		}
		if s.buf.Len() == 0 && time.Since(s.sent) >= quiet {
			s.buf.WriteString(": keep-alive\nevent: alive\ndata: {}\n\n")
		}
		if s.write() != nil {
			return
		}
		timer.Reset(time.Until(due))
		select {
		case <-next:
		case <-timer.C:
		case <-r.Context().Done():
			return
		case <-s.h.t.Done():
			return
		case <-s.h.closed:
			return
		}
	}
}

// transitions writes those that have come.
func (s *stream) transitions(since []transport.HostTransition) {
	now := time.Now()
	for i := range since {
		t := &since[i]
		data, _ := json.Marshal(transitionOf(t, now))
		fmt.Fprintf(&s.buf, "id: %s-%d\nevent: transition\ndata: %s\n\n", s.h.looks.instance, t.ID, data)
		s.last, s.moved = t.ID, now
	}
}

// hosts writes the hosts if they have changed, and returns when they are due again: as
// soon as they can be looked at, where somebody else's look is older than the last
// transition.
func (s *stream) hosts(now time.Time) time.Time {
	r := s.h.looks.of(s.view)
	if r.version != s.version {
		s.version = r.version
		fmt.Fprintf(&s.buf, "event: hosts\ndata: %s\n\n", r.json)
	}
	if r.taken.Before(s.moved) {
		return r.taken.Add(refresh)
	}
	return now.Add(tick)
}

// write sends what was written. The deadline replaces Server.WriteTimeout, and is
// lifted between writes, since it ends an HTTP/2 stream also where there is nothing to
// write.
func (s *stream) write() error {
	if s.buf.Len() == 0 {
		return nil
	}
	s.deadline(patience)
	_, err := s.w.Write(s.buf.Bytes())
	if err == nil {
		err = s.rc.Flush()
	}
	s.buf.Reset()
	if s.buf.Cap() > 1<<20 {
		s.buf = bytes.Buffer{} // it was many hosts, once
	}
	if err == nil {
		err = s.rc.SetWriteDeadline(time.Time{})
		if errors.Is(err, http.ErrNotSupported) {
			err = nil
		}
		s.sent = time.Now()
	}
	return err
}

// deadline bounds what is written next, where the server can do that.
func (s *stream) deadline(in time.Duration) { _ = s.rc.SetWriteDeadline(time.Now().Add(in)) }
