package otel

import (
	"errors"
	"fmt"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// scope is the name of the instrumentation.
const scope = "github.com/watertight-go/watertight/otel"

// Config says where signals go. The zero Config uses the global providers.
type Config struct {
	// TracerProvider makes the spans. Its sampler decides by a call's own span, of kind
	// INTERNAL and without the URL: where that is not recorded, its attempts have no
	// spans either, and what they call is told that the trace is not sampled. A sampler
	// asked for each attempt too would cost calls whose trace nobody wants a span each;
	// one that follows the parent, as most do, would say the same. To have the spans of
	// attempts alone, drop the others in a processor or a collector, not by sampling.
	// Nil: otel.GetTracerProvider().
	TracerProvider trace.TracerProvider

	MeterProvider metric.MeterProvider          // nil: otel.GetMeterProvider()
	Propagator    propagation.TextMapPropagator // nil: otel.GetTextMapPropagator(), asked for each attempt

	// ClientName is resilience.client.name. Two Transports of one process that
	// call the same hosts need it, each with an Observer of its own, or their
	// figures add up. Empty: none.
	ClientName string

	// PolicyName is resilience.policy.name of a host, given as host:port. It
	// should return few names: hosts of one name are added up. Where it returns
	// nothing, or panics, the name is the host. Nil: the host.
	PolicyName func(host string) string

	// MaxPolicyNames bounds the names, and so the series: a name counts for as
	// long as the Observer lives, since an SDK does not forget it either. Hosts
	// beyond it are added up as _other, and one error to otel.Handle says so. Zero:
	// 100; at most 1,000.
	//
	// An SDK drops all attributes beyond its own limit, 2,000 sets for a metric of a
	// MeterProvider. Reckon 20 sets for each name, and 40 where layers are in shadow
	// mode, whose sets are apart: an Observer with 100 names is safe, unless in shadow
	// mode. Several that share a provider, each with its ClientName, share the limit
	// too: raise it, or lower MaxPolicyNames, by what they come to in all.
	MaxPolicyNames int

	// NoAttemptSpans leaves the spans and durations of attempts, and propagation,
	// to an instrumentation below the stack.
	NoAttemptSpans bool

	// RedactQuery names the query parameters whose values are not recorded in
	// url.full. A name matches in any case, with or without '-' and '_', and also as
	// a part of a name that other characters divide: "api_key" stands for apiKey and
	// user[api-key] too, not for my_api_key. Nil: those by which clouds sign URLs,
	// and whatever ends in token, secret, password, signature, credential, apikey,
	// accesskey and the like, or is key, sig, auth, pass, code or session; so
	// page_token is redacted, and sort_key is not. Empty: none. Unless it is, a value
	// that holds a URL with userinfo, a query or a fragment is not recorded either.
	RedactQuery []string
}

const (
	defaultMaxPolicyNames = 100
	mostPolicyNames       = 1000
	otherPolicyName       = "_other"
)

// NewObserver returns an Observer for transport.Config.Observer, or every problem
// of the configuration at once. Instruments that a provider refuses are reported
// to otel.Handle and do without; the rest works.
func NewObserver(c Config) (*Observer, error) {
	var errs []error
	if c.MaxPolicyNames < 0 || c.MaxPolicyNames > mostPolicyNames {
		errs = append(errs, fmt.Errorf("MaxPolicyNames: %d: must be from 1 to %d, or 0 for %d", c.MaxPolicyNames, mostPolicyNames, defaultMaxPolicyNames))
	}
	for i, name := range c.RedactQuery {
		if name == "" {
			errs = append(errs, fmt.Errorf("RedactQuery[%d]: empty: must be the name of a query parameter", i))
		}
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("watertight/otel: %w", errors.Join(errs...))
	}
	if c.MaxPolicyNames == 0 {
		c.MaxPolicyNames = defaultMaxPolicyNames
	}
	if c.TracerProvider == nil {
		c.TracerProvider = otel.GetTracerProvider()
	}
	if c.MeterProvider == nil {
		c.MeterProvider = otel.GetMeterProvider()
	}
	o := &Observer{config: c, tracer: tracerOf(c.TracerProvider), redact: newRedaction(c.RedactQuery, nil)}
	if c.RedactQuery == nil {
		o.redact = newRedaction(secretNames, secretEnds)
	}
	if c.ClientName != "" {
		o.common = []attribute.KeyValue{attribute.String("resilience.client.name", valid(c.ClientName))}
	}
	o.names.init(o)
	o.meters.init(o, meterOf(c.MeterProvider))
	return o, nil
}
