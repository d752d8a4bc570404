// Package otel makes traces and metrics of what a [transport.Transport] does. It
// uses the API of OpenTelemetry only; where they go is up to the providers of the
// program.
//
//	obs, err := otel.NewObserver(otel.Config{})
//	if err != nil {
//		return err
//	}
//	rt, err := transport.New(transport.Config{Observer: obs})
//
// # Spans
//
// A call has one span of kind INTERNAL, "resilience GET", that ends with its body:
// what became of it, how many attempts it took, what was served in place of an
// answer and why. Below it, each attempt on the wire has one of kind CLIENT, named
// and attributed as the semantic conventions for HTTP clients have it, whose
// context its own request carries. A sampler decides on both by the call's
// ([Config.TracerProvider]). A refused call puts nothing on the wire and has no
// span of an attempt; its own links to the span of the call that tripped the
// breaker. Retries, those too that were not made, transitions, a forgotten body and a
// breaker that cannot judge (blind) are events of the call's span. A failure that a
// retry or a fallback has made good is no error of the call, and neither is a caller
// who leaves.
//
// # Metrics
//
// Their names begin with "resilience.", and so do those of their attributes; all
// carry resilience.policy.name, which is the host unless [Config.PolicyName] says
// otherwise, and resilience.client.name where [Config.ClientName] is set. The README
// has the table. Attempts are told by http.client.request.duration too, as the
// semantic conventions have it.
//
// Decisions are counted where they are taken, by atomics that a collection reads, for as
// long as the provider lives, which keeps the Observer: make one as rarely as a provider,
// not for each call. The states of breakers, permits and budgets are looked at when they
// are collected, and those of a host that the Transport has dropped go away. What layers
// in shadow mode would have done is apart, with resilience.shadow = true: alerts leave it
// out.
//
// Series are bounded: policy names by [Config.MaxPolicyNames], which has the budget for
// the limit of an SDK, methods to those that are registered, statuses by what a host may
// have. A program that calls thousands of hosts groups them by PolicyName, and raises the
// limit of its SDK for http.client.request.duration, whose convention wants the host.
//
// # Broken parts
//
// Calls wait for no exporter but one that the program has made part of ending a span.
// What a provider, a Propagator or a PolicyName does in place of its duty is reported
// to otel.Handle, once and on a goroutine of its own, and costs its own signal alone.
// So is, once, that hosts share a state for want of MaxHosts, and that the Transport's
// Logger blocks.
//
// # Together with otelhttp
//
//   - Alone, the default: the spans of the attempts are made here.
//   - Below the stack, as Base: set [Config.NoAttemptSpans], and wrap its own base
//     in [Annotate], which adds the number of the attempt to its spans. The stack
//     then has a base that is not an *http.Transport, with what that means for its
//     limits.
//   - Around the stack: all attempts are below one CLIENT span of otelhttp's, which
//     ends with the call, and http.client.request.duration has both: the attempts
//     and, as one more, the call.
//
// # Secrets
//
// Of the URL, userinfo and the values of query parameters are redacted whose names say
// that they are credentials ([Config.RedactQuery] has the rule, and replaces the list),
// or which hold another URL with more than a path; the fragment is left out. Its path is recorded, and so are the values of all other
// parameters. No headers and no texts of errors are in any signal.
//
// Of url.full there are the first 2 KiB, and of a method that is not registered 64
// bytes. What is no UTF-8 is percent-encoded there, and U+FFFD elsewhere: one such
// byte can cost an exporter all that it sends with it.
package otel
