package otel

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// call is the context of a call, which has its span.
type call struct {
	context.Context
	o     *Observer
	host  *host
	span  trace.Span
	again string  // why the next attempt is made, if it is
	first attempt // saves an allocation
}

// attempt is the context of an attempt, which has its span, or else the call's.
type attempt struct {
	context.Context
	o      *Observer
	call   *call
	number int        // from 1
	span   trace.Span // nil: it has none of its own
	method method
	sent   carrier
}

// Keys of contexts: of an Observer, since a Transport may have several, of which each
// finds its own.
type (
	callKey    struct{ o *Observer }
	attemptKey struct{ o *Observer } // nil: the innermost of whichever
)

func (c *call) Value(key any) any {
	if key == (callKey{c.o}) {
		return c
	}
	return c.Context.Value(key)
}

// recording reports whether there is a span to add to; c may be nil.
func (c *call) recording() bool { return c != nil && c.span.IsRecording() }

func (a *attempt) Value(key any) any {
	if key == (attemptKey{a.o}) || key == (attemptKey{}) {
		return a
	}
	return a.Context.Value(key)
}

// callOf finds the call of an event: mostly its context is one of ours.
func (o *Observer) callOf(ctx context.Context) *call {
	switch ours := ctx.(type) {
	case *call:
		if ours.o == o {
			return ours
		}
	case *attempt:
		if ours.o == o {
			return ours.call
		}
	}
	c, _ := ctx.Value(callKey{o}).(*call)
	return c
}

func (o *Observer) attemptOf(ctx context.Context) *attempt {
	if ours, ok := ctx.(*attempt); ok && ours.o == o {
		return ours
	}
	a, _ := ctx.Value(attemptKey{o}).(*attempt)
	return a
}

// innermost is the attempt that is about to be sent.
func innermost(ctx context.Context) *attempt {
	a, _ := ctx.Value(attemptKey{}).(*attempt)
	return a
}

// attempt is a new attempt of the call.
func (c *call) attempt(ctx context.Context, number int, m method) *attempt {
	a := &c.first
	if a.number != 0 {
		a = &attempt{}
	}
	a.Context, a.o, a.call, a.number, a.method = ctx, c.o, c, number, m
	return a
}

// carrier is the header of an attempt for a Propagator.
type carrier struct {
	propagation.HeaderCarrier
	first [1]string // saves an allocation
	taken bool
}

// Set sets a field. Those that are usual need not be made canonical.
func (c *carrier) Set(key, value string) {
	switch key {
	case "traceparent":
		key = "Traceparent"
	case "tracestate":
		key = "Tracestate"
	case "baggage":
		key = "Baggage"
	default:
		key = http.CanonicalHeaderKey(key)
	}
	values := c.first[:]
	if c.taken {
		values = make([]string, 1)
	}
	c.taken = true
	values[0] = value
	c.HeaderCarrier[key] = values
}

// method is an HTTP method as signals name it: one of few.
type method uint8

// methods are those of RFC 9110 and RFC 5789; the first stands for all others
// (semantic conventions, http.request.method).
var methods = [...]struct{ name, call, attempt string }{
	{"_OTHER", "resilience HTTP", "HTTP"},
	{"GET", "resilience GET", "GET"},
	{"HEAD", "resilience HEAD", "HEAD"},
	{"POST", "resilience POST", "POST"},
	{"PUT", "resilience PUT", "PUT"},
	{"DELETE", "resilience DELETE", "DELETE"},
	{"PATCH", "resilience PATCH", "PATCH"},
	{"OPTIONS", "resilience OPTIONS", "OPTIONS"},
	{"TRACE", "resilience TRACE", "TRACE"},
	{"CONNECT", "resilience CONNECT", "CONNECT"},
}

func methodOf(req *http.Request) method {
	if req.Method == "" {
		return 1 // as net/http has it
	}
	for i := 1; i < len(methods); i++ {
		if methods[i].name == req.Method {
			return method(i)
		}
	}
	return 0
}
