package otel_test

import (
	"runtime"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/watertight-go/watertight/transport/transporttest"
)

func TestSpansOfAnUnreachableResponseEnd(t *testing.T) {
	s := newSignals(t, sdktrace.AlwaysSample())
	tr := stack(s.observer(), transporttest.NewBase(transporttest.Step{Body: "x"}), bare())
	func() {
		if _, err := tr.RoundTrip(request("GET", "http://a.test/")); err != nil {
			t.Fatal(err)
		}
	}()
	for late := time.Now().Add(10 * time.Second); s.ended.Load() < 2; time.Sleep(time.Millisecond) {
		if time.Now().After(late) {
			t.Fatalf("%d of 2 spans have ended", s.ended.Load())
		}
		runtime.GC()
	}
	s.mustCount(map[string]string{"resilience.bulkhead.leaked": "{bulkhead.reason=unreachable} 1"})
}
