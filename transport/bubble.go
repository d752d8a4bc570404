package transport

import "time"

// decade tells what began in a bubble of testing/synctest, where it is the year
// 2000, and whose timers and channels must not be touched from outside, where
// cleanups run.
const decade = 10 * 365 * 24 * time.Hour

// keeps reports whether what is made now may serve later calls: neither this goroutine
// nor the Transport is of a bubble.
func (t *Transport) keeps(now time.Duration) bool { return t.real && now >= 0 && now < decade }
