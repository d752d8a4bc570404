package transport_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/watertight-go/watertight/cache"
	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/transporttest"
)

// The quick start: every host gets policy.Default().
func Example() {
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "hello")
	}))
	defer origin.Close()
	url := origin.URL

	rt := transport.Must(transport.New(transport.Config{})) // policy.Default() for every host
	defer rt.Close()
	client := rt.Client()

	resp, err := client.Get(url)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	fmt.Println(resp.Status, string(text), err)
	// Output: 200 OK hello <nil>
}

// Each dependency has a policy of its own: an impatient one for payments, which
// gives up after 3 failures in 10 s, and a lenient one for telemetry, whose last
// answer is good for 10 minutes.
func Example_perHost() {
	payments := policy.Service()
	payments.Timeout.Attempt = 800 * time.Millisecond
	payments.Breaker.SlowCall = 500 * time.Millisecond
	payments.Breaker.FailuresInWindow, payments.Breaker.Window = 3, 10*time.Second

	telemetry := policy.Service()
	telemetry.Breaker.FailuresInWindow, telemetry.Breaker.Window = 20, 60*time.Second
	telemetry.Fallback.MaxStale = 10 * time.Minute

	config := transport.Config{
		Hosts: map[string]policy.Policy{
			"payments.internal":       payments,
			"telemetry.internal:8443": telemetry,
			"*.assets.example":        {Timeout: policy.Timeout{Connect: time.Second, Read: 10 * time.Second}},
		},
	}
	config.Base = transporttest.NewBase(transporttest.Step{Status: http.StatusServiceUnavailable}) // an outage
	config.Logger = slog.New(slog.DiscardHandler)

	rt, err := transport.New(config) // err has every problem of every policy
	if err != nil {
		fmt.Println(err)
		return
	}
	defer rt.Close()
	client := rt.Client()
	for range 5 {
		for _, url := range []string{"https://payments.internal/charge", "https://telemetry.internal:8443/report"} {
			if resp, err := client.Post(url, "text/plain", strings.NewReader("x")); err == nil {
				_ = resp.Body.Close()
			}
		}
	}
	for _, h := range rt.Snapshot() {
		fmt.Println(h.Host, h.State, h.Counts.Attempts, "sent", h.Counts.RefusedOpen, "refused")
	}
	// Output:
	// payments.internal:443 open 3 sent 2 refused
	// telemetry.internal:8443 closed 5 sent 0 refused
}

// What to branch on: whether anything was sent. Only refusals and connections that
// were not made in time say that nothing was; after any other error the host may
// have acted.
func Example_errors() {
	p := policy.Service()
	p.Breaker.ConsecutiveFailures = 1
	rt := transport.Must(transport.New(transport.Config{
		Default: p,
		Base:    transporttest.NewBase(transporttest.Step{Fault: transporttest.Reset}), // an outage
		Logger:  slog.New(slog.DiscardHandler),
	}))
	defer rt.Close()
	client := rt.Client()

	charge := func() string {
		resp, err := client.Post("https://payments.internal/charge", "text/plain", strings.NewReader("42 EUR"))
		switch {
		case err == nil:
			defer resp.Body.Close()
			return resp.Status
		case errors.Is(err, transport.ErrBreakerOpen), errors.Is(err, transport.ErrBulkheadFull),
			errors.Is(err, transport.ErrConnectTimeout), errors.Is(err, transport.ErrTLSTimeout):
			return "not sent: put it into the queue"
		default: // a deadline, a reset, and whatever else there is
			return "unknown: ask later what became of it"
		}
	}
	fmt.Println(charge())
	fmt.Println(charge())
	// Output:
	// unknown: ask later what became of it
	// not sent: put it into the queue
}

// Why a call failed, and what to do about it, is in the Error.
func Example_why() {
	slow := policy.Policy{Timeout: policy.Timeout{Read: 10 * time.Millisecond}}
	broken := policy.Service()
	broken.Breaker.ConsecutiveFailures = 1
	base := transporttest.NewBase(transporttest.Step{Fault: transporttest.Hang}, transporttest.Step{Status: http.StatusBadGateway})
	rt := transport.Must(transport.New(transport.Config{
		Hosts:  map[string]policy.Policy{"reports.internal": slow, "payments.internal": broken},
		Base:   base,
		Logger: slog.New(slog.DiscardHandler),
	}))
	defer rt.Close()

	explain := func(err error) string {
		var why *transport.Error
		switch {
		case !errors.As(err, &why):
			return "of the network, or the caller has left, at the first attempt: " + err.Error()
		case why.Evidence != nil: // a breaker: what opened it, and when to try again (RetryIn; 0 while half-open or forced)
			return fmt.Sprintf("%s is %s: %s", why.Host, why.State, why.Evidence)
		case why.Knob != "": // a limit, or a full bulkhead: which, and where it is set
			return fmt.Sprintf("%s: %v in phase %s, see %s", why.Host, why.Kind, why.Phase, why.Knob)
		}
		return why.Error()
	}
	_, err := rt.Client().Get("https://reports.internal/")
	fmt.Println(explain(err))
	resp, err := rt.Client().Post("https://payments.internal/", "text/plain", strings.NewReader("42 EUR"))
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = resp.Body.Close() // a 502 opens the breaker
	_, err = rt.Client().Get("https://payments.internal/")
	fmt.Println(explain(err))
	// Output:
	// reports.internal:443: read timeout in phase response_header, see Timeout.Read
	// payments.internal:443 is open: 1 failure in a row, last: status 502
}

// printer is an Observer.
type printer struct{}

func (printer) Start(ctx context.Context, s transport.Start) context.Context {
	return ctx // or one with a span, whose traceparent goes into s.Header of an attempt
}

func (printer) Observe(_ context.Context, e transport.Event) {
	switch e.Kind {
	case transport.EventCallEnd:
		fmt.Println(e.Host, e.Outcome, e.Status)
	case transport.EventTransition:
		fmt.Println(e.Host, e.Transition.From, "->", e.Transition.To, "by", e.Transition.Evidence.Trigger)
	}
}

// An Observer is told of what happens, for metrics and traces; a Snapshot is how
// things are.
func Example_observer() {
	p := policy.Service()
	p.Breaker.ConsecutiveFailures = 2
	rt := transport.Must(transport.New(transport.Config{
		Default:  p,
		Base:     transporttest.NewBase(transporttest.Step{Status: http.StatusBadGateway}), // an outage
		Observer: printer{},
		Logger:   slog.New(slog.DiscardHandler),
	}))
	defer rt.Close()
	for range 3 {
		if resp, err := rt.Client().Post("https://orders.internal/", "text/plain", strings.NewReader("x")); err == nil {
			_ = resp.Body.Close()
		}
	}
	for _, h := range rt.Snapshot() {
		fmt.Println(h.Host, h.State)
		if h.Trip != nil {
			fmt.Println("last opened by", h.Trip)
		}
		fmt.Println(h.InFlight, "of", h.MaxConcurrent, "permits held;", h.Counts.Failure, "failed,", h.Counts.RefusedOpen, "refused")
	}
	// Output:
	// orders.internal:443 error 502
	// orders.internal:443 closed -> open by consecutive_failures
	// orders.internal:443 error 502
	// orders.internal:443 rejected 0
	// orders.internal:443 open
	// last opened by 2 failures in a row, last: status 502
	// 0 of 20 permits held; 2 failed, 1 refused
}

// A stored answer says that it is one, as of when, and why it was served.
func Example_asOf() {
	telemetry := policy.Service()
	telemetry.Fallback.MaxStale = 10 * time.Minute
	origin := transporttest.NewBase(transporttest.Step{Body: "21 °C"})
	rt := transport.Must(transport.New(transport.Config{
		Hosts:  map[string]policy.Policy{"telemetry.internal": telemetry},
		Base:   origin,
		Logger: slog.New(slog.DiscardHandler),
	}))
	defer rt.Close()
	client := rt.Client()

	show := func() {
		resp, err := client.Get("https://telemetry.internal/latest")
		if err != nil {
			fmt.Println(err)
			return
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		if info, ok := cache.FromResponse(resp); ok && info.Stale {
			fmt.Printf("%s, %v old, breaker open: %v\n", text, // or "as of " + info.AsOf.Format("15:04")
				info.Age.Round(time.Minute), errors.Is(info.Cause, transport.ErrBreakerOpen))
			return
		}
		fmt.Printf("%s\n", text)
	}
	show()
	rt.Host("telemetry.internal").ForceOpen() // as an outage would
	show()
	// Output:
	// 21 °C
	// 21 °C, 0s old, breaker open: true
}

// A degraded answer is built in memory when nothing is stored.
func Example_degraded() {
	p := policy.Service()
	p.Fallback.Degraded = func(req *http.Request, _ error) *http.Response {
		if req.Method != http.MethodGet {
			return nil // the error, then
		}
		return &http.Response{
			Header: http.Header{"Content-Type": {"application/json"}},
			Body:   io.NopCloser(strings.NewReader(`{"recommendations":[]}`)),
		}
	}
	rt := transport.Must(transport.New(transport.Config{
		Hosts:  map[string]policy.Policy{"recommendations.internal": p},
		Logger: slog.New(slog.DiscardHandler),
	}))
	defer rt.Close()
	rt.Host("recommendations.internal").ForceOpen() // as an outage would

	resp, err := rt.Client().Get("https://recommendations.internal/for/42")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	fmt.Println(resp.Status, string(text))
	// Output: 200 OK {"recommendations":[]}
}

// One call may differ from its host: /models answers at once, /chat takes its time.
func Example_withCall() {
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(50 * time.Millisecond) // a model thinks
		fmt.Fprint(w, "well ...")
	}))
	defer origin.Close()
	p := policy.Policy{Timeout: policy.Timeout{Read: 10 * time.Millisecond}}
	rt := transport.Must(transport.New(transport.Config{Default: p}))
	defer rt.Close()
	client := rt.Client()

	_, err := client.Get(origin.URL + "/chat")
	fmt.Println(errors.Is(err, transport.ErrReadTimeout))

	ctx := transport.WithCall(context.Background(), transport.Call{
		Timeout:  policy.Timeout{Read: time.Minute, Attempt: 2 * time.Minute, Total: 2 * time.Minute},
		SlowCall: 90 * time.Second,
	})
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, origin.URL+"/chat", nil)
	resp, err := client.Do(req)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	fmt.Println(string(text))
	// Output:
	// true
	// well ...
}

// Install puts the stack under http.Get and under libraries that use
// http.DefaultTransport.
func Example_install() {
	origin := httptest.NewServer(http.NotFoundHandler())
	defer origin.Close()

	rt := transport.Must(transport.New(transport.Config{}))
	defer rt.Close()
	restore := transport.Install(rt) // first thing in main
	defer restore()

	resp, err := http.Get(origin.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = resp.Body.Close()
	fmt.Println(resp.Status)
	_, still := http.DefaultTransport.(*http.Transport) // as libraries assert
	fmt.Println(still, rt.Snapshot()[0].Counts.Calls)
	// Output:
	// 404 Not Found
	// true 1
}

// In shadow mode a layer decides, counts and reports, and lets the call through.
func Example_shadow() {
	p := policy.Service()
	p.Breaker.ConsecutiveFailures = 3
	p.Breaker.Shadow = true
	rt := transport.Must(transport.New(transport.Config{
		Default: p,
		Base:    transporttest.NewBase(transporttest.Step{Status: http.StatusBadGateway}), // an outage
		Logger:  slog.New(slog.DiscardHandler),
	}))
	defer rt.Close()
	client := rt.Client()
	for range 10 {
		resp, err := client.Post("https://orders.internal/", "text/plain", strings.NewReader("x"))
		if err != nil {
			fmt.Println(err)
			return
		}
		_ = resp.Body.Close()
	}
	h := rt.Snapshot()[0]
	fmt.Println(h.State, "after", h.Trip)
	fmt.Println(h.Counts.Attempts, "sent;", h.Counts.RefusedOpen, "would have been refused")
	// Output:
	// open after 3 failures in a row, last: status 502
	// 10 sent; 7 would have been refused
}

// A host whose answers are reused as RFC 9111 has it.
func Example_fresh() {
	answers := 0
	base := rt(func(req *http.Request) (*http.Response, error) {
		answers++
		return &http.Response{StatusCode: 200, Request: req, ContentLength: 4, Body: io.NopCloser(strings.NewReader("item")),
			Header: http.Header{"Cache-Control": {"max-age=60"}}}, nil
	})

	catalog := policy.Service()
	catalog.Cache.Fresh = true
	catalog.Fallback.MaxStale = 10 * time.Minute
	catalog.Fallback.After = 200 * time.Millisecond

	tr := transport.Must(transport.New(transport.Config{Base: base, Hosts: map[string]policy.Policy{"catalog.internal": catalog}}))
	defer tr.Close()
	for range 3 {
		resp, err := tr.Client().Get("http://catalog.internal/items/1")
		if err != nil {
			fmt.Println(err)
			return
		}
		text, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		_, stored := cache.FromResponse(resp)
		fmt.Printf("%s, from the store: %v\n", text, stored)
	}
	forgotten, _ := tr.Purge("http://catalog.internal/items/")
	fmt.Println(answers, "request,", forgotten, "forgotten")

	// Output:
	// item, from the store: false
	// item, from the store: true
	// item, from the store: true
	// 1 request, 1 forgotten
}
