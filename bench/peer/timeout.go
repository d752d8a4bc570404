package peer

import (
	"context"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/watertight-go/watertight/policy"
)

// limited is what everybody writes by hand first: a limit that holds until the body
// has ended.
type limited struct {
	base  http.RoundTripper
	limit time.Duration
}

func newTimeout(base http.RoundTripper, p policy.Policy) http.RoundTripper {
	return &limited{base: base, limit: p.Timeout.Attempt}
}

func (t *limited) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(req.Context(), t.limit)
	resp, err := t.base.RoundTrip(req.WithContext(ctx))
	if err != nil {
		cancel()
		return nil, err
	}
	resp.Body = &ending{ReadCloser: resp.Body, end: func(error) { cancel() }}
	return resp, nil
}

// ending is a body that calls end once, when it has ended: with nil at its end or
// when it is closed, else with the error.
type ending struct {
	io.ReadCloser
	ended atomic.Bool
	end   func(error)
}

func (b *ending) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	switch {
	case err == io.EOF:
		b.done(nil)
	case err != nil:
		b.done(err)
	}
	return n, err
}

func (b *ending) Close() error {
	err := b.ReadCloser.Close()
	b.done(nil)
	return err
}

func (b *ending) done(err error) {
	if b.ended.CompareAndSwap(false, true) {
		b.end(err)
	}
}
