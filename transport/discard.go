package transport

import (
	"bytes"
	"cmp"
	"io"
	"net/http"
	"time"
)

// What is read at most of a response that is discarded.
const (
	discardBytes = 64 << 10
	discardTime  = 50 * time.Millisecond
)

// outcome is what an attempt came to, kept while it is retried.
type outcome struct {
	resp *http.Response
	err  error
	body []byte
	cut  error // what came after body, if that is not all
}

// discard reads a response to its end, if that is near, so that its connection
// can be used again, and closes it.
func (a *attempt) discard(resp *http.Response, err error) outcome {
	o := outcome{resp: resp, err: err}
	if resp == nil {
		return o
	}
	a.mu.Lock()
	a.discarded = true
	a.mu.Unlock()
	stop := time.AfterFunc(discardTime, a.interrupt)
	o.body, o.cut = io.ReadAll(io.LimitReader(resp.Body, discardBytes+1))
	stop.Stop()
	_ = resp.Body.Close()
	a.stop() // an upload that goes on
	a.written()
	a.untrace(true)
	if o.cut != nil || len(o.body) > discardBytes {
		o.cut = io.ErrUnexpectedEOF
	}
	return o
}

// restore returns the outcome after all, with as much of its body as was read: a
// response is not turned into an error.
func (o outcome) restore(c *call) (*http.Response, error) {
	if o.err != nil {
		return nil, c.attempted(o.err)
	}
	o.resp.Body = io.NopCloser(io.MultiReader(bytes.NewReader(o.body), failing{cmp.Or(o.cut, io.EOF)}))
	return o.resp, nil
}

// failing reads nothing but an error.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
