package contract_test

import (
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/internal/stacktest"
	"github.com/watertight-go/watertight/transport/transporttest"
)

// Package net/http reads the proxy's environment once per process, so these calls
// are made by another one: this test binary, which is started again.
const environmentURLs = "WATERTIGHT_TEST_URLS"

// TestEnvironmentOfAChild is what the child does: each URL through the default
// transport, the stack, and the default transport with the stack installed.
func TestEnvironmentOfAChild(t *testing.T) {
	urls := os.Getenv(environmentURLs)
	if urls == "" {
		t.Skip("for the tests that start this one")
	}
	tr := transport.Must(transport.New(transport.Config{Logger: quiet()}))
	defer tr.Close()
	play := func(name string, rt http.RoundTripper) {
		client := &http.Client{Transport: rt, Timeout: 20 * time.Second}
		for _, u := range strings.Fields(urls) {
			resp, err := client.Get(u)
			if err != nil {
				fmt.Println(name, u, "ERR", err)
				continue
			}
			b, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			fmt.Println(name, u, resp.Proto, string(b), err)
		}
	}
	play("default", http.DefaultTransport)
	play("stack", tr)
	restore := transport.Install(tr)
	play("installed", http.DefaultTransport)
	restore()
}

// environmentTold runs the child and returns what each of the three told.
func environmentTold(t *testing.T, urls []string, env ...string) map[string][]string {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestEnvironmentOfAChild$", "-test.count=1")
	for _, e := range os.Environ() {
		if name, _, _ := strings.Cut(e, "="); !strings.HasSuffix(strings.ToUpper(name), "_PROXY") && name != "REQUEST_METHOD" {
			cmd.Env = append(cmd.Env, e)
		}
	}
	cmd.Env = append(cmd.Env, environmentURLs+"="+strings.Join(urls, " "), "GORACE=atexit_sleep_ms=0")
	cmd.Env = append(cmd.Env, env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	told := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		if name, rest, ok := strings.Cut(strings.TrimSpace(line), " "); ok && slices.Contains([]string{"default", "stack", "installed"}, name) {
			told[name] = append(told[name], rest)
		}
	}
	if len(told["default"]) != len(urls) {
		t.Fatalf("the child said\n%s", out)
	}
	return told
}

func TestEnvironmentOfProxiesIsHeeded(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("0.0.0.0 is no address to dial")
	}
	transporttest.CheckLeaks(t)
	secure, plain := transporttest.NewOrigin(t, transporttest.TLS()), transporttest.NewOrigin(t)
	for _, o := range []*transporttest.Origin{secure, plain} {
		o.ScriptFunc(func(h transporttest.Hit) transporttest.Step { return transporttest.Step{Body: "origin:" + h.Path} })
	}
	proxy := transporttest.NewOrigin(t)
	proxy.Script(transporttest.Step{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect {
			fmt.Fprintf(w, "proxy:%s:%s", r.RequestURI, r.Header.Get("Proxy-Authorization"))
			return
		}
		// Whatever name was asked for.
		stacktest.Connect(t, w, func() (net.Conn, error) { return net.Dial("tcp", secure.Addr) })
	})})

	_, port, _ := net.SplitHostPort(plain.Addr)
	anywhere := "http://0.0.0.0:" + port + "/direct" // is not loopback by name, and reaches the origin
	urls := []string{"http://plain.test/a?b=c", anywhere, "http://127.0.0.1:" + port + "/loopback"}
	env := []string{"HTTP_PROXY=http://user:pw@" + proxy.Addr}
	if runtime.GOOS == "linux" { // elsewhere the system's trust cannot be told by the environment
		cert := filepath.Join(t.TempDir(), "origin.pem")
		if err := os.WriteFile(cert, environmentCertificate(t, secure), 0o600); err != nil {
			t.Fatal(err)
		}
		urls = append(urls, "https://secure.test/tunnelled", secure.URL+"/direct")
		env = append(env, "HTTPS_PROXY=http://"+proxy.Addr, "SSL_CERT_FILE="+cert)
	}
	for _, row := range []struct {
		name, env string
		want      string // of anywhere
	}{
		{"without exceptions", "NO_PROXY=", "proxy:http://0.0.0.0:" + port + "/direct:Basic dXNlcjpwdw=="},
		{"with one", "no_proxy=else.test,0.0.0.0:" + port, "origin:/direct"},
	} {
		t.Run(row.name, func(t *testing.T) {
			told := environmentTold(t, urls, append(slices.Clone(env), row.env)...)
			if got := told["default"]; !strings.HasSuffix(got[1], " HTTP/1.1 "+row.want+" <nil>") ||
				!strings.Contains(got[0], "proxy:http://plain.test/a?b=c:Basic") || !strings.Contains(got[2], "origin:/loopback") ||
				len(got) > 3 && (!strings.Contains(got[3], "HTTP/2.0 origin:/tunnelled") || !strings.Contains(got[4], "HTTP/2.0 origin:/direct")) {
				t.Errorf("the default transport: %q", got)
			}
			for _, name := range []string{"stack", "installed"} {
				if !slices.Equal(told[name], told["default"]) {
					t.Errorf("%s: %q\ndefault: %q", name, told[name], told["default"])
				}
			}
		})
	}
}

// environmentCertificate is the origin's certificate as the system's trust may hold it.
func environmentCertificate(t *testing.T, o *transporttest.Origin) []byte {
	t.Helper()
	base := o.Base()
	defer base.CloseIdleConnections()
	resp, err := (&http.Client{Transport: base}).Get(o.URL)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: resp.TLS.PeerCertificates[0].Raw})
}
