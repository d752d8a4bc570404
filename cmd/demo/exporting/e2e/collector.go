package main

import (
	"io"
	"net/http"
	"sync"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// receiver takes what is sent by OTLP over HTTP, and counts it.
type receiver struct {
	mu      sync.Mutex // guards what follows
	metrics int        // requests
	calls   int        // spans of calls
	wire    int        // spans of attempts
	opened  int        // events of breakers that opened
	openers map[string]bool
	links   []string // of spans of calls
}

func (r *receiver) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/traces", r.traces)
	mux.HandleFunc("POST /v1/metrics", func(http.ResponseWriter, *http.Request) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.metrics++
	})
	return mux
}

func (r *receiver) traces(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(io.LimitReader(req.Body, 64<<20))
	var sent collector.ExportTraceServiceRequest
	if err != nil || proto.Unmarshal(body, &sent) != nil {
		http.Error(w, "not spans", http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, resource := range sent.ResourceSpans {
		for _, scope := range resource.ScopeSpans {
			for _, s := range scope.Spans {
				r.count(s)
			}
		}
	}
}

// count counts a span. r.mu is held.
func (r *receiver) count(s *trace.Span) {
	if s.Kind == trace.Span_SPAN_KIND_CLIENT {
		r.wire++
		return
	}
	r.calls++
	for _, e := range s.Events {
		for _, a := range e.Attributes {
			if e.Name == "resilience.circuit_breaker.transition" && a.Key == "resilience.circuit_breaker.state" && a.Value.GetStringValue() == "open" {
				r.opened++
				r.openers[string(s.SpanId)] = true
			}
		}
	}
	for _, l := range s.Links {
		r.links = append(r.links, string(l.SpanId))
	}
}

// linked counts the links that lead to the span of a call that opened a breaker. That
// one may come last: it hangs.
func (r *receiver) linked() (n int) {
	for _, id := range r.links {
		if r.openers[id] {
			n++
		}
	}
	return n
}
