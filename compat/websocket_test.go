package compat_test

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// echo is a WebSocket server that sends back what it gets.
func echo(t *testing.T) (url string) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		c, err := websocket.Accept(w, req, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer c.CloseNow()
		c.SetReadLimit(2 * mib)
		for {
			kind, msg, err := c.Read(req.Context())
			if err != nil {
				return
			}
			if err := c.Write(req.Context(), kind, msg); err != nil {
				return
			}
		}
	}))
	t.Cleanup(srv.Close)
	return strings.Replace(srv.URL, "http", "ws", 1)
}

func TestWebSocketOutlivesEveryLimit(t *testing.T) {
	url := echo(t)
	rt := install(t, nil)
	ctx := bounded(t)
	c, resp, err := websocket.Dial(ctx, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseNow()
	c.SetReadLimit(2 * mib)
	if resp.StatusCode != http.StatusSwitchingProtocols {
		t.Errorf("status %d", resp.StatusCode)
	}
	if held := rt.Snapshot()[0].InFlight; held != 0 {
		t.Errorf("%d permits held by an upgrade", held)
	}
	exchange := func(msg []byte) {
		t.Helper()
		if err := c.Write(ctx, websocket.MessageBinary, msg); err != nil {
			t.Fatal(err)
		}
		if _, got, err := c.Read(ctx); err != nil || !bytes.Equal(got, msg) {
			t.Fatalf("%d bytes back of %d: %v", len(got), len(msg), err)
		}
	}
	exchange([]byte("before"))
	time.Sleep(10 * read) // longer than total, too
	exchange([]byte("after"))
	exchange(bytes.Repeat([]byte("large"), mib/5))
	if err := c.Close(websocket.StatusNormalClosure, ""); err != nil {
		t.Error(err)
	}
}

func TestWebSocketReadEndsWithItsContext(t *testing.T) {
	url := echo(t)
	install(t, nil)
	c, _, err := websocket.Dial(bounded(t), url, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseNow()
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, _, err := c.Read(ctx); ctx.Err() == nil {
		t.Errorf("before its deadline: %v", err)
	}
}
