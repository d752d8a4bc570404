package transporttest

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"sync"

	"github.com/hashicorp/go-cleanhttp"

	"github.com/watertight-go/watertight/internal/hostname"
	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
)

// Faults is a RoundTripper that makes a share of the requests to a host go wrong,
// and hands all others on. Put it under the stack, as transport.Config.Base, in a
// test or a staging environment, and watch your own configuration trip:
//
//	faults := &transporttest.Faults{}
//	rt, err := transport.New(transport.Config{Hosts: mine, Base: faults})
//	...
//	err = faults.Set("payments.internal", transporttest.Injection{
//		Share: 0.3, Step: transporttest.Step{Fault: transporttest.Hang},
//	})
//
// The zero Faults is ready for use and injects nothing. It needs no test (that this
// package imports testing registers no flags), and is safe for concurrent use; its
// fields must not be changed once it is used.
//
// # Under the stack
//
// Around an *http.Transport, which is what it is around unless Base says
// otherwise, no limit is lost: the stack puts the Faults around the pool of each
// host, so that connections are dialled, bounded, distrusted and retired as
// without it. What is injected tells the stack, by way of net/http/httptrace, what
// a peer would: that there was a connection and that the request was written. So
// a hang is a transport.ErrReadTimeout in phase response_header (or what else
// fires first), and an injected reset of a POST is not retried, since it may have
// been acted upon; only an Err that is a *net.OpError of a "dial" or
// "proxyconnect" means that there never was a connection. It cannot stall a TLS
// handshake, nor a connection in the pool: for that there is an Origin.
//
// Around any other RoundTripper it is to the stack what that one would be:
// phases before the headers cannot be told apart, and what hangs in connecting
// is reported as Timeout.Read.
type Faults struct {
	// Base answers what goes on. Nil, be it a nil *http.Transport: a pool of
	// connections of its own, as transport.Config.Base has it. It is not
	// http.DefaultTransport, below which the stack may be installed.
	Base http.RoundTripper

	// Seed makes a run one that can be repeated: which requests are hit, and by
	// which Injection, follows from Seed, the pattern and how many requests it
	// covered since Set. Zero is a seed like any other.
	Seed uint64

	once sync.Once // guards own
	own  *http.Transport

	mu    sync.Mutex // guards what follows
	rules []*faultRule
}

// Injection is one way in which a share of the requests to a host goes wrong.
//
// A Step with a Status is an answer of the Faults' own, one with an Err an error,
// and one with a Fault and At zero goes wrong before the headers: nothing goes on
// to the Base, so that nothing is done twice, and the request body is read and
// closed, unless Unread, as a peer would have it. All else goes on, and happens to
// the true answer, which then comes late (Delay), in pieces (Chunk, Pause), or
// not to its end (Fault, once At bytes of it are read; an answer that ends before
// is left as it is). What waits ends with the request's context.
//
// A Handler, Raw and GoAway are for an Origin alone, and what describes an answer
// needs a Status.
type Injection struct {
	Share float64 // of the requests, above 0 and up to 1, which is all of them
	Step  Step
}

// Injected is what became of the requests that a pattern covered since it was Set.
type Injected struct {
	Requests int64   // 0: the pattern is not that of any host that was called
	Hits     []int64 // of each Injection, in the order of Set
}

// EveryHost is the pattern of all hosts that no other one covers.
const EveryHost = "*"

// faultRule is what was Set for one pattern.
type faultRule struct {
	pattern    policy.HostPattern // zero: every host
	injections []Injection
	random     *rand.Rand
	injected   Injected
	cleared    bool
}

// Set injects into the requests to a host from now on, in place of what was set
// for the same pattern before: a name, name:port, *.suffix or *.suffix:port as in
// transport.Config.Hosts, or EveryHost. The most specific pattern is the one that
// counts, so that one without injections exempts its hosts from a wider one. A
// request is hit by one Injection at most; their shares may not exceed 1 together.
// The error holds every problem, each a [*policy.FieldError] but for one of the
// pattern, and then nothing is changed.
func (f *Faults) Set(host string, injections ...Injection) error {
	pattern, err := parseFaultPattern(host)
	if err := validateFaults(host, err, injections); err != nil {
		return err
	}
	seed := fnv.New64a()
	_, _ = seed.Write([]byte(pattern.Name + ":" + pattern.Port))
	if pattern.Wildcard {
		_, _ = seed.Write([]byte{'*'})
	}
	r := &faultRule{
		pattern: pattern, injections: slices.Clone(injections),
		random:   rand.New(rand.NewPCG(f.Seed, seed.Sum64())),
		injected: Injected{Hits: make([]int64, len(injections))},
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = slices.DeleteFunc(f.rules, func(old *faultRule) bool { return old.pattern == pattern })
	i := slices.IndexFunc(f.rules, func(old *faultRule) bool { return r.moreSpecific(old) })
	if i < 0 {
		i = len(f.rules)
	}
	f.rules = slices.Insert(f.rules, i, r)
	return nil
}

// Clear ends what was Set for these patterns, or without any for all of them; a wider
// pattern then covers their hosts again. Requests under way keep what has hit them,
// and Injected its figures. The error names those that were never Set; the others are
// cleared all the same; without patterns it is nil.
func (f *Faults) Clear(hosts ...string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.rules {
		r.cleared = r.cleared || len(hosts) == 0
	}
	var unknown []error
	for _, host := range hosts {
		if r := f.rule(host); r != nil {
			r.cleared = true
		} else {
			unknown = append(unknown, fmt.Errorf("Faults.Clear: %q was never Set: must be a pattern that was, spelt as one", host))
		}
	}
	return errors.Join(unknown...)
}

// Injected returns what was injected into the requests that a pattern covered
// since it was Set, until it was cleared; nothing if it never was.
func (f *Faults) Injected(host string) Injected {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.rule(host)
	if r == nil {
		return Injected{}
	}
	return Injected{r.injected.Requests, slices.Clone(r.injected.Hits)}
}

// rule is that of exactly this pattern; nil if there is none. mu is held.
func (f *Faults) rule(host string) *faultRule {
	pattern, err := parseFaultPattern(host)
	i := slices.IndexFunc(f.rules, func(r *faultRule) bool { return r.pattern == pattern })
	if err != nil || i < 0 {
		return nil
	}
	return f.rules[i]
}

// draw decides what happens to a request; nil: nothing.
func (f *Faults) draw(u *url.URL) *Step {
	name, port, err := hostname.Of(u)
	if err != nil {
		name = u.Hostname() // the base will say what is wrong with it
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.rules {
		if !r.cleared && r.covers(name, port) {
			return r.draw()
		}
	}
	return nil
}

// draw takes one number for each request, so that the n-th of a pattern has the
// same fate in each run, whatever other hosts are asked.
func (r *faultRule) draw() *Step {
	r.injected.Requests++
	x := r.random.Float64()
	for i := range r.injections {
		if x < r.injections[i].Share {
			r.injected.Hits[i]++
			return &r.injections[i].Step
		}
		x -= r.injections[i].Share
	}
	return nil
}

func (r *faultRule) every() bool { return r.pattern == policy.HostPattern{} }

func (r *faultRule) covers(name, port string) bool {
	return r.every() || r.pattern.Match(name, port)
}

func (r *faultRule) moreSpecific(than *faultRule) bool {
	return !r.every() && (than.every() || r.pattern.MoreSpecific(than.pattern))
}

func parseFaultPattern(host string) (policy.HostPattern, error) {
	if host == EveryHost {
		return policy.HostPattern{}, nil
	}
	p, err := policy.ParseHostPattern(host)
	if err == nil {
		p.Name, err = hostname.Normal(p.Name)
	}
	return p, err
}

// RoundTrip does the exchange, or what is injected instead.
func (f *Faults) RoundTrip(req *http.Request) (*http.Response, error) {
	return f.Around(f.Unwrap()).RoundTrip(req)
}

// Unwrap returns the Base, or what is used in its place.
func (f *Faults) Unwrap() http.RoundTripper {
	if tr, ok := f.Base.(*http.Transport); f.Base != nil && !(ok && tr == nil) {
		return f.Base
	}
	f.once.Do(func() { f.own = cleanhttp.DefaultPooledTransport() })
	return f.own
}

// Around returns a RoundTripper that injects the same into requests which go on to
// next. The stack calls it for each of its pools; see transport.Config.Base.
func (f *Faults) Around(next http.RoundTripper) http.RoundTripper {
	return &faultLayer{f, next}
}

// CloseIdleConnections closes the idle connections of the Base, if that can.
func (f *Faults) CloseIdleConnections() {
	if c, ok := f.Unwrap().(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

var _ transport.Middleware = (*Faults)(nil)
