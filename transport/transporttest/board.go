package transporttest

import (
	"sync"
	"testing"
	"time"
)

// patience is how long a helper waits for what should come at once.
const patience = 10 * time.Second

// board is a lock whose changes can be waited for.
type board struct {
	mu      sync.Mutex    // guards what its owner keeps under it
	changed chan struct{} // closed at the next change; nil: nobody waits
}

// update changes what is under the lock.
func (b *board) update(change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change()
	b.wake()
}

// wake tells of a change. It is called under the lock.
func (b *board) wake() {
	if b.changed != nil {
		close(b.changed)
		b.changed = nil
	}
}

// next is closed at the next change. It is called under the lock.
func (b *board) next() <-chan struct{} {
	if b.changed == nil {
		b.changed = make(chan struct{})
	}
	return b.changed
}

// await returns when done does, which is called under the lock, or fails the test
// with what it waited for.
func (b *board) await(t testing.TB, done func() bool, what func() string) {
	t.Helper()
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		b.mu.Lock()
		if done() {
			b.mu.Unlock()
			return
		}
		changed := b.next()
		b.mu.Unlock()
		select {
		case <-changed:
		case <-late.C:
			b.mu.Lock()
			missing := what()
			b.mu.Unlock()
			t.Fatalf("transporttest: after %v still waiting for %s", patience, missing)
		}
	}
}
