package scene

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"
)

// server is an http.Server that is under way.
type server struct {
	http.Server
	host string // host:port
	done chan struct{}
}

// listen serves h on a free loopback port.
func listen(h http.Handler) (*server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	return serve(l, h), nil
}

// serve serves h on l.
func serve(l net.Listener, h http.Handler) *server {
	s := &server{host: l.Addr().String(), done: make(chan struct{})}
	s.Handler = h
	s.ReadHeaderTimeout = 10 * time.Second
	go func() {
		defer close(s.done)
		_ = s.Serve(l)
	}()
	return s
}

// close gives requests in flight a moment, then cuts them.
func (s *server) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := s.Shutdown(ctx); errors.Is(err, context.DeadlineExceeded) {
		_ = s.Close()
	}
	<-s.done
}
