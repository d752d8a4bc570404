// Package transporttest is for tests of programs that use package transport: it
// plays the dependency that answers, fails or hangs, and watches what the
// Transport makes of it. A breaker that was never seen to trip is a
// configuration, not a control.
//
//	base := transporttest.NewBase(transporttest.Step{Fault: transporttest.Hang})
//	tr := transport.Must(transport.New(transport.Config{Base: base, Default: mine}))
//
// # What to take
//
//   - [Base] needs no network. In a bubble of testing/synctest it makes exact,
//     immediate tests of whatever has time in it: this is where to begin.
//   - [NewNet] is a server behind pipes in memory: net/http on both sides, still
//     in a bubble.
//   - [NewOrigin] is a server on a loopback socket, for claims about sockets:
//     resets, stalls, pools, TLS.
//   - [Relay] is a bad network in front of an Origin or any other TCP server:
//     latency, silence, FIN, RST, garbage, in one direction or both.
//   - [Faults] goes between the stack and the true dependency, in a test or a
//     staging environment, and makes a share of the requests go wrong.
//
// The first three play a script, each [Step] of which serves one request, and keep
// a [Hit] for each request.
// [Recorder] collects the events of the Transport, [Logs] what it logs.
// [CheckLeaks] and [CheckPermits] look after what a test leaves behind.
package transporttest
