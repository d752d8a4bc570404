package status_test

import (
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/status"
)

// TestPictureOfAnOutage makes the pictures of the README, when it is asked to:
//
//	WATERTIGHT_PICTURES=/tmp go test -run PictureOfAnOutage ./transport/status
func TestPictureOfAnOutage(t *testing.T) {
	dir := os.Getenv("WATERTIGHT_PICTURES")
	if dir == "" {
		t.Skip("takes a minute and writes pictures: set WATERTIGHT_PICTURES to a directory")
	}
	w := &world{}
	service := policy.Service()
	service.Breaker.OpenFor, service.Breaker.OpenForMax = 8*time.Second, 30*time.Second
	telemetry := service
	telemetry.Fallback.MaxStale = 10 * time.Minute
	shadow := service
	shadow.Breaker.Shadow = true
	tr := w.over(t, transport.Config{Default: service, Hosts: map[string]policy.Policy{
		"telemetry.internal": telemetry, "recommendations.internal": shadow}})

	stop := make(chan struct{})
	var load sync.WaitGroup
	hosts := map[string]struct {
		rate  int
		takes time.Duration
	}{
		"telemetry.internal:8443":  {40, 30 * time.Millisecond},
		"payments.internal":        {12, 80 * time.Millisecond},
		"catalog.internal":         {60, 12 * time.Millisecond},
		"inventory.internal":       {30, 45 * time.Millisecond},
		"search.internal":          {25, 110 * time.Millisecond},
		"recommendations.internal": {10, 60 * time.Millisecond},
		"users.internal":           {50, 8 * time.Millisecond},
		"mail.internal:2525":       {2, 200 * time.Millisecond},
		"pricing.internal":         {20, 25 * time.Millisecond},
	}
	for host, l := range hosts {
		name, _, err := net.SplitHostPort(host)
		if err != nil {
			name = host
		}
		w.set(name, does{after: l.takes})
		load.Go(func() {
			every := time.NewTicker(time.Second / time.Duration(l.rate))
			defer every.Stop()
			for {
				select {
				case <-stop:
					return
				case <-every.C:
					load.Go(func() { _ = call(tr, "https://"+host+"/") })
				}
			}
		})
	}
	defer load.Wait()
	defer close(stop)
	h := status.New(tr, status.Config{Name: "checkout-7f9c4"})
	server := httptest.NewServer(h)
	defer server.Close()
	defer h.Close()
	b := newBrowser(t)
	b.size(1280, 900, false, 1)
	b.open(server.URL)

	time.Sleep(20 * time.Second)
	w.set("telemetry.internal", does{hang: true})
	time.Sleep(4 * time.Second)
	w.set("search.internal", does{after: 90 * time.Millisecond, status: 503})
	time.Sleep(4 * time.Second)
	w.set("payments.internal", does{err: &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}})
	w.set("recommendations.internal", does{after: 20 * time.Millisecond, status: 502})
	w.set("inventory.internal", does{after: 480 * time.Millisecond})
	tr.Host("mail.internal").ForceOpen()
	time.Sleep(12 * time.Second)
	w.set("search.internal", does{after: 110 * time.Millisecond})
	time.Sleep(9 * time.Second)
	b.await("document.querySelectorAll('.card.open').length >= 2 && /in [3-9] s/.test(document.querySelector('.card.open .next dd').textContent)")
	for name, shot := range map[string]func() []byte{
		"light": func() []byte { b.size(1280, 900, false, 1); return b.screenshot(false) },
		"full":  func() []byte { b.size(1280, 900, false, 1); return b.screenshot(true) },
		"dark": func() []byte {
			b.prefer("prefers-color-scheme", "dark")
			defer b.prefer("prefers-color-scheme", "light")
			return b.screenshot(false)
		},
		"phone": func() []byte { b.size(360, 1900, true, 2); time.Sleep(time.Second); return b.screenshot(false) },
		"details": func() []byte {
			b.size(1280, 1500, false, 1)
			b.eval("document.querySelector('.card summary').click(); document.querySelector('#closed button').click()", nil)
			time.Sleep(time.Second)
			defer b.eval("document.querySelector('.card summary').click(); document.querySelector('#closed button').click()", nil)
			return b.screenshot(false)
		},
	} {
		if err := os.WriteFile(filepath.Join(dir, "status-"+name+".png"), shot(), 0o644); err != nil {
			t.Error(err)
		}
	}
	t.Log(b.complaints())
}
