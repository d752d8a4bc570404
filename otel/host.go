package otel

import (
	"net"
	"strconv"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// host is what is known of one host:port.
type host struct {
	series   *series
	address  []attribute.KeyValue              // server.address and server.port
	tripped  atomic.Pointer[trace.SpanContext] // of the call that opened the breaker, if it was sampled
	presence presence

	mu   sync.RWMutex // guards sent
	sent map[sentKey]*sent
}

// sentKey is what tells the durations of attempts to a host apart.
type sentKey struct {
	method    method
	status    int
	version   version
	errorType string
}

// sent are the attributes of a sentKey: of the metric, and those that the span of
// the attempt is still to get.
type sent struct {
	key    sentKey
	record []metric.RecordOption
	span   []attribute.KeyValue
}

// mostSent bounds what is told apart of a host, since a peer chooses its status, and
// callers their methods. Beyond it there are two sets more for each method.
const mostSent = 32

func newHost(name string, s *series) *host {
	h := &host{series: s, sent: map[sentKey]*sent{}}
	address, port, err := net.SplitHostPort(name)
	if err != nil { // the state that many hosts share
		address = name
	}
	h.address = []attribute.KeyValue{attribute.String("server.address", valid(address))}
	if p, err := strconv.Atoi(port); err == nil {
		h.address = append(h.address, attribute.Int("server.port", p))
	}
	return h
}

// rest is what stands for a key beyond mostSent: its method, and whether it failed.
func (k sentKey) rest() sentKey {
	r := sentKey{method: k.method}
	if k.errorType != "" {
		r.errorType = otherType
	}
	return r
}

// sentAs are the attributes of an attempt.
func (h *host) sentAs(k sentKey) *sent {
	h.mu.RLock()
	s := h.sent[k]
	if s == nil && len(h.sent) >= mostSent {
		s = h.sent[k.rest()]
	}
	h.mu.RUnlock()
	if s == nil {
		s = h.addSent(k)
	}
	return s
}

func (h *host) addSent(k sentKey) *sent {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.sent[k] == nil && len(h.sent) >= mostSent {
		k = k.rest()
	}
	if s := h.sent[k]; s != nil {
		return s
	}
	s := &sent{key: k, span: k.outcome()}
	attrs := append([]attribute.KeyValue{attribute.String("http.request.method", methods[k.method].name)}, h.address...)
	s.record = []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(append(attrs, s.span...)...))}
	h.sent[k] = s
	return s
}

// of are the attributes for the span of an attempt, which tells its status in any
// case.
func (s *sent) of(k sentKey) []attribute.KeyValue {
	if s.key == k {
		return s.span
	}
	return k.outcome()
}

// outcome are the attributes of how an attempt ended.
func (k sentKey) outcome() []attribute.KeyValue {
	var attrs []attribute.KeyValue
	if k.status > 0 {
		attrs = append(attrs, attribute.Int("http.response.status_code", k.status))
	}
	if k.version != 0 {
		attrs = append(attrs, attribute.String("network.protocol.version", versions[k.version]))
	}
	if k.errorType != "" {
		attrs = append(attrs, attribute.String("error.type", k.errorType))
	}
	return attrs
}

// version is that of HTTP as network.protocol.version has it: one of few, and none
// for one that does not exist, which a base may make up.
type version uint8

var versions = [...]string{"", "1.0", "1.1", "2", "3"}

func versionOf(proto string) version {
	switch proto {
	case "HTTP/1.0":
		return 1
	case "HTTP/1.1":
		return 2
	case "HTTP/2.0", "HTTP/2":
		return 3
	case "HTTP/3.0", "HTTP/3":
		return 4
	}
	return 0
}
