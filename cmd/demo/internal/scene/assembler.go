package scene

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/watertight-go/watertight/cache"
	"github.com/watertight-go/watertight/transport"
)

// assembler is the service in the middle. Every request occupies one of its
// workers from its first byte to its last; who finds none free waits for one.
type assembler struct {
	client  *http.Client
	urls    []string // of the dependencies, in the order of names
	workers chan struct{}
	held    atomic.Int64
	server  *server

	mu    sync.Mutex // guards what follows
	peak  int        // workers held at most
	empty time.Time  // when the last free worker was taken, the first time
}

func newAssembler(workers int, client *http.Client, deps []*dependency) (*assembler, error) {
	a := &assembler{client: client, workers: make(chan struct{}, workers)}
	for _, d := range deps {
		a.urls = append(a.urls, "http://"+d.address()+"/")
	}
	mux := http.NewServeMux()
	mux.Handle("GET /mission", a.work(a.mission))
	mux.Handle("GET /ping", a.work(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "pong") }))
	s, err := listen(mux)
	if err != nil {
		return nil, err
	}
	a.server = s
	return a, nil
}

// work runs h on a worker.
func (a *assembler) work(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case a.workers <- struct{}{}:
		case <-r.Context().Done():
			panic(http.ErrAbortHandler)
		}
		a.took()
		defer func() {
			a.held.Add(-1)
			<-a.workers
		}()
		h(w, r)
	}
}

func (a *assembler) took() {
	n := int(a.held.Add(1))
	a.mu.Lock()
	defer a.mu.Unlock()
	a.peak = max(a.peak, n)
	if n == cap(a.workers) && a.empty.IsZero() {
		a.empty = time.Now()
	}
}

// part is what /mission says of one dependency.
type part struct {
	Name  string    `json:"name"`
	State string    `json:"state"` // live, stale or missing
	AsOf  time.Time `json:"as_of,omitzero"`
	Label string    `json:"label,omitempty"` // for people
	Why   string    `json:"why,omitempty"`
}

// mission asks all five dependencies at once. It needs them all: an answer, be it
// stale, or no mission.
func (a *assembler) mission(w http.ResponseWriter, r *http.Request) {
	parts := make([]part, len(a.urls))
	var all sync.WaitGroup
	for i, url := range a.urls {
		all.Go(func() { parts[i] = a.ask(r, names[i], url) })
	}
	all.Wait()
	status := http.StatusOK
	for _, p := range parts {
		if p.State == "missing" {
			status = http.StatusBadGateway
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(parts)
}

func (a *assembler) ask(r *http.Request, name, url string) part {
	p := part{Name: name, State: "missing"}
	req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, url, nil)
	if err != nil {
		p.Why = err.Error()
		return p
	}
	resp, err := a.client.Do(req)
	if err != nil {
		p.Why = reason(err)
		return p
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		p.Why = reason(err)
		return p
	}
	if resp.StatusCode != http.StatusOK {
		p.Why = resp.Status
		return p
	}
	p.State = "live"
	if info, ok := cache.FromResponse(resp); ok && info.Stale {
		p.State, p.AsOf = "stale", info.AsOf
		p.Label = "as of " + info.AsOf.Round(100*time.Millisecond).Format(time.TimeOnly)
		p.Why = reason(info.Cause)
	}
	return p
}

// reason is an error without the URL that http.Client puts before it.
func reason(err error) string {
	var e *transport.Error
	switch {
	case err == nil:
		return ""
	case errors.As(err, &e):
		return e.Error()
	}
	return err.Error()
}
