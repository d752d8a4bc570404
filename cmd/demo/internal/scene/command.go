package scene

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1 // a claim did not hold, or the demo could not run
	exitUsage  = 2
)

const usage = `Watch one slow dependency take a service down, and the stack keep it up.

  demo [-scale N] [-json] [-svg FILE] [-prometheus 127.0.0.1:PORT] [-otlp URL]
  demo -serve 127.0.0.1:PORT [-scale N] [-prometheus 127.0.0.1:PORT] [-otlp URL]
  demo proxy -listen 127.0.0.1:PORT -target URL [flags]     (see demo proxy -h)

  -scale N     play it N times faster, from 1 to 20: durations are divided by N,
               rates multiplied (default 1, about 40 s)
  -json        print nothing but {"claims":[{"name","expected","measured","ok"}]}
  -svg FILE    draw the workers held over time, both runs, into FILE
  -serve ADDR  keep the stack's run going, and take faults by hand on ADDR
               (loopback, unless -expose is given) until interrupted
  -expose      let -serve and -prometheus listen where others can reach them

The stack's run is exported by the build that has the exporters, which is what
make demo ARGS="..." runs when it is given one of

  -prometheus ADDR  serve its metrics at ADDR/metrics (loopback, unless -expose)
  -otlp URL         send its metrics and traces to a collector, over OTLP/HTTP:
                    http://127.0.0.1:4318

Exit code: 0 if every claim held, 1 if one did not or not everything could be
exported, 2 for bad flags.
NO_COLOR is respected.

By hand, with -serve 127.0.0.1:8088:

  curl        127.0.0.1:8088/                               what can be done
  curl        127.0.0.1:8088/status                         workers, breakers, counts
  curl -XPOST '127.0.0.1:8088/telemetry/delay?d=30s'        the fault of the demo
  curl -XPOST  127.0.0.1:8088/crew/hang                     takes calls, never answers
  curl -XPOST '127.0.0.1:8088/areas/errors?status=503&share=0.6'
  curl -XPOST  127.0.0.1:8088/alerts/resets                 cuts connections
  curl -XPOST '127.0.0.1:8088/geofences/drip?every=500ms'   a byte at a time
  curl -XPOST  127.0.0.1:8088/telemetry/ok                  healthy again
`

// Main is the command: it returns its exit code. It ends early with ctx. Where there
// is no exporter, the flags that need one are refused.
func Main(ctx context.Context, args []string, stdout, stderr io.Writer, e Exporter) int {
	if len(args) > 0 && args[0] == "proxy" {
		return runProxy(ctx, args[1:], stdout, stderr)
	}
	var asJSON, exposed bool
	scale, serve, svg := 1.0, "", ""
	var export exportFlags
	f := newFlags("demo")
	f.value("scale", "a number from 1 to 20", func(s string) bool {
		x, err := strconv.ParseFloat(s, 64)
		scale = x
		return err == nil && x >= 1 && x <= 20
	})
	f.boolean("json", &asJSON)
	f.boolean("expose", &exposed)
	f.value("svg", "the name of a file to write", func(s string) bool { svg = s; return s != "" })
	f.value("serve", "", func(s string) bool { serve = s; return true })
	export.define(f)
	if err := f.parse(args); err != nil {
		fmt.Fprint(stdout, usage)
		return exitOK
	}
	if _, given := f.given["serve"]; given {
		f.address("serve", serve, exposed)
		if asJSON {
			f.problem("json", "true", "left out with -serve, which makes no claims")
		}
		if svg != "" {
			f.problem("svg", svg, "left out with -serve, which does not play the scene")
		}
	}
	export.check(f, e != nil, exposed)
	if _, given := f.given["prometheus"]; exposed && serve == "" && !given {
		f.problem("expose", "true", "given together with -serve or -prometheus")
	}
	if len(f.problems) > 0 {
		return f.report(stderr)
	}

	v := &view{out: stdout, look: lookOf(stdout)}
	if asJSON {
		v.out = nil
	}
	s := scene().faster(scale)
	x, err := export.begin(ctx, e)
	code := exitFailed
	switch {
	case err != nil:
	case serve != "":
		code, err = runServe(ctx, s, v, serve, x)
	default:
		code, err = runBoth(ctx, s, v, stdout, svg, x)
	}
	v.end()
	err = errors.Join(err, x.end())
	switch {
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(stderr, "demo: interrupted before the claims could be made")
		return exitFailed
	case err != nil:
		fmt.Fprintln(stderr, "demo:", err)
		return exitFailed
	}
	return code
}

// longest is how long the command may take in all.
const longest = 75 * time.Second

// runBoth plays both runs and shows what they came to. Where a claim did not hold
// and the machine was too busy to play the scene at its speed, that says nothing:
// it is then played again at half the speed, as long as there is time.
func runBoth(ctx context.Context, s setting, v *view, stdout io.Writer, svg string, x *export) (int, error) {
	start := time.Now()
	var drawing *os.File
	if svg != "" { // nobody wants to watch for 40 s and be told then
		f, err := os.OpenFile(svg, os.O_CREATE|os.O_WRONLY, 0o644) // what it holds stays until there is better
		if err != nil {
			return exitFailed, fmt.Errorf("-svg: %w", err)
		}
		defer func() { _ = f.Close() }()
		drawing = f
	}
	for {
		v.scene(s)
		a, err := runBare(ctx, s, v)
		if err != nil {
			return exitFailed, err
		}
		b, err := runStack(ctx, s, v, x)
		if err != nil {
			return exitFailed, err
		}
		all := claims(s, a, b)
		slower := s.faster(0.5)
		failed := failures(all)
		if len(failed) == 0 || !a.disturbed() && !b.disturbed() || time.Since(start)+slower.takes() > longest {
			code, err := show(v, stdout, s, a, b, all, time.Since(start))
			if drawing != nil {
				if failed := draw(drawing, chart(s, a, b)); failed != nil {
					return exitFailed, errors.Join(err, failed)
				}
			}
			return code, err
		}
		v.print("\n" + v.look.red("Did not hold: "+strings.Join(failed, "; ")+".") + fmt.Sprintf(`
But the machine kept us waiting for %s of %s, so that says nothing. Again, at half the speed.
`, short(a.lost()+b.lost()), short(a.took()+b.took())))
		s = slower
	}
}

// draw makes a picture all that a file holds.
func draw(f *os.File, picture string) error {
	_ = f.Truncate(0) // what is no plain file need not take it
	if _, err := f.WriteString(picture); err != nil {
		return fmt.Errorf("-svg: %w", err)
	}
	return nil
}

// show shows what two runs came to, and returns the exit code.
func show(v *view, stdout io.Writer, s setting, a, b record, all []claim, took time.Duration) (int, error) {
	if v.out == nil {
		if err := writeJSON(stdout, all); err != nil {
			return exitFailed, err
		}
	} else {
		v.print("\n" + picture(v.look, s, a, b) + "\n" + table(v.look, all) + summary(v.look, a, b, all, took))
	}
	if len(failures(all)) > 0 {
		return exitFailed, nil
	}
	return exitOK, nil
}

func writeJSON(w io.Writer, all []claim) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(struct {
		Claims []claim `json:"claims"`
	}{all})
}

// summary is the last word.
func summary(l look, a, b record, all []claim, took time.Duration) string {
	s := ""
	if a.disturbed() || b.disturbed() {
		s = l.dim(fmt.Sprintf("The machine kept us waiting for %s of %s; a limit on time that was passed is widened by what was lost under it.",
			short(a.lost()+b.lost()), short(a.took()+b.took()))) + "\n"
	}
	if n := len(failures(all)); n > 0 {
		return s + l.red(fmt.Sprintf("%d of %d claims did not hold.", n, len(all)))
	}
	return s + l.green(fmt.Sprintf("All %d claims held", len(all))) + fmt.Sprintf(", in %s.", short(took))
}
