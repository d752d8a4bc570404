package otel

import (
	"context"
	"net/http"

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
	number int        // from 1
	span   trace.Span // nil: it has none of its own
	method method
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

func (o *Observer) callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{o}).(*call)
	return c
}

func (o *Observer) attemptOf(ctx context.Context) *attempt {
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
	a.Context, a.o, a.number, a.method = ctx, c.o, number, m
	return a
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
