package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// notice is one alert as Alertmanager tells of it.
type notice struct {
	at          time.Time
	Status      string            `json:"status"` // firing or resolved
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// pager takes what Alertmanager sends.
type pager struct {
	mu      sync.Mutex // guards what follows
	notices []notice
}

func (p *pager) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	var message struct {
		Alerts []notice `json:"alerts"`
	}
	if json.NewDecoder(io.LimitReader(r.Body, 1<<20)).Decode(&message) != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, n := range message.Alerts {
		n.at = time.Now()
		p.notices = append(p.notices, n)
	}
}

// got returns the first notice of a status and alert.
func (p *pager) got(status, alert string) (notice, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, n := range p.notices {
		if n.Status == status && n.Labels["alertname"] == alert {
			return n, true
		}
	}
	return notice{}, false
}

// others are the pages that are not about a dependency.
func (p *pager) others(name string) (all []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, n := range p.notices {
		if n.Labels["resilience_policy_name"] != name {
			all = append(all, fmt.Sprint(n.Labels["alertname"], " of ", n.Labels["resilience_policy_name"]))
		}
	}
	return all
}

// get asks for a document.
func get(ctx context.Context, url string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	return do(req)
}

func do(req *http.Request) ([]byte, error) {
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", req.URL.Path, resp.Status, tail(string(body), 3))
	}
	return body, err
}
