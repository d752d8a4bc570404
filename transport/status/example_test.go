package status_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"

	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/status"
	"github.com/watertight-go/watertight/transport/transporttest"
)

// The page for people and the same for programs, behind your own authentication.
func Example() {
	config := transport.Config{Default: policy.Service()}
	config.Default.Breaker.ConsecutiveFailures = 5
	config.Base = transporttest.NewBase(transporttest.Step{Status: http.StatusServiceUnavailable}) // an outage
	config.Logger = slog.New(slog.DiscardHandler)
	rt := transport.Must(transport.New(config))
	defer rt.Close()

	authenticated := func(h http.Handler) http.Handler { return h } // your own: status has none
	pages := status.New(rt, status.Config{Name: "checkout-1"})
	mux := http.NewServeMux()
	mux.Handle("/status/", authenticated(http.StripPrefix("/status", pages)))
	mux.Handle("/control/", authenticated(http.StripPrefix("/control", status.Control(rt))))
	server := &http.Server{Handler: mux}
	server.RegisterOnShutdown(pages.Close) // or streams keep Shutdown waiting
	local := httptest.NewServer(server.Handler)
	defer local.Close()
	defer pages.Close()

	for range 5 {
		if resp, err := rt.Client().Post("https://payments.internal/charge", "text/plain", nil); err == nil {
			_ = resp.Body.Close()
		}
	}

	resp, err := http.Get(local.URL + "/status/hosts?state=open")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	var d status.Hosts
	if err := json.NewDecoder(resp.Body).Decode(&d); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s: %d of %d refused\n", d.Name, d.Summary.Refusing, d.Summary.Hosts)
	for _, h := range d.Hosts {
		fmt.Printf("%s is %s: %s\n", h.Host, h.State, h.Cause.Text)
	}
	// Output:
	// checkout-1: 1 of 1 refused
	// payments.internal:443 is open: 5 failures in a row, last: status 503
}
