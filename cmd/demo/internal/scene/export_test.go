package scene

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/watertight-go/watertight/transport"
)

func TestABuildWithoutExportersSaysWhichCommandHasThem(t *testing.T) {
	for _, flag := range []string{"-prometheus 127.0.0.1:9464", "-otlp http://127.0.0.1:4318"} {
		var out, errs bytes.Buffer
		if code := Main(t.Context(), strings.Fields(flag), &out, &errs, nil); code != exitUsage {
			t.Errorf("%s: exit code %d", flag, code)
		}
		for _, want := range []string{`make demo ARGS="` + flag + `"`, "go -C cmd/demo/exporting run . " + flag} {
			if !strings.Contains(errs.String(), want) {
				t.Errorf("%s: %swant in it: %s", flag, &errs, want)
			}
		}
	}
}

func TestBadDestinationsAreNamedWithWhatWouldBeRight(t *testing.T) {
	never := func(context.Context, Destination) (Signals, error) {
		t.Error("exports all the same")
		return Signals{}, errors.New("never")
	}
	for _, tt := range []struct{ args, want string }{
		{"-prometheus 9464", `-prometheus "9464": must be host:port`},
		{"-prometheus :9464", `-prometheus ":9464": must be a loopback address, such as 127.0.0.1:9464; -expose lets others in`},
		{"-otlp 127.0.0.1:4318", `-otlp "127.0.0.1:4318": must be http:// or https://`},
		{"-otlp http://u:secret@127.0.0.1", `-otlp "REDACTED@127.0.0.1": must be`},
		{"-otlp=", `-otlp "": must be`},
		{"-expose -otlp http://127.0.0.1:4318", "-expose \"true\": must be given together with -serve or -prometheus"},
	} {
		var out, errs bytes.Buffer
		if code := Main(t.Context(), strings.Fields(tt.args), &out, &errs, never); code != exitUsage || !strings.Contains(errs.String(), tt.want) || strings.Contains(errs.String(), "secret") {
			t.Errorf("%s: exit code %d, %s", tt.args, code, &errs)
		}
	}
}

func TestWhatAnExporterCannotDoEndsTheCommand(t *testing.T) {
	failing := func(context.Context, Destination) (Signals, error) { return Signals{}, errors.New("no such collector") }
	var out, errs bytes.Buffer
	if code := Main(t.Context(), []string{"-otlp", "http://127.0.0.1:4318/"}, &out, &errs, failing); code != exitFailed || !strings.Contains(errs.String(), "demo: no such collector") || out.Len() > 0 {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, &out, &errs)
	}
	taken, err := listen(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer taken.close()
	errs.Reset()
	if code := Main(t.Context(), []string{"-prometheus", taken.host}, &out, &errs, failing); code != exitFailed || !strings.Contains(errs.String(), "-prometheus "+taken.host) {
		t.Errorf("exit code %d, stderr %q", code, &errs)
	}
}

// The run is played with an exporter whose last batch fails: its signals have the
// names of the dependencies, a scrape is answered while it lasts, and the failure is
// told.
func TestTheStacksRunIsExportedByTheNamesOfItsDependencies(t *testing.T) {
	reader := metric.NewManualReader()
	ended := false
	exporter := func(_ context.Context, to Destination) (Signals, error) {
		if to.OTLP == nil || to.OTLP.String() != "http://127.0.0.1:4318/base" || !to.Prometheus {
			t.Errorf("%+v", to)
		}
		return Signals{
			Tracers: tracenoop.NewTracerProvider(),
			Meters:  metric.NewMeterProvider(metric.WithReader(reader)),
			Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "up 1\n") }),
			End: func(ctx context.Context) error {
				ended = true
				if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) > 5*time.Second {
					t.Error("may last for ever")
				}
				return errors.New("the last batch was lost")
			},
		}, nil
	}
	flags := exportFlags{otlp: "http://127.0.0.1:4318/base/", prometheus: "127.0.0.1:0"}
	x, err := flags.begin(t.Context(), exporter)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	v := &view{out: &out}
	r, err := newRig(small(), v, true, false, x)
	if err != nil {
		t.Fatal(err)
	}
	r.tellAddresses()
	if resp, err := http.Get("http://" + r.service.server.host + "/mission"); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp, err)
	}
	var got metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &got); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, m := range got.ScopeMetrics[0].Metrics {
		if sum, ok := m.Data.(metricdata.Sum[int64]); ok && m.Name == "resilience.circuit_breaker.status" {
			for _, p := range sum.DataPoints {
				name, _ := p.Attributes.Value("resilience.policy.name")
				seen[name.AsString()] = true
			}
		}
	}
	for _, name := range names {
		if !seen[name] {
			t.Errorf("%s is missing among %v", name, seen)
		}
	}
	if len(seen) != len(names) {
		t.Errorf("%v", seen)
	}

	_, address, ok := strings.Cut(out.String(), "metrics:        ")
	resp, err := http.Get(strings.TrimSpace(address))
	if !ok || err != nil {
		t.Fatal(err, out.String())
	}
	body, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if string(body) != "up 1\n" {
		t.Errorf("%s", body)
	}
	r.record.start = time.Now()
	r.cancel = func() {}
	r.finish()
	if err := x.end(); err == nil || err.Error() != "the last batch was lost" || !ended {
		t.Errorf("%v", err)
	}
	if _, err := http.Get(strings.TrimSpace(address)); err == nil {
		t.Error("metrics are served for ever")
	}
}

// tracing is an observer that writes down what it is told, and by which context.
type tracing struct {
	name string
	told *[]string
}

type tracingKey string

func (o tracing) Start(ctx context.Context, _ transport.Start) context.Context {
	return context.WithValue(ctx, tracingKey(o.name), true)
}

func (o tracing) Observe(ctx context.Context, e transport.Event) {
	for _, name := range []string{"first", "second"} {
		if ctx.Value(tracingKey(name)) == nil {
			*o.told = append(*o.told, o.name+" misses the context of "+name)
		}
	}
	*o.told = append(*o.told, o.name+" "+e.Kind.String())
}

type attaching struct{ tracing }

func (o attaching) Attach(*transport.Transport) func() {
	*o.told = append(*o.told, o.name+" attached")
	return func() { *o.told = append(*o.told, o.name+" detached") }
}

func TestObserversAreToldOneAfterAnother(t *testing.T) {
	var told []string
	all := observers{tracing{"first", &told}, attaching{tracing{"second", &told}}}
	detach := all.Attach(nil)
	ctx := all.Start(context.Background(), transport.Start{})
	all.Observe(ctx, transport.Event{Kind: transport.EventLeak})
	detach()
	if got, want := strings.Join(told, ", "), "second attached, first leak, second leak, second detached"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}
