package otel_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/watertight-go/watertight/otel"
	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport/transporttest"
)

func TestAnnotateTellsAnInstrumentationBelowWhatIsARetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSignals(t, sdktrace.AlwaysSample())
		base := otel.Annotate(transporttest.NewBase(transporttest.Step{Status: 503}, transporttest.Step{Status: 503}, transporttest.Step{}))
		instrumentation := rt(func(r *http.Request) (*http.Response, error) {
			ctx, span := s.tracers.Tracer("theirs").Start(r.Context(), "theirs", trace.WithSpanKind(trace.SpanKindClient))
			defer span.End()
			return base.RoundTrip(r.WithContext(ctx))
		})
		p := bare()
		p.Retry = policy.Retry{MaxAttempts: 3, Statuses: []int{503}, Base: 2 * time.Second, Max: time.Second}
		tr := stack(s.observer(func(c *otel.Config) { c.NoAttemptSpans = true }), instrumentation, p)
		if _, err := call(tr, request("GET", "http://a.test/")); err != nil {
			t.Fatal(err)
		}
		want := strings.TrimPrefix(`
internal resilience GET 2s {attempts=3 outcome=success}
  at 0s resilience.retry {retry.delay=1}
  at 1s resilience.retry {retry.delay=1}
  client theirs 0s {}
  client theirs 0s {http.request.resend_count=1}
  client theirs 0s {http.request.resend_count=2}
`, "\n")
		if got := s.trace(); got != want {
			t.Errorf("got\n%swant\n%s", got, want)
		}
	})
}

func TestAnnotateIsTransparent(t *testing.T) {
	var closer idle
	a := otel.Annotate(&closer)
	a.(interface{ CloseIdleConnections() }).CloseIdleConnections()
	otel.Annotate(rt(nil)).(interface{ CloseIdleConnections() }).CloseIdleConnections() // which cannot
	if closer != 1 {
		t.Errorf("closed %d times, want once", closer)
	}
	before := http.DefaultTransport
	defer func() { http.DefaultTransport = before }()
	http.DefaultTransport = transporttest.NewBase(transporttest.Step{Status: 299})
	if status, err := call(otel.Annotate(nil), request("GET", "http://a.test/")); status != 299 || err != nil { // outside of any stack
		t.Errorf("got %d, %v", status, err)
	}
}

// idle counts how often its idle connections were closed.
type idle int

func (*idle) RoundTrip(*http.Request) (*http.Response, error) { return nil, http.ErrNotSupported }
func (i *idle) CloseIdleConnections()                         { *i++ }
