package scene

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// testProxy is a proxy before an origin, and what it logs.
type testProxy struct {
	t         *testing.T
	origin    *server
	addr, url string
	client    *http.Client
	log       lockedBuffer
	interrupt context.CancelFunc
	stopped   chan error
}

// startProxy serves the command line "proxy -target ORIGIN args".
func startProxy(t *testing.T, origin http.HandlerFunc, args ...string) *testProxy {
	t.Helper()
	o, err := listen(origin)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.close)
	c, f, err := proxyFlags(append([]string{"-listen", "127.0.0.1:0", "-target", "http://" + o.host}, args...))
	if err != nil || len(f.problems) > 0 {
		t.Fatal(err, f.problems)
	}
	p := &testProxy{t: t, origin: o, stopped: make(chan error, 1)}
	real, err := newProxy(c, slog.New(slog.NewTextHandler(&p.log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	p.addr = real.listener.Addr().String()
	p.url = "http://" + p.addr
	base := &http.Transport{DisableCompression: true}
	p.client = &http.Client{Transport: base}
	ctx, cancel := context.WithCancel(t.Context())
	p.interrupt = cancel
	ended := make(chan struct{})
	go func() {
		p.stopped <- real.serve(ctx)
		close(ended)
	}()
	t.Cleanup(func() {
		base.CloseIdleConnections()
		cancel()
		<-ended
	})
	return p
}

func (p *testProxy) get(path string) (*http.Response, string) {
	p.t.Helper()
	resp, err := p.client.Get(p.url + path)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return resp, string(b)
}

func TestProxyPassesOnWhatIsAsked(t *testing.T) {
	p := startProxy(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Connection", "X-Hop")
		w.Header().Set("X-Hop", "private")
		w.Header().Set("X-End", "yes")
		w.WriteHeader(http.StatusTeapot)
		fmt.Fprintf(w, "%s %s %s host=%s for=%s hop=%q encoding=%q", r.Method, r.RequestURI, body,
			r.Host, r.Header.Get("X-Forwarded-For"), r.Header.Get("X-Mine"), r.Header.Get("Accept-Encoding"))
	})
	req, _ := http.NewRequest("PATCH", p.url+"/a%2Fb?x=1;y&z=%zz", strings.NewReader("body"))
	req.Header.Set("Connection", "X-Mine")
	req.Header.Set("X-Mine", "private")
	req.Header.Set("X-Forwarded-For", "192.0.2.1") // anybody can say that
	resp, err := p.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	want := "PATCH /a%2Fb?x=1;y&z=%zz body host=" + p.origin.host + ` for=127.0.0.1 hop="" encoding=""`
	if string(b) != want || resp.StatusCode != http.StatusTeapot {
		t.Errorf("%d %s\nwant %s", resp.StatusCode, b, want)
	}
	if resp.Header.Get("X-Hop") != "" || resp.Header.Get("X-End") != "yes" {
		t.Errorf("%v", resp.Header)
	}
}

func TestProxyKeepsTheHostOnRequest(t *testing.T) {
	p := startProxy(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Host) }, "-keep-host")
	if _, body := p.get("/"); body != p.addr {
		t.Errorf("%q, want %q", body, p.addr)
	}
}

func TestProxyStreamsAsItComes(t *testing.T) {
	next := make(chan struct{})
	p := startProxy(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 3 {
			fmt.Fprintf(w, "data: %d\n\n", i)
			http.NewResponseController(w).Flush()
			select {
			case <-next:
			case <-r.Context().Done():
				return
			}
		}
	})
	resp, err := p.client.Get(p.url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	for i := range 3 {
		line, err := lines.ReadString('\n') // the origin waits for us
		if err != nil || line != fmt.Sprintf("data: %d\n", i) {
			t.Fatalf("%q, %v", line, err)
		}
		lines.ReadString('\n')
		next <- struct{}{}
	}
	if _, err := lines.ReadByte(); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
}

// upgrade opens an echoing tunnel through the proxy.
func upgrade(t *testing.T, p *testProxy) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", p.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	fmt.Fprintf(conn, "GET /echo HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols || resp.Header.Get("Upgrade") != "echo" || r.Buffered() > 0 {
		t.Fatal(resp, err)
	}
	return conn
}

// echo answers an upgrade and sends back what comes.
func echo(w http.ResponseWriter, r *http.Request) {
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	fmt.Fprintf(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	rw.Flush()
	io.Copy(conn, rw)
}

func TestProxyPassesOnUpgrades(t *testing.T) {
	p := startProxy(t, echo)
	conn := upgrade(t, p)
	for _, word := range []string{"hello", "again"} {
		fmt.Fprint(conn, word)
		b := make([]byte, len(word))
		if _, err := io.ReadFull(conn, b); err != nil || string(b) != word {
			t.Fatalf("%q, %v", b, err)
		}
	}
}

func TestProxyPassesOnTrailers(t *testing.T) {
	p := startProxy(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Trailer", "X-Sum")
		fmt.Fprint(w, "body")
		w.Header().Set("X-Sum", "42")
		w.Header().Set(http.TrailerPrefix+"X-Asked", r.Trailer.Get("X-Question"))
	})
	req, _ := http.NewRequest("POST", p.url, io.MultiReader(strings.NewReader("body"))) // of no known length
	req.Trailer = http.Header{"X-Question": {"what"}}
	resp, err := p.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, resp.Body)
	if resp.Trailer.Get("X-Sum") != "42" || resp.Trailer.Get("X-Asked") != "what" {
		t.Errorf("%v", resp.Trailer)
	}
}

// oneLine checks an error answer of the proxy's own.
func oneLine(t *testing.T, resp *http.Response, body string, status int, want string) {
	t.Helper()
	after, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	if resp.StatusCode != status || err != nil || after < 1 ||
		strings.Count(body, "\n") != 1 || !strings.HasSuffix(body, "\n") || !strings.HasPrefix(body, "watertight: ") || !strings.Contains(body, want) {
		t.Errorf("%d, Retry-After %q: %q, want %d and %q", resp.StatusCode, resp.Header.Get("Retry-After"), body, status, want)
	}
}

func TestProxySays503WhileTheBreakerIsOpen(t *testing.T) {
	p := startProxy(t, func(w http.ResponseWriter, r *http.Request) { http.Error(w, "broken", 500) },
		"-consecutive-failures", "2", "-attempts", "1", "-open-for", "30s", "-open-for-max", "30s")
	for range 2 {
		if resp, body := p.get("/"); resp.StatusCode != 500 || body != "broken\n" {
			t.Errorf("%d %q: the origin's own answer is wanted", resp.StatusCode, body)
		}
	}
	resp, body := p.get("/?secret")
	oneLine(t, resp, body, 503, "circuit breaker of "+p.origin.host+" is open: 2 failures in a row, last: status 500")
	if after, _ := strconv.Atoi(resp.Header.Get("Retry-After")); after < 25 || after > 34 {
		t.Errorf("Retry-After: %d", after)
	}
	if strings.Contains(body, "secret") {
		t.Errorf("tells the query: %s", body)
	}
	waitFor(t, "the transition in the log", func() bool {
		return strings.Contains(p.log.String(), "circuit breaker state changed") && strings.Contains(p.log.String(), "state=open")
	})
}

func TestProxySays504WhenTheTargetHangs(t *testing.T) {
	p := startProxy(t, func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "-read", "50ms", "-attempts", "1")
	resp, body := p.get("/")
	oneLine(t, resp, body, 504, "read timeout in phase response_header after 50ms (Timeout.Read")
}

func TestProxySays503WhenTheBulkheadIsFull(t *testing.T) {
	in, out := make(chan struct{}), make(chan struct{})
	p := startProxy(t, func(w http.ResponseWriter, r *http.Request) { in <- struct{}{}; <-out },
		"-max-concurrent", "1", "-min-calls", "1")
	done := make(chan struct{})
	go func() {
		p.get("/")
		close(done)
	}()
	<-in
	resp, body := p.get("/")
	oneLine(t, resp, body, 503, "bulkhead of "+p.origin.host+" full")
	close(out)
	<-done
}

func TestProxySays502WhenNobodyListens(t *testing.T) {
	p := startProxy(t, nil, "-attempts", "1")
	p.origin.close()
	resp, body := p.get("/?secret")
	oneLine(t, resp, body, 502, "connection refused")
	if strings.Contains(body, "secret") {
		t.Errorf("tells the query: %s", body)
	}
}

func TestProxyServesTheLastGoodAnswer(t *testing.T) {
	p := startProxy(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "good") }, "-max-stale", "1m", "-attempts", "1")
	p.get("/")
	p.origin.close()
	resp, body := p.get("/")
	if resp.StatusCode != 200 || body != "good" || !strings.Contains(resp.Header.Get("Cache-Status"), "watertight; fwd=stale") {
		t.Errorf("%d %q %v", resp.StatusCode, body, resp.Header)
	}
}

func TestProxyInShadowRefusesNothing(t *testing.T) {
	p := startProxy(t, func(w http.ResponseWriter, r *http.Request) { http.Error(w, "broken", 500) },
		"-consecutive-failures", "1", "-shadow", "breaker,retry")
	for range 5 {
		if resp, body := p.get("/"); resp.StatusCode != 500 || body != "broken\n" {
			t.Errorf("%d %q", resp.StatusCode, body)
		}
	}
	if !strings.Contains(p.log.String(), "shadow=true") {
		t.Error(p.log.String())
	}
}

func TestProxyWithEverythingOffStillPasses(t *testing.T) {
	args := []string{"-policy", "service"}
	for _, k := range knobs {
		args = append(args, "-"+k.flag, "0")
	}
	p := startProxy(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "good") }, args...)
	if resp, body := p.get("/"); resp.StatusCode != 200 || body != "good" {
		t.Errorf("%d %q", resp.StatusCode, body)
	}
}

func TestProxyRefusesToCallItself(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // a port that is likely to be free
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	c, _, _ := proxyFlags([]string{"-listen", addr, "-target", "http://" + addr})
	if _, err := newProxy(c, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "is the proxy itself") {
		t.Error(err)
	}
}

func TestProxyLetsCallsEndWhenInterrupted(t *testing.T) {
	in, out := make(chan struct{}), make(chan struct{})
	p := startProxy(t, func(w http.ResponseWriter, r *http.Request) {
		close(in)
		<-out
		fmt.Fprint(w, "late")
	})
	answer := make(chan string, 1)
	go func() {
		_, body := p.get("/")
		answer <- body
	}()
	<-in
	p.interrupt()
	waitFor(t, "the proxy to take no more calls", func() bool {
		conn, err := net.Dial("tcp", p.addr)
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
	close(out)
	if body := <-answer; body != "late" {
		t.Errorf("%q", body)
	}
	if err := <-p.stopped; err != nil {
		t.Error(err)
	}
	if log := p.log.String(); !strings.Contains(log, "proxy stopped") || !strings.Contains(log, " calls=1 ") || !strings.Contains(log, " rejected=0 ") {
		t.Error(log)
	}
}

func TestProxyCutsStreamsAndTunnelsAfterTheGrace(t *testing.T) {
	p := startProxy(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/echo" {
			echo(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}, "-grace", "1s")
	conn := upgrade(t, p)
	resp, err := p.client.Get(p.url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	start := time.Now()
	p.interrupt()
	fmt.Fprint(conn, "x") // within the grace the tunnel works on
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		t.Errorf("within the grace: %v", err)
	}
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("the tunnel is open after the grace")
	}
	if _, err := io.Copy(io.Discard, resp.Body); err == nil {
		t.Error("the stream has ended as if it were complete")
	}
	if err := <-p.stopped; err != nil {
		t.Error(err)
	}
	if took := time.Since(start); took < time.Second || took > 5*time.Second {
		t.Errorf("took %v", took)
	}
}

func TestProxyTellsWhatWasReused(t *testing.T) {
	p := startProxy(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", "max-age=60")
		fmt.Fprint(w, "good")
	}, "-fresh", "-after", "200ms", "-max-stale", "1m")
	for range 3 {
		if resp, body := p.get("/"); resp.StatusCode != 200 || body != "good" {
			t.Errorf("%d %q", resp.StatusCode, body)
		}
	}
	p.interrupt()
	if err := <-p.stopped; err != nil || !strings.Contains(p.log.String(), "hits=2") {
		t.Errorf("%v\n%s", err, p.log.String())
	}
}
