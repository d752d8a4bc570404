package scene

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestBadFlagsAreNamedWithWhatWouldBeRight(t *testing.T) {
	for _, tt := range []struct {
		args string
		want []string
	}{
		{"-scale abc", []string{`-scale "abc": must be a number from 1 to 20`}},
		{"-scale 0.5", []string{`-scale "0.5": must be a number from 1 to 20`}},
		{"-scale NaN", []string{`-scale "NaN": must be a number from 1 to 20`}},
		{"-scale", []string{"flag needs an argument: -scale"}},
		{"-json=maybe", []string{`-json "maybe": must be true or false`}},
		{"-bogus", []string{"-bogus: no such flag", "demo -h"}},
		{"prox", []string{`"prox": no such argument`}},
		{"-expose", []string{`-expose "true": must be given together with -serve`}},
		{"-serve 127.0.0.1:0 -json", []string{`-json "true": must be left out with -serve`}},
		{"-serve 8088", []string{`-serve "8088": must be host:port`}},
		{"-serve 127.0.0.1:http", []string{`-serve "127.0.0.1:http": must be host:port`}},
		{"-serve :8088", []string{`-serve ":8088": must be a loopback address, such as 127.0.0.1:8088; -expose`}},
		{"-serve 0.0.0.0:8088", []string{"must be a loopback address"}},
		{"-serve [::]:8088 -scale x", []string{"must be a loopback address", "-scale"}}, // both at once
		{"proxy", []string{"-listen: is missing", "-target: is missing"}},
		{"proxy -listen :1 -target x", []string{`-listen ":1": must be a loopback address`, `-target "x": must be http:// or https://`}},
		{"proxy -listen 127.0.0.1:0 -target http://u:secret@x", []string{`-target "REDACTED@x"`}},
		{"proxy -listen 127.0.0.1:0 -target http://x?q", []string{`-target "http://x?q": must be`}},
		{"proxy -listen 127.0.0.1:0 -target http://x -attempt 3", []string{`-attempt "3": must be a duration with a unit`}},
		{"proxy -listen 127.0.0.1:0 -target http://x -max-concurrent few", []string{`-max-concurrent "few": must be a whole number`}},
		{"proxy -listen 127.0.0.1:0 -target http://x -replay-body 1k", []string{`-replay-body "1k": must be a whole number`}},
		{"proxy -listen 127.0.0.1:0 -target http://x -budget much", []string{`-budget "much": must be a number`}},
		{"proxy -listen 127.0.0.1:0 -target http://x -policy mine", []string{`-policy "mine": must be default or service`}},
		{"proxy -listen 127.0.0.1:0 -target http://x -shadow cache", []string{`-shadow "cache": must be all, or some of`}},
		{"proxy -listen 127.0.0.1:0 -target http://x -grace -1s", []string{`-grace "-1s": must be 0 or a positive duration`}},
		{ // every problem of the policy, in the names of the flags
			"proxy -listen 127.0.0.1:0 -target http://x -failure-rate 3 -attempt 1s -min-calls 900 -connect -1s",
			[]string{
				"-failure-rate (3): must be a fraction",
				"-slow-call (5s, its default): must be below -attempt (1s)",
				"-min-calls (900): must be at most -max-concurrent (256)",
				"-connect (-1s): must be 0 (off) or a positive duration",
			},
		},
	} {
		var out, errs bytes.Buffer
		if code := Main(t.Context(), strings.Fields(tt.args), &out, &errs, nil); code != exitUsage {
			t.Errorf("%s: exit code %d, want %d", tt.args, code, exitUsage)
		}
		if out.Len() > 0 {
			t.Errorf("%s: wrote to stdout: %s", tt.args, &out)
		}
		for _, want := range tt.want {
			if !strings.Contains(errs.String(), want) {
				t.Errorf("%s:\n%swant in it: %s", tt.args, &errs, want)
			}
		}
		if strings.Contains(errs.String(), "secret") {
			t.Errorf("%s: tells the password", tt.args)
		}
	}
}

func TestHelpGoesToStdout(t *testing.T) {
	for _, args := range [][]string{{"-h"}, {"--help"}, {"proxy", "-h"}} {
		var out, errs bytes.Buffer
		if code := Main(t.Context(), args, &out, &errs, nil); code != exitOK || errs.Len() > 0 || !strings.Contains(out.String(), "demo proxy -listen") {
			t.Errorf("%v: exit code %d, stderr %q", args, code, &errs)
		}
	}
	var out bytes.Buffer
	Main(t.Context(), []string{"-h"}, &out, &out, nil)
	if !strings.Contains(out.String(), "curl -XPOST '127.0.0.1:8088/telemetry/delay?d=30s'") {
		t.Error("no curl example")
	}
	out.Reset()
	Main(t.Context(), []string{"proxy", "-h"}, &out, &out, nil)
	for _, k := range knobs {
		if !strings.Contains(out.String(), "  -"+k.flag+" ") {
			t.Errorf("-%s is not in the help", k.flag)
		}
		if k.zero == "" {
			t.Errorf("-%s does not say what 0 means", k.flag)
		}
	}
}

func TestAPortInUseIsAnErrorOfTheRunNotOfTheFlags(t *testing.T) {
	s, err := listen(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	for _, args := range [][]string{{"-serve", s.host}, {"proxy", "-listen", s.host, "-target", "http://127.0.0.1:1"}} {
		var out, errs bytes.Buffer
		if code := Main(t.Context(), args, &out, &errs, nil); code != exitFailed || !strings.Contains(errs.String(), s.host) {
			t.Errorf("%v: exit code %d, %s", args, code, &errs)
		}
	}
}

// small is the scene at ten times its speed with a fifth of its load, and with
// more time between SlowCall and Attempt, so that it can be played beside other
// tests.
func small() setting {
	s := scene().faster(10)
	s.workers /= 5
	s.missions /= 5
	s.pings /= 2
	s.telemetry.Breaker.MinCalls /= 4
	s.telemetry.Bulkhead.MaxConcurrent /= 2
	s.telemetry.Timeout.Attempt *= 2
	s.latency *= 3 // and so is the room for workers that a busy machine holds up
	return s
}

func TestBothRunsHoldTheirClaims(t *testing.T) {
	var out bytes.Buffer
	v := &view{out: &out, look: look{unicode: true}}
	svg := filepath.Join(t.TempDir(), "demo.svg")
	code, err := runBoth(t.Context(), small(), v, &out, svg, nil)
	if code != exitOK || err != nil {
		t.Fatalf("exit code %d, %v\n%s", code, err, &out)
	}
	drawn, err := os.ReadFile(svg)
	if err != nil {
		t.Fatal(err)
	}
	if err := xml.Unmarshal(drawn, new(struct{})); err != nil || strings.Count(string(drawn), "<polyline") != 2 || strings.Contains(string(drawn), "NaN") {
		t.Errorf("%v in\n%s", err, drawn)
	}
	if i := strings.Index(out.String(), "Did not hold"); i >= 0 {
		t.Log(out.String()[i:][:200])
	}
	for _, want := range []string{
		"no timeout", "telemetry answers in 3s from now on", "the last worker is taken",
		"closed -> open", "open -> half_open", "half_open -> closed", ", as of ", "A  bare client, workers held", "claims held",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, &out)
		}
	}
	if strings.Contains(out.String(), "\x1b") {
		t.Error("escapes in what is no terminal")
	}
}

func TestAFileThatCannotBeDrawnIntoIsToldBeforeTheRun(t *testing.T) {
	var out, errs bytes.Buffer
	svg := filepath.Join(t.TempDir(), "no", "such.svg")
	if code := Main(t.Context(), []string{"-svg", svg}, &out, &errs, nil); code != exitFailed || out.Len() > 0 || !strings.Contains(errs.String(), "-svg: open "+svg) {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, &out, &errs)
	}
}

func TestADrawingReplacesWhatItsFileHeld(t *testing.T) {
	name := filepath.Join(t.TempDir(), "demo.svg")
	if err := os.WriteFile(name, []byte("something long and old"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := draw(f, "new"); err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	if b, err := os.ReadFile(name); string(b) != "new" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	if err := draw(f, "closed"); err == nil || !strings.Contains(err.Error(), "-svg: write "+name) {
		t.Errorf("%v", err)
	}
}

// The run was watched for 40 s: what it came to is told, whatever becomes of the
// picture.
func TestClaimsAreToldWhereTheDrawingFails(t *testing.T) {
	const full = "/dev/full"
	if _, err := os.Stat(full); err != nil {
		t.Skip(err)
	}
	var out bytes.Buffer
	code, err := runBoth(t.Context(), small(), &view{}, &out, full, nil)
	if code != exitFailed || err == nil || !strings.Contains(err.Error(), "-svg: write "+full) || !strings.Contains(out.String(), `"claims"`) {
		t.Errorf("exit code %d, %v, %s", code, err, &out)
	}
}

func TestTheChartTellsWhoseMomentsItMarks(t *testing.T) {
	drawn := chart(scene(), goodBare(), goodStack())
	for _, want := range []string{">4.00 s: no worker left<", ">8.00 s: lifted (stack)<", "demo -svg FILE,"} {
		if !strings.Contains(drawn, want) {
			t.Errorf("%q is missing in\n%s", want, drawn)
		}
	}
}

func TestAnInterruptedRunEndsAtOnceAndFails(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(300*time.Millisecond, cancel)
	var out, errs bytes.Buffer
	start := time.Now()
	code := Main(ctx, []string{"-json"}, &out, &errs, nil)
	if code != exitFailed || out.Len() > 0 || !strings.Contains(errs.String(), "interrupted") {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, &out, &errs)
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("took %v", took)
	}
}

func TestJSONIsClaimsAndNothingElse(t *testing.T) {
	var out bytes.Buffer
	all := claims(scene(), goodBare(), goodStack())
	if err := writeJSON(&out, all); err != nil {
		t.Fatal(err)
	}
	var got map[string][]map[string]any
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 || len(got["claims"]) != len(all) {
		t.Fatalf("%s", &out)
	}
	names := map[string]bool{}
	for _, c := range got["claims"] {
		name, _ := c["name"].(string)
		_, expected := c["expected"].(string)
		_, measured := c["measured"].(string)
		_, ok := c["ok"].(bool)
		if len(c) != 4 || name == "" || names[name] || !expected || !measured || !ok {
			t.Errorf("%v", c)
		}
		names[name] = true
	}
}
