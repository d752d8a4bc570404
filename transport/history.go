package transport

import "sync"

// keepHistory is how many transitions of all hosts are remembered.
const keepHistory = 256

// HostTransition is a Transition with its host and its place in the order of those
// of all hosts.
type HostTransition struct {
	ID     uint64 // from 1, one more with each
	Scheme string
	Host   string // host:port
	Shadow bool   // the breaker decides, and lets calls through
	Transition
}

// history holds the last transitions of all hosts, also of those that are no more.
type history struct {
	mu   sync.Mutex // guards what follows
	ring []HostTransition
	last uint64        // ID of the newest
	next chan struct{} // closed with the next one; nil until somebody waits
}

func (h *history) add(t HostTransition) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last++
	t.ID = h.last
	if len(h.ring) < keepHistory {
		h.ring = append(h.ring, t)
	} else {
		h.ring[(t.ID-1)%keepHistory] = t
	}
	if h.next != nil {
		close(h.next)
		h.next = nil
	}
}

// Transitions returns the breakers' changes of state with an ID above after, the
// oldest first, as far back as the last 256, and a channel that is closed with the
// next one.
func (t *Transport) Transitions(after uint64) (since []HostTransition, next <-chan struct{}) {
	h := &t.history
	h.mu.Lock()
	defer h.mu.Unlock()
	after = max(min(after, h.last), h.last-uint64(len(h.ring)))
	for id := after; id < h.last; id++ {
		since = append(since, h.ring[id%keepHistory])
	}
	if h.next == nil {
		h.next = make(chan struct{})
	}
	return since, h.next
}
