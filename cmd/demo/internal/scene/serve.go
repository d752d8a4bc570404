package scene

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/watertight-go/watertight/transport"
)

// runServe keeps the stack's run going, with faults by hand, until ctx ends.
func runServe(ctx context.Context, s setting, v *view, addr string, x *export) (int, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return exitFailed, fmt.Errorf("-serve %s: %w", addr, err)
	}
	r, err := newRig(s, v, true, true, x)
	if err != nil {
		_ = l.Close()
		return exitFailed, err
	}
	control := serve(l, r.control("http://"+l.Addr().String(), addr))
	control.RegisterOnShutdown(r.mounted.Close)
	v.scene(s)
	v.title("B", "the stack, until interrupted")
	v.note("faults by hand: http://%s/", l.Addr())
	v.note("status page:    http://%s/page/", l.Addr())
	v.note("its control:    http://%s/control/", l.Addr())
	v.note("the assembler:  http://%s/mission", r.service.server.host)
	r.tellAddresses()
	r.begin(ctx)
	<-ctx.Done()
	control.close()
	r.finish()
	return exitOK, nil
}

// control is the API at addr, whose URL is self, by which faults are put in and taken out.
func (r *rig) control(self, addr string) http.Handler {
	mux := http.NewServeMux()
	r.mountPage(mux, addr)
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		fmt.Fprintf(w, controlHelp, self, strings.Join(names, ", "), "http://"+r.service.server.host)
	})
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		_ = e.Encode(r.status())
	})
	mux.HandleFunc("POST /{dependency}/{fault}", func(w http.ResponseWriter, req *http.Request) {
		d, ok := r.deps[req.PathValue("dependency")]
		if !ok {
			http.Error(w, fmt.Sprintf("%q: must be one of %s", req.PathValue("dependency"), strings.Join(names, ", ")), http.StatusNotFound)
			return
		}
		f, err := r.setting.faultOf(req)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		d.set(f)
		r.view.note("%s: %v", d.name, f)
		fmt.Fprintf(w, "%s: %v\n", d.name, f)
	})
	return http.NewCrossOriginProtection().Handler(mux) // a web page is not the user
}

const controlHelp = `Faults by hand. POST %[1]s/DEPENDENCY/FAULT, where
DEPENDENCY is one of %[2]s, and FAULT one of

  delay?d=30s          answers after d
  hang                 takes calls, and never answers
  errors?status=503    answers with a status from 400 to 599
  resets               cuts the connection
  drip?every=500ms     answers a byte at a time
  ok                   is healthy again

Each but ok takes share=0.6 too: the share of calls that are hit. What is left
out is as above, scaled, with a share of 1.

  curl -XPOST '%[1]s/telemetry/delay?d=30s'
  curl -XPOST  %[1]s/telemetry/ok
  curl         %[1]s/status

The service under load is at %[3]s/mission and %[3]s/ping.

The status page of its client is at %[1]s/page/, and its breakers are
moved by hand at %[1]s/control/:

  curl -d host=telemetry %[1]s/control/force-open
  curl -d host=telemetry %[1]s/control/force-closed
  curl -d host=telemetry %[1]s/control/reset
`

// faultOf reads a fault from a request to the control API.
func (s setting) faultOf(req *http.Request) (fault, error) {
	name, q := req.PathValue("fault"), req.URL.Query()
	f := fault{kind: faultKind(name), share: 1}
	var takes []string
	switch f.kind {
	case "ok":
		f.kind = healthy
	case delay:
		f.delay, takes = s.delay, []string{"d", "share"}
	case drip:
		f.delay, takes = s.second/2, []string{"every", "share"}
	case failing:
		f.status, takes = http.StatusServiceUnavailable, []string{"status", "share"}
	case hang, resets:
		takes = []string{"share"}
	default:
		return f, fmt.Errorf("%q: must be delay, hang, errors, resets, drip or ok", name)
	}
	for key, values := range q {
		ok, want, v := true, "", values[len(values)-1]
		switch {
		case !slices.Contains(takes, key):
			return f, fmt.Errorf("%s: %s takes no such parameter", key, name)
		case key == "share":
			x, err := strconv.ParseFloat(v, 64)
			f.share, ok, want = x, err == nil && x > 0 && x <= 1, "above 0, and at most 1"
		case key == "status":
			n, err := strconv.Atoi(v)
			f.status, ok, want = n, err == nil && n >= 400 && n <= 599, "a status from 400 to 599"
		default:
			d, err := time.ParseDuration(v)
			f.delay, ok, want = d, err == nil && d > 0 && d <= time.Hour, "a duration with a unit, above 0 and at most 1h, such as 30s"
		}
		if !ok {
			return f, fmt.Errorf("%s=%s: must be %s", key, v, want)
		}
	}
	return f, nil
}

// status is what GET /status tells.
type status struct {
	WorkersHeld  int                `json:"workers_held"`
	Workers      int                `json:"workers"`
	Dependencies []dependencyStatus `json:"dependencies"`
}

type dependencyStatus struct {
	Name     string `json:"name"`
	Address  string `json:"address"`
	Fault    string `json:"fault"`
	Breaker  string `json:"breaker"`
	RetryIn  string `json:"retry_in,omitempty"`
	Tripped  string `json:"tripped_by,omitempty"`
	InFlight int    `json:"in_flight"`
	Permits  int    `json:"permits"`
	Calls    int64  `json:"calls"`
	Failures int64  `json:"failures"`
	Refused  int64  `json:"refused"`
	Stale    int64  `json:"stale"`
}

func (r *rig) status() status {
	s := status{WorkersHeld: int(r.service.held.Load()), Workers: r.setting.workers}
	for _, name := range names {
		d := r.deps[name]
		one := dependencyStatus{Name: name, Address: d.server.host, Fault: d.fault.Load().String(), Breaker: transport.Closed.String()}
		for _, h := range r.stack.Host("http://" + d.address()).Snapshot() {
			c := h.Counts
			one.Breaker, one.InFlight, one.Permits = h.State.String(), h.InFlight, h.MaxConcurrent
			one.Calls, one.Failures, one.Stale = c.Calls, c.Failure, c.Stale
			one.Refused = c.RefusedOpen + c.RefusedHalfOpen + c.Rejected
			if h.RetryIn > 0 {
				one.RetryIn = h.RetryIn.Round(time.Millisecond).String()
			}
			if h.Trip != nil {
				one.Tripped = h.Trip.String()
			}
		}
		s.Dependencies = append(s.Dependencies, one)
	}
	return s
}
