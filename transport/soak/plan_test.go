package soak

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/watertight-go/watertight/transport/transporttest"
)

const (
	callers = 200
	hosts   = 50
)

// plan is all decisions of a run. Nothing in it depends on what has happened.
type plan struct{ seed uint64 }

// dice are those of one decision.
func (p plan) dice(who string, id, step int) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(who))
	_, _ = h.Write(binary.BigEndian.AppendUint64(nil, uint64(id)))
	_, _ = h.Write(binary.BigEndian.AppendUint64(nil, uint64(step)))
	return rand.New(rand.NewPCG(p.seed, h.Sum64()))
}

// chance is true with this probability.
func chance(r *rand.Rand, p float64) bool { return r.Float64() < p }

// between is uniform in [least, most).
func between(r *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(r.Int64N(int64(most-least)))
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

// How a host speaks.
type proto uint8

const (
	plain1 proto = iota // HTTP/1.1
	tls1                // HTTP/1.1 over TLS
	tls2                // HTTP/2
	protos
)

func protoOf(host int) proto { return proto(host) % protos }

// Which stack a host is called through.
type group uint8

const (
	bare    group = iota // over an *http.Transport
	metered              // over one that is counted, with a bound for all hosts
	faulty               // over Faults around one
	foreign              // over Faults around a RoundTripper that reads bodies itself
	groups
)

func groupOf(host int) group {
	switch {
	case host < 20:
		return bare
	case host < 34:
		return metered
	case host < 42:
		return faulty
	}
	return foreign
}

func nameOf(host int) string { return fmt.Sprintf("h%02d.test", host) }

// hostOf is the number of a host; negative if it is none.
func hostOf(name string) int {
	name, _, _ = strings.Cut(name, ":")
	n, err := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(name, "h"), ".test"))
	if err != nil || n >= hosts {
		return -1
	}
	return n
}

func urlOf(host int, path string) string {
	if protoOf(host) == plain1 {
		return "http://" + nameOf(host) + path
	}
	return "https://" + nameOf(host) + path
}

// reply is what a host does with its n-th request.
type reply struct {
	kind       replyKind
	delay      time.Duration
	status     int
	retryAfter string
	size       int
	to         int // where a redirect leads
	noStore    bool
	length     bool // is announced
}

type replyKind uint8

const (
	answer    replyKind = iota
	trailing            // with a trailer
	interim             // after 103
	redirect            //
	early               // without reading the request
	stream              // of events, which may fall silent
	failing             // with status
	hanging             // before the headers
	stalling            // in the body
	slow                // body, piece by piece
	resetting           // before the headers, the whole connection
	aborting            // before the headers: the stream, or the connection
	cutting             // in the body
	replyKinds
)

// spell is how many requests a host's mood lasts.
const spell = 16

func (p plan) reply(host, n int) reply {
	mood := p.dice("mood", host, n/spell)
	sick, dead := chance(mood, 0.2), chance(mood, 0.08)
	death := pick(mood, hanging, resetting, failing, aborting)
	r := p.dice("reply", host, n)
	s := reply{
		status: pick(r, 500, 502, 503, 503, 504, 429, 408, 404, 400), size: r.IntN(4 << 10),
		noStore: chance(r, 0.1), length: chance(r, 0.5), to: r.IntN(hosts),
	}
	if chance(r, 0.1) {
		s.delay = between(r, 0, 50*time.Millisecond)
	}
	if chance(r, 0.02) {
		s.size = 512 << 10
	}
	if s.status == 503 || s.status == 429 {
		s.retryAfter = pick(r, "", "", "0", "1", "3600", "soon")
	}
	switch x := r.Float64(); {
	case dead:
		s.kind, s.status = death, 503
	case sick && x < 0.7:
		s.kind = replyKind(r.IntN(int(replyKinds)))
		s.delay = between(r, 0, 1200*time.Millisecond)
	case x < 0.80:
	case x < 0.84:
		s.kind = trailing
	case x < 0.88:
		s.kind = interim
	case x < 0.93:
		s.kind = redirect
	case x < 0.96:
		s.kind = early
	default:
		s.kind = replyKind(r.IntN(int(replyKinds)))
	}
	return s
}

// dialling is what becomes of a host's k-th dial.
type dialling struct {
	refused, lost bool
	delay         time.Duration
}

func (p plan) dial(host, k int) dialling {
	r := p.dice("dial", host, k)
	d := dialling{refused: chance(r, 0.02), lost: chance(r, 0.01)}
	if chance(r, 0.1) {
		d.delay = between(r, 0, 100*time.Millisecond)
	}
	return d
}

// outage is what is injected into a host of which there are Faults, in the k-th
// half second.
func (p plan) outage(host, k int) []transporttest.Injection {
	r := p.dice("outage", host, k/4)
	if chance(r, 0.7) {
		return nil
	}
	most := 0.05 + 0.15*r.Float64()
	status := pick(r, 500, 503, 429)
	return []transporttest.Injection{
		{Share: most, Step: transporttest.Step{Fault: transporttest.Hang}},
		{Share: most, Step: transporttest.Step{Fault: transporttest.Reset, Delay: between(r, 0, time.Second)}},
		{Share: most, Step: transporttest.Step{Fault: pick(r, transporttest.Cut, transporttest.Hang, transporttest.Reset), At: r.IntN(2 << 10)}},
		{Share: most, Step: transporttest.Step{Status: status, Header: http.Header{"Retry-After": {"1"}}, Body: "injected", Unread: chance(r, 0.5)}},
		{Share: most, Step: transporttest.Step{Delay: between(r, 0, 2*time.Second), Chunk: 256, Pause: between(r, 0, 50*time.Millisecond)}},
	}
}

// errand is what a caller does in one step.
type errand struct {
	host       int
	method     string
	path       string
	body       bodyKind
	size       int
	leave      leaveKind
	leaveAfter time.Duration
	read       readKind
	override   overrideKind
	anonymous  bool // shows no credentials, and may be given what others were
	key        bool // an Idempotency-Key
	upgrade    bool
	exit       bool // ends its goroutine while a connection is looked for; over HTTP/2 net/http calls that hook under its lock
	control    controlKind
	controlled int
	think      time.Duration
}

type bodyKind uint8

const (
	noBody       bodyKind = iota
	inMemory              // as http.NewRequest makes it
	streamed              // of unknown length, without GetBody
	again                 // with a GetBody
	paused                // of a caller who takes his time
	large                 // 256 KiB
	broken                // fails in the middle
	getPanics             // has a GetBody that panics
	getExits              // has a GetBody that ends its goroutine
	readPanics            // these are for a base that reads on its caller's goroutine:
	closePanics           // net/http reads on its own, where nobody can survive a panic
	readExits             //
	allBodyKinds          //
	pooledBodies = readPanics
)

type leaveKind uint8

const (
	stays leaveKind = iota
	cancels
	hasDeadline
	closesCancel // the legacy Request.Cancel
	leftBefore
)

type readKind uint8

const (
	readAll readKind = iota
	readSome
	closeAtOnce
	forget
	forgetHalfRead
	exitReading
	panicReading
	readSlowly
)

type overrideKind uint8

const (
	asIs overrideKind = iota
	shorter
	longer
	streaming
	idempotent
	noStale
)

type controlKind uint8

const (
	none controlKind = iota
	forceOpen
	forceClosed
	reset
	snapshot
	closeIdle
)

func (p plan) errand(caller, step int) errand {
	r := p.dice("errand", caller, step)
	e := errand{
		host:   r.IntN(hosts),
		method: pick(r, "GET", "GET", "GET", "GET", "GET", "HEAD", "POST", "POST", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"),
		path:   pick(r, "/a", "/a", "/b", "/c?q=1"),
		think:  between(r, 0, 600*time.Millisecond),
	}
	e.anonymous = chance(r, 0.4)
	if e.method == "POST" || e.method == "PUT" || e.method == "PATCH" {
		kinds := pooledBodies
		if groupOf(e.host) == foreign {
			kinds = allBodyKinds
		}
		e.body = bodyKind(r.IntN(int(kinds)))
		e.size = r.IntN(8 << 10)
		e.key = chance(r, 0.2)
	}
	if chance(r, 0.15) {
		e.leave = leaveKind(1 + r.IntN(int(leftBefore)))
		e.leaveAfter = between(r, 0, 300*time.Millisecond)
		if chance(r, 0.3) {
			e.leaveAfter = between(r, 0, 2*time.Millisecond)
		}
	}
	if chance(r, 0.25) {
		e.read = readKind(1 + r.IntN(int(readSlowly)))
	}
	if chance(r, 0.1) {
		e.override = overrideKind(1 + r.IntN(int(noStale)))
	}
	if e.method == "GET" && protoOf(e.host) != tls2 {
		e.upgrade = chance(r, 0.03)
	}
	e.exit = protoOf(e.host) != tls2 && chance(r, 0.005)
	if chance(r, 0.03) {
		e.control = pick(r, forceOpen, forceClosed, reset, reset, reset, reset, snapshot, snapshot, closeIdle)
		e.controlled = r.IntN(hosts)
	}
	return e
}

// TestASeedDecidesEverything is what makes a run one that can be repeated.
func TestASeedDecidesEverything(t *testing.T) {
	tale := func(seed uint64, backwards bool) string {
		p := plan{seed}
		var all [300]string
		for i := range all {
			n := i
			if backwards { // whatever was decided before
				n = len(all) - 1 - i
			}
			all[n] = fmt.Sprintf("%+v %+v %+v %+v", p.errand(n%callers, n), p.reply(n%hosts, n), p.dial(n%hosts, n), p.outage(n%hosts, n))
		}
		return strings.Join(all[:], "\n")
	}
	if tale(1, false) != tale(1, true) {
		t.Error("the same seed decides differently")
	}
	if tale(1, false) == tale(2, false) {
		t.Error("another seed decides the same")
	}
}

// TestAllKindsOccur keeps the plan from testing less than it says.
func TestAllKindsOccur(t *testing.T) {
	p := plan{1}
	seen := map[string]bool{}
	for n := range 5_000 {
		e, r := p.errand(n%callers, n), p.reply(n%hosts, n)
		for _, kind := range []any{e.body, e.leave, e.read, e.override, e.control, r.kind, protoOf(e.host), groupOf(e.host)} {
			seen[fmt.Sprintf("%T %d", kind, kind)] = true
		}
	}
	for host := range hosts {
		if hostOf(nameOf(host)+":80") != host {
			t.Error(host)
		}
	}
	for kind, n := range map[string]int{
		"bodyKind": int(allBodyKinds), "leaveKind": 5, "readKind": 8, "overrideKind": 6, "controlKind": 6,
		"replyKind": int(replyKinds), "proto": int(protos), "group": int(groups),
	} {
		for i := range n {
			if name := fmt.Sprintf("soak.%s %d", kind, i); !seen[name] {
				t.Errorf("%s never occurs", name)
			}
		}
	}
}
