package otel_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/watertight-go/watertight/otel"
	"github.com/watertight-go/watertight/transport"
)

// TestAttributesAreUTF8AndShort: one that is neither may cost all that is exported
// together with it.
func TestAttributesAreUTF8AndShort(t *testing.T) {
	s := newSignals(t, sdktrace.AlwaysSample())
	o := s.observer(func(c *otel.Config) {
		c.ClientName = "c\xff"
		c.PolicyName = func(host string) string { return host + "\xff" }
	})
	tr := stack(o, stub{}, bare())
	for _, method := range []string{"G\xffT", strings.Repeat("é", 1<<18)} {
		for _, u := range []*url.URL{
			{Scheme: "http", Host: "a.test", Path: "/\xff", RawQuery: "q=\xff\xfe&r=" + strings.Repeat("%C3%A9", 1000)},
			{Scheme: "http", Host: "a.test", RawQuery: strings.Repeat("é", 2000)},
		} {
			if _, err := call(tr, &http.Request{Method: method, URL: u, Header: http.Header{}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	start := transport.Start{Host: "[fe80::1%\xff]:80", Attempt: 1, Request: request("GET", "http://a.test/"), Header: http.Header{}}
	o.Observe(o.Start(t.Context(), start), transport.Event{Kind: transport.EventAttemptEnd, Host: start.Host, Attempt: 1, Outcome: "success"})
	check := func(where string, attrs []attribute.KeyValue) {
		for _, a := range attrs {
			if v := a.Value.Emit(); !utf8.ValidString(v) || len(v) > 2048 || a.Key == "http.request.method_original" && len(v) > 64 {
				t.Errorf("%s: %s has %d bytes: %.80q", where, a.Key, len(v), v)
			}
		}
	}
	for name, m := range s.collect() {
		for _, p := range points(m) {
			check(name, p.attrs.ToSlice())
		}
	}
	for _, span := range s.spans.GetSpans() {
		check(span.Name, span.Attributes)
	}
}

func TestURLsKeepBytesThatAreNoText(t *testing.T) {
	u := &url.URL{Scheme: "http", Host: "a.test", Path: "/", RawQuery: "q=\xff\xfeé\ufffd"}
	if got, want := fullURL(t, u), "http://a.test/?q=%FF%FEé\ufffd"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	u.RawQuery = strings.Repeat("%FF", 1000)
	if got := fullURL(t, u); len(got) > 2048 || len(got) < 2040 || !strings.HasSuffix(got, "%FF") {
		t.Errorf("got %d bytes, the last of which are %s", len(got), got[len(got)-5:])
	}
}
