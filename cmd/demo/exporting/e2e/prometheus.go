package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"time"
)

// faster is how much faster time goes for the alerts: windows, offsets and waits of
// the rules are divided by it, so that two minutes are over in twenty seconds. So are
// scrapes and evaluations, from those of usual setups.
const faster = 6

// rulesPeriod is a duration in the rules that the tempo is for.
var rulesPeriod = regexp.MustCompile(`(\[|offset |for: )(\d+)([mh])\b`)

// hasten divides the durations of rules.
func hasten(rules string) string {
	return rulesPeriod.ReplaceAllStringFunc(rules, func(s string) string {
		m := rulesPeriod.FindStringSubmatch(s)
		n, _ := strconv.Atoi(m[2])
		seconds := n * 60
		if m[3] == "h" {
			seconds *= 60
		}
		return fmt.Sprintf("%s%ds", m[1], seconds/faster)
	})
}

const prometheusConfig = `global:
  scrape_interval: 1s
  scrape_timeout: 1s
  evaluation_interval: 1s
rule_files: [alerts.yaml]
alerting:
  alertmanagers:
    - static_configs: [{targets: [%q]}]
scrape_configs:
  - job_name: demo
    static_configs: [{targets: [%q]}]
`

const alertmanagerConfig = `route:
  receiver: pager
  group_by: ['...']
  group_wait: 0s
  group_interval: 1s
  repeat_interval: 1h
receivers:
  - name: pager
    webhook_configs: [{url: %q, send_resolved: true}]
`

// startAlertmanager starts one that tells the pager.
func startAlertmanager(f *fleet, pager string) (address string, err error) {
	if address, err = freeAddress(); err != nil {
		return "", err
	}
	config := filepath.Join(f.dir, "alertmanager.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, alertmanagerConfig, pager), 0o600); err != nil {
		return "", err
	}
	p, err := f.start("prometheus-alertmanager", "--config.file="+config, "--storage.path="+filepath.Join(f.dir, "alertmanager"),
		"--web.listen-address="+address, "--cluster.listen-address=")
	if err != nil {
		return "", err
	}
	return address, ready(f.ctx, p, "http://"+address+"/-/ready")
}

// prometheus is a Prometheus under way.
type prometheus struct{ url string }

// startPrometheus starts one that scrapes target, with rules as they are but for
// their tempo.
func startPrometheus(f *fleet, rules, alertmanager, target string) (*prometheus, error) {
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(rules)
	if err != nil {
		return nil, err
	}
	config := filepath.Join(f.dir, "prometheus.yaml")
	if err := os.WriteFile(filepath.Join(f.dir, "alerts.yaml"), []byte(hasten(string(text))), 0o600); err != nil {
		return nil, err
	}
	if err := os.WriteFile(config, fmt.Appendf(nil, prometheusConfig, alertmanager, target), 0o600); err != nil {
		return nil, err
	}
	p, err := f.start("prometheus", "--config.file="+config, "--storage.tsdb.path="+filepath.Join(f.dir, "prometheus"),
		"--web.listen-address="+address)
	if err != nil {
		return nil, err
	}
	return &prometheus{"http://" + address}, ready(f.ctx, p, "http://"+address+"/-/ready")
}

// ready waits until a process answers.
func ready(ctx context.Context, p *process, url string) error {
	err := eventually(ctx, 20*time.Second, func() (bool, error) {
		_, err := get(ctx, url)
		return err == nil, err
	})
	if err != nil {
		return fmt.Errorf("%s does not get ready: %w\n%s", p.name, err, p.tail())
	}
	return nil
}

// result is what a query came to.
type result struct {
	Metric map[string]string    `json:"metric"`
	Value  [2]json.RawMessage   `json:"value"`
	Values [][2]json.RawMessage `json:"values"`
}

// number is the value of a sample; NaN if it is none.
func number(sample [2]json.RawMessage) float64 {
	var s string
	if json.Unmarshal(sample[1], &s) != nil {
		return math.NaN()
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return math.NaN()
	}
	return f
}

// values are the numbers of a series of a range.
func (r result) values() (all []float64) {
	for _, v := range r.Values {
		if f := number(v); !math.IsNaN(f) {
			all = append(all, f)
		}
	}
	return all
}

// at is the sum of what a query finds at a moment; NaN if it finds nothing.
func (p *prometheus) at(ctx context.Context, at time.Time, query string) (float64, error) {
	all, err := p.query(ctx, "query", url.Values{"query": {query}, "time": {stamp(at)}})
	if err != nil || len(all) == 0 {
		return math.NaN(), err
	}
	sum := 0.0
	for _, r := range all {
		sum += number(r.Value)
	}
	return sum, nil
}

// over is what a query finds at each second of a span.
func (p *prometheus) over(ctx context.Context, from, to time.Time, query string) ([]result, error) {
	return p.query(ctx, "query_range", url.Values{"query": {query}, "start": {stamp(from)}, "end": {stamp(to)}, "step": {"1"}})
}

func stamp(t time.Time) string { return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', 3, 64) }

func (p *prometheus) query(ctx context.Context, kind string, q url.Values) ([]result, error) {
	body, err := get(ctx, p.url+"/api/v1/"+kind+"?"+q.Encode())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", q.Get("query"), err)
	}
	var answer struct {
		Data struct {
			Result []result `json:"result"`
		} `json:"data"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, fmt.Errorf("%s: %w", q.Get("query"), err)
	}
	return answer.Data.Result, nil
}
