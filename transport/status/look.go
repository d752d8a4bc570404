package status

import (
	"encoding/json"
	"reflect"
	"sync"
	"time"

	"github.com/watertight-go/watertight/transport"
)

const (
	refresh  = 500 * time.Millisecond // the state is looked at once in that time at most
	keepLook = 5 * time.Second        // after which one that nobody asked for is dropped
	keepView = 32                     // renderings that are kept for all who want the same
	fewHosts = maxLive                // of which a rendering is kept
)

// looks are what the viewers of a Transport share: the last look at its state, and
// what was rendered of it, so that a hundred viewers cost what one does.
type looks struct {
	t        *transport.Transport
	name     string
	instance string

	mu       sync.Mutex // guards what follows
	at       time.Time  // of the last look; zero: none is kept
	hosts    []*transport.HostSnapshot
	summary  Summary
	views    map[view]*rendering
	versions uint64 // that were given
	forget   *time.Timer
}

// rendering is what was rendered for a view.
type rendering struct {
	Hosts
	taken   time.Time
	json    []byte
	version uint64 // changes when something other than the time has
}

// of is a view as of the last half second. What it returns is not to be changed.
func (l *looks) of(v view) *rendering {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.look()
	last := l.views[v]
	if last != nil && last.taken.Equal(l.at) {
		return last
	}
	r := &rendering{Hosts: l.describe(v, l.at), taken: l.at}
	if last != nil && l.same(v, last) {
		r.version = last.version
	} else {
		l.versions++
		r.version = l.versions
	}
	r.json, _ = json.Marshal(r.Hosts) // of plain fields; NaN and infinities are refused by policy
	if len(r.Hosts.Hosts) <= fewHosts {
		l.keep(v, r)
	}
	return r
}

// look takes a new look if the last one is old. l.mu is held.
func (l *looks) look() {
	now := time.Now()
	if !l.at.IsZero() && now.Sub(l.at) < refresh {
		return
	}
	if l.forget == nil {
		l.forget = time.AfterFunc(keepLook, l.drop)
	} else {
		l.forget.Reset(keepLook)
	}
	all := l.t.Snapshot()
	l.at = now
	l.hosts = order(all)
	l.summary = summaryOf(all)
}

// drop forgets what nobody has asked for lately: it may be large.
func (l *looks) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.at, l.hosts, l.views, l.forget = time.Time{}, nil, nil, nil
}

// keep remembers a rendering, in place of one that is not of this look if there
// are many. l.mu is held.
func (l *looks) keep(v view, r *rendering) {
	if l.views == nil {
		l.views = map[view]*rendering{}
	}
	if _, known := l.views[v]; !known && len(l.views) >= keepView {
		for other, old := range l.views {
			if !old.taken.Equal(l.at) {
				delete(l.views, other)
			}
		}
		if len(l.views) >= keepView {
			return
		}
	}
	l.views[v] = r
}

// describe is the document of a view, with ages as at a moment. l.mu is held.
func (l *looks) describe(v view, at time.Time) Hosts {
	d := Hosts{At: stamp(at), Name: l.name, Instance: l.instance, Summary: l.summary, Hosts: []Host{}}
	for _, s := range l.hosts {
		if !v.wants(s) {
			continue
		}
		d.Matched++
		if len(d.Hosts) >= v.limit {
			continue
		}
		h := describe(s, at)
		if v.detail {
			h.detail(s, at)
		}
		d.Hosts = append(d.Hosts, h)
	}
	return d
}

// same reports whether an earlier document would be the same now but for the time
// that has passed. l.mu is held.
func (l *looks) same(v view, last *rendering) bool {
	return reflect.DeepEqual(l.describe(v, last.taken), last.Hosts)
}

func summaryOf(all []transport.HostSnapshot) Summary {
	sum := Summary{Hosts: len(all)}
	for i := range all {
		switch all[i].State {
		case transport.Closed:
			sum.Closed++
		case transport.Open:
			sum.Open++
		case transport.HalfOpen:
			sum.HalfOpen++
		case transport.ForcedOpen:
			sum.ForcedOpen++
		case transport.ForcedClosed:
			sum.ForcedClosed++
		}
		switch {
		case refusing(&all[i]):
			sum.Refusing++
		case probing(&all[i]):
			sum.Probing++
		case exposed(&all[i]):
			sum.Exposed++
		}
		sum.InFlight += all[i].InFlight
	}
	return sum
}
