package status

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/watertight-go/watertight/transport"
)

// Config is what can be chosen about a Handler. The zero value is fine.
type Config struct {
	// Name says which process this is, on the page and in documents: behind a load
	// balancer each reload may meet another one. Default: os.Hostname.
	Name string
	// MaxStreams is how many streams of events are open at once; the page of whoever
	// is one too many asks every two seconds instead. Default: 64. Negative: none, so
	// that all ask.
	MaxStreams int
	// Hosts are the names under which this is reached, such as status.example.com; ports
	// do not matter. Requests to other names than these, an address and localhost are
	// refused with 421. Default: all names are taken, which is fine behind authentication
	// only; see the package documentation.
	Hosts []string
}

const defaultMaxStreams = 64

// Handler shows a Transport. It is read-only; see the package documentation for
// what is at which path.
type Handler struct {
	t          *transport.Transport
	looks      looks
	page       page
	maxStreams int64
	names      names
	made       time.Time

	streams   atomic.Int64
	closed    chan struct{}
	closeOnce sync.Once
}

// New returns a Handler that shows t. It is at the root of the paths that it sees:
// mount it under a prefix by http.StripPrefix.
func New(t *transport.Transport, c Config) *Handler {
	if c.Name == "" {
		c.Name, _ = os.Hostname()
	}
	var id [4]byte
	_, _ = rand.Read(id[:]) // never fails
	return &Handler{
		t:          t,
		looks:      looks{t: t, name: c.Name, instance: hex.EncodeToString(id[:])},
		page:       newPage(),
		maxStreams: int64(cmp.Or(c.MaxStreams, defaultMaxStreams)),
		names:      namesOf(c.Hosts),
		made:       time.Now(),
		closed:     make(chan struct{}),
	}
}

// Close ends all streams of events, for good. Streams also end with their request,
// and with Transport.Close. It is for http.Server.RegisterOnShutdown, since Shutdown
// waits for streams.
func (h *Handler) Close() { h.closeOnce.Do(func() { close(h.closed) }) }

// ServeHTTP answers GET and HEAD.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	secure(w.Header(), "default-src 'none'; frame-ancestors 'none'")
	if h.names.refuse(w, r) || !allowed(w, r, http.MethodGet, http.MethodHead) {
		return
	}
	switch strings.TrimPrefix(r.URL.Path, "/") {
	case "":
		if to, ok := slashed(r); ok {
			w.Header().Set("Location", to)
			w.WriteHeader(http.StatusPermanentRedirect)
			return
		}
		h.page.serve(w)
	case "hosts":
		h.hosts(w, r)
	case "transitions":
		h.transitions(w, r)
	case "events":
		h.events(w, r)
	default:
		(problem{Status: http.StatusNotFound, Field: "path", Value: r.URL.Path, Want: "/, /hosts, /transitions or /events"}).write(w)
	}
}

// slashed is where the page is that was asked for without its trailing slash,
// relative to the request, whose whole path a stripped prefix has taken; without
// the slash its own links would lead elsewhere.
func slashed(r *http.Request) (string, bool) {
	asked, err := url.ParseRequestURI(r.RequestURI)
	if err != nil || r.URL.Path != "" || asked.Path == "" || strings.HasSuffix(asked.Path, "/") {
		return "", false
	}
	path := asked.EscapedPath()
	to := "./" + path[strings.LastIndexByte(path, '/')+1:] + "/"
	if asked.RawQuery != "" {
		to += "?" + asked.RawQuery
	}
	return to, true
}

func (h *Handler) hosts(w http.ResponseWriter, r *http.Request) {
	v, err := viewOf(r.URL.Query(), maxLimit)
	if err != nil {
		refuse(w, err)
		return
	}
	v.detail = true
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(h.looks.of(v).json)
}

func (h *Handler) transitions(w http.ResponseWriter, r *http.Request) {
	after := uint64(0)
	for name, values := range r.URL.Query() {
		value := strings.Join(values, ",")
		if name != "after" {
			refuse(w, &problem{Field: name, Value: value, Want: "one of the parameters after"})
			return
		}
		n, ok := h.after(value)
		if !ok {
			refuse(w, &problem{Field: name, Value: value, Want: wantID})
			return
		}
		after = n
	}
	all, _ := h.t.Transitions(0)
	at := time.Now()
	since := h.made
	if len(all) > 0 && (all[0].ID > 1 || all[0].At.Before(since)) {
		since = all[0].At
	}
	d := Transitions{At: stamp(at), Instance: h.looks.instance, Since: stamp(since), SinceSeconds: ago(at, since), LastID: lastOf(all), Transitions: []Transition{}}
	for i := range all {
		if all[i].ID > after {
			d.Transitions = append(d.Transitions, transitionOf(&all[i], at))
		}
	}
	writeJSON(w, http.StatusOK, d)
}

// lastOf is the ID of the last of some transitions.
func lastOf(all []transport.HostTransition) uint64 {
	if len(all) == 0 {
		return 0
	}
	return all[len(all)-1].ID
}

const wantID = "an ID: a number, or instance-number as in Last-Event-ID"

// after reads the ID of a transition: a number, or that of an event, which says of
// which instance it is. Of another instance all are new.
func (h *Handler) after(id string) (uint64, bool) {
	instance, number, of := strings.Cut(id, "-")
	if !of {
		number = id
	}
	n, err := strconv.ParseUint(number, 10, 64)
	if of && instance != h.looks.instance {
		n = 0
	}
	return n, err == nil
}

// secure sets what every answer says about how it may be used.
func secure(h http.Header, policy string) {
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", policy)
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
}

// allowed answers requests with other methods.
func allowed(w http.ResponseWriter, r *http.Request, methods ...string) bool {
	for _, m := range methods {
		if r.Method == m {
			return true
		}
	}
	list := strings.Join(methods, ", ")
	w.Header().Set("Allow", list)
	(problem{Status: http.StatusMethodNotAllowed, Field: "method", Value: r.Method, Want: strings.Join(methods, " or ")}).write(w)
	return false
}

// refuse answers with what is wrong with a request.
func refuse(w http.ResponseWriter, err error) {
	var p *problem
	if !errors.As(err, &p) {
		p = &problem{Text: err.Error()}
	}
	p.write(w)
}

func writeJSON(w http.ResponseWriter, status int, document any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	e := json.NewEncoder(w)
	_ = e.Encode(document)
}
