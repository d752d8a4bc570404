package cache

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// Purge removes every stored answer to a URL that begins with prefix, in all partitions, and returns how many there were: with
// "https://api.test/users/" all below it, with "https://api.test" all of that host, with "" all that there is. Answers
// that are under way anywhere are not stored either. The error says why prefix is not the beginning of a URL.
func (c *Cache) Purge(prefix string) (int, error) {
	if prefix == "" {
		return c.purge(func(*Entry) bool { return true }), nil
	}
	u, err := url.Parse(prefix)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.Fragment != "" {
		return 0, fmt.Errorf("cache: purge of %q: must begin with http:// or https:// and a host, without user and fragment, or be empty", redacted(u))
	}
	of := Key{Scheme: u.Scheme, Host: authority(u.Scheme, u.Host)}
	of.name(c.seed, u)
	from := of.Path
	switch {
	case u.Path == "" && u.RawQuery == "":
		from = ""
	case of.Query != "":
		from += "?" + of.Query
	}
	return c.purge(func(e *Entry) bool {
		return e.key.Scheme == of.Scheme && e.key.ofHost(of.Host) &&
			(strings.HasPrefix(e.key.Path, from) || e.key.Query != "" && strings.HasPrefix(e.key.Path+"?"+e.key.Query, from))
	}), nil
}

// ofHost reports whether a key is of a host, which it may have been asked as, or asked.
func (k Key) ofHost(host string) bool {
	as, asked, override := strings.Cut(k.Host, "@")
	return as == host || override && asked == host
}

// redacted is what may be told of a URL.
func redacted(u *url.URL) string {
	if u == nil {
		return "a string that is no URL"
	}
	return u.Redacted()
}

// PurgePartition removes everything stored for a tenant, as Rules.Partition has named it, and returns how many answers
// that were. Answers that are under way anywhere are not stored either.
func (c *Cache) PurgePartition(tenant string) int {
	whose := c.mac(who(tenant, nil, nil, nil))
	return c.purge(func(e *Entry) bool { return e.whose == whose && e.owner.rules.Partition != nil })
}

// PurgeCaller removes everything stored for whoever shows the credentials of req (see the package documentation), on every host,
// but for answers that have a tenant; and returns how many answers that were. Answers that are under way anywhere are not stored either. Without credentials it is about all who show none.
func (c *Cache) PurgeCaller(req *http.Request) int {
	if req.URL == nil {
		r := *req
		r.URL = &url.URL{}
		req = &r
	}
	_, whose := (&Cache{core: c.core, rules: &Rules{}}).partition(req, "", true)
	return c.purge(func(e *Entry) bool { return e.whose == whose && e.owner.rules.Partition == nil })
}

// purge removes what is of some kind.
func (c *Cache) purge(of func(*Entry) bool) (n int) {
	c.purges.Add(1) // before it looks: who is not there yet is not stored
	for e := range c.store.All() {
		if of(e) {
			c.store.Delete(e)
			n++
		}
	}
	return n
}
