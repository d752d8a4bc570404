package transport_test

import (
	"crypto/ecdh"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/transporttest"
)

// pinned is an error of a caller's own verification.
type pinned struct{}

func (*pinned) Error() string { return "pin mismatch" }

// A peer that the base's own verification refuses is one that cannot prove who it is:
// nothing is served in its place, and it is asked once.
func TestAPeerThatTheBaseDoesNotTrustIsNeitherAskedAgainNorReplaced(t *testing.T) {
	for _, protocol := range []string{"http/1.1", "h2"} {
		for _, through := range []string{"directly", "CONNECT"} {
			for _, how := range []string{"connection", "peer"} {
				t.Run(protocol+" "+through+" "+how, func(t *testing.T) {
					transporttest.CheckLeaks(t)
					o := transporttest.NewOrigin(t, transporttest.TLS(protocol))
					o.Script(transporttest.Step{Body: "old", Header: http.Header{"Cache-Control": {"max-age=60"}}})
					base := o.Base()
					if through == "CONNECT" {
						base.Proxy = http.ProxyURL(connectProxy(t))
						base.DialContext = nil
					}
					var bad atomic.Bool
					var handshakes atomic.Int64
					refusal := &pinned{}
					verify := func() error {
						handshakes.Add(1)
						if bad.Load() {
							return refusal
						}
						return nil
					}
					if how == "connection" {
						base.TLSClientConfig.VerifyConnection = func(tls.ConnectionState) error { return verify() }
					} else {
						base.TLSClientConfig.VerifyPeerCertificate = func([][]byte, [][]*x509.Certificate) error { return verify() }
					}
					p := policy.Service()
					p.Retry.Base, p.Retry.Max = time.Millisecond, 2*time.Millisecond
					tr := transport.Must(transport.New(transport.Config{Base: base, Default: p, Logger: quiet()}))
					defer func() { _ = tr.Close() }()
					if status, body := retryDo(t, tr, retryRequest(t, "GET", o.URL, nil)); status != 200 || body != "old" {
						t.Fatal(status, body)
					}
					bad.Store(true)
					handshakes.Store(0)
					tr.CloseIdleConnections()
					o.WaitOpen(0)
					resp, err := tr.RoundTrip(retryRequest(t, "GET", o.URL, nil))
					if err == nil {
						_ = resp.Body.Close()
						t.Fatalf("%d %v in place of a peer that is not trusted", resp.StatusCode, resp.Header)
					}
					var as *pinned
					if !errors.Is(err, refusal) || !errors.As(err, &as) || err.Error() != refusal.Error() {
						t.Errorf("%v, want the base's %v", err, refusal)
					}
					if n := handshakes.Load(); n != 1 {
						t.Errorf("%d handshakes, want 1", n)
					}
				})
			}
		}
	}
}

// A server that does not know the key of an encrypted hello shows a certificate for
// another name, which the base may verify on its own.
func TestAPeerThatTheBaseDoesNotTrustAfterARejectedHelloIsNotAskedAgain(t *testing.T) {
	transporttest.CheckLeaks(t)
	o := transporttest.NewOrigin(t, transporttest.TLS("http/1.1"))
	base := o.Base()
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	config := append([]byte{1, 0, 0x20, 0, 32}, key.PublicKey().Bytes()...)             // the id, and a key for X25519
	config = append(config, 0, 4, 0, 1, 0, 1, 0, 6, 'a', '.', 't', 'e', 's', 't', 0, 0) // HKDF-SHA256, AES-128-GCM
	config = append([]byte{0xfe, 0x0d, 0, byte(len(config))}, config...)
	base.TLSClientConfig.EncryptedClientHelloConfigList = append([]byte{0, byte(len(config))}, config...)
	var handshakes atomic.Int64
	base.TLSClientConfig.EncryptedClientHelloRejectionVerify = func(tls.ConnectionState) error {
		handshakes.Add(1)
		return &pinned{}
	}
	p := retrySocketPolicy()
	p.Fallback.FailFast503 = true
	tr := retryTransport(t, base, p, nil)
	resp, err := tr.RoundTrip(retryRequest(t, "GET", o.URL, nil))
	if err == nil {
		_ = resp.Body.Close()
		t.Errorf("%d in place of a peer that is not trusted", resp.StatusCode)
	}
	if n := handshakes.Load(); n != 1 {
		t.Errorf("%d handshakes, want 1: %v", n, err)
	}
}

// slowProof is an error of a verification that has asked others, and waited.
type slowProof struct{ pinned }

func (*slowProof) Timeout() bool { return true }

// What http.Client says of the error of a base's verification, it says of the stack's.
func TestTheErrorOfABasesVerificationIsATimeoutIfItIsOne(t *testing.T) {
	for _, refusal := range []error{&pinned{}, &slowProof{}} {
		o := transporttest.NewOrigin(t, transporttest.TLS("http/1.1"))
		base := o.Base()
		base.TLSClientConfig.VerifyConnection = func(tls.ConnectionState) error { return refusal }
		_, bare := (&http.Client{Transport: base}).Get(o.URL)
		tr := retryTransport(t, base, retrySocketPolicy(), nil)
		_, ours := tr.Client().Get(o.URL)
		var b, s *url.Error
		if !errors.As(bare, &b) || !errors.As(ours, &s) || b.Timeout() != s.Timeout() || b.Error() != s.Error() {
			t.Errorf("%v, want as on the base: %v", ours, bare)
		}
	}
}

// A base that has no certificate to show will have none the next time.
func TestRetryNeverRepeatsForWantOfAClientCertificate(t *testing.T) {
	transporttest.CheckLeaks(t)
	s := httptest.NewUnstartedServer(nil)
	s.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	defer s.Close()
	var asked atomic.Int64
	missing := errors.New("no certificate on disk")
	base := s.Client().Transport.(*http.Transport)
	base.TLSClientConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		asked.Add(1)
		return nil, missing
	}
	tr := retryTransport(t, base, retrySocketPolicy(), nil)
	resp, err := tr.RoundTrip(retryRequest(t, http.MethodGet, s.URL, nil))
	if err == nil {
		_ = resp.Body.Close()
	}
	if n := asked.Load(); n != 1 || !errors.Is(err, missing) {
		t.Errorf("%v after %d handshakes, want %v after 1", err, n, missing)
	}
}

// Versions and protocols that the two sides do not share stay so; an internal error
// may pass.
func TestRetryNeverRepeatsAHandshakeWithoutCommonGround(t *testing.T) {
	s := httptest.NewUnstartedServer(nil)
	s.StartTLS()
	defer s.Close()
	certificates := s.TLS.Certificates
	for name, test := range map[string]struct {
		server, client *tls.Config
		handshakes     int64
	}{
		"version too low":  {&tls.Config{MinVersion: tls.VersionTLS13}, &tls.Config{MaxVersion: tls.VersionTLS12}, 1},
		"version too high": {&tls.Config{MaxVersion: tls.VersionTLS12}, &tls.Config{MinVersion: tls.VersionTLS13}, 1},
		"protocol":         {&tls.Config{NextProtos: []string{"other"}}, &tls.Config{NextProtos: []string{"h2"}}, 1},
		"internal error": {&tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return nil, errors.New("not now")
		}}, &tls.Config{}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			transporttest.CheckLeaks(t)
			test.server.Certificates = certificates
			test.client.RootCAs = s.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
			var handshakes atomic.Int64
			ln, err := tls.Listen("tcp", "127.0.0.1:0", test.server)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = ln.Close() }()
			go func() {
				for {
					conn, err := ln.Accept()
					if err != nil {
						return
					}
					handshakes.Add(1)
					go func() {
						_ = conn.(*tls.Conn).Handshake()
						_, _ = io.Copy(io.Discard, conn.(*tls.Conn).NetConn()) // the client closes, so that no reset overtakes the alert
						_ = conn.Close()
					}()
				}
			}()
			tr := retryTransport(t, &http.Transport{TLSClientConfig: test.client}, retrySocketPolicy(), nil)
			resp, err := tr.RoundTrip(retryRequest(t, http.MethodGet, "https://"+ln.Addr().String(), nil))
			if err == nil {
				_ = resp.Body.Close()
			}
			if n := handshakes.Load(); n != test.handshakes || err == nil {
				t.Errorf("%d handshakes, want %d: %v", n, test.handshakes, err)
			}
		})
	}
}

// connectProxy is an HTTP proxy that only makes tunnels.
func connectProxy(t *testing.T) *url.URL {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		up, err := net.Dial("tcp", r.Host)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		down, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			_ = up.Close()
			return
		}
		_, _ = io.WriteString(down, "HTTP/1.1 200 OK\r\n\r\n")
		go func() {
			_, _ = io.Copy(up, buffered)
			_ = up.Close()
		}()
		_, _ = io.Copy(down, up)
		_ = down.Close()
	}))
	t.Cleanup(s.Close)
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	return u
}
