package transport_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/transporttest"
)

func TestSnapshotRemembersTheLastFailuresInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := transporttest.NewBase(transporttest.Step{})
		tr := transport.Must(transport.New(transport.Config{Base: base, Logger: quiet(),
			Default: policy.Policy{Breaker: policy.Breaker{ConsecutiveFailures: 1000}}}))
		defer tr.Close()
		start := time.Now()
		for i := range 40 {
			base.Script(transporttest.Step{Status: 500 + i})
			_ = hostCall(tr, "http://a.test")
			if got := tr.Snapshot()[0].Failures; len(got) != min(i+1, 32) {
				t.Fatalf("%d after %d", len(got), i+1)
			}
			time.Sleep(time.Second)
		}
		for i, f := range tr.Snapshot()[0].Failures {
			if want := (transport.Failure{At: start.Add(time.Duration(8+i) * time.Second), What: fmt.Sprintf("status %d", 508+i)}); !f.At.Equal(want.At) || f.What != want.What {
				t.Errorf("at %d: %v, want %v", i, f, want)
			}
		}
	})
}

// What hangs when a breaker trips by its slow calls ends later. It changes nothing
// then, and is all that tells why.
func TestSnapshotTellsOfFailuresThatEndedAfterTheTrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := transport.Must(transport.New(transport.Config{
			Base: transporttest.NewBase(transporttest.Step{Fault: transporttest.Hang}), Logger: quiet(),
			Default: policy.Policy{
				Timeout: policy.Timeout{Attempt: 3 * time.Second},
				Breaker: policy.Breaker{SlowCall: time.Second, SlowRate: 0.5, MinCalls: 1},
			}}))
		defer tr.Close()
		if err := hostCall(tr, "http://a.test"); err == nil {
			t.Fatal("no error")
		}
		s := tr.Snapshot()[0]
		if s.Trip == nil || s.Trip.Last != "" || s.Trip.Failures != 0 || s.Window.Failures != 0 {
			t.Errorf("%+v", s)
		}
		if len(s.Failures) != 1 || s.Failures[0].What != "attempt timeout" {
			t.Errorf("%+v", s.Failures)
		}
	})
}

func TestSnapshotTellsOfAProbeThatFailedByBeingSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := transporttest.NewBase(transporttest.Step{Status: 500})
		tr := transport.Must(transport.New(transport.Config{Base: base, Logger: quiet(),
			Default: policy.Policy{Breaker: policy.Breaker{ConsecutiveFailures: 1, SlowCall: time.Second, OpenFor: time.Minute}}}))
		defer tr.Close()
		_ = hostCall(tr, "http://a.test")
		time.Sleep(2 * time.Minute)
		base.Script(transporttest.Step{Delay: 2 * time.Second})
		_ = hostCall(tr, "http://a.test")
		if f := tr.Snapshot()[0].Failures; len(f) != 2 || f[1].What != "slow call" {
			t.Errorf("%+v", f)
		}
	})
}

// Half-open and open take turns through an outage: what counts is when it began.
func TestSnapshotTellsUntilWhenAHostWasClosedAndWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := transporttest.NewBase(transporttest.Step{Status: 500})
		tr := transport.Must(transport.New(transport.Config{Base: base, Logger: quiet(),
			Default: policy.Policy{Breaker: policy.Breaker{ConsecutiveFailures: 1, OpenFor: time.Minute, HalfOpenProbes: 1}}}))
		defer tr.Close()
		time.Sleep(time.Second)
		began := time.Now()
		for range 20 {
			_ = hostCall(tr, "http://a.test")
			tripped := time.Now()
			s := tr.Snapshot()[0]
			if s.State != transport.Open || !s.ClosedUntil.Equal(began) || !s.Tripped.Equal(tripped) ||
				s.Cause == nil || s.Cause.Trigger != "consecutive_failures" {
				t.Fatalf("%+v", s)
			}
			time.Sleep(2 * time.Minute)
		}
		base.Script(transporttest.Step{})
		_ = hostCall(tr, "http://a.test")
		if s := tr.Snapshot()[0]; s.State != transport.Closed || !s.ClosedUntil.IsZero() || s.Cause != nil || s.Tripped.IsZero() {
			t.Fatalf("%+v", s)
		}
		tr.Host("a.test").ForceClosed()
		if s := tr.Snapshot()[0]; !s.ClosedUntil.Equal(time.Now()) || s.Cause.Trigger != "forced" {
			t.Errorf("%+v", s)
		}
	})
}

func TestDoneIsClosedByClose(t *testing.T) {
	tr := transport.Must(transport.New(transport.Config{Logger: quiet()}))
	select {
	case <-tr.Done():
		t.Fatal("before Close")
	default:
	}
	for range 2 {
		_ = tr.Close()
		select {
		case <-tr.Done():
		default:
			t.Fatal("not after Close")
		}
	}
	var none transport.Transport
	_ = none.Close()
}
