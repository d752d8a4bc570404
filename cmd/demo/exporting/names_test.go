package main

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/watertight-go/watertight/cmd/demo/internal/scene"
	"github.com/watertight-go/watertight/otel"
	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/transporttest"
)

// sample is a series of an export.
type sample struct {
	name   string
	labels map[string]string
}

var (
	line     = regexp.MustCompile(`(?m)^([a-z_]+)(?:\{(.*)\})? \S+$`)
	matcher  = regexp.MustCompile(`([a-z_]+)\s*(=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"`)
	selector = regexp.MustCompile(`((?:resilience|http_client)_[a-z_]+)\{([^}]*)\}`)
	ours     = regexp.MustCompile(`\b(?:resilience|http_client|server)_[a-z_]+\b`)
)

// exported is what a scrape finds where everything that package otel reports has
// happened.
func exported(t *testing.T) []sample {
	t.Helper()
	signals, err := export(t.Context(), scene.Destination{Prometheus: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := signals.End(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	obs, err := otel.NewObserver(otel.Config{TracerProvider: signals.Tracers, MeterProvider: signals.Meters, ClientName: "api"})
	if err != nil {
		t.Fatal(err)
	}
	rt, err := transport.New(transport.Config{Default: policy.Service(), Observer: obs, Base: transporttest.NewBase(transporttest.Step{})})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close()
	for range policy.Service().Breaker.MinCalls { // below it there are no rates
		resp, err := rt.Client().Get("http://api.example/")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	for _, e := range []transport.Event{
		{Kind: transport.EventPermit, Duration: time.Millisecond},
		{Kind: transport.EventRetry, Reason: "timeout", Shadow: true},
		{Kind: transport.EventFallback, Fallback: "stale", Reason: "timeout", Staleness: time.Second},
	} {
		e.Host = "api.example:80"
		obs.Observe(t.Context(), e)
	}
	w := httptest.NewRecorder()
	signals.Metrics.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	var all []sample
	for _, m := range line.FindAllStringSubmatch(w.Body.String(), -1) {
		s := sample{m[1], map[string]string{}}
		for _, l := range matcher.FindAllStringSubmatch(m[2], -1) {
			s.labels[l[1]] = l[3]
		}
		all = append(all, s)
	}
	return all
}

// expressions are the texts of the alerts and the dashboard that speak of metrics.
func expressions(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	alerts, err := os.ReadFile("../../../testdata/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	all["alerts.yaml"] = strings.NewReplacer(`\"`, `"`, `=%q`, `=~".*"`).Replace(string(alerts))
	dashboard, err := os.ReadFile("../../../testdata/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var root any
	if err := json.Unmarshal(dashboard, &root); err != nil {
		t.Fatal(err)
	}
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for key, v := range v {
				if s, ok := v.(string); ok && slices.Contains([]string{"expr", "legendFormat", "query", "definition"}, key) {
					all["dashboard.json: "+s] = strings.NewReplacer("$job", ".*", "$client", ".*", "$policy", ".*").Replace(s)
				}
				walk(v)
			}
		case []any:
			for _, v := range v {
				walk(v)
			}
		}
	}
	walk(root)
	return all
}

// chosen reports whether matchers choose a series. What Prometheus adds by itself
// chooses all.
func (s sample) chosen(t *testing.T, matchers string) bool {
	for _, m := range matcher.FindAllStringSubmatch(matchers, -1) {
		value := s.labels[m[1]]
		if m[1] == "job" || m[1] == "instance" {
			continue
		}
		if m[2] == "=" || m[2] == "!=" {
			m[3] = regexp.QuoteMeta(m[3])
		}
		r, err := regexp.Compile("^(?:" + m[3] + ")$")
		if err != nil {
			t.Fatal(err)
		}
		if r.MatchString(value) == strings.HasPrefix(m[2], "!") {
			return false
		}
	}
	return true
}

func TestAlertsAndDashboardNameWhatIsExported(t *testing.T) {
	all := exported(t)
	known := map[string]bool{}
	for _, s := range all {
		known[s.name] = true
		for label := range s.labels {
			known[label] = true
		}
	}
	selectors := 0
	for where, text := range expressions(t) {
		for _, word := range ours.FindAllString(text, -1) {
			if !known[word] {
				t.Errorf("%s\nnames %s, which is neither a metric nor a label of the export", where, word)
			}
		}
		for _, m := range selector.FindAllStringSubmatch(text, -1) {
			selectors++
			if !slices.ContainsFunc(all, func(s sample) bool { return s.name == m[1] && s.chosen(t, m[2]) }) {
				t.Errorf("%s\nchooses no series: %s", where, m[0])
			}
		}
	}
	if selectors < 40 {
		t.Errorf("found %d selectors", selectors)
	}
}

// Each value of a matcher is one that can be exported: a misspelt one in a list of
// many chooses nothing, unseen.
func TestAlertsAndDashboardNameValuesThatAreExported(t *testing.T) {
	values := map[string]map[string]bool{}
	for _, s := range exported(t) {
		for label, value := range s.labels {
			if values[label] == nil {
				values[label] = map[string]bool{}
			}
			values[label][value] = true
		}
	}
	for where, text := range expressions(t) {
		for _, m := range matcher.FindAllStringSubmatch(text, -1) {
			if !strings.HasPrefix(m[1], "resilience_") || m[3] == ".*" {
				continue
			}
			for value := range strings.SplitSeq(m[3], "|") {
				if !values[m[1]][value] {
					t.Errorf("%s\n%s is never %q", where, m[1], value)
				}
			}
		}
	}
}

// TestTheDashboardsVariablesChooseInEachOfItsQueries: a panel that leaves one out shows
// what its owner has put aside. The metric of the HTTP conventions knows neither
// Transports nor policy names, and its panel says so.
func TestTheDashboardsVariablesChooseInEachOfItsQueries(t *testing.T) {
	text, err := os.ReadFile("../../../testdata/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Templating struct {
			List []struct{ Name string }
		}
		Annotations struct {
			List []struct{ Expr string }
		}
		Panels []struct {
			Title, Description string
			Targets            []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	variables := []string{`job=~"$job"`, `resilience_client_name=~"$client"`, `resilience_policy_name=~"$policy"`}
	for _, v := range variables {
		name := strings.Trim(v[strings.Index(v, "$"):], `$"`)
		if !slices.ContainsFunc(dashboard.Templating.List, func(l struct{ Name string }) bool { return l.Name == name }) {
			t.Errorf("there is no variable %s", name)
		}
	}
	chosen := regexp.MustCompile(`\b(resilience|http_client|ALERTS)[a-z_]*\{([^}]*)\}`)
	check := func(where, expr string) {
		for _, m := range chosen.FindAllStringSubmatch(expr, -1) {
			for i, v := range variables {
				if !strings.Contains(m[2], v) && (i == 0 || m[1] != "http_client") {
					t.Errorf("%s: %s lacks %s", where, m[0], v)
				}
			}
		}
	}
	for _, a := range dashboard.Annotations.List {
		check("annotations", a.Expr)
	}
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			check(p.Title, target.Expr)
			if strings.Contains(target.Expr, "http_client") && !strings.Contains(p.Description, "all HTTP clients") {
				t.Errorf("%s does not say whose attempts it shows", p.Title)
			}
		}
	}
}
