package cache

import (
	"hash/maphash"
	"net/http"
	"strings"
	"sync/atomic"
)

// origin is how the host of a request is written, and what that comes to in a [Key].
type origin struct {
	scheme, host string // of the URL
	authority    string // what Key.Host is
	hash         uint64 // of scheme and authority
}

// origin returns that of a request, in room if need be, and nil for one that has none: not http, or no host.
func (c *Cache) origin(room *origin, req *http.Request) *origin {
	u := req.URL
	if u == nil {
		return nil
	}
	overridden := req.Host != "" && req.Host != u.Host
	asked := c.asked.Load()
	if asked != nil && !overridden && asked.host == u.Host && asked.scheme == u.Scheme {
		return asked
	}
	if u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil
	}
	*room = c.originOf(u.Scheme, u.Host)
	if overridden {
		if as := authority(u.Scheme, req.Host); as != room.authority {
			room.authority = as + "@" + room.authority
			room.hash = c.hashOf(room)
		}
	}
	if !overridden && asked == nil {
		first := *room
		first.host = strings.Clone(room.host)
		if first.authority = first.host; room.authority != room.host {
			first.authority = strings.Clone(room.authority)
		}
		c.asked.CompareAndSwap(nil, &first)
	}
	return room
}

// originOf is that of a request whose Host overrides nothing.
func (c *Cache) originOf(of, host string) origin {
	o := origin{scheme: scheme(of), host: host, authority: authority(of, host)}
	o.hash = c.hashOf(&o)
	return o
}

func (c *Cache) hashOf(o *origin) uint64 {
	return maphash.String(c.seed, o.scheme)*hashFactor + maphash.String(c.seed, o.authority)
}

// origins remembers of which hosts something may be stored: all but those of which nothing ever was, give or take one that shares
// its place. Most answers may not be stored, and are of hosts none of whose may: no such call need look for what it supersedes.
type origins struct {
	kept   [1 << 10]atomic.Bool   // apart, since they hardly change, and are read for each request
	writes [1 << 10]atomic.Uint64 // to URIs of theirs
}

func (o *origins) keptOf(hash uint64) *atomic.Bool     { return &o.kept[hash%uint64(len(o.kept))] }
func (o *origins) writesOf(hash uint64) *atomic.Uint64 { return &o.writes[hash%uint64(len(o.writes))] }

// holds reports whether something may be stored of the host of k.
func (c *Cache) holds(k *Key) bool { return c.origins.keptOf(k.origin).Load() }

// keeps notes that something is about to be stored of the host of k: before the epoch is looked at, so that a write to k which
// found nothing to remove has ended that.
func (c *Cache) keeps(k *Key) {
	if kept := c.origins.keptOf(k.origin); !kept.Load() {
		kept.Store(true)
	}
}

// Holds is false where Serve and Reuse are sure to find nothing stored for a request. Where it is true they may. It does next to nothing.
func (c *Cache) Holds(req *http.Request) bool {
	if c.store.Len() == 0 {
		return false
	}
	var room origin
	o := c.origin(&room, req)
	return o != nil && c.origins.keptOf(o.hash).Load()
}
