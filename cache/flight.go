package cache

import (
	"hash/maphash"
	"net/http"
)

// Flight names the requests under way that one answer may serve: those to one URI, of one partition, with the same Accept fields.
// It is comparable.
type Flight struct {
	key       Key
	partition Partition
	accept    uint64
}

// Flight is that of a request which is to be sent, and false for one that must not wait for another's answer: where answers are not
// reused, and for requests that are not plain GETs.
func (c *Cache) Flight(x *Exchange, req *http.Request) (Flight, bool) {
	if !c.rules.Fresh || x.role != reader || req.Method == http.MethodHead || x.partial || x.conditional || x.ask != &nothing {
		return Flight{}, false
	}
	var h maphash.Hash
	h.SetSeed(c.seed)
	for _, name := range [...]string{"Accept", "Accept-Charset", "Accept-Encoding", "Accept-Language"} {
		for _, value := range req.Header[name] {
			_, _ = h.WriteString(value)
			_ = h.WriteByte(0)
		}
		_ = h.WriteByte(1)
	}
	return Flight{x.key, c.partitionOf(x, req), h.Sum64()}, true
}

// Stands names what is stored for a request, whatever it accepts: the answers to one URI, of one partition.
func (c *Cache) Stands(x *Exchange, req *http.Request) Flight {
	c.named(x)
	return Flight{key: x.key, partition: c.partitionOf(x, req)}
}

// Collapsed notes that a request has waited as x for the answer to another, from which it is served now, as y, if it is.
func (x *Exchange) Collapsed(y *Exchange) {
	if x.reuse != nil && y.reuse != nil {
		y.reuse.collapsed = x.reuse.forwarded
	}
}

// Stored reports whether the answer that [Cache.Received] was told of is stored, or will be when it has been read to its end;
// of one that [Cache.Validated] was told of, whether it is, and is fresh.
func (x *Exchange) Stored() bool { return x.stored }
