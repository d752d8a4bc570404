package cache

// KeyOf tells a test which key a call has.
func KeyOf(x Exchange) Key { return x.key }
