package cache

import (
	"errors"
	"fmt"
)

// Store holds entries. [Memory] is the one this package provides; the interface is the seam for
// another. It stores and bounds; what may be stored, replaced and served is decided by [Cache] and by
// [Entry.Join]. Every method is safe for concurrent use and none may block on I/O.
type Store interface {
	// Lookup returns the variants stored for one URI and partition, nil when there are none. The slice and
	// its entries are shared: nobody changes them.
	Lookup(k Key, p Partition) []*Entry

	// Put adds e to its URI and partition as [Entry.Join] says, making room first, and reports whether it did.
	// Join is called with nothing able to come between it and the change.
	Put(e *Entry) bool

	// Delete removes this very entry; one that is gone or was replaced is none of its business.
	Delete(e *Entry)

	// DeleteAll removes every variant in every partition of a URI (RFC 9111 section 4.4).
	DeleteAll(k Key)

	// Len is the number of entries. It is asked on every request and must cost next to nothing.
	Len() int

	// Bytes is the weight of all entries, see [Entry.Weight].
	Bytes() int64

	// MaxEntryBytes is the largest body worth offering, in bytes.
	MaxEntryBytes() int64
}

const (
	defaultMaxBytes      = 64 << 20
	defaultMaxEntryBytes = 1 << 20
)

// Config bounds a [Memory] store.
type Config struct {
	// MaxBytes is the weight all entries may have together, in bytes. Zero means 64 MiB. The bound is exact:
	// room is made before an entry goes in.
	MaxBytes int64

	// MaxEntryBytes is the largest body that is kept, in bytes, as the caller reads it (so decoded, when
	// net/http decodes). Zero means 1 MiB, or MaxBytes if that is less. It may not exceed MaxBytes.
	MaxEntryBytes int64
}

// Validate reports all that is wrong with c: negative bounds, or an entry larger than the whole.
func (c Config) Validate() error {
	var errs []error
	if c.MaxBytes < 0 {
		errs = append(errs, fmt.Errorf("cache: MaxBytes is negative: %d", c.MaxBytes))
	}
	if c.MaxEntryBytes < 0 {
		errs = append(errs, fmt.Errorf("cache: MaxEntryBytes is negative: %d", c.MaxEntryBytes))
	}
	if d := c.withDefaults(); c.MaxBytes >= 0 && d.MaxEntryBytes > d.MaxBytes {
		errs = append(errs, fmt.Errorf("cache: MaxEntryBytes %d exceeds MaxBytes %d", d.MaxEntryBytes, d.MaxBytes))
	}
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	if c.MaxBytes == 0 {
		c.MaxBytes = defaultMaxBytes
	}
	if c.MaxEntryBytes == 0 {
		c.MaxEntryBytes = min(defaultMaxEntryBytes, c.MaxBytes)
	}
	return c
}
