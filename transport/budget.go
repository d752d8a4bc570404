package transport

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/watertight-go/watertight/policy"
)

// budget bounds the retries of a host together.
type budget struct {
	policy policy.Budget
	mu     sync.Mutex // guards what follows
	tokens float64
	at     time.Duration // up to when MinPerSecond was added

	full atomic.Bool // nothing can be added until a token is taken
}

func (b *budget) begin(p policy.Budget, now time.Duration) {
	b.policy, b.tokens, b.at = p, policy.BudgetBurst, now
}

func (b *budget) refill(now time.Duration, successes int) {
	b.tokens = b.policy.Refill(b.tokens, successes, now-b.at)
	b.at = now
}

// deposit adds what a call that succeeded brings.
func (b *budget) deposit(t *Transport) {
	if b == nil || b.full.Load() {
		return
	}
	now := t.now()
	b.mu.Lock()
	b.refill(now, 1)
	b.full.Store(b.tokens >= policy.BudgetBurst)
	b.mu.Unlock()
}

// take takes a token for one retry.
func (b *budget) take(now time.Duration) bool {
	if b == nil {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refill(now, 0)
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	b.full.Store(false)
	return true
}

// putBack returns the token of a retry that was not sent.
func (b *budget) putBack() {
	if b == nil {
		return
	}
	b.mu.Lock()
	b.tokens = min(b.tokens+1, policy.BudgetBurst)
	b.mu.Unlock()
}

// left is the number of tokens.
func (b *budget) left(now time.Duration) float64 {
	if b == nil {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refill(now, 0)
	return b.tokens
}
