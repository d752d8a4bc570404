package status_test

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// browser is a headless Chromium, driven over a pair of pipes by the DevTools
// protocol: messages in JSON, each ended by a zero byte.
type browser struct {
	t       *testing.T
	to      *os.File
	session string

	mu      sync.Mutex // guards what follows
	last    int
	replies map[int]chan message
	events  []message
	err     error
}

type message struct {
	ID     int             `json:"id,omitempty"`
	Method string          `json:"method,omitempty"`
	Params json.RawMessage `json:"params,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
	Session string `json:"sessionId,omitempty"`
}

const browserPatience = 30 * time.Second

// browsed are the tests that have had a browser, by name.
var browsed sync.Map

// newBrowser starts Chromium with one empty page, and ends it with the test.
//
// With -count a test gets one in the first round only: in a browser time is real, and
// twenty rounds would take longer than a package of tests may.
func newBrowser(t *testing.T) *browser {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a browser: not with -short")
	}
	if first, again := browsed.LoadOrStore(t.Name(), t); again && first != t && os.Getenv("BROWSER") == "" {
		t.Skip("was run in a browser in an earlier round; BROWSER=1 repeats it")
	}
	var path string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "chrome"} {
		if p, err := exec.LookPath(name); err == nil {
			path = p
			break
		}
	}
	if path == "" {
		t.Skip("no Chromium: install Debian's package chromium to run this test")
	}
	fromUs, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	from, toUs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	cmd := exec.Command(path, "--headless=new", "--disable-lcd-text", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--no-first-run", "--disable-extensions", "--disable-background-networking", "--disable-component-update", "--disable-sync",
		"--no-proxy-server", "--user-data-dir="+home, "about:blank")
	cmd.Env = append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME="+home, "XDG_CACHE_HOME="+home, "TZ=UTC", "LANG=en_US.UTF-8")
	cmd.ExtraFiles = []*os.File{fromUs, toUs} // 3 and 4
	if err := cmd.Start(); err != nil {
		t.Skipf("Chromium does not start: %v", err)
	}
	_ = fromUs.Close()
	_ = toUs.Close()
	b := &browser{t: t, to: to, replies: map[int]chan message{}}
	read := make(chan struct{})
	go func() {
		defer close(read)
		b.read(from)
	}()
	t.Cleanup(func() {
		ended := make(chan struct{})
		go func() {
			_ = cmd.Wait()
			close(ended)
		}()
		_ = b.send(message{ID: 1 << 30, Method: "Browser.close"})
		select {
		case <-ended:
		case <-time.After(5 * time.Second):
			_ = cmd.Process.Kill()
			<-ended
		}
		_ = to.Close()
		_ = from.Close()
		<-read
	})
	var target struct {
		TargetID string `json:"targetId"`
	}
	b.do("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct {
		SessionID string `json:"sessionId"`
	}
	b.do("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	b.session = attached.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log", "Network", "Audits"} {
		b.do(domain+".enable", nil, nil)
	}
	return b
}

func (b *browser) read(from *os.File) {
	r := bufio.NewReader(from)
	for {
		line, err := r.ReadBytes(0)
		if err != nil {
			b.mu.Lock()
			b.err = err
			for _, c := range b.replies {
				close(c)
			}
			b.replies = nil
			b.mu.Unlock()
			return
		}
		var m message
		if json.Unmarshal(line[:len(line)-1], &m) != nil {
			continue
		}
		b.mu.Lock()
		if c := b.replies[m.ID]; m.ID != 0 && c != nil {
			delete(b.replies, m.ID)
			c <- m
		} else if m.Method != "" {
			b.events = append(b.events, m)
		}
		b.mu.Unlock()
	}
}

func (b *browser) send(m message) error {
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	_, err = b.to.Write(append(data, 0))
	return err
}

// do sends a command and waits for its result.
func (b *browser) do(method string, params, result any) {
	b.t.Helper()
	if err := b.try(method, params, result); err != nil {
		b.t.Fatal(err)
	}
}

func (b *browser) try(method string, params, result any) error {
	m := message{Method: method, Session: b.session}
	if params != nil {
		m.Params, _ = json.Marshal(params)
	}
	reply := make(chan message, 1)
	b.mu.Lock()
	if b.err != nil {
		b.mu.Unlock()
		return fmt.Errorf("%s: the browser is gone: %w", method, b.err)
	}
	b.last++
	m.ID = b.last
	b.replies[m.ID] = reply
	b.mu.Unlock()
	if err := b.send(m); err != nil {
		return err
	}
	select {
	case r, ok := <-reply:
		switch {
		case !ok:
			return errors.New(method + ": the browser is gone")
		case r.Error != nil:
			return errors.New(method + ": " + r.Error.Message)
		case result != nil:
			return json.Unmarshal(r.Result, result)
		}
		return nil
	case <-time.After(browserPatience):
		return errors.New(method + ": no answer")
	}
}

// eval is the value of an expression in the page.
func (b *browser) eval(expression string, value any) {
	b.t.Helper()
	var r struct {
		Result struct {
			Value json.RawMessage `json:"value"`
		} `json:"result"`
		Exception *struct {
			Text      string `json:"text"`
			Exception struct {
				Description string `json:"description"`
			} `json:"exception"`
		} `json:"exceptionDetails"`
	}
	b.do("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &r)
	if r.Exception != nil {
		b.t.Fatalf("%s: %s %s", expression, r.Exception.Text, r.Exception.Exception.Description)
	}
	if value != nil {
		if err := json.Unmarshal(r.Result.Value, value); err != nil {
			b.t.Fatalf("%s: %s: %v", expression, r.Result.Value, err)
		}
	}
}

// await returns when an expression is true.
func (b *browser) await(expression string) {
	b.t.Helper()
	late := time.Now().Add(browserPatience)
	for {
		var ok bool
		b.eval("!!("+expression+")", &ok)
		if ok {
			return
		}
		if time.Now().After(late) {
			var text string
			b.eval("document.body.innerText", &text)
			b.t.Fatalf("never true: %s; complaints: %v; page:\n%s", expression, b.complaints(), text)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (b *browser) open(url string) {
	b.t.Helper()
	b.do("Page.navigate", map[string]any{"url": url}, nil)
	b.await("document.readyState === 'complete' && location.href !== 'about:blank'")
}

// size makes the window as large as a device's.
func (b *browser) size(width, height int, mobile bool, scale float64) {
	b.t.Helper()
	b.do("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": scale, "mobile": mobile}, nil)
}

// prefer sets a media feature such as prefers-color-scheme.
func (b *browser) prefer(name, value string) {
	b.t.Helper()
	b.do("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": name, "value": value}}}, nil)
}

// screenshot is the page as a PNG; whole: all of it, not the window alone.
func (b *browser) screenshot(whole bool) []byte {
	b.t.Helper()
	var shot struct {
		Data string `json:"data"`
	}
	b.do("Page.captureScreenshot", map[string]any{"format": "png", "captureBeyondViewport": whole}, &shot)
	png, err := base64.StdEncoding.DecodeString(shot.Data)
	if err != nil {
		b.t.Fatal(err)
	}
	return png
}

// seen yields the parameters of the events of a kind.
func (b *browser) seen(method string) []json.RawMessage {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []json.RawMessage
	for _, e := range b.events {
		if e.Method == method {
			all = append(all, e.Params)
		}
	}
	return all
}

// complaints are the errors and warnings on the console, uncaught exceptions and
// what DevTools found to be wrong, violations of the policy among it.
func (b *browser) complaints() []string {
	var all []string
	for _, method := range []string{"Runtime.exceptionThrown", "Audits.issueAdded"} {
		for _, p := range b.seen(method) {
			all = append(all, method+" "+string(p))
		}
	}
	for _, p := range b.seen("Log.entryAdded") {
		if s := string(p); strings.Contains(s, `"level":"error"`) || strings.Contains(s, `"level":"warning"`) {
			all = append(all, "Log "+s)
		}
	}
	for _, p := range b.seen("Runtime.consoleAPICalled") {
		all = append(all, "console "+string(p))
	}
	return all
}

// requests are the URLs that the page has asked for.
func (b *browser) requests() []string {
	var urls []string
	for _, p := range b.seen("Network.requestWillBeSent") {
		var e struct {
			Request struct {
				URL string `json:"url"`
			} `json:"request"`
		}
		_ = json.Unmarshal(p, &e)
		urls = append(urls, e.Request.URL)
	}
	return urls
}
