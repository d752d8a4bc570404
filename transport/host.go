package transport

import (
	"cmp"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/watertight-go/watertight/policy"
)

// host is the state of one scheme, host and port.
type host struct {
	t        *Transport
	key      hostKey
	hash     uint64 // of key
	next     *host  // the next one with the same hash; guarded by mu of its hostShard
	name     string // host:port, for people
	spelling string // as the first URL had it
	policy   *policy.Policy
	soonest  time.Duration // after which a limit may be due of a call as the policy has it
	ascii    bool          // spelling is
	overflow bool          // shared by many hosts; has no breaker
	prompt   bool          // no observer and no Store of the owner's runs between the beginning of a call and of its first attempt
	visited  atomic.Bool   // looked up again since a search for a host to drop last passed
	chain    http.RoundTripper
	layers   layers

	fallback *fallback // nil: off
	breaker  breaker
	bulkhead bulkhead
	pools    pools
	counts   counts
	latency  atomic.Pointer[latency] // nil: at most the lone attempt lately
	lone     lone

	active atomic.Int64 // calls and attempts in flight; negative once dropped
	used   atomic.Int64 // the clock when last looked up
}

// layers is where those lie that a host may have, in one allocation with it.
type layers struct {
	total    total
	fallback fallback
	spent    spent
	retry    retry
	budget   budget
	attempt  attemptLayer
	base     base
	foreign  foreign
}

// dropped is what active is set to when a host is dropped.
const dropped = -1 << 40

// newHost assembles the layers of a host; the order is a promise.
func (t *Transport) newHost(key hostKey, spelling string, p *policy.Policy, overflow bool) *host {
	h := &host{t: t, policy: p, overflow: overflow}
	h.key, h.name = key.owned()
	h.ascii = isASCII(spelling)
	switch spelling {
	case h.key.name:
		h.spelling = h.key.name
	case h.name:
		h.spelling = h.name
	default:
		h.spelling = strings.Clone(spelling)
	}
	if overflow {
		shared := *p
		shared.Breaker = policy.Breaker{}
		h.policy, h.name = &shared, "overflow"
	}
	h.soonest = soonest(h.policy)
	h.prompt = t.observer == nil && t.memory && !p.Cache.Fresh && p.Fallback.After <= 0
	var next http.RoundTripper = newBase(h)
	next = newAttempt(next, h)
	next = newBulkhead(next, h)
	next = newBreaker(next, h)
	next = newRetry(next, h)
	next = newSpent(next, h)
	next = newFallback(next, h)
	h.chain = newTotal(next, h)
	return h
}

// breakerPolicy is a policy's breaker with its defaults, one for all hosts of that policy.
func (t *Transport) breakerPolicy(p *policy.Policy) *policy.Breaker {
	if b, ok := t.breakers.Load(p); ok {
		return b.(*policy.Breaker)
	}
	made := p.Breaker.WithDefaults(cmp.Or(p.Bulkhead.MaxConcurrent, int(t.limit)))
	b, _ := t.breakers.LoadOrStore(p, &made)
	return b.(*policy.Breaker)
}

// acquire keeps the host from being dropped; false if it was already.
func (h *host) acquire() bool {
	if h.active.Add(1) > 0 {
		return true
	}
	h.active.Add(-1)
	return false
}

func (h *host) release() { h.active.Add(-1) }

// drop takes an idle host whose breaker may be forgotten out of use.
func (h *host) drop(now time.Duration) bool {
	if h.breaker.pinned(now) || !h.active.CompareAndSwap(0, dropped) {
		return false
	}
	if h.breaker.pinned(now) { // tripped or forced in between
		h.active.Add(-dropped)
		return false
	}
	return true
}
