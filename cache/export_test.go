package cache

// KeyOf tells a test which key a call has.
func KeyOf(x Exchange) Key { return x.key }

// Canonical is canonical.
func Canonical(name string) bool { return canonical(name) }

// SameStripe tells a test whether the writes to two URIs are counted together.
func SameStripe(x, y Exchange) bool { return x.key.hash%epochStripes == y.key.hash%epochStripes }
