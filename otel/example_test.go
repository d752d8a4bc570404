package otel_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/watertight-go/watertight/otel"
	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/transporttest"
)

// printer prints spans in place of an exporter.
type printer struct{}

func (printer) ExportSpans(_ context.Context, spans []sdktrace.ReadOnlySpan) error {
	for _, s := range spans {
		fmt.Println(s.SpanKind(), s.Name())
		for _, a := range s.Attributes() {
			switch a.Key {
			case "http.request.resend_count", "http.response.status_code", "resilience.outcome", "resilience.attempts":
				fmt.Println("   ", a.Key, a.Value.Emit())
			}
		}
	}
	return nil
}

func (printer) Shutdown(context.Context) error { return nil }

// A call that one retry helps: a span for each attempt, and one for the call, whose
// outcome is that of the last.
func Example() {
	// As a program sets it up, with an exporter of its own and a batcher.
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(printer{}))
	defer func() { _ = provider.Shutdown(context.Background()) }()

	observer, err := otel.NewObserver(otel.Config{TracerProvider: provider})
	if err != nil {
		log.Fatal(err)
	}
	payments := policy.Service()
	payments.Retry.Base = time.Millisecond
	client := transport.Must(transport.New(transport.Config{
		Observer: observer,
		Hosts:    map[string]policy.Policy{"payments.internal": payments},
		// A peer that recovers, in place of the network.
		Base: transporttest.NewBase(transporttest.Step{Status: 503}, transporttest.Step{Body: "paid"}),
	})).Client()

	resp, err := client.Get("http://payments.internal/orders/7")
	if err != nil {
		log.Fatal(err)
	}
	_ = resp.Body.Close()
	// Output:
	// client GET
	//     http.response.status_code 503
	// client GET
	//     http.request.resend_count 1
	//     http.response.status_code 200
	// internal resilience GET
	//     resilience.outcome success
	//     resilience.attempts 2
}

// A program with providers of its own, from its start to its end.
func Example_wiring() {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()

	client, shutdown, err := wire(printer{}, sdkmetric.NewManualReader())
	if err != nil {
		log.Fatal(err)
	}
	resp, err := client.Get(server.URL)
	if err != nil {
		log.Fatal(err)
	}
	_ = resp.Body.Close()
	if err := shutdown(context.Background()); err != nil {
		log.Fatal(err)
	}
	// Output:
	// client GET
	//     http.response.status_code 404
	// internal resilience GET
	//     resilience.outcome success
	//     resilience.attempts 1
}

// Hosts of one dependency share a name, so that a dashboard has one line for them,
// and shards that come and go use up none of the names there may be.
func ExampleConfig_policyName() {
	observer, err := otel.NewObserver(otel.Config{
		PolicyName: func(host string) string {
			if strings.HasPrefix(host, "shard-") {
				return "shards"
			}
			return host
		},
	})
	fmt.Println(observer != nil, err)
	// Output: true <nil>
}

// Where an instrumentation below the stack makes the spans of the attempts, it is
// left to it; Annotate tells it which of them are retries.
func ExampleAnnotate() {
	observer, err := otel.NewObserver(otel.Config{NoAttemptSpans: true})
	if err != nil {
		log.Fatal(err)
	}
	instrumented := func(base http.RoundTripper) http.RoundTripper { return base } // otelhttp.NewTransport
	tr := transport.Must(transport.New(transport.Config{
		Observer: observer,
		Base:     instrumented(otel.Annotate(http.DefaultTransport)),
	}))
	defer func() { _ = tr.Close() }()
	// Output:
}

// With the global providers, in a function that can fail.
func ExampleNewObserver() {
	start := func() error {
		obs, err := otel.NewObserver(otel.Config{}) // the global providers
		if err != nil {
			return err
		}
		rt, err := transport.New(transport.Config{Observer: obs})
		if err != nil {
			return err
		}
		return rt.Close()
	}
	fmt.Println(start())
	// Output: <nil>
}
