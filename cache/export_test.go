package cache

// KeyOf tells a test which key a call has.
func KeyOf(x Exchange) Key { return x.key }

// Collide returns copies of entries whose keys all have one hash.
func Collide(entries ...*Entry) []*Entry {
	collided := make([]*Entry, len(entries))
	for i, e := range entries {
		c := *e
		c.key.hash = 1
		collided[i] = &c
	}
	return collided
}
