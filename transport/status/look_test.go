package status_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/status"
)

// order is the hosts that a handler shows, in its order.
func order(t *testing.T, h *status.Handler) string {
	t.Helper()
	return names(decode[status.Hosts](t, ask(h, "GET", "/hosts")))
}

func TestHostsInTroubleComeFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		shadow := brittle()
		shadow.Breaker.Shadow = true
		patient := policy.Policy{Breaker: policy.Breaker{ConsecutiveFailures: 8, OpenFor: time.Minute}}
		tr := w.over(t, transport.Config{Default: brittle(), Hosts: map[string]policy.Policy{
			"shadow.test": shadow, "near.test": patient, "far.test": patient,
			"full.test": {Bulkhead: policy.Bulkhead{MaxConcurrent: 4}},
			"half.test": {Breaker: policy.Breaker{ConsecutiveFailures: 1, OpenFor: time.Second}},
		}})
		h := status.New(tr, status.Config{})
		fail := func(host string, times int) {
			w.set(host, does{status: 500})
			for range times {
				_ = call(tr, "https://"+host)
			}
		}
		for _, calm := range []string{"calm.test", "also.test", "full.test"} {
			_ = call(tr, "https://"+calm)
		}
		fail("half.test", 1)
		time.Sleep(time.Minute)
		fail("second.test", 1) // tripped first, though its name comes last
		time.Sleep(time.Second)
		fail("first.test", 1)
		fail("shadow.test", 1)
		fail("near.test", 7)
		fail("far.test", 3)
		_ = call(tr, "https://byhand.test")
		time.Sleep(time.Second)
		tr.Host("byhand.test").ForceClosed()
		tr.Host("calm.test").ForceOpen()
		if got, want := order(t, h), "second first calm half shadow byhand near far also full"; got != want {
			t.Errorf("%s,\nwant %s", got, want)
		}
		var calls sync.WaitGroup
		w.set("full.test", does{after: time.Hour})
		for range 4 {
			calls.Go(func() { _ = call(tr, "https://full.test") })
		}
		time.Sleep(time.Second)
		if got, want := order(t, h), "second first calm half shadow byhand full near far also"; got != want {
			t.Errorf("%s,\nwant %s", got, want)
		}
		calls.Wait()
	})
}

// Forced closed, a failing host is no calm one: nothing is between it and its callers.
func TestAHostThatWasForcedClosedIsExposedWhereItFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		p := policy.Policy{Breaker: policy.Breaker{FailureRate: .5, MinCalls: 4, OpenFor: time.Minute}}
		tr := w.over(t, transport.Config{Default: p, Hosts: map[string]policy.Policy{"half.test": {Breaker: policy.Breaker{ConsecutiveFailures: 1, OpenFor: time.Second}}}})
		h := status.New(tr, status.Config{})
		w.set("ill.test", does{status: 500})
		w.set("half.test", does{status: 500})
		for _, host := range []string{"ill.test", "fine.test"} {
			tr.Host(host).ForceClosed()
			for range 3 {
				_ = call(tr, "https://"+host)
			}
		}
		if s := decode[status.Hosts](t, ask(h, "GET", "/hosts")).Summary; s.ForcedClosed != 2 || s.Exposed != 0 {
			t.Errorf("with three calls each: %+v", s)
		}
		_ = call(tr, "https://ill.test")
		_ = call(tr, "https://half.test")
		time.Sleep(2 * time.Second)
		d := decode[status.Hosts](t, ask(h, "GET", "/hosts"))
		if d.Summary.Exposed != 1 || d.Summary.Probing != 1 || d.Summary.Refusing != 0 {
			t.Errorf("%+v", d.Summary)
		}
		if got := order(t, h); got != "ill half fine" && got != "half ill fine" {
			t.Error(got)
		}
	})
}

// What a hundred viewers see is looked at once in half a second.
func TestTheStateIsLookedAtTwiceASecondAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := (&world{}).over(t, transport.Config{})
		h := status.New(tr, status.Config{})
		start := time.Now().UTC()
		for i := range 100 {
			_ = call(tr, fmt.Sprintf("https://h%d.test", i))
			d := decode[status.Hosts](t, ask(h, "GET", fmt.Sprintf("/hosts?limit=%d", 10+i%3)))
			if want := 1 + i/50*50; d.Summary.Hosts != want || !d.At.Equal(start.Add(time.Duration(i/50)*500*time.Millisecond)) {
				t.Fatalf("after %v: %d hosts as of %v, want %d", time.Since(start), d.Summary.Hosts, d.At, want)
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
}

func TestALookThatNobodyAsksForIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := (&world{}).over(t, transport.Config{})
		_ = call(tr, "https://a.test")
		h := status.New(tr, status.Config{})
		for range 3 {
			ask(h, "GET", "/hosts")
			time.Sleep(4999 * time.Millisecond)
			if !h.Keeps() {
				t.Error("too soon")
			}
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if h.Keeps() {
			t.Error("it is still there")
		}
		if got := order(t, h); got != "a" {
			t.Error(got)
		}
	})
}

func TestManyHostsAreDescribedUpToTheLimit(t *testing.T) {
	const n = 2_000
	tr := (&world{}).over(t, transport.Config{Default: brittle()})
	for i := range n {
		_ = call(tr, fmt.Sprintf("https://h%d.test", i))
	}
	h := status.New(tr, status.Config{})
	start := time.Now()
	d := decode[status.Hosts](t, ask(h, "GET", "/hosts"))
	t.Logf("%d hosts: %v", n, time.Since(start))
	if d.Summary.Hosts != n || d.Matched != n || len(d.Hosts) != 100 {
		t.Errorf("%d of %d, %+v", len(d.Hosts), d.Matched, d.Summary)
	}
	if all := decode[status.Hosts](t, ask(h, "GET", "/hosts?limit=10000")); len(all.Hosts) != n {
		t.Errorf("%d", len(all.Hosts))
	}
	if one := decode[status.Hosts](t, ask(h, "GET", "/hosts?q=h1999.")); one.Matched != 1 || len(one.Hosts) != 1 {
		t.Errorf("%+v", one)
	}
}

func BenchmarkHosts(b *testing.B) {
	for _, n := range []int{10, 1000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			tr := (&world{}).over(b, transport.Config{Default: brittle()})
			for i := range n {
				_ = call(tr, fmt.Sprintf("https://h%d.test", i))
			}
			b.ReportAllocs()
			for b.Loop() {
				ask(status.New(tr, status.Config{Name: "n"}), "GET", "/hosts") // without what another has looked at
			}
		})
	}
}
