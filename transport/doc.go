// Package transport is a drop-in http.RoundTripper that keeps one slow or dead
// dependency from taking its callers down.
//
//	client := transport.Must(transport.New(transport.Config{})).Client()
//
// A call has three outcomes, not two: it answers, it fails, or it hangs. The
// third keeps what its caller holds. So every call is bounded, every host may
// own only its share of the process, failures are noticed while they happen,
// retries never feed an outage, and the last good answer, labelled as stale, is
// served from memory when nothing better can be had.
//
// # Layers
//
// A call passes these layers, outermost first. The order is a promise:
//
//  1. total deadline: bounds attempts, waits and redirect hops together
//  2. fallback: sees the final verdict only, and serves a stale or degraded answer
//  3. retry: each attempt passes the breaker; a refusal ends the sequence
//  4. breaker: sees every attempt, and the timeouts below it
//  5. bulkhead: a permit is held only by a call that really goes out
//  6. attempt timeouts: connect, TLS, read, attempt
//  7. base: an *http.Transport with one pool of connections per host
//
// Each layer is configured in its struct of package policy, is off when that
// struct is zero, and can be put in shadow mode. Permits, verdicts and events
// end with the response body, whatever its reader does.
//
// # Where to look
//
// [Config] for what is configured in code, per host; [Error] and the sentinels
// for what to branch on; [WithCall] for a call that differs from its host;
// [Install] for programs that use http.DefaultTransport; [Observer] and
// [Transport.Snapshot] for what happens; package transporttest for watching your
// own configuration trip in a test, package status for a page that shows it live.
package transport
