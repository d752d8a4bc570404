package bench_test

import (
	"github.com/watertight-go/watertight/bench/peer"
	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

type fn func(*http.Request) (*http.Response, error)

func (f fn) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func BenchmarkZZ(b *testing.B) {
	body := []byte(strings.Repeat("x", 1<<10))
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) })
	server := httptest.NewServer(handler)
	defer server.Close()
	mk := func() *http.Transport {
		t := server.Client().Transport.(*http.Transport).Clone()
		t.MaxIdleConnsPerHost = 256
		return t
	}
	all := []side{{"bare", mk()},
		{"complete", transport.Must(transport.New(transport.Config{Base: mk()}))},
		{"bare2", mk()},
		{"foreign", transport.Must(transport.New(transport.Config{Base: fn(mk().RoundTrip)}))},
		{"floor", named("floor").New(mk(), policy.Default())},
		{"timeout", named("timeout").New(mk(), policy.Default())},
		{"none", transport.Must(transport.New(transport.Config{Base: mk(), Default: policy.Policy{}}))},
	}
	for _, w := range []int{1, 64} {
		b.Run(map[int]string{1: "1", 64: "64"}[w], func(b *testing.B) {
			runs := make([]run, len(all))
			for i := range all {
				(&run{}).turn(b, all[i].rt, server.URL, w)
			}
			turns(b, len(all), func(i int) { runs[i].turn(b, all[i].rt, server.URL, w) })
			for i, s := range all {
				b.ReportMetric(median(ratios(runs[i].rates, runs[0].rates)), s.name+":tr")
				b.ReportMetric(median(ratios(runs[i].p99s, runs[0].p99s)), s.name+":p99")
			}
		})
	}
}

func named(n string) peer.Peer {
	for _, p := range peer.All() {
		if p.Name == n {
			return p
		}
	}
	panic(n)
}

func BenchmarkZA(b *testing.B) {
	body := []byte(strings.Repeat("x", 1<<10))
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) })
	server := httptest.NewServer(handler)
	defer server.Close()
	mk := func() *http.Transport {
		t := server.Client().Transport.(*http.Transport).Clone()
		t.MaxIdleConnsPerHost = 256
		return t
	}
	for _, s := range []side{{"bare", mk()}, {"complete", transport.Must(transport.New(transport.Config{Base: mk()}))}, {"none", transport.Must(transport.New(transport.Config{Base: mk(), Default: policy.Policy{}}))}, {"floor", named("floor").New(mk(), policy.Default())}, {"timeout", named("timeout").New(mk(), policy.Default())}, {"failsafe", named("failsafe-go").New(mk(), policy.Default())}, {"bare2", mk()}} {
		b.Run(s.name, func(b *testing.B) {
			req, _ := http.NewRequest("GET", server.URL, nil)
			buf := make([]byte, 4096)
			b.ReportAllocs()
			for b.Loop() {
				if err := exchange(s.rt, req, buf); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
