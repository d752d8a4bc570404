package main

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/watertight-go/watertight/policy"
)

// slowOne is the dependency of the demo that becomes slow.
const slowOne = "telemetry"

// How long it is healthy first, and how long it is slow.
const (
	warm = 12 * time.Second
	ill  = 9 * time.Second
)

// stack is the demo's policy, from which the arithmetic follows.
var stack = policy.Service()

// scene is the outage, and those who watch it.
type scene struct {
	*fleet
	*claims
	root     string // of the repository
	pager    pager
	receiver receiver

	demo                   *process
	control, page, metrics string // its addresses
	prometheus             *prometheus
	browser                *browser

	begun, injected, opened, closed time.Time
}

func newScene(root string, f *fleet, c *claims) *scene {
	return &scene{root: root, fleet: f, claims: c, receiver: receiver{openers: map[string]bool{}}}
}

// play plays the outage and makes the claims.
func (s *scene) play() error {
	for _, act := range []func() error{s.begin, s.healthy, s.outage, s.recovery, s.whole} {
		if err := act(); err != nil {
			return err
		}
	}
	return nil
}

// begin starts everything.
func (s *scene) begin() error {
	fmt.Printf("e2e: the demo, Prometheus (scrapes and evaluates each second, time in the rules goes %d times as fast),\n"+
		"     Alertmanager, a pager, a collector, and Chromium on the status page\n", faster)
	program := filepath.Join(s.dir, "demo")
	exporting, err := filepath.Abs(filepath.Join(s.root, "cmd/demo/exporting"))
	if err != nil {
		return err
	}
	if _, err := s.run(exporting, "", "go", "build", "-o", program, "."); err != nil {
		return err
	}
	collector, err := s.serve(s.receiver.handler())
	if err != nil {
		return err
	}
	pager, err := s.serve(&s.pager)
	if err != nil {
		return err
	}
	alertmanager, err := startAlertmanager(s.fleet, pager)
	if err != nil {
		return err
	}
	if s.demo, err = s.start(program, "-serve", "127.0.0.1:0", "-prometheus", "127.0.0.1:0", "-otlp", collector); err != nil {
		return err
	}
	s.begun = time.Now()
	for text, to := range map[string]*string{"faults by hand:": &s.control, "status page:": &s.page, "metrics:": &s.metrics} {
		l, err := s.demo.says(s.ctx, 10*time.Second, s.begun, text)
		if err != nil {
			return err
		}
		*to = regexp.MustCompile(`http://\S+`).FindString(l.text)
	}
	target := strings.TrimSuffix(strings.TrimPrefix(s.metrics, "http://"), "/metrics")
	if s.prometheus, err = startPrometheus(s.fleet, filepath.Join(s.root, "testdata/alerts.yaml"), alertmanager, target); err != nil {
		return err
	}
	s.browser, err = startBrowser(s.fleet, s.page)
	return err
}

// healthy is before the fault.
func (s *scene) healthy() error {
	if err := sleep(s.ctx, time.Until(s.begun.Add(warm))); err != nil {
		return err
	}
	up, err := s.prometheus.at(s.ctx, time.Now(), "up")
	if err != nil {
		return err
	}
	s.add("Prometheus scrapes the demo", "up 1", fmt.Sprint("up ", up), up == 1)
	text, err := get(s.ctx, s.metrics)
	if err != nil {
		return err
	}
	complaints, err := s.run(s.dir, string(text), "promtool", "check", "metrics")
	if err != nil && complaints == "" {
		return err
	}
	if complaints == "" {
		complaints = "none"
	}
	s.add("promtool's complaints about /metrics", "none", complaints, complaints == "none")
	if err := s.share("fallbacks before the fault", "none", 0, 0); err != nil {
		return err
	}
	_, err = s.browser.shows(s.ctx, 10*time.Second, "document.querySelectorAll('#closed tbody tr').length >= 5")
	calm := "5 hosts, all closed"
	if err != nil {
		calm = err.Error()
	}
	s.add("status page in Chromium before the fault", "5 hosts, all closed", calm, err == nil)
	return s.ctx.Err()
}

// outage is from the fault to when it is lifted.
func (s *scene) outage() error {
	s.injected = time.Now()
	if err := s.fault("delay?d=30s"); err != nil {
		return err
	}
	l, err := s.demo.says(s.ctx, 20*time.Second, s.injected, slowOne+": closed -> open")
	if err != nil {
		return err
	}
	s.opened = l.at
	s.within("breaker opens after", stack.Breaker.SlowCall, stack.Timeout.Attempt+time.Second, s.opened.Sub(s.injected))

	shown, err := s.browser.shows(s.ctx, 5*time.Second, "document.querySelectorAll('.card.open').length === 1")
	if err != nil {
		shown = -1
	}
	s.within("status page shows it, without a reload,", 0, 2*time.Second, shown)
	verdict, err := s.browser.eval("document.getElementById('verdict').textContent")
	if err != nil {
		return err
	}
	s.add("  in the words", "1 of 5 hosts down: 1 refused", verdict, verdict == "1 of 5 hosts down: 1 refused")

	n, took := s.notified("firing", 6*time.Second, s.opened)
	s.within("the page arrives after", 0, 5*time.Second, took)
	summary := n.Annotations["summary"]
	s.add("  and says who and why", slowOne+", slow_call_rate", summary,
		strings.HasPrefix(summary, slowOne+": ") && strings.Contains(summary, "slow_call_rate"))

	if err := sleep(s.ctx, time.Until(s.injected.Add(ill))); err != nil {
		return err
	}
	if err := s.browser.picture(filepath.Join(s.dir, "page.png")); err != nil { // for -keep
		return err
	}
	return s.share("fallbacks in the outage", ">= 90 %", 0.9, 1.1) // of rates over few scrapes
}

// recovery is from when the fault is lifted to when all is as before.
func (s *scene) recovery() error {
	lifted := time.Now()
	if err := s.fault("ok"); err != nil {
		return err
	}
	l, err := s.demo.says(s.ctx, 2*stack.Breaker.OpenFor, lifted, slowOne+": half_open -> closed")
	if err != nil {
		return err
	}
	s.closed = l.at
	s.within("breaker closes, after it opened,", stack.Breaker.OpenFor*9/10, stack.Breaker.OpenFor*11/10+2*time.Second, s.closed.Sub(s.opened))
	shown, err := s.browser.shows(s.ctx, 5*time.Second, "document.querySelectorAll('.card').length === 0")
	if err != nil {
		shown = -1
	}
	s.within("status page shows that after", 0, 2*time.Second, shown)
	const window = 2 * time.Minute / faster // of CircuitBreakerOpened
	_, took := s.notified("resolved", window+15*time.Second, s.closed)
	s.within("the page is resolved after", 0, window+5*time.Second, took)
	return s.share("fallbacks in the end", "none", 0, 0)
}

// whole is what holds over all of it.
func (s *scene) whole() error {
	now := time.Now()
	for _, flat := range []struct{ name, query string }{
		{"transitions of the other four", `sum(resilience_circuit_breaker_transitions_total{resilience_policy_name!="telemetry"})`},
		{"  their failures", `sum(resilience_circuit_breaker_calls_total{resilience_call_result="failure",resilience_policy_name!="telemetry"})`},
		{"  their refusals", `sum(resilience_circuit_breaker_not_permitted_total{resilience_policy_name!="telemetry"})`},
		{"  their fallbacks", `sum(resilience_fallbacks_total{resilience_policy_name!="telemetry"})`},
	} {
		n, err := s.prometheus.at(s.ctx, now, flat.query)
		if err != nil {
			return err
		}
		s.add(flat.name, "0", fmt.Sprint(n), n == 0)
	}
	others := s.pager.others(slowOne)
	s.add("  pages and tickets about them", "0", strings.Join(append([]string{fmt.Sprint(len(others))}, others...), ", "), len(others) == 0)
	if err := s.dashboard(now); err != nil {
		return err
	}
	return s.traces()
}

// dashboard claims that each expression has found something in the run.
func (s *scene) dashboard(now time.Time) error {
	all, err := expressions(filepath.Join(s.root, "testdata/dashboard.json"))
	if err != nil {
		return err
	}
	var empty []string
	for _, e := range all {
		found, err := s.prometheus.over(s.ctx, s.begun, now, e.query)
		if err != nil {
			return err
		}
		points := 0
		for _, r := range found {
			points += len(r.values())
		}
		if points == 0 {
			empty = append(empty, e.panel+": "+e.query)
		}
	}
	s.add("expressions of the dashboard that find data", fmt.Sprintf("%d of %[1]d", len(all)), fmt.Sprintf("%d of %d", len(all)-len(empty), len(all)), len(empty) == 0 && len(all) > 20)
	for _, e := range empty {
		fmt.Println("  nothing:", e)
	}
	return nil
}

// traces claims what the collector got.
func (s *scene) traces() error {
	r := &s.receiver
	_ = eventually(s.ctx, 5*time.Second, func() (bool, error) { // the last batches are under way
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.opened > 0, nil
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	s.add("spans of calls that came by OTLP", "> 1000", fmt.Sprint(r.calls), r.calls > 1000)
	s.add("  of attempts: fewer, refusals have none", "> 1000, fewer", fmt.Sprint(r.wire), r.wire > 1000 && r.wire < r.calls)
	s.add("  that tell of an opening", "1", fmt.Sprint(r.opened), r.opened == 1)
	s.add("  refused ones that link to that", "> 100", fmt.Sprint(r.linked()), r.linked() > 100)
	s.add("batches of metrics", "> 5", fmt.Sprint(r.metrics), r.metrics > 5)
	return nil
}

// fault puts a fault into the slow one, or takes it out.
func (s *scene) fault(what string) error {
	req, err := http.NewRequestWithContext(s.ctx, http.MethodPost, s.control+slowOne+"/"+what, nil)
	if err == nil {
		_, err = do(req)
	}
	return err
}

// notified waits for the notice about the slow one's breaker, and tells how long
// after a moment it came; negative for never.
func (s *scene) notified(status string, most time.Duration, after time.Time) (n notice, took time.Duration) {
	_ = eventually(s.ctx, most, func() (ok bool, err error) {
		n, ok = s.pager.got(status, "CircuitBreakerOpened")
		return ok, nil
	})
	if n.at.IsZero() {
		return n, -1
	}
	return n, n.at.Sub(after)
}

// share claims what share of the slow one's calls was answered by fallbacks, in the
// last five seconds.
func (s *scene) share(name, expected string, least, most float64) error {
	const of = `sum(rate(resilience_fallbacks_total{resilience_policy_name="telemetry"}[5s]))
/ sum(rate(resilience_request_duration_seconds_count{resilience_policy_name="telemetry"}[5s]))`
	share, err := s.prometheus.at(s.ctx, time.Now(), of)
	if err != nil {
		return err
	}
	s.add(name, expected, fmt.Sprintf("%.0f %%", share*100), !math.IsNaN(share) && least <= share && share <= most)
	return nil
}

// sleep waits, unless ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
