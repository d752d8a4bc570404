package status_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/status"
)

// ask sends a request to a handler, in memory.
func ask(h http.Handler, method, target string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// decode reads a document of an answer.
func decode[D any](t *testing.T, w *httptest.ResponseRecorder) (d D) {
	t.Helper()
	if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "application/json" {
		t.Fatalf("%d %s: %s", w.Code, w.Header(), w.Body)
	}
	decoder := json.NewDecoder(w.Body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&d); err != nil {
		t.Fatal(err)
	}
	return d
}

// names are the hosts of a document, in its order.
func names(d status.Hosts) string {
	var all []string
	for _, h := range d.Hosts {
		all = append(all, strings.TrimSuffix(h.Host, ".test:443"))
	}
	return strings.Join(all, " ")
}

func TestReadingTakesGetAndHeadOnly(t *testing.T) {
	h := status.New((&world{}).over(t, transport.Config{}), status.Config{})
	for _, path := range []string{"/", "/hosts", "/transitions", "/events", "/none"} {
		for _, method := range []string{"POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"} {
			w := ask(h, method, path)
			if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" || !strings.Contains(w.Body.String(), `"field":"method","value":"`+method) {
				t.Errorf("%s %s: %d %v %s", method, path, w.Code, w.Header(), w.Body)
			}
		}
	}
	server := httptest.NewServer(h)
	defer server.Close()
	for path, kind := range map[string]string{"/": "text/html; charset=utf-8", "/hosts": "application/json", "/transitions": "application/json", "/events": "text/event-stream"} {
		resp, err := http.Head(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != kind {
			t.Errorf("HEAD %s: %s %v", path, resp.Status, resp.Header)
		}
	}
}

func TestEveryAnswerSaysHowItMayBeUsed(t *testing.T) {
	tr := (&world{}).over(t, transport.Config{})
	h := status.New(tr, status.Config{})
	for _, w := range []*httptest.ResponseRecorder{
		ask(h, "GET", "/"), ask(h, "GET", "/hosts"), ask(h, "GET", "/transitions"), ask(h, "HEAD", "/events"), ask(h, "POST", "/"), ask(h, "GET", "/none"), ask(h, "GET", "/hosts?x=1"),
		ask(status.Control(tr), "POST", "/reset/a.test"), ask(status.Control(tr), "GET", "/reset"), ask(status.Control(tr), "POST", "/reset/a.test", "Sec-Fetch-Site", "cross-site"),
	} {
		for name, want := range map[string]string{"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
			"Cross-Origin-Resource-Policy": "same-origin", "Content-Security-Policy": "default-src 'none'"} {
			if got := w.Header().Get(name); !strings.HasPrefix(got, want) {
				t.Errorf("%d: %s: %q, want %s", w.Code, name, got, want)
			}
		}
		if !strings.Contains(w.Header().Get("Content-Security-Policy"), "frame-ancestors 'none'") {
			t.Error("may be framed")
		}
	}
}

func TestWorksUnderAPrefix(t *testing.T) {
	h := status.New((&world{}).over(t, transport.Config{}), status.Config{Name: "under"})
	for _, prefix := range []string{"", "/status", "/status/", "/a/b", "/a%20b"} {
		strip := prefix
		if prefix == "/a%20b" {
			strip = "/a b"
		}
		mounted := http.StripPrefix(strip, h)
		root := strings.TrimSuffix(prefix, "/") + "/"
		if w := ask(mounted, "GET", root); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "<title>watertight</title>") {
			t.Errorf("%q: the page: %d", prefix, w.Code)
		}
		if d := decode[status.Hosts](t, ask(mounted, "GET", root+"hosts")); d.Name != "under" {
			t.Errorf("%q: %+v", prefix, d)
		}
		_ = decode[status.Transitions](t, ask(mounted, "GET", root+"transitions"))
		if w := ask(mounted, "HEAD", root+"events"); w.Code != http.StatusOK {
			t.Errorf("%q: %d", prefix, w.Code)
		}
		if w := ask(mounted, "GET", root+"hosts/"); w.Code != http.StatusNotFound {
			t.Errorf("%q: %d", prefix, w.Code)
		}
	}
}

// Without its slash, links of the page would lead to the parent of the prefix.
func TestPageWithoutItsSlashSendsThere(t *testing.T) {
	h := status.New((&world{}).over(t, transport.Config{}), status.Config{})
	for target, want := range map[string]string{
		"/status": "/status/", "/a/b/status?x=1": "/a/b/status/?x=1", "/x:y": "/x:y/", "//evil.example": "//evil.example/",
	} {
		r := httptest.NewRequest("GET", "http://here.example"+target, nil)
		r.RequestURI = target
		path := r.URL.Path
		w := httptest.NewRecorder()
		http.StripPrefix(path, h).ServeHTTP(w, r)
		to, err := r.URL.Parse(w.Header().Get("Location"))
		if err != nil || w.Code != http.StatusPermanentRedirect || to.Host != "here.example" || to.RequestURI() != want {
			t.Errorf("%s: %d %v %v", target, w.Code, to, err)
		}
	}
}

func TestHostsAreThoseThatWereAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		tr := w.over(t, transport.Config{Default: brittle()})
		h := status.New(tr, status.Config{})
		w.set("b.test", does{status: 500})
		for _, url := range []string{"https://a.test", "https://b.test", "https://c.test", "http://a.test:8080"} {
			_ = call(tr, url)
		}
		tr.Host("c.test").ForceOpen()
		time.Sleep(time.Second)
		for query, want := range map[string]string{
			"":                              "b c a a.test:8080",
			"?state=open":                   "b",
			"?state=open,forced_open":       "b c",
			"?state=open&state=forced_open": "b c",
			"?state=half_open":              "",
			"?q=A.test":                     "a a.test:8080",
			"?q=http://a":                   "a.test:8080",
			"?q=8080&state=closed":          "a.test:8080",
			"?host=a.test:443":              "a",
			"?host=a.test:443&scheme=http":  "",
			"?scheme=http":                  "a.test:8080",
			"?limit=2":                      "b c",
			"?limit=0":                      "",
		} {
			d := decode[status.Hosts](t, ask(h, "GET", "/hosts"+query))
			if got := names(d); got != want {
				t.Errorf("%s: %s, want %s", query, got, want)
			}
			if want := (status.Summary{Hosts: 4, Closed: 2, Open: 1, ForcedOpen: 1, Refusing: 2}); d.Summary != want {
				t.Errorf("%s: %+v", query, d.Summary)
			}
			if strings.HasPrefix(query, "?limit") && d.Matched != 4 {
				t.Errorf("%s: %d matched", query, d.Matched)
			}
		}
	})
}

func TestHostsComeWithTheirPolicyAndTransitions(t *testing.T) {
	tr := (&world{}).over(t, transport.Config{Default: brittle()})
	_ = call(tr, "https://a.test")
	tr.Host("a.test").ForceOpen()
	d := decode[status.Hosts](t, ask(status.New(tr, status.Config{}), "GET", "/hosts")).Hosts[0]
	if d.Policy == nil || d.Policy.Breaker.OpenFor != 3600 || d.Policy.Breaker.Window != 60 || len(d.Transitions) != 1 || d.Transitions[0].To != "forced_open" {
		t.Errorf("%+v", d)
	}
}

func TestWrongParametersAreNamedWithWhatWouldBeRight(t *testing.T) {
	h := status.New((&world{}).over(t, transport.Config{}), status.Config{})
	long := strings.Repeat("x", 400)
	for query, want := range map[string][3]string{
		"hosts?state=opne":      {"state", "opne", "half_open"},
		"hosts?limit=all":       {"limit", "all", "from 0 to 10000"},
		"hosts?limit=10001":     {"limit", "10001", "from 0 to 10000"},
		"hosts?limit=-1":        {"limit", "-1", "from 0 to 10000"},
		"events?limit=101":      {"limit", "101", "from 0 to 100"},
		"hosts?limt=1":          {"limt", "1", "state, q, host, scheme, limit"},
		"hosts?q=" + long:       {"q", long[:300] + "...", "at most 300 bytes"},
		"transitions?after=x":   {"after", "x", "instance-number as in Last-Event-ID"},
		"transitions?before=1":  {"before", "1", "one of the parameters after"},
		"events?after=latest":   {"after", "latest", "an ID: a number"},
		"events?before=1":       {"before", "1", "limit, after"},
		"transitions?after=ab-": {"after", "ab-", "ID"},
	} {
		w := ask(h, "GET", "/"+query)
		var p struct{ Error, Field, Value, Want string }
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code != http.StatusBadRequest || p.Field != want[0] || p.Value != want[1] || !strings.Contains(p.Want, want[2]) || p.Error == "" {
			t.Errorf("%s: %d %+v %v", query, w.Code, p, err)
		}
	}
}

func TestTransitionsAreThoseSince(t *testing.T) {
	w := &world{}
	tr := w.over(t, transport.Config{Default: brittle()})
	h := status.New(tr, status.Config{})
	empty := decode[status.Transitions](t, ask(h, "GET", "/transitions"))
	if empty.LastID != 0 || empty.Transitions == nil || len(empty.Transitions) != 0 {
		t.Errorf("%+v", empty)
	}
	for _, host := range []string{"a.test", "b.test", "c.test"} {
		w.set(host, does{status: 503})
		_ = call(tr, "https://"+host)
	}
	for query, want := range map[string]int{"": 3, "?after=0": 3, "?after=2": 1, "?after=3": 0, "?after=99": 0, "?after=" + empty.Instance + "-2": 1, "?after=other-2": 3} {
		d := decode[status.Transitions](t, ask(h, "GET", "/transitions"+query))
		if len(d.Transitions) != want || d.LastID != 3 {
			t.Errorf("%s: %+v", query, d)
		}
	}
	last := decode[status.Transitions](t, ask(h, "GET", "/transitions?after=2")).Transitions[0]
	if last.ID != 3 || last.Host != "c.test:443" || last.From != "closed" || last.To != "open" || last.Evidence.Text != "1 failure in a row, last: status 503" || last.OpenForSeconds < 3000 {
		t.Errorf("%+v", last)
	}
}

// Before the oldest that is kept, or before anybody looked, there may have been more.
func TestTransitionsTellSinceWhenNoneIsMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := (&world{}).over(t, transport.Config{Default: brittle()})
		_ = call(tr, "https://a.test")
		start := time.Now().UTC()
		first := status.New(tr, status.Config{})
		since := func(h *status.Handler, want time.Duration) {
			t.Helper()
			time.Sleep(time.Second)
			d := decode[status.Transitions](t, ask(h, "GET", "/transitions"))
			if got := d.Since.Sub(start); got != want || d.SinceSeconds != (time.Since(start)-want).Seconds() {
				t.Errorf("since %v, %v s ago, want %v", got, d.SinceSeconds, want)
			}
		}
		since(first, 0)
		a := tr.Host("a.test")
		a.ForceOpen() // after 1 s
		since(first, 0)
		second := status.New(tr, status.Config{}) // after 2 s
		since(second, time.Second)
		for range 128 { // from 3 s on, two in each
			a.Reset()
			a.ForceOpen()
			time.Sleep(time.Second)
		}
		since(first, 3*time.Second) // there were 257
		since(second, 3*time.Second)
	})
}

// A health check that asks this handler would take the process down with its
// dependency; so there is nothing in it to ask.
func TestNothingIsUnhealthyWhileABreakerIsOpen(t *testing.T) {
	w := &world{}
	w.set("a.test", does{status: 500})
	tr := w.over(t, transport.Config{Default: brittle()})
	_ = call(tr, "https://a.test")
	h := status.New(tr, status.Config{})
	for _, path := range []string{"/", "/hosts", "/transitions"} {
		if w := ask(h, "GET", path); w.Code != http.StatusOK {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
	for _, path := range []string{"/health", "/healthz", "/livez", "/readyz", "/ready", "/live"} {
		if w := ask(h, "GET", path); w.Code != http.StatusNotFound {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
}

// What is in a URL or in an answer is nobody's business here.
func TestNothingOfARequestButItsHostIsShown(t *testing.T) {
	w := &world{}
	w.set("a.test", does{status: 500, header: http.Header{"Set-Cookie": {"hidden=1"}}})
	p := brittle()
	p.Fallback.MaxStale = time.Minute
	tr := w.over(t, transport.Config{Default: p})
	_ = call(tr, "https://user:hidden@a.test/hidden?token=hidden#hidden")
	h := status.New(tr, status.Config{})
	for _, path := range []string{"/hosts", "/transitions"} {
		w := ask(h, "GET", path)
		if s := w.Body.String(); strings.Contains(s, "hidden") || !strings.Contains(s, "a.test:443") {
			t.Errorf("%s: %s", path, s)
		}
	}
}

func TestAfterCloseTheLastStateCanStillBeRead(t *testing.T) {
	tr := (&world{}).over(t, transport.Config{})
	_ = call(tr, "https://a.test")
	h := status.New(tr, status.Config{})
	_ = tr.Close()
	if d := decode[status.Hosts](t, ask(h, "GET", "/hosts")); len(d.Hosts) != 1 {
		t.Errorf("%+v", d)
	}
	if w := ask(h, "GET", "/events"); w.Code != http.StatusNoContent {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestTheNameIsThatOfTheMachineUnlessConfigured(t *testing.T) {
	tr := (&world{}).over(t, transport.Config{})
	a, b := decode[status.Hosts](t, ask(status.New(tr, status.Config{}), "GET", "/hosts")), decode[status.Hosts](t, ask(status.New(tr, status.Config{Name: "n"}), "GET", "/hosts"))
	if a.Name == "" || b.Name != "n" || a.Instance == b.Instance || len(a.Instance) != 8 {
		t.Errorf("%+v %+v", a, b)
	}
}
