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

// mostSent bounds what is told apart of a host: a peer chooses its status.
const mostSent = 32

func newHost(name string, s *series) *host {
	h := &host{series: s, sent: map[sentKey]*sent{}}
	address, port, err := net.SplitHostPort(name)
	if err != nil { // the state that many hosts share
		address = name
	}
	h.address = []attribute.KeyValue{attribute.String("server.address", address)}
	if p, err := strconv.Atoi(port); err == nil {
		h.address = append(h.address, attribute.Int("server.port", p))
	}
	return h
}

// sentAs are the attributes of an attempt. Beyond mostSent its status is not told.
func (h *host) sentAs(k sentKey) *sent {
	h.mu.RLock()
	s, full := h.sent[k], len(h.sent) >= mostSent
	h.mu.RUnlock()
	if s != nil {
		return s
	}
	if full && k.status != 0 {
		k.status = 0
		if k.errorType != "" {
			k.errorType = otherType
		}
		return h.sentAs(k)
	}
	s = &sent{key: k, span: k.outcome()}
	attrs := append([]attribute.KeyValue{attribute.String("http.request.method", methods[k.method].name)}, h.address...)
	s.record = []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(append(attrs, s.span...)...))}
	h.mu.Lock()
	h.sent[k] = s
	h.mu.Unlock()
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
