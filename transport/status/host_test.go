package status_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/status"
)

// A page of evil.example whose name resolves to 127.0.0.1 by now is of the same origin
// as what listens there, for its browser and so for http.CrossOriginProtection.
func TestARequestToAnotherNameIsRefused(t *testing.T) {
	tr := (&world{}).over(t, transport.Config{})
	_ = call(tr, "https://a.test")
	hosts := []string{"Ops.example:8443", "10.0.0.7.example."}
	h, c := status.New(tr, status.Config{Hosts: hosts}), status.Control(tr, hosts...)
	for host, want := range map[string]int{
		"ops.example": 200, "OPS.example:8443": 200, "ops.example.": 200, "ops.example:80": 200, "10.0.0.7.example": 200,
		"127.0.0.1": 200, "127.0.0.1:8080": 200, "[::1]:8080": 200, "[::1]": 200, "10.0.0.7": 200, "localhost": 200, "LocalHost.:8080": 200,
		"evil.example": 421, "evil.example:8080": 421, "ops.example.evil.example": 421, "evil-ops.example": 421, "localhost.evil.example": 421,
		"127.0.0.1.evil.example": 421, "": 421,
	} {
		for _, path := range []string{"/", "/hosts", "/transitions", "/none"} {
			r := httptest.NewRequest("GET", path, nil)
			r.Host = host
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if path == "/none" && want == 200 {
				continue
			}
			if w.Code != want || want == 421 && !strings.Contains(w.Body.String(), `"field":"Host"`) {
				t.Errorf("%q %s: %d %s", host, path, w.Code, w.Body)
			}
		}
		r := httptest.NewRequest("POST", "/force-open", strings.NewReader(url.Values{"host": {"a.test"}}.Encode()))
		r.Host = host
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", "http://"+host)
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		w := httptest.NewRecorder()
		c.ServeHTTP(w, r)
		forced := tr.Snapshot()[0].State == transport.ForcedOpen
		if w.Code != want || forced != (want == 200) {
			t.Errorf("%q: %d, forced: %v", host, w.Code, forced)
		}
		tr.Host("a.test").Reset()
	}
}

func TestWithoutNamesAllAreTaken(t *testing.T) {
	tr := (&world{}).over(t, transport.Config{})
	r := httptest.NewRequest("GET", "http://whatever.example/hosts", nil)
	w := httptest.NewRecorder()
	status.New(tr, status.Config{}).ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		t.Errorf("%d", w.Code)
	}
	if w := press(status.Control(tr), "/reset", url.Values{"host": {"a.test"}}); w.Code != http.StatusOK {
		t.Errorf("%d", w.Code)
	}
}
