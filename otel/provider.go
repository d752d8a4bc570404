package otel

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	mnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"
	tnoop "go.opentelemetry.io/otel/trace/noop"
)

// A provider may be broken, as may a Propagator and a PolicyName. What comes of it
// is less to see, never a call that fails.

// handle reports an error to the program's handler, and survives it.
func handle(err error) {
	defer func() { _ = recover() }()
	otel.Handle(fmt.Errorf("watertight/otel: %w", err))
}

// survived reports the first panic of what was configured.
func (o *Observer) survived(what string, panicked any) {
	if panicked == nil {
		return
	}
	o.once(what, func() {
		handle(fmt.Errorf("panic in %s: %v; further ones are not reported", what, panicked))
	})
}

// once reports something for the first time, and does not wait: the program's handler
// of errors may write to what nobody reads, such as the pipe its Logger is blocked by.
func (o *Observer) once(what string, report func()) {
	if _, told := o.told.LoadOrStore(what, true); !told {
		go report()
	}
}

// asked is what ask returns, or else for a provider that panics.
func asked[T any](what string, none T, ask func() (T, error)) (made T) {
	defer func() {
		if p := recover(); p != nil {
			handle(fmt.Errorf("panic in %s: %v", what, p))
			made = none
		}
	}()
	made, err := ask()
	if err != nil {
		handle(fmt.Errorf("%s: %w", what, err))
	}
	if any(made) == nil {
		return none
	}
	return made
}

func tracerOf(p trace.TracerProvider) trace.Tracer {
	return asked[trace.Tracer]("TracerProvider", tnoop.Tracer{}, func() (trace.Tracer, error) { return p.Tracer(scope), nil })
}

func meterOf(p metric.MeterProvider) metric.Meter {
	return asked[metric.Meter]("MeterProvider", mnoop.Meter{}, func() (metric.Meter, error) { return p.Meter(scope), nil })
}

// begin starts a span: one that does nothing, if the tracer panics or has none.
func (o *Observer) begin(ctx context.Context, name string, options ...trace.SpanStartOption) (in context.Context, span trace.Span) {
	if _, ok := o.tracer.(tnoop.Tracer); ok {
		return ctx, tnoop.Span{}
	}
	defer func() {
		o.survived("Tracer.Start", recover())
		if in == nil || span == nil {
			in, span = ctx, tnoop.Span{}
		}
	}()
	return o.tracer.Start(ctx, name, options...)
}
