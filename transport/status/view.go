package status

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/watertight-go/watertight/transport"
)

const (
	defaultLimit = 100
	maxLimit     = 10_000
	maxLive      = 100 // of a stream
	maxName      = 300 // of a part of a host's name
)

// view is what a reader wants to see. The zero states are all of them.
type view struct {
	states       uint8 // 1 << transport.State
	q            string
	scheme, host string
	limit        int
	detail       bool
}

// viewOf reads a view of at most so many hosts from a query. Parameters in also are
// somebody else's.
func viewOf(q url.Values, most int, also ...string) (view, error) {
	v := view{limit: defaultLimit}
	for name, values := range q {
		value := strings.Join(values, ",")
		switch {
		case name == "state":
			for _, one := range strings.Split(value, ",") {
				s, ok := stateOf(one)
				if !ok {
					return v, &problem{Field: name, Value: one, Want: "closed, open, half_open, forced_open or forced_closed, or several with commas"}
				}
				v.states |= 1 << s
			}
		case name == "limit":
			n, err := strconv.Atoi(value)
			if err != nil || n < 0 || n > most {
				return v, &problem{Field: name, Value: value, Want: fmt.Sprintf("a number from 0 to %d", most)}
			}
			v.limit = n
		case (name == "q" || name == "host" || name == "scheme") && len(value) > maxName:
			return v, &problem{Field: name, Value: value, Want: fmt.Sprintf("at most %d bytes", maxName)}
		case name == "q":
			v.q = strings.ToLower(value)
		case name == "host":
			v.host = strings.ToLower(value)
		case name == "scheme":
			v.scheme = strings.ToLower(value)
		case !slices.Contains(also, name):
			return v, &problem{Field: name, Value: value, Want: "one of the parameters state, q, host, scheme, limit" + strings.Join(append([]string{""}, also...), ", ")}
		}
	}
	return v, nil
}

func stateOf(name string) (transport.State, bool) {
	for s := transport.Closed; s <= transport.ForcedClosed; s++ {
		if s.String() == name {
			return s, true
		}
	}
	return 0, false
}

// wants reports whether a host is in the view.
func (v view) wants(s *transport.HostSnapshot) bool {
	return (v.states == 0 || v.states&(1<<s.State) != 0) &&
		(v.host == "" || v.host == s.Host) && (v.scheme == "" || v.scheme == s.Scheme) &&
		(v.q == "" || strings.Contains(s.Scheme+"://"+s.Host, v.q))
}

// problem is what is wrong with a request.
type problem struct {
	Status int    `json:"-"` // zero: 400
	Text   string `json:"error"`
	Field  string `json:"field,omitempty"`
	Value  string `json:"value,omitempty"`
	Want   string `json:"want,omitempty"`
}

func (p *problem) Error() string {
	if p.Text != "" {
		return p.Text
	}
	return fmt.Sprintf("%s: %q: must be %s", p.Field, p.Value, p.Want)
}

// write answers with the problem.
func (p problem) write(w http.ResponseWriter) {
	if p.Status == 0 {
		p.Status = http.StatusBadRequest
	}
	if len(p.Value) > maxName {
		p.Value = strings.ToValidUTF8(p.Value[:maxName], "") + "..."
	}
	p.Text = p.Error()
	writeJSON(w, p.Status, p)
}
