package cache

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"hash/maphash"
	"net/http"
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
	rules *Rules
	asked atomic.Pointer[origin] // the first one, and most often the only one
	first origin                 // where asked points to, of a Cache for one host
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

	origins origins
	epochs  [epochStripes]epoch
	purges  atomic.Uint64
}

// New returns a Cache over store. Partitions are keyed with a random key that is never told, so what one Cache
// stored no other can find.
func New(store Store) *Cache {
	c := &Cache{rules: &Rules{}, core: &core{store: store, start: time.Now(), seed: maphash.MakeSeed()}}
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
	// At is when the call failed, as [time.Now] gave it, for a caller who has read the clock already. Zero means now.
	At time.Time

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
	ask   *control // not to be changed; that of most requests is nothing
	reuse *reusing // nil where answers are not reused
	role  role

	partial     bool // asks for, or depends on, less than the whole: nothing whole may stand in
	guarded     bool // of those, that it has a precondition that only the origin can judge
	conditional bool // the caller has a copy of its own
	unnamed     bool // key is not finished, and epoch is that of the host: see named
	stored      bool // its answer is, or will be when it has been read
}

// reusing is what an Exchange has besides where answers are reused.
type reusing struct {
	tenant    string // as Rules.Partition says
	known     bool   // the next two are
	partition Partition
	whose     Partition

	validated *Entry // is asked about, in the caller's name
	forwarded string // why it is sent: fwd of RFC 9211 section 2.2
	collapsed string // why it would have been sent, had it not waited for the answer to another; empty: it has not
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
func (c *Cache) Begin(req *http.Request) (x Exchange) {
	c.begin(&x, req, time.Now(), false)
	return x
}

// BeginIn is Begin for the zero Exchange within something larger, which need not be copied, and for who has read the clock already: now is the
// time with its monotonic reading. What most calls never need, since nothing is stored of their host, it leaves for later, and so x is
// only to be used with this request.
func (c *Cache) BeginIn(x *Exchange, req *http.Request, now time.Time) {
	c.begin(x, req, now, !c.rules.Fresh)
}

func (c *Cache) begin(x *Exchange, req *http.Request, now time.Time, later bool) {
	x.ask, x.role = &nothing, reader
	switch req.Method {
	case "", http.MethodGet, http.MethodHead:
		x.inspect(req)
	case http.MethodOptions, http.MethodTrace:
		x.role = bystander
	default:
		x.role = writer
	}
	if x.role == bystander {
		return
	}
	if !c.take(&x.key, req) { // now: who sends the request may change its URL
		x.role = bystander
		return
	}
	if later && x.role == reader && !c.holds(&x.key) && x.key.size() <= maxKeyBytes {
		x.unnamed = true
		x.sent, x.epoch, x.purge = now.Sub(c.start), c.origins.writesOf(x.key.origin).Load(), c.purges.Load()
		return
	}
	x.key.finish(c.seed)
	if x.role == reader && x.key.size() > maxKeyBytes {
		x.role = bystander
		return
	}
	if c.rules.Fresh && x.role == reader {
		x.reuse = &reusing{}
		if c.rules.Partition != nil {
			tenant, ok := c.rules.Partition(req)
			if !ok {
				x.role = bystander
				return
			}
			x.reuse.tenant = tenant
		}
	}
	if x.role == writer {
		c.end(&x.key)
		return
	}
	x.sent, x.epoch, x.purge = now.Sub(c.start), c.epoch(&x.key).now(), c.purges.Load()
}

// named finishes the key of an Exchange. Where the host was written to since it began, it is as if its URI had been, and its answer is not
// stored; the next one of the host has its key from the beginning.
func (c *Cache) named(x *Exchange) {
	if !x.unnamed {
		return
	}
	x.unnamed = false
	x.key.finish(c.seed)
	of := x.epoch
	if x.epoch = c.epoch(&x.key).now(); c.origins.writesOf(x.key.origin).Load() != of { // in this order
		x.epoch -= epochWrites
		c.keeps(&x.key)
	}
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
			ask := requestControl(req.Header)
			x.ask = &ask
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

func (c *Cache) epoch(k *Key) *epoch { return &c.epochs[k.hash%epochStripes] }

func (c *Cache) chunk() *chunk {
	if b, ok := c.chunks.Get().(*chunk); ok {
		return b
	}
	return new(chunk)
}

// whose is the partition of a call's request, and whose it is.
func (c *Cache) whose(x *Exchange, req *http.Request) (p, whose Partition) {
	r := x.reuse
	if r == nil {
		return c.partition(req, "", true)
	}
	if !r.known {
		r.partition, r.whose = c.partition(req, r.tenant, true)
		r.known = true
	}
	return r.partition, r.whose
}

// partitionOf is the partition of a call's request.
func (c *Cache) partitionOf(x *Exchange, req *http.Request) Partition {
	if x.reuse != nil {
		p, _ := c.whose(x, req)
		return p
	}
	p, _ := c.partition(req, "", false)
	return p
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
