package transport

import (
	"cmp"
	"container/list"
	"net/http"
	"slices"
	"sync/atomic"
	"time"
	"weak"

	"github.com/hashicorp/go-cleanhttp"
)

// pools is a host's pool of connections; a dead one is retired and replaced.
type pools struct {
	current atomic.Pointer[pool]
}

// pool is an *http.Transport of one host.
type pool struct {
	transport   *http.Transport
	through     http.RoundTripper // the transport, with what the base has around it
	idle        *idleConns
	late        *late
	h           *host
	heard       atomic.Int64 // the clock when the peer last said anything
	active      atomic.Int64 // attempts that use it
	retired     atomic.Bool  // finishes its streams, and is closed after the last
	private     bool         // nobody but net/http sees its requests: see host.private
	single      bool         // for one attempt; what it leaves is closed by its idle timeout
	multiplexed atomic.Bool  // speaks HTTP/2
	parked      atomic.Int64 // idle connections, as far as they can be seen

	listed atomic.Bool   // place is set
	place  *list.Element // among those that have idle connections
	since  time.Duration // when the host was last used, when its turn to be closed came last
}

// acquire returns the host's pool, or with fresh one of its own for a single
// attempt: a retry after a timeout, and every probe, does not trust the
// connections that are there.
func (ps *pools) acquire(h *host, fresh bool) *pool {
	if fresh {
		p := h.newPool(true)
		p.active.Add(1)
		return p
	}
	for {
		p := ps.current.Load()
		if p == nil { // without a lock: what the base has around it is not ours
			p = h.newPool(false)
			if !ps.current.CompareAndSwap(nil, p) {
				continue
			}
		}
		if p.active.Add(1) == 1 && p.multiplexed.Load() {
			p.took()
		}
		if !p.retired.Load() {
			p.late.cancel()
			return p
		}
		p.release()
	}
}

// retire takes a pool out of use: its idle connections are closed now, the others
// when their last stream is done.
func (ps *pools) retire(p *pool) {
	if p == nil || !ps.current.CompareAndSwap(p, nil) {
		return
	}
	p.retired.Store(true)
	p.close()
}

// giveBack retires the pool of a host that is not in use.
func (ps *pools) giveBack() {
	if p := ps.current.Load(); p != nil && p.active.Load() == 0 {
		ps.retire(p)
	}
}

func (h *host) closeIdle() {
	if p := h.pools.current.Load(); p != nil {
		p.close()
	}
}

// close closes the connections that are idle, and those that are so a little later.
func (p *pool) close() {
	p.idle.forget(p) // first: what is idle from here on is counted, be it closed
	p.transport.CloseIdleConnections()
	last := p.retired.Load() || p.h.t.closed.Load()
	if p.multiplexed.Load() || last {
		p.late.begin(last && !p.single)
	}
}

// release is called once for each acquire.
func (p *pool) release() {
	if p.active.Add(-1) > 0 {
		return
	}
	if !p.over() && p.multiplexed.Load() {
		p.put()
	}
	p.shut()
}

// over reports whether the pool is neither in use nor will be again.
func (p *pool) over() bool {
	return p.active.Load() == 0 && (p.retired.Load() || p.h.t.closed.Load())
}

// shut closes the connections of a pool that is over; it is called again when a
// dial has ended that outlived it.
func (p *pool) shut() {
	if p.over() {
		p.close()
	}
}

// hear notes that the peer was alive.
func (p *pool) hear(at time.Duration) {
	if int64(at) > p.heard.Load() {
		p.heard.Store(int64(at))
	}
}

// heardSince reports whether the peer has said anything since.
func (p *pool) heardSince(at time.Duration) bool { return p.heard.Load() > int64(at) }

func (p *pool) put() {
	for {
		n := p.parked.Load()
		if n >= int64(p.transport.MaxIdleConnsPerHost) { // some were closed unseen
			return
		}
		if p.parked.CompareAndSwap(n, n+1) {
			break
		}
	}
	p.idle.enlist(p)
	if p.idle.n.Add(1) > p.idle.max {
		p.idle.shed(p)
	}
}

func (p *pool) took() {
	for {
		n := p.parked.Load()
		if n == 0 { // they were closed, or never seen
			return
		}
		if p.parked.CompareAndSwap(n, n-1) {
			p.idle.n.Add(-1)
			return
		}
	}
}

// newPool makes a pool, with what the base has around it.
func (h *host) newPool(single bool) *pool {
	tr := h.newTransport()
	p := &pool{transport: tr, through: h.t.through(tr), private: h.private(tr), idle: &h.t.idle, late: &late{transport: weak.Make(tr)}, h: h}
	if single {
		tr.IdleConnTimeout = time.Second // from the dial on, for HTTP/2; release is first
		p.single = true
		p.retired.Store(true)
	}
	return p
}

// newTransport clones the base for a host: its settings are kept, its limits on
// connecting become the policy's.
func (h *host) newTransport() *http.Transport {
	from, t := h.t.pooled, h.policy.Timeout
	if from == nil {
		from = cleanhttp.DefaultPooledTransport()
	}
	tr := from.Clone()
	markVerification(tr.TLSClientConfig)
	tr.ForceAttemptHTTP2 = from.ForceAttemptHTTP2 || automaticHTTP2(from)
	if tr.TLSNextProto["h2"] != nil { // golang.org/x/net/http2's, whose connections all clones would share
		delete(tr.TLSNextProto, "h2")
		delete(tr.TLSNextProto, "unencrypted_http2")
		if len(tr.TLSNextProto) == 0 {
			tr.TLSNextProto = nil
		}
		tr.ForceAttemptHTTP2 = true
	}
	tr.DialContext, tr.DialTLSContext = h.dialers(from)
	tr.Dial, tr.DialTLS = nil, nil
	if t.TLSHandshake > 0 && !t.Shadow {
		tr.TLSHandshakeTimeout = max(t.TLSHandshake+time.Second, orphan)
	}
	tr.MaxIdleConns = 0
	if tr.IdleConnTimeout == 0 {
		tr.IdleConnTimeout = sweepIdle // where no call sweeps
	}
	keep := cmp.Or(h.policy.Bulkhead.MaxConcurrent, tr.MaxIdleConnsPerHost, http.DefaultMaxIdleConnsPerHost)
	tr.MaxIdleConnsPerHost = min(keep, int(h.t.idle.max))
	if tr.HTTP2 == nil {
		tr.HTTP2 = &http.HTTP2Config{}
	}
	if tr.HTTP2.SendPingTimeout == 0 {
		tr.HTTP2.SendPingTimeout = 30 * time.Second
	}
	if tr.HTTP2.PingTimeout == 0 {
		tr.HTTP2.PingTimeout = 5 * time.Second
	}
	return tr
}

// automaticHTTP2 reports whether net/http would have spoken HTTP/2 over the base
// without being asked: a DialContext, which every pool has, switches that off.
func automaticHTTP2(t *http.Transport) bool {
	custom := t.Dial != nil || t.DialContext != nil || t.DialTLS != nil || t.DialTLSContext != nil
	return !custom && (t.TLSClientConfig == nil || slices.Contains(t.TLSClientConfig.NextProtos, "h2"))
}
