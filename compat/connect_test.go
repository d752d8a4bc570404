package compat_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

type text = wrapperspb.StringValue

// protocols are what connect can speak over HTTP/2.
var protocols = map[string][]connect.ClientOption{
	"connect":  nil,
	"grpc":     {connect.WithGRPC()},
	"grpc-web": {connect.WithGRPCWeb()},
}

// service has a method of each kind over HTTP/2 and TLS.
func service(t *testing.T) *httptest.Server {
	mux := http.NewServeMux()
	mux.Handle("/test.v1.Test/Bidi", connect.NewBidiStreamHandler("/test.v1.Test/Bidi",
		func(_ context.Context, s *connect.BidiStream[text, text]) error {
			for {
				msg, err := s.Receive()
				if errors.Is(err, io.EOF) {
					time.Sleep(total + read) // now the client only waits
					return s.Send(wrapperspb.String("farewell"))
				}
				if err != nil {
					return err
				}
				time.Sleep(read * 5 / 4)
				if err := s.Send(msg); err != nil {
					return err
				}
			}
		}))
	mux.Handle("/test.v1.Test/Down", connect.NewServerStreamHandler("/test.v1.Test/Down",
		func(ctx context.Context, req *connect.Request[text], s *connect.ServerStream[text]) error {
			for i := range 3 {
				if i > 0 {
					time.Sleep(total/2 + read) // two of them outlast total, each the read limit
				}
				if err := s.Send(wrapperspb.String(fmt.Sprint(req.Msg.Value, i))); err != nil {
					return err
				}
			}
			s.ResponseTrailer().Set("Ended", "yes")
			return connect.NewError(connect.CodeDataLoss, errors.New("no more"))
		}))
	mux.Handle("/test.v1.Test/Up", connect.NewClientStreamHandler("/test.v1.Test/Up",
		func(_ context.Context, s *connect.ClientStream[text]) (*connect.Response[text], error) {
			size := 0
			for s.Receive() {
				size += len(s.Msg().Value)
			}
			return connect.NewResponse(wrapperspb.String(fmt.Sprint(size))), s.Err()
		}))
	mux.Handle("/test.v1.Test/Unary", connect.NewUnaryHandler("/test.v1.Test/Unary",
		func(_ context.Context, req *connect.Request[text]) (*connect.Response[text], error) {
			return nil, connect.NewError(connect.CodeUnavailable, errors.New("for "+req.Msg.Value))
		}))
	srv := httptest.NewUnstartedServer(mux)
	srv.EnableHTTP2 = true
	srv.StartTLS()
	t.Cleanup(srv.Close)
	return srv
}

func TestConnectStreamsRunBothWays(t *testing.T) {
	srv := service(t)
	install(t, srv.Client().Transport)
	for name, opts := range protocols {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := connect.NewClient[text, text](http.DefaultClient, srv.URL+"/test.v1.Test/Bidi", opts...)
			s := client.CallBidiStream(bounded(t))
			for i := range 2 {
				msg := fmt.Sprint("message ", i)
				if err := s.Send(wrapperspb.String(msg)); err != nil {
					t.Fatal(err)
				}
				if got, err := s.Receive(); err != nil || got.Value != msg {
					t.Fatalf("%v, %v", got, err)
				}
			}
			if err := s.CloseRequest(); err != nil {
				t.Error(err)
			}
			if got, err := s.Receive(); err != nil || got.Value != "farewell" {
				t.Errorf("%v, %v", got, err)
			}
			if _, err := s.Receive(); !errors.Is(err, io.EOF) {
				t.Error(err)
			}
			if err := s.CloseResponse(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestConnectServerStreamOutlivesEveryLimit(t *testing.T) {
	srv := service(t)
	install(t, srv.Client().Transport)
	for name, opts := range protocols {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := connect.NewClient[text, text](http.DefaultClient, srv.URL+"/test.v1.Test/Down", opts...)
			s, err := client.CallServerStream(bounded(t), connect.NewRequest(wrapperspb.String("n")))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for s.Receive() {
				got = append(got, s.Msg().Value)
			}
			if want := "n0 n1 n2"; strings.Join(got, " ") != want {
				t.Errorf("got %v, want %v", got, want)
			}
			if connect.CodeOf(s.Err()) != connect.CodeDataLoss || s.ResponseTrailer().Get("Ended") != "yes" {
				t.Errorf("%v, trailer %v", s.Err(), s.ResponseTrailer())
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestConnectClientStreamAndErrorsArrive(t *testing.T) {
	srv := service(t)
	install(t, srv.Client().Transport)
	for name, opts := range protocols {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			up := connect.NewClient[text, text](http.DefaultClient, srv.URL+"/test.v1.Test/Up", opts...).CallClientStream(bounded(t))
			for range 16 {
				if err := up.Send(wrapperspb.String(strings.Repeat("x", mib))); err != nil {
					t.Fatal(err)
				}
			}
			if got, err := up.CloseAndReceive(); err != nil || got.Msg.Value != fmt.Sprint(16*mib) {
				t.Errorf("%v, %v", got, err)
			}
			unary := connect.NewClient[text, text](http.DefaultClient, srv.URL+"/test.v1.Test/Unary", opts...)
			_, err := unary.CallUnary(bounded(t), connect.NewRequest(wrapperspb.String("me")))
			if connect.CodeOf(err) != connect.CodeUnavailable || !strings.Contains(err.Error(), "for me") {
				t.Error(err)
			}
		})
	}
}
