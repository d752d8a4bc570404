package transport_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/transporttest"
)

// A write is about a URI, however it is spelt: what was stored of it is not served again.
func TestFallbackForgetsAURIHoweverAWriteSpellsIt(t *testing.T) {
	const answered = http.StatusServiceUnavailable
	for _, test := range []struct{ read, write, location string }{
		{"http://bücher.test/x", "http://xn--bcher-kva.test/x", ""},
		{"http://xn--bcher-kva.test/x", "http://BÜCHER.test:80/x", ""},
		{"http://bücher.test:8080/x", "http://bücher。test:08080/x", ""},
		{"http://a.test/x", "http://A.TEST:80/x", ""},
		{"http://a.test/x", "http://a.test./x", ""},
		{"http://[::1]/x", "http://[0:0::1]/x", ""},
		{"http://a.test:80/x", "http://a.test:080/x", ""},
		{"http://a.test/%7ex", "http://a.test/~x", ""},
		{"http://bücher.test/x", "http://bücher.test/list", "http://xn--bcher-kva.test/x"},
		{"http://bücher.test/x", "http://bücher.test/list", "/x"},
	} {
		for name, over := range map[string]string{"": "", "Host": "straße.test"} {
			if over != "" && test.location != "" {
				continue
			}
			t.Run(test.write+test.location+" "+name, func(t *testing.T) {
				base := transporttest.NewBase(good("old"), transporttest.Step{Status: http.StatusCreated, Header: http.Header{"Location": {test.location}}},
					transporttest.Step{Status: answered})
				tr := transport.Must(transport.New(transport.Config{Base: base, Default: tenMinutes(), Logger: quiet()}))
				defer func() { _ = tr.Close() }()
				read := retryRequest(t, http.MethodGet, test.read, nil)
				write := retryRequest(t, http.MethodPost, test.write, nil)
				if over != "" {
					read.Host, write.Host = over, "xn--strae-oqa.test"
				}
				if status, body := retryDo(t, tr, read); status != http.StatusOK || body != "old" {
					t.Fatal(status, body)
				}
				if status, _ := retryDo(t, tr, write); status != http.StatusCreated {
					t.Fatal(status)
				}
				if status, body := retryDo(t, tr, read); status != answered {
					t.Errorf("%d %q after a write", status, body)
				}
			})
		}
	}
}

// What is served is the answer to the request as its caller wrote it.
func TestAStaleAnswerToANameThatIsNotASCIIIsToItsRequest(t *testing.T) {
	base := transporttest.NewBase(good("old"), transporttest.Step{Status: http.StatusServiceUnavailable})
	tr := transport.Must(transport.New(transport.Config{Base: base, Default: tenMinutes(), Logger: quiet()}))
	defer func() { _ = tr.Close() }()
	_, _ = retryDo(t, tr, retryRequest(t, http.MethodGet, "http://xn--bcher-kva.test/x", nil))
	req := retryRequest(t, http.MethodGet, "http://bücher.test/x", nil)
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK || resp.Request != req || req.URL.Host != "bücher.test" || req.Host != "bücher.test" {
		t.Errorf("%d to %v of %v", resp.StatusCode, resp.Request.URL, req.URL)
	}
}

// A refusal looks for what is stored under the name that was stored, too.
func TestARefusalFindsWhatIsStoredHoweverItsHostIsSpelt(t *testing.T) {
	for _, first := range []string{"http://bücher.test/x", "http://xn--bcher-kva.test/x", "http://BÜCHER.test:80/x"} {
		for _, then := range []string{"http://bücher.test/x", "http://xn--bcher-kva.test/x", "http://BÜCHER.test:80/x"} {
			base := transporttest.NewBase(good("old"))
			tr := transport.Must(transport.New(transport.Config{Base: base, Default: tenMinutes(), Logger: quiet()}))
			_, _ = retryDo(t, tr, retryRequest(t, http.MethodGet, first, nil))
			tr.Host("bücher.test").ForceOpen()
			req := retryRequest(t, http.MethodGet, then, nil)
			if resp, err := tr.RoundTrip(req); err != nil {
				t.Errorf("stored as %s, asked as %s: %v", first, then, err)
			} else {
				_ = resp.Body.Close()
			}
			_ = tr.Close()
		}
	}
}

// A base must not change a request, but may: what it answers is stored under the URL that
// was asked for.
func TestAnAnswerIsStoredUnderTheURLThatWasAskedFor(t *testing.T) {
	fails := false
	base := rt(func(r *http.Request) (*http.Response, error) {
		if fails {
			return nil, io.ErrUnexpectedEOF
		}
		r.URL.Path, r.URL.RawQuery = "/v2"+r.URL.Path, "key=x"
		return newStub(3).RoundTrip(r)
	})
	tr := transport.Must(transport.New(transport.Config{Base: base, Default: tenMinutes(), Logger: quiet()}))
	defer func() { _ = tr.Close() }()
	for _, fails = range []bool{false, true} {
		if status, body := retryDo(t, tr, retryRequest(t, http.MethodGet, "http://a.test/a", nil)); status != http.StatusOK || body != "xxx" {
			t.Errorf("%d %q", status, body)
		}
	}
	if resp, err := tr.RoundTrip(retryRequest(t, http.MethodGet, "http://a.test/v2/a?key=x", nil)); err == nil {
		_ = resp.Body.Close()
		t.Error("served under a URL that was never asked for")
	}
}
