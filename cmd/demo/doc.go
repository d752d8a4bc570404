// Demo shows what one slow dependency does to a service, without and with the
// stack of package transport, and checks every figure that it shows.
//
//	demo                                        both runs, about 40 s
//	demo -scale 10 -json                        ten times faster, claims as JSON
//	demo -serve 127.0.0.1:8088                  the stack's run, faults by hand
//	demo proxy -listen 127.0.0.1:8080 -target http://127.0.0.1:3000
//
// The scene is small and real: five dependencies (HTTP servers on loopback that
// answer in about 30 ms), and an assembler with 200 workers. Its /mission needs
// all five, its /ping none. Load is open-loop: 50 and 5 requests a second arrive
// whether the earlier ones were answered or not, as users do. Then telemetry
// starts to answer in 30 s. Run A calls through a plain http.DefaultTransport,
// run B through the stack with policy.Service().
//
// It exits with 0 only if every claim held, with 1 if one did not, and with 2 for
// flags that make no sense.
package main
