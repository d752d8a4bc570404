package cache

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"hash/maphash"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Cache applies the rules of RFC 9111 for a private cache to a [Store]. It is safe for concurrent use and
// starts no goroutine.
type Cache struct {
	*core
	rules Rules
}

// core is what the Caches of all hosts share.
type core struct {
	store  Store
	start  time.Time
	seed   maphash.Seed
	secret [32]byte
	chunks sync.Pool

	// lastDate is the last Date that was read. Busy clients see the same one all second long.
	lastDate atomic.Pointer[date]

	epochs [epochStripes]epoch
	purges atomic.Uint64
}

// New returns a Cache over store. Partitions are keyed with a random key that is never told, so what one Cache
// stored no other can find.
func New(store Store) *Cache {
	c := &Cache{core: &core{store: store, start: time.Now(), seed: maphash.MakeSeed()}}
	rand.Read(c.secret[:]) // never fails
	return c
}

type date struct {
	text string
	time time.Time
}

// date is parseDate with a memory of one.
func (c *Cache) date(lines []string) (time.Time, bool) {
	last := c.lastDate.Load()
	if last != nil && len(lines) == 1 && lines[0] == last.text {
		return last.time, true
	}
	t, ok := parseDate(lines)
	if ok {
		c.lastDate.Store(&date{lines[0], t})
	}
	return t, ok
}

// Failure is why an answer could not be had.
type Failure struct {
	// Err is the error, if the call ended in one. It becomes [Info.Cause]. Nothing is served in place of a
	// certificate that was refused.
	Err error
	// Status is the status of the failed answer, if there was one: 500, 502, 503 or 504 (RFC 5861 section 4).
	// Nothing is served in place of any other. With neither Err nor Status there is no failure.
	Status int
	// Detail is the detail parameter of Cache-Status (RFC 9211 section 2.8): breaker-open, bulkhead-full,
	// timeout, dial-error, reset. A stale answer in place of a Status has stale-if-error, a fresh one in place of a
	// forwarded request has fallback.
	Detail string
	// Forwarded is true if the request was sent. It decides between hit and fwd (RFC 9211 section 2.1).
	Forwarded bool

	validated bool   // it is none: the origin has confirmed the answer
	collapsed string // nor this: see Exchange
}

// Exchange is one call, from [Cache.Begin] to [Cache.Received] or [Cache.Serve]. The zero Exchange is that of a call that
// the cache has no part in.
type Exchange struct {
	key   Key
	sent  time.Duration
	epoch uint64
	purge uint64
	ask   control
	role  role

	tenant      string // as Rules.Partition says
	partitioned bool   // the next two are known
	partition   Partition
	whose       Partition

	partial     bool // asks for, or depends on, less than the whole: nothing whole may stand in
	guarded     bool // of those, that it has a precondition that only the origin can judge
	conditional bool // the caller has a copy of its own

	validated *Entry // is asked about, in the caller's name
	forwarded string // why it is sent: fwd of RFC 9211 section 2.2; empty: not looked up
	collapsed string // why it would have been sent, had it not waited for the answer to another; empty: it has not
	stored    bool   // its answer is, or will be when it has been read
}

type role uint8

const (
	bystander role = iota
	reader         // GET and HEAD
	writer         // everything that is not safe (RFC 9110 section 9.2.1)
)

// Begin must be called for every call before it is sent. It reads the URI's epoch, and for unsafe methods ends
// it: what was asked for before must not be stored after. A GET with a field whose key is not in its canonical form
// ([http.CanonicalHeaderKey]) has no part in the cache.
func (c *Cache) Begin(req *http.Request) Exchange {
	x := Exchange{ask: nothing, role: reader}
	switch req.Method {
	case "", http.MethodGet, http.MethodHead:
		x.inspect(req)
	case http.MethodOptions, http.MethodTrace:
		x.role = bystander
	default:
		x.role = writer
	}
	if x.role == bystander {
		return x
	}
	key, ok := newKey(c.seed, req)
	if !ok && (x.role == reader || key.hash == 0) {
		x.role = bystander
		return x
	}
	x.key = key
	if c.rules.Fresh && c.rules.Partition != nil && x.role == reader {
		if x.tenant, ok = c.rules.Partition(req); !ok {
			x.role = bystander
			return x
		}
	}
	if x.role == writer {
		c.epoch(key).end(key)
		return x
	}
	x.sent, x.epoch, x.purge = c.now(), c.epoch(key).now(), c.purges.Load()
	return x
}

// inspect reads what a GET or HEAD says about its reuse. One pass over the header is cheaper than a dozen lookups.
func (x *Exchange) inspect(req *http.Request) {
	if req.Body != nil && req.Body != http.NoBody {
		x.role = bystander // the answer depends on what was sent
	}
	for name := range req.Header {
		switch name {
		case "Accept", "Accept-Encoding", "User-Agent", "Authorization": // most of what there is
		case "Cache-Control", "Pragma":
			x.ask = requestControl(req.Header)
		case "Range", "If-Range":
			x.partial = true
		case "If-Match", "If-Unmodified-Since":
			x.partial, x.guarded = true, true
		case "If-None-Match", "If-Modified-Since":
			x.conditional = true
		case "Upgrade", "X-Original-Url", "X-Rewrite-Url":
			x.role = bystander // another URI, or no HTTP at all
		case methodOverride, methodName, overriddenMethod:
			x.role = writer // a GET in name only
			return
		default:
			if canonical(name) {
				break
			}
			if strings.EqualFold(name, methodOverride) || strings.EqualFold(name, methodName) || strings.EqualFold(name, overriddenMethod) {
				x.role = writer
				return
			}
			x.role = bystander // net/http sends it as it is, and the origin heeds what no lookup here would find
		}
	}
}

const (
	methodOverride   = "X-Http-Method-Override"
	methodName       = "X-Http-Method"
	overriddenMethod = "X-Method-Override"
)

func (c *Cache) now() time.Duration { return time.Since(c.start) }

func (c *Cache) epoch(k Key) *epoch { return &c.epochs[k.hash%epochStripes] }

func (c *Cache) chunk() *chunk {
	if b, ok := c.chunks.Get().(*chunk); ok {
		return b
	}
	return new(chunk)
}

// Received is told the final answer of the call, before its caller sees it. It removes what the answer
// supersedes, or forbids to serve from now on if it is a 304 or 206, and after a successful write the URI (RFC 9111 section 4.4). It returns a [Capture] if the body
// is worth keeping, nil if not: the answer may not be stored, or could never be served under w. An answer known
// to have no body is stored at once. Nothing is made of its Content-Type: whoever knows that the body is a stream calls
// [Capture.Discard].
func (c *Cache) Received(x *Exchange, req *http.Request, resp *http.Response, w Window) *Capture {
	capture, stored := c.received(x, req, resp, w)
	x.stored = stored
	if c.rules.LabelAll {
		x.label(resp, stored)
	}
	return capture
}

func (c *Cache) received(x *Exchange, req *http.Request, resp *http.Response, w Window) (_ *Capture, stored bool) {
	switch {
	case x.role == writer:
		c.invalidate(x, req, resp)
		return nil, false
	case x.role == bystander:
		return nil, false
	case c.rules.Fresh && (resp.StatusCode == http.StatusNotModified || req.Method == http.MethodHead && resp.StatusCode == http.StatusOK):
		c.confirm(x, req, resp, w)
		return nil, false
	case resp.StatusCode == http.StatusNotModified || resp.StatusCode == http.StatusPartialContent:
		c.revoke(x, req, resp)
		return nil, false
	case !supersedes(resp.StatusCode) && !(c.rules.Fresh && resp.StatusCode >= 500 && c.find(x, req) == nil):
		return nil, false // a failure of the origin's is stored in no good answer's place
	}
	if c.rules.RefreshInterval > 0 && c.recent(x, req, resp) {
		return nil, false
	}
	var e *Entry
	if req.Method != http.MethodHead {
		e = c.entry(x, req, resp, w)
	}
	if e == nil {
		if supersedes(resp.StatusCode) {
			c.supersede(x, req, resp)
		}
		return nil, false
	}
	asked := c.selectable(req.Header)
	if resp.Body == nil || resp.Body == http.NoBody {
		c.commit(e, asked)
		return nil, true
	}
	capture := &Capture{entry: e, asked: asked, length: contentLength(resp), limit: c.store.MaxEntryBytes()}
	for _, v := range c.store.Lookup(e.key, e.partition) {
		if len(v.body) > 0 && slices.Equal(v.selectors, e.selectors) {
			capture.prior = v.body
		}
	}
	return capture, true
}

// recent reports whether a stored answer is so new that the next like it is not worth its copy. One that grants less than it is
// not like it.
func (c *Cache) recent(x *Exchange, req *http.Request, resp *http.Response) bool {
	e := c.find(x, req)
	if e == nil || int(e.status) != resp.StatusCode || x.sent < e.sent || x.ask.noStore {
		return false
	}
	wall := time.Now()
	now := wall.Sub(c.start)
	return now-e.received < c.rules.RefreshInterval && (e.ttlAt(now) > 0 || e.lifetime == 0) && !e.revokedBy(resp, wall)
}

// supersedes reports whether a status answers for the resource, so that an older answer is over.
func supersedes(status int) bool {
	return status >= 200 && status < 500 &&
		status != http.StatusPartialContent && status != http.StatusNotModified && status != http.StatusTooManyRequests
}

// contentLength is the announced length of the body, or -1. Zero counts only if it was said, since it is also what a
// RoundTripper leaves that never thought about it.
func contentLength(resp *http.Response) int64 {
	if resp.ContentLength == 0 && resp.Header.Get("Content-Length") != "0" {
		return -1
	}
	return resp.ContentLength
}

// entry returns what is to be stored of an answer but for its body, or nil if nothing is.
func (c *Cache) entry(x *Exchange, req *http.Request, resp *http.Response, w Window) *Entry {
	if x.ask.noStore {
		return nil
	}
	says, omit := c.says(resp.Header)
	_, timed := lifetime(resp.Header, says, time.Time{})
	if !c.storable(resp.StatusCode, says, timed) || c.rules.Shared && !shareable(req, resp, says) {
		return nil
	}
	window := w.granted(nothing, says)
	if window == 0 && !timed && !c.rules.Fresh {
		return nil // the quickest way out, for what is most of the traffic where nothing is configured
	}
	if !whole(resp) || resp.ContentLength > c.store.MaxEntryBytes() {
		return nil
	}
	vary, ok := c.varyNames(resp.Header["Vary"])
	if !ok {
		return nil
	}
	if len(resp.Header["Content-Encoding"]) > 0 && !slices.Contains(vary, "Accept-Encoding") {
		vary = append(vary, "Accept-Encoding") // not everyone can read it, whether the origin says so or not
	}
	wall := time.Now()
	now := wall.Sub(c.start)
	date := wall
	if lines := resp.Header["Date"]; len(lines) > 0 {
		if date, ok = c.date(lines); !ok && !c.rules.Fresh {
			return nil
		}
		if !ok {
			date = wall // RFC 9110 section 6.6.1
		}
	}
	e := &Entry{
		owner:        c,
		key:          x.key,
		status:       int16(resp.StatusCode),
		uncompressed: resp.Uncompressed,
		timed:        timed,
		control:      says,
		sent:         x.sent,
		received:     now,
		epoch:        x.epoch,
		purge:        x.purge,
		date:         date.Unix(),
		age:          initialAge(resp.Header, date, wall, now-x.sent),
	}
	e.lifetime, _ = lifetime(resp.Header, says, date)
	if c.rules.Fresh {
		if !timed && !says.noCache && heuristic(resp.StatusCode, says) {
			e.lifetime, e.timed = guess(resp.Header, date)
		}
		window = max(window, says.staleWhileRevalidate)
		if len(resp.Header["Etag"]) > 0 || len(resp.Header["Last-Modified"]) > 0 {
			window = max(window, validFor) // it can be validated
		}
	}
	if e.lifetime-e.age+window <= 0 {
		return nil
	}
	e.useless = now + e.lifetime - e.age + window
	if !e.describe(req, resp, omit, vary, wall) {
		return nil
	}
	if x.partitioned {
		e.partition, e.whose = x.partition, x.whose
	} else {
		e.partition, e.whose = c.partition(req, x.tenant)
	}
	return e
}

// storable reports whether an answer of this status may be stored (RFC 9111 section 3), which has a lifetime of its own if it is
// timed. must-understand lets a cache that knows the status ignore no-store (section 5.2.2.3). A fallback is for the last good
// answer, so 4xx are left out there, and what has to be validated.
func (c *Cache) storable(status int, says control, timed bool) bool {
	if c.rules.Fresh {
		if says.mustUnderstand {
			return understood(status)
		}
		return (timed || says.noCache || heuristic(status, says)) && !says.noStore
	}
	known := lasting(status) || (status == http.StatusFound || status == http.StatusTemporaryRedirect) && timed
	return known && !says.noCache && (!says.noStore || says.mustUnderstand)
}

// shareable reports whether an answer is for others than who has asked for it.
func shareable(req *http.Request, resp *http.Response, says control) bool {
	if len(resp.Header["Set-Cookie"]) > 0 && !says.public {
		return false
	}
	return says.forOthers || !personal(req)
}

// understood reports whether all that a status asks of a cache is done here.
func understood(status int) bool {
	return heuristic(status, control{}) || status == http.StatusFound || status == http.StatusSeeOther || status == http.StatusTemporaryRedirect
}

// validFor is how long a stale answer is kept that can be validated.
const validFor = 24 * time.Hour

// heuristic reports whether an answer of this status may have a lifetime that its origin has not given (RFC 9111 section 4.2.2,
// RFC 9110 section 15.1).
func heuristic(status int, says control) bool {
	switch status {
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusGone, http.StatusRequestURITooLong, http.StatusNotImplemented:
		return true
	}
	return lasting(status) || says.public
}

// lasting statuses may be stored without an explicit lifetime (RFC 9110 section 15.1).
func lasting(status int) bool {
	switch status {
	case http.StatusOK, http.StatusNonAuthoritativeInfo, http.StatusNoContent,
		http.StatusMultipleChoices, http.StatusMovedPermanently, http.StatusPermanentRedirect:
		return true
	}
	return false
}

// whole reports whether the end of the body can be told from its loss, and nothing follows it. A body that ends with the connection
// (RFC 9112 section 8) looks the same cut short, be it gzip: net/http reports a clean end where one was lost between two members, or
// before the first. It removes the length of what it decompresses; that there was one is then known by the connection going on.
func whole(resp *http.Response) bool {
	closeDelimited := resp.ProtoMajor == 1 && resp.ContentLength < 0 && (resp.Close || !resp.Uncompressed) &&
		!slices.Contains(resp.TransferEncoding, "chunked")
	return !closeDelimited && len(resp.Trailer) == 0 && len(resp.Header["Trailer"]) == 0
}

// commit stores an answer, or removes what it supersedes.
func (c *Cache) commit(e *Entry, asked []field) {
	if !c.store.Put(e) {
		c.replace(e, asked)
	}
}

// replace removes what e, which is not stored, supersedes: every older answer to what was asked, whatever its Vary.
func (c *Cache) replace(e *Entry, asked []field) {
	for _, v := range c.store.Lookup(e.key, e.partition) {
		if !v.newer(e) && v.answers(asked) {
			c.epoch(e.key).end(e.key)
			c.store.Delete(v)
		}
	}
}

// supersede removes what an answer that is not stored would have replaced, lest an outage bring it back. Where the
// answer says that the old one is gone (it is no success), older answers still on their way are not stored either;
// where it is merely not storable, only if there was something: most traffic is like that, and stripes are shared.
func (c *Cache) supersede(x *Exchange, req *http.Request, resp *http.Response) {
	head := req.Method == http.MethodHead
	if head && resp.StatusCode == http.StatusMethodNotAllowed {
		return
	}
	if resp.StatusCode >= 300 {
		c.epoch(x.key).end(x.key)
	}
	if c.store.Len() == 0 {
		return
	}
	confirmed := head && resp.StatusCode == http.StatusOK // leaves the GET's answer, if it is still that one
	wall := time.Now()
	for _, e := range c.store.Lookup(x.key, c.partitionOf(x, req)) {
		if e.sent > x.sent || !e.matches(req) || confirmed && !e.contradicts(resp) && !e.revokedBy(resp, wall) {
			continue
		}
		c.epoch(x.key).end(x.key)
		c.store.Delete(e)
	}
}

// revoke removes what a 304 or 206 no longer lets be served. Both speak of the answer that a 200 would have been, but to a caller
// who has a copy: nothing is merged here.
func (c *Cache) revoke(x *Exchange, req *http.Request, resp *http.Response) {
	if c.store.Len() == 0 {
		return
	}
	wall := time.Now()
	for _, e := range c.store.Lookup(x.key, c.partitionOf(x, req)) {
		if e.sent <= x.sent && e.matches(req) && e.revokedBy(resp, wall) {
			c.epoch(x.key).end(x.key)
			c.store.Delete(e)
		}
	}
}

// invalidate removes the URI of a successful write, and those it says it has changed on the same origin.
func (c *Cache) invalidate(x *Exchange, req *http.Request, resp *http.Response) {
	if resp.StatusCode < 200 || resp.StatusCode >= 400 {
		return
	}
	c.forget(x.key)
	for name, refs := range resp.Header {
		if !strings.EqualFold(name, "Location") && !strings.EqualFold(name, "Content-Location") {
			continue
		}
		for _, ref := range refs {
			u, err := req.URL.Parse(ref)
			if err == nil && sameOrigin(u, req) {
				c.forget(x.key.at(c.seed, u))
			}
		}
	}
}

func (c *Cache) forget(k Key) {
	c.epoch(k).end(k)
	c.store.DeleteAll(k)
}

func sameOrigin(u *url.URL, req *http.Request) bool {
	if u.Scheme != req.URL.Scheme {
		return false
	}
	host := authority(u.Scheme, u.Host)
	return host == authority(u.Scheme, req.URL.Host) || req.Host != "" && host == authority(u.Scheme, req.Host)
}

// Serve answers from the store after a failure, if the origin or w allow it and nothing forbids it: a fresh answer, or
// one not staler than the first that was given of the request's stale-if-error, its max-stale, the response's
// stale-if-error and w.MaxStale, in any case w.StaleLimit. It never blocks.
//
// It returns false for a caller who has gone, for requests for a part (Range, If-Range) or with a
// precondition (If-Match, If-Unmodified-Since), and for a no-cache or max-age=0 without stale-if-error or max-stale. A
// caller with If-None-Match or If-Modified-Since has a copy of its own: it gets the whole stored answer, never an
// invented 304, and only if that is not older than its copy: it has the named ETag, or a Last-Modified not
// before the named date.
//
// It finds nothing for a request with a field that is new in every call and that this package does not know to be harmless: the
// package documentation says which are.
func (c *Cache) Serve(x *Exchange, req *http.Request, why Failure, w Window) (*http.Response, bool) {
	wall := time.Now()
	if !why.served() || gone(req) {
		return nil, false
	}
	e := c.servable(x, req, w, wall)
	if e == nil {
		return nil, false
	}
	return e.response(req, wall, why), true
}

// Serves reports whether Serve would have an answer now.
func (c *Cache) Serves(x *Exchange, req *http.Request, w Window) bool {
	return c.servable(x, req, w, time.Now()) != nil
}

// servable is the stored answer that may stand in for a failed one, or nil.
func (c *Cache) servable(x *Exchange, req *http.Request, w Window, wall time.Time) *Entry {
	if x.role != reader || x.partial || x.ask.noStore || c.store.Len() == 0 {
		return nil
	}
	e := c.find(x, req)
	if e == nil || x.conditional && e.outdates(req) {
		return nil
	}
	now := wall.Sub(c.start)
	if !w.allows(x.ask, e.control, e.ageAt(now), e.ttlAt(now)) {
		if now > e.useless {
			c.retire(x, req, e)
		}
		return nil
	}
	return e
}

// OnlyIfCached answers a request that must not be forwarded because it says only-if-cached: from the store, while
// fresh or within its own max-stale, or with a 504 (RFC 9111 section 5.2.1.7). It returns false for every other request. Ask it
// between Begin and sending.
func (c *Cache) OnlyIfCached(x *Exchange, req *http.Request) (*http.Response, bool) {
	if x.role != reader || !x.ask.onlyIfCached {
		return nil, false
	}
	if e := c.find(x, req); e != nil && !x.partial && !x.ask.noStore && !(x.conditional && e.outdates(req)) {
		wall, ask := time.Now(), x.ask
		now := wall.Sub(c.start)
		ask.staleIfError = absent // nothing has failed
		if ask.maxStale == absent {
			ask.maxStale = 0
		}
		if (Window{}).allows(ask, e.control, e.ageAt(now), e.ttlAt(now)) {
			return e.response(req, wall, Failure{}), true
		}
	}
	return unsatisfied(req), true
}

// partitionOf is the partition of a call's request.
func (c *Cache) partitionOf(x *Exchange, req *http.Request) Partition {
	if !c.rules.Fresh {
		p, _ := c.partition(req, "")
		return p
	}
	if !x.partitioned {
		x.partition, x.whose = c.partition(req, x.tenant)
		x.partitioned = true
	}
	return x.partition
}

// find is the newest stored answer to a request.
func (c *Cache) find(x *Exchange, req *http.Request) *Entry {
	var best *Entry
	for _, e := range c.store.Lookup(x.key, c.partitionOf(x, req)) {
		if x.forwarded == "uri-miss" {
			x.forwarded = "vary-miss"
		}
		if e.matches(req) && (best == nil || e.date > best.date || e.date == best.date && e.sent > best.sent) {
			best = e
		}
	}
	return best
}

// retire removes an answer that is past its use, and with it the older ones that it hid: they would be next.
func (c *Cache) retire(x *Exchange, req *http.Request, old *Entry) {
	for _, e := range c.store.Lookup(x.key, old.partition) {
		if e == old || !e.newer(old) && e.matches(req) {
			c.store.Delete(e)
		}
	}
}

// served reports whether an answer may stand in for this failure at all. Package policy lists the same statuses, and
// package transport the same errors as untrusted. This package imports neither and keeps its promise to whoever else
// sends the requests: it is the last that can.
func (f Failure) served() bool {
	switch f.Status {
	case 0:
		return f.Err != nil && !untrusted(f.Err)
	case http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// untrusted reports whether err, or what it wraps, is a certificate that was refused, or could not be checked. Serving through one
// would help whoever stands in between.
func untrusted(err error) bool {
	switch e := err.(type) {
	case nil:
		return false
	case *tls.CertificateVerificationError, x509.UnknownAuthorityError, x509.HostnameError, x509.CertificateInvalidError,
		x509.SystemRootsError:
		return true
	case interface{ Unwrap() error }:
		return untrusted(e.Unwrap())
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(e.Unwrap(), untrusted)
	}
	return false
}

// gone reports whether nobody waits for the answer any more.
func gone(req *http.Request) bool {
	select {
	case <-req.Cancel:
		return true
	default:
		return req.Context().Err() != nil
	}
}
