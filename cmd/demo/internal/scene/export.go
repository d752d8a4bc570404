package scene

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/watertight-go/watertight/otel"
	"github.com/watertight-go/watertight/transport"
)

// Exporter begins to export.
type Exporter func(ctx context.Context, to Destination) (Signals, error)

// Destination is where signals go.
type Destination struct {
	OTLP       *url.URL // of a collector, which takes OTLP over HTTP; nil: none
	Prometheus bool     // Signals.Metrics is to be served
}

// Signals is what an Exporter has begun.
type Signals struct {
	Tracers trace.TracerProvider
	Meters  metric.MeterProvider
	Metrics http.Handler                // answers a scrape; nil unless it is to be served
	End     func(context.Context) error // sends what is left
}

// exportFlags are the flags that need an Exporter.
type exportFlags struct {
	otlp, prometheus string
	exposed          bool
}

func (e *exportFlags) define(f *flags) {
	f.value("otlp", "", func(s string) bool { e.otlp = s; return true })
	f.value("prometheus", "", func(s string) bool { e.prometheus = s; return true })
}

// check notes what is wrong with the flags.
func (e *exportFlags) check(f *flags, can, exposed bool) {
	e.exposed = exposed
	for _, name := range []string{"otlp", "prometheus"} {
		if value, given := f.given[name]; given && !can {
			f.problems = append(f.problems, fmt.Sprintf("-%s: this build has no exporters: use make demo ARGS=%q, or go -C cmd/demo/exporting run . -%[1]s %[3]s",
				name, "-"+name+" "+value, value))
		}
	}
	if !can {
		return
	}
	if _, given := f.given["otlp"]; given && collectorOf(e.otlp) == nil {
		f.problem("otlp", redacted(e.otlp), "http:// or https://, a host and at most a path, such as http://127.0.0.1:4318")
	}
	if _, given := f.given["prometheus"]; given {
		f.address("prometheus", e.prometheus, exposed)
	}
}

// collectorOf is the URL of a collector, or nil if it is none.
func collectorOf(s string) *url.URL {
	if s = strings.TrimSuffix(s, "/"); s == "" {
		return nil
	}
	return targetOf(s)
}

// export is what the stack's run is exported by; nil exports nothing.
type export struct {
	observer *otel.Observer
	rig      atomic.Pointer[rig] // that is under way, whose hosts have names
	signals  Signals
	server   *server // of metrics; nil: they are not served
}

// begin begins to export where the flags say.
func (e *exportFlags) begin(ctx context.Context, with Exporter) (*export, error) {
	if e.otlp == "" && e.prometheus == "" {
		return nil, nil
	}
	x := &export{}
	var l net.Listener
	if e.prometheus != "" {
		var err error
		if l, err = net.Listen("tcp", e.prometheus); err != nil {
			return nil, fmt.Errorf("-prometheus %s: %w", e.prometheus, err)
		}
	}
	var err error
	x.signals, err = with(ctx, Destination{OTLP: collectorOf(e.otlp), Prometheus: l != nil})
	if err == nil {
		x.observer, err = otel.NewObserver(otel.Config{
			TracerProvider: x.signals.Tracers,
			MeterProvider:  x.signals.Meters,
			PolicyName:     x.policyName,
		})
	}
	if err != nil {
		if l != nil {
			_ = l.Close()
		}
		return nil, errors.Join(err, x.end())
	}
	if l != nil {
		mux := http.NewServeMux()
		mux.Handle("GET /metrics", x.signals.Metrics)
		x.server = serve(l, mux)
	}
	return x, nil
}

// policyName is the dependency at an address.
func (x *export) policyName(host string) string {
	if r := x.rig.Load(); r != nil {
		return r.nameOf(host)
	}
	return ""
}

// of is what a rig's stack is to be observed by.
func (x *export) of(r *rig) transport.Observer {
	if x == nil {
		return r
	}
	x.rig.Store(r)
	return observers{r, x.observer}
}

// tell says where the signals are.
func (x *export) tell(v *view) {
	if x != nil && x.server != nil {
		v.note("metrics:        http://%s/metrics", x.server.host)
	}
}

// end sends what is left, within five seconds, and stops the server.
func (x *export) end() error {
	if x == nil {
		return nil
	}
	if x.server != nil {
		x.server.close()
	}
	if x.signals.End == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return x.signals.End(ctx)
}

// observers are told one after another; what follows a Start runs with the context
// of all of them.
type observers []transport.Observer

var _ transport.Attacher = observers{}

func (all observers) Start(ctx context.Context, s transport.Start) context.Context {
	for _, o := range all {
		ctx = o.Start(ctx, s)
	}
	return ctx
}

func (all observers) Observe(ctx context.Context, e transport.Event) {
	for _, o := range all {
		o.Observe(ctx, e)
	}
}

// Attach hands the Transport to those who want it.
func (all observers) Attach(t *transport.Transport) (detach func()) {
	var detachers []func()
	for _, o := range all {
		if a, ok := o.(transport.Attacher); ok {
			if detach := a.Attach(t); detach != nil {
				detachers = append(detachers, detach)
			}
		}
	}
	return func() {
		for _, detach := range detachers {
			detach()
		}
	}
}
