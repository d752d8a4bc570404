package cache

// Key names a URI: what RFC 9111 section 2 calls the primary key. It is comparable. Keys of different
// Caches never equal each other.
type Key struct {
	// Scheme is http or https.
	Scheme string
	// Host is the lower-case host and, unless it is the scheme's default, the port. When Request.Host
	// overrides it both are in here: one decides which server is asked, the other what it answers.
	Host string
	// Path is the path as sent, escaped.
	Path string
	// Query is the query as sent, order kept.
	Query string

	hash uint64
}

// Partition separates callers: a keyed hash of whatever in a request says who is asking. The zero Partition
// is that of requests that do not say.
type Partition [16]byte
