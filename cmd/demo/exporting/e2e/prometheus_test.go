package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

func TestTimeInTheRulesGoesFaster(t *testing.T) {
	const rules = "increase(x[2m]) > 0 and (up offset 2m == 1) or rate(y[1h])\nfor: 5m\nsummary: for 5 minutes"
	const want = "increase(x[20s]) > 0 and (up offset 20s == 1) or rate(y[600s])\nfor: 50s\nsummary: for 5 minutes"
	if got := hasten(rules); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	text, err := os.ReadFile("../../../../testdata/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	slow := regexp.MustCompile(`\b\d+[mh]\b`)
	for line := range strings.Lines(hasten(string(text))) {
		if slow.MatchString(line) {
			t.Errorf("goes at its own speed: %s", line)
		}
	}
}

func TestTheDashboardsExpressionsHaveNoVariablesLeft(t *testing.T) {
	all, err := expressions("../../../../testdata/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	pages := false
	for _, e := range all {
		if strings.Contains(e.query, "$") || e.query == "" || e.panel == "" {
			t.Errorf("%+v", e)
		}
		pages = pages || e.panel == "Pages"
	}
	if len(all) < 20 || !pages {
		t.Errorf("%d expressions, annotations among them: %v", len(all), pages)
	}
}
