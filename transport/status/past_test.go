package status_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/status"
)

// told opens the page of a process that tells what the test wants it to: transitions,
// and documents of hosts, as they come.
func told(t *testing.T, transitions status.Transitions, hosts <-chan status.Hosts) *browser {
	t.Helper()
	b, _ := shown(t, (&world{}).over(t, transport.Config{}), func(h http.Handler) http.Handler {
		mux := http.NewServeMux()
		mux.Handle("/", h)
		mux.HandleFunc("/ops/status/transitions", func(w http.ResponseWriter, _ *http.Request) {
			_ = json.NewEncoder(w).Encode(transitions)
		})
		mux.HandleFunc("/ops/status/events", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for {
				_ = http.NewResponseController(w).Flush()
				select {
				case d := <-hosts:
					data, _ := json.Marshal(d)
					_, _ = fmt.Fprintf(w, "event: hosts\ndata: %s\n\n", data)
				case <-r.Context().Done():
					return
				}
			}
		})
		return mux
	})
	return b
}

// ago is a time and how long ago it was, in seconds.
func ago(at time.Time, s float64) (time.Time, float64) {
	return at.Add(-time.Duration(s * float64(time.Second))), s
}

// What was served last week is no help to whoever asks what callers get now.
func TestPageTellsWhatIsServedNow(t *testing.T) {
	at := time.Now().UTC()
	h := status.Host{Scheme: "https", Host: "a.test:443", State: "open", Shadow: []string{}, Failures: []status.FailureKind{}}
	h.Since, h.SinceSeconds = ago(at, 60)
	h.ClosedUntil, h.ClosedUntilSeconds = ago(at, 3*86400)
	h.ProbeDue, h.ProbeDueSeconds = at.Add(time.Hour), 3600
	h.Fallbacks = status.Fallbacks{Stale: 5, Degraded: 2, FailFast: 7, MaxStale: 600}
	last := status.Stale{AgeSeconds: 60}
	last.At, last.AgoSeconds = ago(at, 7*86400)
	last.AsOf = last.At.Add(-time.Minute)
	h.Fallbacks.LastStale = &last
	docs := make(chan status.Hosts)
	tell := func() {
		docs <- status.Hosts{At: at, Instance: "i", Summary: status.Summary{Hosts: 1, Open: 1, Refusing: 1}, Matched: 1, Hosts: []status.Host{h}}
	}
	b := told(t, status.Transitions{Instance: "i", Transitions: []status.Transition{}}, docs)
	is := func(value, more string) {
		t.Helper()
		b.await(fmt.Sprintf("/^%s$/.test(document.querySelector('.instead dd span')?.textContent) && /^%s$/.test(document.querySelector('.instead dd small').textContent)", value, more))
	}
	tell()
	is("Nothing now", `stored answers are older than Max stale \(10 min\); last stale 7 d 0 h ago; 5 stale, 2 degraded, 7 × 503 so far`)
	b.await(`/^\(since [A-Z][a-z]+ \d+, \d\d:\d\d:\d\d\)$/.test(document.querySelector('.for span').textContent)`) // three days ago, not today
	b.eval("document.querySelector('.card summary').click()", nil)
	b.await(`[...document.querySelectorAll('.detail tr')].some(r => /^Last staleas of [A-Z][a-z]+ \d+, \d\d:\d\d:\d\d$/.test(r.textContent))`)

	next := func() {
		at = at.Add(5 * time.Second)
		time.Sleep(time.Second)
		tell()
	}
	h.Fallbacks.Degraded += 3
	next()
	is("Degraded answers", "last stale 7 d 0 h ago; 5 stale, 5 degraded, 7 × 503 so far")
	h.Fallbacks.Stale++
	stale := status.Stale{At: at, AsOf: at.Add(-time.Minute), AgeSeconds: 60}
	h.Fallbacks.LastStale = &stale
	next()
	is(`Stale answers, as of \d\d:\d\d:\d\d; degraded answers`, `1 min old, up to 10 min after its freshness; 6 stale, 5 degraded, 7 × 503 so far`)
	h.Fallbacks.LastStale = &status.Stale{At: at.Add(-5 * time.Second), AgoSeconds: 10, AsOf: at.Add(-time.Minute), AgeSeconds: 60}
	h.Fallbacks.FailFast++
	next()
	next()
	is("503, at once", `last stale 1. s ago; 6 stale, 5 degraded, 8 × 503 so far`)
	next()
	next()
	is("Nothing now", `no call lately; last stale 1. s ago; 6 stale, 5 degraded, 8 × 503 so far`)
}

// one tells a page of one host, and of the summary that goes with it.
type one struct {
	*browser
	at   time.Time
	docs chan status.Hosts
	host status.Host
}

func pageOf(t *testing.T, state string) *one {
	t.Helper()
	o := &one{at: time.Now().UTC(), docs: make(chan status.Hosts)}
	o.host = status.Host{Scheme: "https", Host: "a.test:443", State: state, Shadow: []string{}, Failures: []status.FailureKind{}}
	o.host.Since, o.host.SinceSeconds = ago(o.at, 30)
	o.browser = told(t, status.Transitions{Instance: "i", Transitions: []status.Transition{}}, o.docs)
	return o
}

func (o *one) tell(s status.Summary) {
	o.docs <- status.Hosts{At: o.at, Instance: "i", Summary: s, Matched: 1, Hosts: []status.Host{o.host}}
}

// later is as many seconds later, of which the page takes the server's word.
func (o *one) later(s float64) {
	o.at = o.at.Add(time.Duration(s * float64(time.Second)))
}

// says waits until an element has a text.
func (o *one) says(selector, text string) {
	o.t.Helper()
	o.await(fmt.Sprintf("/^%s$/.test(document.querySelector(%q)?.textContent)", text, selector))
}

// A breaker that somebody forced closed in the night protects nobody, and once looked
// calm, as if forced when the outage began, and without its reason.
func TestPageSaysOfAForcedHostWhatItWasAndThatNothingProtectsIt(t *testing.T) {
	o := pageOf(t, "forced_closed")
	o.host.ClosedUntil, o.host.ClosedUntilSeconds = ago(o.at, 230)
	o.host.Cause = &status.Evidence{Trigger: "failure_rate", Text: "13 of 20 calls failed in 2s (limit 50 %), last: status 503"}
	o.host.Window = &status.Window{MinCalls: 20, Calls: 12, Failures: 12, FailureRate: 1, FailureRateThreshold: .5}
	o.tell(status.Summary{Hosts: 3, Closed: 1, Open: 1, Refusing: 1, ForcedClosed: 1})
	o.says(".for b", `3\d s`)
	o.says(".for span", `\(since `+o.host.Since.Format("15:04:05")+`\)`)
	o.says(".why", `Forced closed by hand: every call goes through, whatever it comes to, until it is reset\. Not closed since `+o.host.ClosedUntil.Format("15:04:05")+`: 13 of 20 calls failed in 2s \(limit 50 %\), last: status 503\.`)
	o.says("#verdict", "1 of 3 hosts down: 1 refused; 1 forced closed, protection off")
	o.await("document.title === '1 down, 1 forced closed, protection off - watertight'")
	o.await("!document.querySelector('.card').classList.contains('exposed')")

	o.host.Window.Calls, o.host.Window.Failures, o.host.Window.Over = 40, 40, true
	o.tell(status.Summary{Hosts: 3, Closed: 2, ForcedClosed: 1, Exposed: 1})
	o.says(".why .ill", ` No protection: 100 % of 40 calls fail \(limit 50 %\)\.`)
	o.says("#verdict", "1 of 3 hosts forced closed, protection off: 1 over a threshold")
	o.await("document.querySelector('#verdict').className === 'bad' && document.querySelector('.card').classList.contains('exposed')")
}

// Answers that are failures are no answers.
func TestPageSaysWhatCallsThatGoThroughComeTo(t *testing.T) {
	o := pageOf(t, "forced_closed")
	o.host.Window = &status.Window{MinCalls: 20, FailureRateThreshold: .5}
	sum := status.Summary{Hosts: 1, ForcedClosed: 1}
	for _, test := range []struct {
		calls, failures int
		rate            float64
		want            string
	}{
		{10, 10, 1, "Nothing: calls go through, 100 % fail"},
		{10, 4, .4, "The answers themselves: 40 % of calls fail"},
		{10, 0, 0, "The answers themselves"},
	} {
		o.host.Window.Calls, o.host.Window.Failures, o.host.Window.FailureRate = test.calls, test.failures, test.rate
		for range 2 {
			o.tell(sum)
			o.later(5)
			time.Sleep(time.Second)
		}
		o.says(".instead dd span", test.want)
	}
}

// An ill host goes back and forth between open and half-open, and the headline with it.
func TestHeadlineCountsAHostAsDownWhileItIsProbed(t *testing.T) {
	o := pageOf(t, "half_open")
	o.host.Calls.Total = 7
	o.tell(status.Summary{Hosts: 3, Closed: 1, Open: 1, HalfOpen: 1, Refusing: 1, Probing: 1})
	o.says("#verdict", "2 of 3 hosts down: 1 refused, 1 probing")
	o.await("document.title === '2 down - watertight'")
	o.says(".next dd span", "with the next call") // and not "now", as nobody calls
	o.host.Permits.InUse = 1
	o.tell(status.Summary{Hosts: 3, Closed: 2, HalfOpen: 1, Probing: 1})
	o.says("#verdict", "1 of 3 hosts down: 1 probing")
	o.says(".next dd span", "now")
}

// Stale answers run out, and callers get errors from then on.
func TestPageSaysWhenStaleAnswersHaveRunOut(t *testing.T) {
	o := pageOf(t, "open")
	o.host.ProbeDue, o.host.ProbeDueSeconds = o.at.Add(time.Hour), 3600
	last := status.Stale{AgeSeconds: 600}
	last.At, last.AgoSeconds = ago(o.at, 60)
	last.AsOf = last.At.Add(-10 * time.Minute)
	o.host.Fallbacks = status.Fallbacks{Stale: 5, MaxStale: 600, LastStale: &last}
	for range 2 {
		o.host.Calls.Total += 20
		o.tell(status.Summary{Hosts: 1, Open: 1, Refusing: 1})
		o.later(5)
		time.Sleep(time.Second)
	}
	o.says(".instead dd span", "Nothing now: callers get errors")
	o.says(".instead dd small", `stored answers are older than Max stale \(10 min\); last stale 1 min ago; 5 stale so far`)
}

// An outage of minutes is dozens of probes, which once hid how it began.
func TestPageFoldsTheProbesOfAnOutage(t *testing.T) {
	at := time.Now().UTC()
	var all []status.Transition
	move := func(host, from, to, trigger string) {
		m := status.Transition{ID: uint64(len(all) + 1), Scheme: "https", Host: host, From: from, To: to, Evidence: status.Evidence{Trigger: trigger, Text: "a text"}}
		m.At, m.AgoSeconds = ago(at, float64(600-10*len(all)))
		all = append(all, m)
	}
	move("a.test:443", "closed", "open", "failure_rate")
	move("b.test:443", "closed", "open", "failure_rate")
	for range 5 {
		move("a.test:443", "open", "half_open", "wait_over")
		move("b.test:443", "open", "half_open", "wait_over")
		move("a.test:443", "half_open", "open", "probe_failed")
		move("b.test:443", "half_open", "closed", "probes_succeeded")
		move("b.test:443", "closed", "open", "failure_rate")
	}
	move("a.test:443", "open", "half_open", "wait_over")
	b := told(t, status.Transitions{Instance: "i", LastID: uint64(len(all)), Transitions: all}, make(chan status.Hosts))
	last := all[len(all)-4]
	b.await("document.querySelectorAll('#transitions li').length === 19") // of a, how it began, five in one, and the probe now
	var texts []string
	b.eval("[...document.querySelectorAll('#transitions .because')].map(e => e.textContent).filter(s => s.startsWith('Re-opened'))", &texts)
	if want := fmt.Sprintf("[Re-opened 5 times, last %s: a probe failed.]", last.At.Format("15:04:05")); fmt.Sprint(texts) != want {
		t.Errorf("%v, want %s", texts, want)
	}
	b.eval("document.querySelector('#all').click()", nil)
	b.await("document.querySelectorAll('#transitions li').length === 28 && ![...document.querySelectorAll('#transitions .because')].some(e => e.textContent.startsWith('Re-opened'))")
}

// What nobody knows is not drawn, nor told: a host whose transitions have left the
// ring was once shown as open for all of the last 15 minutes, or as closed.
func TestPageInventsNoHistory(t *testing.T) {
	at := time.Now().UTC()
	host := func(name, state string, since, closedUntil float64) status.Host {
		h := status.Host{Scheme: "https", Host: name, State: state, Shadow: []string{}, Failures: []status.FailureKind{}}
		h.Since, h.SinceSeconds = ago(at, since)
		h.ClosedUntil, h.ClosedUntilSeconds = ago(at, closedUntil)
		return h
	}
	move := func(id uint64, name, from, to string, before float64) status.Transition {
		m := status.Transition{ID: id, Scheme: "https", Host: name, From: from, To: to, Evidence: status.Evidence{Trigger: "wait_over"}}
		m.At, m.AgoSeconds = ago(at, before)
		return m
	}
	type want struct{ drawn, said string }
	for _, test := range []struct {
		name  string
		since float64
		moves []status.Transition
		hosts []status.Host
		want  []want
	}{
		{"the oldest have left the ring", 200, []status.Transition{
			move(300, "other", "closed", "open", 200),
			move(301, "a", "closed", "open", 100),
			move(302, "a", "open", "half_open", 40),
			move(303, "b", "half_open", "open", 50),
		}, []status.Host{
			host("a", "half_open", 40, 100),
			host("b", "open", 50, 600),
			host("c", "open", 300, 600),
			host("d", "forced_open", 300, 300),
			host("e", "open", 2000, 3000),
		}, []want{
			{"closed 700-800 open 800-860 half_open 860-900", "unknown, then closed from T, then open from T, then half-open from T"},
			{"away 300-700 half_open 700-850 open 850-900", "unknown, then not closed from T, then half-open from T, then open from T"},
			{"away 300-600 open 600-900", "unknown, then not closed from T, then open from T"},
			{"forced_open 600-900", "unknown, then forced open from T"},
			{"open 0-900", "open"},
		}},
		{"all are there, since somebody looks", 300, []status.Transition{
			move(1, "a", "closed", "open", 100),
		}, []status.Host{
			host("a", "open", 100, 100),
			host("b", "half_open", 20, 400),
		}, []want{
			{"closed 600-800 open 800-900", "unknown, then closed from T, then open from T"},
			{"away 500-880 half_open 880-900", "unknown, then not closed from T, then half-open from T"},
		}},
		{"all are there, for longer", 5000, []status.Transition{
			move(1, "a", "closed", "open", 1000),
			move(2, "a", "open", "half_open", 800),
			move(3, "a", "half_open", "open", 100),
		}, []status.Host{
			host("a", "half_open", 30, 1000), // the wait is over, and nobody has called
		}, []want{
			{"open 0-100 half_open 100-800 open 800-870 half_open 870-900", "open, then half-open from T, then open from T, then half-open from T"},
		}},
	} {
		docs := make(chan status.Hosts, 1)
		docs <- status.Hosts{At: at, Instance: "i", Summary: status.Summary{Hosts: len(test.hosts), Open: len(test.hosts)}, Matched: len(test.hosts), Hosts: test.hosts}
		b := told(t, status.Transitions{At: at, Instance: "i", SinceSeconds: test.since, LastID: 9, Transitions: test.moves}, docs)
		b.await(fmt.Sprintf("document.querySelectorAll('.card .last svg[aria-label]').length === %d", len(test.hosts)))
		var got []struct{ Drawn, Said string }
		b.eval(`[...document.querySelectorAll('.last svg')].map(s => ({
			drawn: [...s.querySelectorAll('rect')].map(r => r.getAttribute('class') + ' ' + [+r.getAttribute('x'), +r.getAttribute('x') + +r.getAttribute('width')].map(x => Math.round(x / 10) * 10).join('-')).join(' '),
			said: s.getAttribute('aria-label').replace(/\d\d:\d\d:\d\d/g, 'T')}))`, &got)
		for i, w := range test.want {
			if g := got[i]; g.Drawn != w.drawn || g.Said != "The last 15 minutes: "+w.said {
				t.Errorf("%s, %s:\n%s; %s\nwant\n%s; %s", test.name, test.hosts[i].Host, g.Drawn, g.Said, w.drawn, w.said)
			}
		}
	}
}
