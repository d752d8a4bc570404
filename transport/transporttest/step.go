package transporttest

import (
	"fmt"
	"io"
	"net/http"
	"time"
)

// Step is what the peer does with one request. The zero Step reads the request
// and answers 200 without a body. In an Injection into Faults it says what happens to
// the true answer, unless it is one itself.
type Step struct {
	Unread  bool          // the request body is left alone, not read before the answer
	Delay   time.Duration // before anything is sent
	Interim []Step        // 1xx answers that come first; only Delay, Status and Header matter

	Status int         // zero: 200; of an Injection: the true answer goes on
	Header http.Header // each value is a line; a nil value keeps net/http from setting that header

	Body    string        // takes precedence over Size
	Size    int64         // that many bytes, a to z over and over
	Framing Framing       // how the end of the body is told; zero: Content-Length
	Chunk   int           // bytes that are sent at a time; zero: all
	Pause   time.Duration // before each chunk, the first included; headers go out before it

	Trailer     http.Header // after the body, which it makes Chunked
	Unannounced bool        // the Trailer is not announced in the header

	Fault Fault // how the answer goes wrong; zero: it does not
	At    int   // body bytes that are sent before Fault; zero: not even headers; or HeadersOnly

	// Err is what a Base or Faults return instead of an answer. An Origin ignores it.
	Err error

	// Raw is what an Origin sends on an HTTP/1 connection instead of an answer,
	// in Chunks; then it closes the connection, unless Fault says otherwise. At
	// counts its bytes.
	Raw string

	// Handler serves the request of an Origin in place of all the above.
	Handler http.Handler
}

// Fault is how an answer goes wrong, at Step.At.
type Fault uint8

// The faults.
const (
	// Hang sends nothing more, until the client goes or the Origin is closed. An
	// Origin that has left an HTTP/1 request Unread does not see the client go.
	Hang Fault = iota + 1
	// Cut ends the connection in good form (FIN).
	Cut
	// Reset ends the connection with RST, an HTTP/2 stream with RST_STREAM
	// (INTERNAL_ERROR). RST destroys what is still on its way: the client gets At
	// bytes for certain only if they fit into socket buffers, say 32 KiB.
	Reset
	// GoAway sends GOAWAY(NO_ERROR) that disowns all streams, and hangs: the
	// graceful end of an HTTP/2 server that has not processed the request. A
	// Base and HTTP/1 cannot do that.
	GoAway
)

// String is the fault as it is written in Go.
func (f Fault) String() string {
	if names := [...]string{"none", "Hang", "Cut", "Reset", "GoAway"}; int(f) < len(names) {
		return names[f]
	}
	return fmt.Sprintf("Fault(%d)", uint8(f))
}

// HeadersOnly as Step.At strikes after the headers, before the body.
const HeadersOnly = -1

// Framing is how a client learns where a body ends.
type Framing uint8

// The framings.
const (
	// Fixed announces a Content-Length.
	Fixed Framing = iota
	// Chunked announces no length.
	Chunked
	// UntilClose ends the body with the connection; HTTP/2 has no such thing.
	UntilClose
)

// length is that of the whole body.
func (s *Step) length() int64 {
	if s.Body != "" {
		return int64(len(s.Body))
	}
	return s.Size
}

// until is how much of the body is sent.
func (s *Step) until() int64 {
	if s.Fault == 0 {
		return s.length()
	}
	return min(s.length(), int64(max(s.At, 0)))
}

// headless reports whether the answer goes wrong before its headers.
func (s *Step) headless() bool { return s.Fault != 0 && s.At == 0 }

func (s *Step) status() int {
	if s.Status == 0 {
		return http.StatusOK
	}
	return s.Status
}

func (s *Step) framing() Framing {
	if len(s.Trailer) > 0 {
		return Chunked
	}
	return s.Framing
}

// content reads what is sent of a step's body, chunk by chunk.
type content struct {
	step *Step
	off  int64
}

// due reports whether a chunk is about to begin.
func (c *content) due() bool {
	return c.off < c.step.until() && (c.off == 0 || c.step.Chunk > 0 && c.off%int64(c.step.Chunk) == 0)
}

// Read reads no further than to the end of a chunk.
func (c *content) Read(p []byte) (int, error) {
	left := c.step.until() - c.off
	if left == 0 {
		return 0, io.EOF
	}
	if chunk := int64(c.step.Chunk); chunk > 0 {
		left = min(left, chunk-c.off%chunk)
	}
	p = p[:min(int64(len(p)), left)]
	if c.step.Body != "" {
		copy(p, c.step.Body[c.off:])
	} else {
		for i := range p {
			p[i] = 'a' + byte((c.off+int64(i))%26)
		}
	}
	c.off += int64(len(p))
	return len(p), nil
}
