package transport

import "time"

// The window of a breaker is made with the first evidence, and given back with the last.

// evidence is the window, to be added to. b.mu is held.
func (b *breaker) evidence() *window {
	if b.window == nil {
		b.window = newWindow(b.policy.Window, b.policy.Buckets, b.policy.WindowCalls, b.policy.SlowCall)
	}
	return b.window
}

// whole looks at all the evidence. b.mu is held.
func (b *breaker) whole(now time.Duration) look {
	switch {
	case b.window != nil:
		return b.window.whole(now)
	case b.policy.WindowCalls > 0:
		return look{}
	}
	return look{span: b.width * time.Duration(b.policy.Buckets)}
}

// giveBackWindow drops a window that holds nothing any more.
func (b *breaker) giveBackWindow(now time.Duration) {
	if !b.on || !b.mu.TryLock() {
		return
	}
	defer b.mu.Unlock()
	b.takeOver(now)
	if w := b.window; w != nil && w.outcomes == nil {
		if w.roll(now); w.sum == (bucket{}) {
			b.window = nil
		}
	}
}
