package scene

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestServeTakesFaultsByHand(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // a port that is likely to be free
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()

	ctx, interrupt := context.WithCancel(t.Context())
	var out lockedBuffer
	code := make(chan int)
	go func() {
		v := &view{out: &out}
		c, err := runServe(ctx, small(), v, addr, nil)
		if err != nil {
			t.Error(err)
		}
		code <- c
	}()
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	client := &http.Client{Transport: base}
	do := func(method, path string) (int, string) {
		req, _ := http.NewRequest(method, "http://"+addr+path, nil)
		var resp *http.Response
		for range 500 {
			if resp, err = client.Do(req); err == nil {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(b)
	}

	if code, body := do("GET", "/"); code != 200 || !strings.Contains(body, "curl -XPOST 'http://"+addr+"/telemetry/delay?d=30s'") {
		t.Errorf("%d %s", code, body)
	}
	for _, tt := range []struct {
		path, body string
		code       int
	}{
		{"/telemetry/hang", "telemetry: hangs\n", 200},
		{"/crew/errors?status=500&share=0.5", "crew: answers 500 (50 % of requests)\n", 200},
		{"/areas/delay?d=40ms", "areas: answers in 40ms\n", 200},
		{"/areas/delay", "areas: answers in 3s\n", 200},
		{"/alerts/drip?every=1ms", "alerts: drips a byte every 1ms\n", 200},
		{"/alerts/resets", "alerts: resets connections\n", 200},
		{"/fleet/hang", `"fleet": must be one of areas, crew, telemetry, geofences, alerts` + "\n", 404},
		{"/crew/stall", `"stall": must be delay, hang, errors, resets, drip or ok` + "\n", 400},
		{"/crew/delay?d=soon", "d=soon: must be a duration with a unit, above 0 and at most 1h, such as 30s\n", 400},
		{"/crew/delay?d=0s", "d=0s: must be a duration with a unit, above 0 and at most 1h, such as 30s\n", 400},
		{"/crew/errors?status=200", "status=200: must be a status from 400 to 599\n", 400},
		{"/crew/hang?share=0", "share=0: must be above 0, and at most 1\n", 400},
		{"/crew/hang?d=3s", "d: hang takes no such parameter\n", 400},
		{"/areas/ok", "areas: healthy\n", 200}, {"/crew/ok", "crew: healthy\n", 200}, {"/alerts/ok", "alerts: healthy\n", 200},
	} {
		if code, body := do("POST", tt.path); code != tt.code || body != tt.body {
			t.Errorf("%s: %d %q", tt.path, code, body)
		}
	}
	if code, _ := do("GET", "/crew/hang"); code != http.StatusMethodNotAllowed {
		t.Errorf("GET: %d", code)
	}

	var s status
	waitFor(t, "telemetry's breaker to open", func() bool {
		_, body := do("GET", "/status")
		if err := json.Unmarshal([]byte(body), &s); err != nil || len(s.Dependencies) != 5 {
			t.Fatal(err, body)
		}
		return s.Dependencies[2].Name == "telemetry" && s.Dependencies[2].Breaker == "open"
	})
	if d := s.Dependencies[2]; d.Fault != "hangs" || d.Tripped == "" || d.RetryIn == "" || s.Workers != 40 {
		t.Errorf("%+v", s)
	}
	do("POST", "/telemetry/ok")
	waitFor(t, "telemetry's breaker to close", func() bool { return strings.Contains(out.String(), "telemetry: half_open -> closed") })
	if !regexp.MustCompile(`the assembler:  http://127\.0\.0\.1:\d+/mission`).MatchString(out.String()) {
		t.Error(out.String())
	}

	if code, body := do("GET", "/page/"); code != 200 || !strings.Contains(body, "<title>watertight</title>") || !strings.Contains(out.String(), "status page:    http://"+addr+"/page/\n") {
		t.Errorf("%d %s", code, out.String())
	}
	if code, body := do("GET", "/page/hosts?q=crew"); code != 200 || !strings.Contains(body, `"host":"crew:80"`) {
		t.Errorf("%d %s", code, body)
	}
	for _, path := range []string{"/control/force-open/crew", "/control/reset/crew"} {
		if code, body := do("POST", path); code != 200 || !strings.Contains(body, `"known":true`) {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	if code, body := do("GET", "/"); code != 200 || !strings.Contains(body, "http://"+addr+"/page/") || !strings.Contains(body, "curl -d host=telemetry http://"+addr+"/control/force-open") {
		t.Errorf("%d %s", code, body)
	}
	events, err := client.Get("http://" + addr + "/page/events") // holds up no end
	if err != nil {
		t.Fatal(err)
	}
	defer events.Body.Close()

	do("POST", "/telemetry/hang")
	start := time.Now()
	interrupt()
	if c := <-code; c != exitOK {
		t.Errorf("exit code %d", c)
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("took %v to stop", took)
	}
}

func TestServeIsNotForWebPages(t *testing.T) {
	r, err := newRig(small(), &view{}, true, true, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	s, err := listen(r.control("", ""))
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	req, _ := http.NewRequest("POST", "http://"+s.host+"/crew/hang", nil)
	req.Header.Set("Origin", "http://elsewhere.example")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	evil, _ := http.NewRequest("POST", "http://"+s.host+"/control/force-open/crew", nil)
	evil.Host = "rebound.example" // whose owner lets it resolve to this address
	refused, err := http.DefaultClient.Do(evil)
	if err != nil {
		t.Fatal(err)
	}
	refused.Body.Close()
	if refused.StatusCode != http.StatusMisdirectedRequest {
		t.Error(refused.Status)
	}
	if f := r.deps["crew"].fault.Load(); resp.StatusCode != http.StatusForbidden || f.kind != healthy {
		t.Errorf("%d, %v", resp.StatusCode, f)
	}
}

// waitFor waits until something is so.
func waitFor(t *testing.T, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(15 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if so() {
			return
		}
	}
	t.Fatalf("waited in vain for %s", what)
}

// lockedBuffer is a buffer that is written and read at the same time.
type lockedBuffer struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
