package cache

// KeyOf tells a test which key a call has.
func KeyOf(x Exchange) Key { return x.key }

// Canonical is canonical.
func Canonical(name string) bool { return canonical(name) }
