package contract_test

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/transporttest"
)

// installNew installs a Transport until the test ends.
func installNew(t *testing.T, c transport.Config) *transport.Transport {
	t.Helper()
	tr := stackNew(t, c)
	t.Cleanup(transport.Install(tr))
	return tr
}

func installGet(t *testing.T, c *http.Client, url string) string {
	t.Helper()
	resp, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestInstallMakesTheDefaultGoThroughTheStack(t *testing.T) {
	for name, opts := range map[string][]transporttest.Option{
		"http": nil, "https": {transporttest.TLS()}, "https without HTTP/2": {transporttest.TLS("http/1.1")},
	} {
		t.Run(name, func(t *testing.T) {
			transporttest.CheckLeaks(t)
			o := transporttest.NewOrigin(t, opts...)
			o.Script(transporttest.Step{Body: "ok"})
			tr := installNew(t, transport.Config{Base: o.Base()})
			resp, err := http.Get(o.URL)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			if want := map[string]string{"http": "HTTP/1.1", "https": "HTTP/2.0", "https without HTTP/2": "HTTP/1.1"}[name]; resp.Proto != want {
				t.Errorf("%s, want %s", resp.Proto, want)
			}
			installGet(t, http.DefaultClient, o.URL)
			installGet(t, &http.Client{}, o.URL)
			installGet(t, &http.Client{Timeout: 5 * time.Second}, o.URL)
			if s := tr.Snapshot(); len(s) != 1 || s[0].Counts.Calls != 4 || s[0].Counts.Success != 4 {
				t.Errorf("%+v", s)
			}
			tr.Host(o.URL).ForceOpen()
			if _, err := http.Get(o.URL); !errors.Is(err, transport.ErrBreakerOpen) {
				t.Errorf("%v", err)
			}
		})
	}
}

// Libraries assert what http.DefaultTransport is, and clone it.
func TestInstallKeepsTheDefaultAnHTTPTransport(t *testing.T) {
	transporttest.CheckLeaks(t)
	var logged strings.Builder
	stderr := log.Writer()
	log.SetOutput(&logged)
	t.Cleanup(func() { log.SetOutput(stderr) })
	o := transporttest.NewOrigin(t, transporttest.TLS())
	o.Script(transporttest.Step{Body: "ok"})
	tr := installNew(t, transport.Config{Base: o.Base()})
	clone := http.DefaultTransport.(*http.Transport).Clone()
	clone.TLSClientConfig = o.TLSClientConfig()
	clone.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: "proxy.test"}) // as they do
	clone.Proxy = nil
	resp, err := (&http.Client{Transport: clone}).Get(o.URL)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	if resp.Proto != "HTTP/2.0" {
		t.Errorf("a clone speaks %s", resp.Proto)
	}
	if len(tr.Snapshot()) != 0 {
		t.Error("a clone went through the stack, which nobody asked it to")
	}
	installGet(t, http.DefaultClient, o.URL)
	stackWait(t, "the connections to close", func() bool {
		clone.CloseIdleConnections()
		http.DefaultClient.CloseIdleConnections() // reaches the stack
		_, open := o.Connections()
		return open == 0
	})
	if logged.Len() > 0 {
		t.Errorf("net/http logged %q", logged.String())
	}
}

// A clone goes around the layers, but has their limits on connecting and reading.
func TestInstallGivesClonesTheLimits(t *testing.T) {
	p := policy.Service()
	p.Timeout.Connect, p.Timeout.TLSHandshake, p.Timeout.Read = 2*time.Second, 3*time.Second, 2500*time.Millisecond
	shadow := p
	shadow.Timeout.Shadow = true
	hang := func(ctx context.Context, _, _ string) (net.Conn, error) {
		select {
		case <-ctx.Done():
		case <-time.After(time.Hour): // net/http lets it go on without its request
		}
		return nil, context.DeadlineExceeded
	}
	for name, row := range map[string]struct {
		policy policy.Policy
		base   http.RoundTripper
		url    string
		want   time.Duration
	}{
		"of the policy":    {p, &http.Transport{DialContext: hang}, "http://x.test/", 2 * time.Second},
		"of its handshake": {p, &http.Transport{DialTLSContext: hang}, "https://x.test/", 5 * time.Second},
		"in shadow":        {shadow, &http.Transport{DialContext: hang}, "http://x.test/", time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				installNew(t, transport.Config{Default: row.policy, Base: row.base})
				clone := http.DefaultTransport.(*http.Transport).Clone()
				start := time.Now()
				_, err := clone.RoundTrip(stackRequest(t, t.Context(), http.MethodGet, row.url))
				if took := time.Since(start); err == nil || took != row.want {
					t.Errorf("%v after %v", err, took)
				}
				if row.policy.Timeout.Shadow {
					return
				}
				if clone.TLSHandshakeTimeout != 3*time.Second || clone.ResponseHeaderTimeout != 2500*time.Millisecond {
					t.Errorf("TLS %v, header %v", clone.TLSHandshakeTimeout, clone.ResponseHeaderTimeout)
				}
				if clone.MaxIdleConns == 0 || clone.MaxIdleConnsPerHost == 0 || clone.MaxConnsPerHost != 0 {
					t.Errorf("idle %d, per host %d, per host in all %d", clone.MaxIdleConns, clone.MaxIdleConnsPerHost, clone.MaxConnsPerHost)
				}
			})
		})
	}
}

func TestInstallIsUndone(t *testing.T) {
	before := http.DefaultTransport
	a, b := stackNew(t, transport.Config{Base: stackBase(stackHello)}), stackNew(t, transport.Config{Base: stackBase(stackHello)})
	undoA := transport.Install(a)
	undoB := transport.Install(b)
	if got := installGet(t, http.DefaultClient, "http://x.test/"); got != "hello" || len(a.Snapshot()) != 0 || len(b.Snapshot()) != 1 {
		t.Errorf("%q", got)
	}
	undoB()
	if got := installGet(t, http.DefaultClient, "http://x.test/"); got != "hello" || len(a.Snapshot()) != 1 {
		t.Errorf("%q", got)
	}
	undoA()
	if http.DefaultTransport != before {
		t.Error("not what it was")
	}
}

// A stack over the installed default, or over itself, goes to the network once.
func TestInstallIsNoLoop(t *testing.T) {
	transporttest.CheckLeaks(t)
	o := transporttest.NewOrigin(t)
	o.Script(transporttest.Step{Body: "ok"})
	tr := installNew(t, transport.Config{Base: o.Base()})
	over := stackNew(t, transport.Config{Base: http.DefaultTransport})
	if got := installGet(t, over.Client(), o.URL); got != "ok" {
		t.Errorf("%q", got)
	}
	if len(tr.Snapshot()) != 0 || len(over.Snapshot()) != 1 {
		t.Error("went through both")
	}
	stacked := stackNew(t, transport.Config{Base: tr})
	if got := installGet(t, stacked.Client(), o.URL); got != "ok" {
		t.Errorf("%q", got)
	}
	transporttest.CheckPermits(t, tr)
	transporttest.CheckPermits(t, over)
	transporttest.CheckPermits(t, stacked)
}

// Schemes that others have registered stay with them, and unknown ones are
// refused, as without the stack.
func TestInstallLeavesOtherSchemesAlone(t *testing.T) {
	base := &http.Transport{}
	base.RegisterProtocol("memory", stackBase(stackHello))
	tr := installNew(t, transport.Config{Base: base})
	if got := installGet(t, tr.Client(), "memory://x/"); got != "hello" {
		t.Errorf("%q", got)
	}
	_, err := http.Get("gopher://x.test/")
	if err == nil || !strings.Contains(err.Error(), "unsupported protocol scheme") {
		t.Errorf("%v", err)
	}
}

// net/http takes wss upgrades past registered protocols: they work, unprotected.
func TestInstallLetsUpgradesOverTLSPass(t *testing.T) {
	transporttest.CheckLeaks(t)
	s := httptest.NewTLSServer(http.HandlerFunc(contractUpgrade))
	defer s.Close()
	tr := installNew(t, transport.Config{Base: &http.Transport{TLSClientConfig: s.Client().Transport.(*http.Transport).TLSClientConfig.Clone()}})
	req := stackRequest(t, t.Context(), http.MethodGet, s.URL)
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "websocket")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	rw, ok := resp.Body.(io.ReadWriteCloser)
	if !ok || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v %T", resp.Status, resp.Body)
	}
	b := make([]byte, 4)
	_, _ = io.WriteString(rw, "ping")
	if _, err := io.ReadFull(rw, b); string(b) != "ping" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	_ = rw.Close()
	if len(tr.Snapshot()) != 0 {
		t.Error("net/http has changed: say so in the documentation of Install")
	}
}

func TestInstallOfNothingPanicsWithASentence(t *testing.T) {
	before := http.DefaultTransport
	defer func() {
		if v, ok := recover().(string); !ok || !strings.HasPrefix(v, "watertight: ") || !strings.Contains(v, "New") {
			t.Errorf("%v", v)
		}
		if http.DefaultTransport != before {
			t.Error("the default was changed")
		}
	}()
	transport.Install(nil)
}
