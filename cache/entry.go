package cache

// Entry is one stored answer. It never changes.
type Entry struct{ key Key }

// Key is the URI that e answers.
func (e *Entry) Key() Key { return e.key }

// Partition is the partition that e belongs to.
func (e *Entry) Partition() Partition { return Partition{} }

// Weight is what e counts against a store's bound, in bytes.
func (e *Entry) Weight() int64 { return 0 }

// Join returns variants with e in it.
func (e *Entry) Join(variants []*Entry) ([]*Entry, bool) { return nil, false }
