package status

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/watertight-go/watertight/transport"
)

// Controlled is the answer of Control.
type Controlled struct {
	Host   string            `json:"host"`   // as it was asked for
	Action string            `json:"action"` // force-open, force-closed, reset
	Known  bool              `json:"known"`  // false: no such host was called yet, and there is none in Hosts
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

const (
	maxForm     = 4 << 10 // bytes
	maxHostName = 253     // bytes, RFC 1035 section 2.3.4 without its dot at the end
)

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
		if err := r.ParseForm(); err != nil {
			refuse(w, badForm(err))
			return
		}
		name = r.PostForm.Get("host")
	}
	host := c.t.Host(name)
	if name == "" || host.Err() != nil || len(bareName(name)) > maxHostName {
		refuse(w, badHost(name, host.Err()))
		return
	}
	act(host)
	answer := Controlled{Host: name, Action: action, Hosts: []ControlledState{}}
	for _, s := range host.Snapshot() {
		answer.Hosts = append(answer.Hosts, ControlledState{s.Scheme, s.Host, s.State.String()})
	}
	answer.Known = len(answer.Hosts) > 0
	switch {
	case answer.Known:
	case action == "reset":
		answer.Note = "no host of this name was called yet: check its spelling; nothing was reset but what was forced under this name before"
	default:
		answer.Note = "no host of this name was called yet: check its spelling; nothing is shown of it, and it is " +
			strings.Replace(action, "force-", "forced ", 1) + " from its first call on, until it is reset under the same name"
	}
	writeJSON(w, http.StatusOK, answer)
}

// bareName is a host's name without its scheme and port.
func bareName(name string) string {
	if _, authority, ok := strings.Cut(name, "://"); ok {
		name = authority
	}
	return bare(name)
}

// badForm is the problem with a body that cannot be read as a form.
func badForm(err error) *problem {
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return &problem{Status: http.StatusRequestEntityTooLarge, Field: "form", Want: fmt.Sprintf("at most %d bytes", tooLarge.Limit),
			Text: fmt.Sprintf("form: too large: must be at most %d bytes", tooLarge.Limit)}
	}
	return &problem{Field: "form", Want: wantForm, Text: "form: malformed: must be " + wantForm}
}

const wantForm = "a form-encoded body such as host=payments.internal, not the query or JSON"

// badHost is the problem with a host's name, without what may be a password.
func badHost(name string, err error) *problem {
	p := &problem{Field: "host", Value: name, Want: "a name, name:port or scheme://name, such as payments.internal:8443"}
	switch {
	case name == "":
		p.Text = "host: missing: must be " + p.Want + ", in the path, or in " + wantForm
	case err != nil && strings.ContainsAny(name, "?#@"):
		p.Value, p.Text = "", err.Error()
	case len(bareName(name)) > maxHostName:
		p.Want = fmt.Sprintf("a name of at most %d bytes", maxHostName)
	}
	return p
}
