package transport

import (
	"net/http"
	"net/url"
)

// Purge removes every stored answer to a URL that begins with prefix, for all callers,
// and returns how many there were: with "https://api.test/users/" all below it, with
// "https://api.test" all of that host, with "" all that there is. Answers that are
// under way are not stored either. The error says why prefix is not the beginning of
// a URL.
func (t *Transport) Purge(prefix string) (int, error) {
	if u, err := url.Parse(prefix); err == nil && !isASCII(u.Host) {
		u.Host = sentName(u.Scheme, u.Host)
		prefix = u.String()
	}
	return t.cache.Purge(prefix)
}

// PurgePartition removes everything stored for a tenant, as policy.Cache.Partition has
// named it, and returns how many answers that were: for a user who is to be forgotten.
// Answers that are under way are not stored either.
func (t *Transport) PurgePartition(tenant string) int { return t.cache.PurgePartition(tenant) }

// PurgeCaller removes everything stored for whoever shows the credentials of req, on
// every host without a policy.Cache.Partition, and returns how many answers that were:
// for a user who logs out. Credentials are Authorization, Proxy-Authorization, Cookie,
// X-Api-Key, Api-Key, X-Auth-Token and the userinfo of the URL. Answers that are under
// way are not stored either.
func (t *Transport) PurgeCaller(req *http.Request) int { return t.cache.PurgeCaller(req) }
