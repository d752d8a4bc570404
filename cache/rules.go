package cache

// Rules say how the answers of a host are reused. The zero Rules are those of a fallback: while the origin answers, nothing is
// looked up to answer a request.
type Rules struct {
	// Fresh reuses answers as RFC 9111 has it: what is fresh is served without contact, what is stale is validated, and
	// a request's directives are heeded. See [Cache.Reuse].
	Fresh bool
}

// For returns a Cache over the same store, with the same keys and partitions, that reuses by r.
func (c *Cache) For(r Rules) *Cache { return &Cache{core: c.core, rules: r} }

// MaxEntryBytes is the largest body that the store keeps.
func (c *Cache) MaxEntryBytes() int64 { return c.store.MaxEntryBytes() }
