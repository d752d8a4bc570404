package scene

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"sync"
	"time"
)

// arrival is one request of the load, and what became of it.
type arrival struct {
	path       string
	start, end time.Time
	ok         bool // answered 200
	telemetry  part // of a mission
}

// load sends requests to the assembler, and keeps what became of each. It is an
// open loop: arrivals do not wait for answers.
type load struct {
	url     string
	client  *http.Client
	endless bool // keeps nothing but what is recent
	all     sync.WaitGroup

	mu       sync.Mutex // guards what follows
	arrivals []arrival  // that have ended
	recent   int        // how many of them are not in recently yet
}

func newLoad(url string) *load {
	return &load{url: url, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 512}}}
}

// arrive sends rate requests a second to path, each of which waits for patience
// (zero: for ever), until ctx ends. After a stall of the machine it catches up at
// twice the rate, not in one burst: users do not arrive in step with a scheduler.
func (l *load) arrive(ctx context.Context, path string, rate float64, patience time.Duration) {
	interval := time.Duration(float64(time.Second) / rate)
	timer := time.NewTimer(interval)
	defer timer.Stop()
	due := time.Now().Add(interval)
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		l.all.Go(func() { l.send(ctx, path, patience) })
		due = due.Add(interval)
		timer.Reset(max(time.Until(due), interval/2))
	}
}

func (l *load) send(ctx context.Context, path string, patience time.Duration) {
	a := arrival{path: path, start: time.Now()}
	if patience > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	a.ok, a.telemetry = l.get(ctx, path)
	a.end = time.Now()
	l.mu.Lock()
	l.arrivals = append(l.arrivals, a)
	l.recent++
	l.mu.Unlock()
}

func (l *load) get(ctx context.Context, path string) (ok bool, telemetry part) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, l.url+path, nil)
	if err != nil {
		return false, part{}
	}
	resp, err := l.client.Do(req)
	if err != nil {
		return false, part{}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if path == "/mission" {
		var parts []part
		_ = json.Unmarshal(body, &parts)
		for _, p := range parts {
			if p.Name == slowOne {
				telemetry = p
			}
		}
	}
	return err == nil && resp.StatusCode == http.StatusOK, telemetry
}

// recently returns the arrivals that have ended since it was last asked. An
// endless run forgets them then.
func (l *load) recently() []arrival {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.arrivals)
	ended := l.arrivals[n-l.recent : n : n]
	l.recent = 0
	if l.endless {
		l.arrivals = nil
	}
	return ended
}

// ended returns all that have ended.
func (l *load) ended() []arrival {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.arrivals)
	return l.arrivals[:n:n]
}

// wait waits for the last arrival to end, which it does with the context of
// arrive.
func (l *load) wait() {
	l.all.Wait()
	l.client.CloseIdleConnections()
}
