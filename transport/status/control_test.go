package status_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/status"
)

// press posts a form to a control handler.
func press(h http.Handler, path string, form url.Values, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("POST", path, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestControlMovesABreakerByHand(t *testing.T) {
	tr := (&world{}).over(t, transport.Config{Default: brittle()})
	for _, u := range []string{"https://a.test", "http://a.test", "https://a.test:8443", "https://b.test"} {
		_ = call(tr, u)
	}
	c := http.StripPrefix("/control", status.Control(tr))
	for _, test := range []struct {
		path, host string
		want       string // states of the three of a.test, by host and scheme
	}{
		{"/control/force-open", "a.test", "forced_open forced_open forced_open"},
		{"/control/force-closed", "a.test:8443", "forced_open forced_open forced_closed"},
		{"/control/reset", "http://a.test", "forced_open closed forced_closed"},
		{"/control/reset/a.test", "", "closed closed closed"},
		{"/control/force-open/a.test:443", "", "forced_open closed closed"},
	} {
		form := url.Values{}
		if test.host != "" {
			form.Set("host", test.host)
		}
		d := decode[status.Controlled](t, press(c, test.path, form))
		var states []string
		for _, u := range []string{"https://a.test", "http://a.test", "https://a.test:8443"} {
			states = append(states, tr.Host(u).Snapshot()[0].State.String())
		}
		if got := strings.Join(states, " "); got != test.want {
			t.Errorf("%s %s: %s, want %s", test.path, test.host, got, test.want)
		}
		if len(d.Hosts) == 0 || d.Note != "" || !strings.Contains(test.path, d.Action) || !strings.Contains(test.path+test.host, d.Host) {
			t.Errorf("%s: %+v", test.path, d)
		}
		for _, h := range d.Hosts {
			if got := tr.Host(h.Scheme + "://" + h.Host).Snapshot()[0].State.String(); got != h.State {
				t.Errorf("%s: says %s of %s, which is %s", test.path, h.State, h.Host, got)
			}
		}
	}
	if s := tr.Host("b.test").Snapshot()[0].State; s != transport.Closed {
		t.Errorf("another host is %v", s)
	}
}

// A ServeMux makes one slash of two in a path, and sends there by a redirect that curl
// does not follow and a browser follows by GET.
func TestControlTakesASchemeInTheFormOnly(t *testing.T) {
	tr := (&world{}).over(t, transport.Config{})
	_ = call(tr, "https://a.test")
	_ = call(tr, "http://a.test")
	c := http.StripPrefix("/control", status.Control(tr))
	mux := http.NewServeMux()
	mux.Handle("/control/", c)
	for _, path := range []string{"/control/force-open/https://a.test", "/control/force-open/https:/a.test"} {
		w := press(c, path, nil)
		if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "a scheme goes in the form") {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
		if w := press(mux, path, nil); w.Code == http.StatusOK {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	for _, s := range tr.Snapshot() {
		if s.State != transport.Closed {
			t.Errorf("%s of %s", s.State, s.Scheme)
		}
	}
	d := decode[status.Controlled](t, press(mux, "/control/force-open", url.Values{"host": {"https://a.test"}}))
	if len(d.Hosts) != 1 || d.Hosts[0].Scheme != "https" || d.Hosts[0].State != "forced_open" {
		t.Errorf("%+v", d)
	}
}

// At three in the morning a name is soon mistyped, and nothing would happen.
func TestControlSaysWhenNobodyHasCalledTheHost(t *testing.T) {
	tr := (&world{}).over(t, transport.Config{})
	_ = call(tr, "https://payments.test")
	d := decode[status.Controlled](t, press(status.Control(tr), "/force-open", url.Values{"host": {"paymets.test"}}))
	if d.Known || d.Hosts == nil || len(d.Hosts) != 0 || !strings.Contains(d.Note, "spelling") || !strings.Contains(d.Note, "forced open from its first call on") {
		t.Errorf("%+v", d)
	}
	if d := decode[status.Controlled](t, press(status.Control(tr), "/reset", url.Values{"host": {"paymets.test"}})); d.Known || !strings.Contains(d.Note, "nothing was reset") {
		t.Errorf("%+v", d)
	}
	if d := decode[status.Controlled](t, press(status.Control(tr), "/reset", url.Values{"host": {"payments.test"}})); !d.Known || d.Note != "" {
		t.Errorf("%+v", d)
	}
}

func TestControlRefusesOtherSites(t *testing.T) {
	tr := (&world{}).over(t, transport.Config{})
	_ = call(tr, "https://a.test")
	c := status.Control(tr)
	for _, header := range [][]string{
		{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "https://evil.example"}, {"Origin", "null"},
	} {
		w := press(c, "/force-open", url.Values{"host": {"a.test"}}, header...)
		if w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "other sites") {
			t.Errorf("%v: %d %s", header, w.Code, w.Body)
		}
	}
	if s := tr.Snapshot()[0].State; s != transport.Closed {
		t.Fatalf("moved: %v", s)
	}
	for _, header := range [][]string{{}, {"Sec-Fetch-Site", "same-origin"}, {"Sec-Fetch-Site", "none"}, {"Origin", "http://example.com"}} {
		if w := press(c, "/force-open", url.Values{"host": {"a.test"}}, header...); w.Code != http.StatusOK {
			t.Errorf("%v: %d %s", header, w.Code, w.Body)
		}
	}
}

func TestControlTakesPostOnly(t *testing.T) {
	c := status.Control((&world{}).over(t, transport.Config{}))
	for _, method := range []string{"GET", "HEAD", "PUT", "DELETE", "OPTIONS"} {
		w := ask(c, method, "/reset/a.test")
		if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "POST" {
			t.Errorf("%s: %d %v", method, w.Code, w.Header())
		}
	}
}

func TestControlNamesWhatIsWrong(t *testing.T) {
	tr := (&world{}).over(t, transport.Config{})
	c := status.Control(tr)
	for _, test := range []struct {
		path, host string
		code       int
		field      string
		value      string
		want       string
	}{
		{"/reset", "", 400, "host", "", "name:port"},
		{"/reset", "*.a.test", 400, "host", "*.a.test", "name:port"},
		{"/reset", "ftp://a.test", 400, "host", "ftp://a.test", "scheme://name"},
		{"/reset", "a.test/path", 400, "host", "a.test/path", "name"},
		{"/reset", "https://user:secret@a.test", 400, "host", "", "name:port"},
		{"/reset", "a.test?token=secret", 400, "host", "", "name:port"},
		{"/open", "a.test", 404, "path", "/open", "force-open"},
		{"/", "a.test", 404, "path", "/", "reset"},
		{"/reset", strings.Repeat("a", 5000), 413, "form", "", "4096 bytes"},
		{"/reset", strings.Repeat("a", 254), 400, "host", strings.Repeat("a", 254), "253 bytes"},
		{"/reset", "https://" + strings.Repeat("a.", 126) + "ab:8443", 400, "host", "https://" + strings.Repeat("a.", 126) + "ab:8443", "253 bytes"},
		{"/reset/" + strings.Repeat("a", 254), "", 400, "host", strings.Repeat("a", 254), "253 bytes"},
	} {
		w := press(c, test.path, url.Values{"host": {test.host}})
		var p struct{ Error, Field, Value, Want string }
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code != test.code || p.Field != test.field || p.Value != test.value || !strings.Contains(p.Want, test.want) || p.Error == "" {
			t.Errorf("%s %s: %d %s %v", test.path, test.host, w.Code, w.Body, err)
		}
		if strings.Contains(w.Body.String(), "secret") {
			t.Errorf("quoted: %s", w.Body)
		}
	}
}

// A body that is no form was once a host that was missing, which helped nobody.
func TestControlSaysHowAHostIsGiven(t *testing.T) {
	c := status.Control((&world{}).over(t, transport.Config{}))
	for _, test := range []struct{ path, kind, body, want string }{
		{"/reset?host=a.test", "", "", "not the query or JSON"},
		{"/reset", "application/json", `{"host":"a.test"}`, "not the query or JSON"},
		{"/reset", "application/x-www-form-urlencoded", "host=%zz", "form: malformed"},
	} {
		r := httptest.NewRequest("POST", test.path, strings.NewReader(test.body))
		if test.kind != "" {
			r.Header.Set("Content-Type", test.kind)
		}
		w := httptest.NewRecorder()
		c.ServeHTTP(w, r)
		if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), test.want) {
			t.Errorf("%s %s: %d %s", test.path, test.body, w.Code, w.Body)
		}
	}
	if w := press(c, "/reset", url.Values{"host": {"https://" + strings.Repeat("a.", 126) + "a:8443"}}); w.Code != http.StatusOK {
		t.Errorf("a name of 253 bytes: %d %s", w.Code, w.Body)
	}
}
