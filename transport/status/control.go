package status

import (
	"net/http"
	"strings"

	"github.com/watertight-go/watertight/transport"
)

// Controlled is the answer of Control.
type Controlled struct {
	Host   string            `json:"host"`   // as it was asked for
	Action string            `json:"action"` // force-open, force-closed, reset
	Hosts  []ControlledState `json:"hosts"`  // those that are known, and their states now
	Note   string            `json:"note,omitempty"`
}

// ControlledState is the state of a host.
type ControlledState struct {
	Scheme string `json:"scheme"`
	Host   string `json:"host"` // host:port
	State  string `json:"state"`
}

// Control returns a handler that moves the breakers of t by hand:
//
//	POST /force-open    refuses every call to a host
//	POST /force-closed  lets every call through, whatever it comes to
//	POST /reset         closes the breaker and forgets its evidence
//
// The host is in the form, as host=https://payments.internal, and is what Transport.Host
// takes; or it follows in the path, /force-open/payments.internal:8443, without a scheme,
// whose two slashes http.ServeMux would make one of. What is forced stays so until it is
// reset, also for a host that was not called yet.
//
// It takes requests of its own origin only, as [http.CrossOriginProtection] has it: a
// page elsewhere cannot use the session of whoever reads it. That is no
// authentication, which is left to your middleware: whoever reaches this handler can
// take a dependency away from the process. Where there is none, name the hosts under
// which it is reached, as in Config.Hosts: other names are refused.
func Control(t *transport.Transport, hosts ...string) http.Handler {
	names := namesOf(hosts)
	p := http.NewCrossOriginProtection()
	p.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		(problem{Status: http.StatusForbidden, Field: "Origin", Value: r.Header.Get("Origin"), Want: "the origin of this page; requests from other sites are refused"}).write(w)
	}))
	inner := p.Handler(&control{t})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		secure(w.Header(), "default-src 'none'; frame-ancestors 'none'")
		if !names.refuse(w, r) && allowed(w, r, http.MethodPost) {
			inner.ServeHTTP(w, r)
		}
	})
}

type control struct{ t *transport.Transport }

const maxForm = 4 << 10 // bytes

func (c *control) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	action, name, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	var act func(*transport.Host)
	switch action {
	case "force-open":
		act = (*transport.Host).ForceOpen
	case "force-closed":
		act = (*transport.Host).ForceClosed
	case "reset":
		act = (*transport.Host).Reset
	default:
		(problem{Status: http.StatusNotFound, Field: "path", Value: r.URL.Path, Want: "/force-open, /force-closed or /reset"}).write(w)
		return
	}
	if strings.Contains(name, "/") {
		(problem{Field: "host", Text: "host: a path takes a name or name:port; a scheme goes in the form, as host=https://payments.internal"}).write(w)
		return
	}
	if name == "" {
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		name = r.PostFormValue("host")
	}
	host := c.t.Host(name)
	if name == "" || host.Err() != nil {
		refuse(w, badHost(name, host.Err()))
		return
	}
	act(host)
	answer := Controlled{Host: name, Action: action, Hosts: []ControlledState{}}
	for _, s := range host.Snapshot() {
		answer.Hosts = append(answer.Hosts, ControlledState{s.Scheme, s.Host, s.State.String()})
	}
	if len(answer.Hosts) == 0 {
		answer.Note = "no host of this name was called yet: check its spelling; what is forced holds from its first call on"
	}
	writeJSON(w, http.StatusOK, answer)
}

// badHost is the problem with a host's name, without what may be a password.
func badHost(name string, err error) *problem {
	p := &problem{Field: "host", Value: name, Want: "a name, name:port or scheme://name, such as payments.internal:8443"}
	switch {
	case strings.ContainsAny(name, "?#@"):
		p.Value, p.Text = "", err.Error()
	case name == "":
		p.Text = "host: missing: must be " + p.Want + ", in the form or the path"
	}
	return p
}
