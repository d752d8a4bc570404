package cache

import (
	"errors"
	"fmt"
	"iter"
)

// Store holds entries. [Memory] is the one this package provides; the interface is the seam for another, which stores and
// bounds. What may be stored, replaced and served is decided by [Cache] and by [Entry.Join]. Package cachetest has a
// suite of tests for one.
//
// Every method must be safe for concurrent use by any number of goroutines: calls of one URI come together as well. None may
// block: all are called on the way of a request or an answer, some from the Read and Close of its body, so no I/O, and no lock
// that is held during any. They may be called at any time from New on, in any order, with keys and entries the Store has never
// seen or has dropped. This package holds no lock while it calls one; a panic goes through to whoever called the
// Cache or the [Capture], and leaves both usable.
//
// Entries do not change once they are stored, and only the Cache that made them understands them: they cannot be written to
// a disk or made by others. A Store may drop any of them at any moment; of the variants of one URI and partition all, or the
// oldest first, lest an older answer to the same request come to light.
type Store interface {
	// Lookup returns the variants stored for one URI and partition, nil when there are none. The slice and its entries are shared:
	// nobody changes them, not the Store either after it has returned them. It is called for every answer that may be stored
	// or may end an older one, for every failure, and for requests that say only-if-cached; but for hosts of which nothing was ever stored
	// none of that is sure to be asked.
	Lookup(k Key, p Partition) []*Entry

	// Put adds e to its URI and partition as [Entry.Join] says, making room first, and reports whether it did. It is called
	// once for an entry, when its body has been read to the end. Nothing may come between Join and the change: a Put, Delete or
	// DeleteAll of the same URI comes before the one or after the other.
	Put(e *Entry) bool

	// Delete removes this very entry; one that is gone or was replaced is none of its business. It is called when a newer
	// answer is not stored, and for one that is past its use.
	Delete(e *Entry)

	// DeleteAll removes every variant in every partition of a URI (RFC 9111 section 4.4), before it returns. It is called
	// for every successful write to a host of which something was stored. A Put that has called Join is waited for, even if nothing of the URI is stored yet: what it
	// stores is from before the write.
	DeleteAll(k Key)

	// All are the entries stored at some moment of the call. It is called for a purge. A Put that has called Join is waited for:
	// what it stores is among them, or is not stored.
	All() iter.Seq[*Entry]

	// Len is the number of entries; with none the rest may not be asked. It is called for almost every request, and
	// must cost next to nothing.
	Len() int

	// Bytes is the weight of all entries, see [Entry.Weight]. The Cache never calls it.
	Bytes() int64

	// MaxEntryBytes is the largest body worth offering, in bytes. It is called for every answer that may be stored.
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
