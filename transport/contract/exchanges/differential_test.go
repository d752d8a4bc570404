package exchanges_test

import (
	"context"
	"flag"
	"maps"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptrace"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/transporttest"
)

// exchange is one scripted use of a client: what it asks, what the origin does, and
// what it does with the answer. It is played without the stack and with it: callers
// must be told the same, the origin must see the same bytes, and the same hooks of
// httptrace must run.
type exchange struct {
	// What the caller sends: a GET of the origin, changed by ask, and then one for
	// each of more; nil changes nothing.
	ask  ask
	more []ask

	// What the origin does with the first request, as in a turn; then has what it does
	// with the following ones, the last over and over.
	interim string
	unread  bool
	answer  string
	end     end
	then    []turn

	// What the origin is, if it does not speak HTTP/1.1 in the clear.
	origin   origin
	steps    []transporttest.Step // of originHTTP2
	frames   []frames             // it is no more than a few HTTP/2 frames for each request, and
	settings []http2.Setting      // what it says first

	// What the caller does with an answer; nil: reads it to its end.
	read func(*play, *http.Response) ([]byte, error)

	client func(*http.Client)                        // nil: it calls RoundTrip
	base   func(*play, *http.Transport)              // changes the settings of the base
	wrap   func(http.RoundTripper) http.RoundTripper // makes the base one that is no *http.Transport
	loose  bool                                      // what the origin sees and which error comes first depend on the weather
	racy   bool                                      // in which order the hooks run does
}

// ask changes a request before it is sent.
type ask = func(*play, *http.Request)

// exchanges are all tables, by what they are about.
var exchanges = map[string]map[string]exchange{
	"request":   requestExchanges,
	"upload":    uploadExchanges,
	"malformed": malformedExchanges,
	"answer":    answerExchanges,
	"broken":    brokenExchanges,
	"body":      bodyExchanges,
	"caller":    callerExchanges,
	"reuse":     reuseExchanges,
	"redirect":  redirectExchanges,
	"proxy":     proxyExchanges,
	"base":      baseExchanges,
	"http2":     http2Exchanges,
	"frames":    frameExchanges,
}

// contractExchanges is how many exchanges there are at the least.
const contractExchanges = 650

// TestExchangesAreTheSameWithTheStack plays every exchange without and with the
// stack, without limits to speak of and with both presets, where retries make no
// difference.
func TestExchangesAreTheSameWithTheStack(t *testing.T) {
	var played atomic.Int64
	var again unsteady
	t.Run("all", func(t *testing.T) {
		for _, table := range slices.Sorted(maps.Keys(exchanges)) {
			for _, name := range slices.Sorted(maps.Keys(exchanges[table])) {
				t.Run(table+"/"+name, func(t *testing.T) {
					t.Parallel()
					again.note(table+"/"+name, exchanges[table][name].compare(t, table+"/"+name))
					played.Add(1)
				})
			}
		}
	})
	selected := strings.Contains(flag.Lookup("test.run").Value.String(), "/") || flag.Lookup("test.skip").Value.String() != ""
	if n := played.Load(); !selected && !t.Failed() && n < contractExchanges {
		t.Errorf("%d exchanges were played, %d are promised", n, contractExchanges)
	}
	told, wrong := again.settle(func(name string) string {
		table, rest, _ := strings.Cut(name, "/")
		return exchanges[table][rest].compareOnce(t, name)
	})
	for _, s := range told {
		t.Log(s)
	}
	for _, s := range wrong {
		t.Error(s)
	}
}

// withCopies is a stack that keeps answers for a fallback.
const withCopies = "Service, with copies of answers"

// stacks are the policies an exchange is played with: Default, without retries where
// they would make a difference, and for most exchanges another in turn.
func stacks(name string, retried bool) map[string]policy.Policy {
	on, copies := policy.Default(), policy.Service()
	for _, p := range []*policy.Policy{&on, &copies} { // of a healthy origin on a machine that may stand still
		p.Timeout.Connect, p.Timeout.TLSHandshake, p.Timeout.Read = time.Minute, time.Minute, time.Minute
		p.Timeout.Attempt, p.Timeout.Total, p.Breaker.SlowCall = time.Minute, time.Minute, 50*time.Second
	}
	off := on
	off.Retry = policy.Retry{}
	copies.Fallback.MaxStale = time.Hour
	none := policy.Policy{Timeout: policy.Timeout{Total: time.Hour}}
	turn := len(name) % 3
	all := map[string]policy.Policy{"Default": on}
	if retried {
		all = map[string]policy.Policy{"Default without retries": off}
	}
	switch {
	case turn == 0:
		all["next to no limit"] = none
	case turn == 1 && !retried:
		all[withCopies] = copies
	}
	return all
}

// compare plays an exchange. What differs, does so three times in a row: on a machine
// that stands still for 50 ms, net/http leaves connections unused. It returns the
// difference of the last comparison but one, when the last was equal.
func (x exchange) compare(t *testing.T, name string) (once string) {
	diff := ""
	for range 3 {
		once = diff
		if diff = x.compareOnce(t, name); diff == "" {
			return once
		}
	}
	t.Error(diff)
	return ""
}

func (x exchange) compareOnce(t *testing.T, name string) string {
	want := x.play(t, nil)
	retried := slices.ContainsFunc(want.Answers, func(a answer) bool { return a.Retried })
	for which, p := range stacks(name, retried) {
		want, got := want, x.play(t, &p)
		if x.loose {
			want, got = want.loosely(), got.loosely()
		}
		if x.racy {
			want, got = want.unordered(x.unread), got.unordered(x.unread)
		}
		for _, d := range deliberate {
			if !d.of(name, which) {
				continue
			}
			if d.always && reflect.DeepEqual(got, want) {
				return which + ": no difference, where one is meant: " + d.why
			}
			d.forget(&want)
			d.forget(&got)
		}
		if !reflect.DeepEqual(got, want) {
			return which + ":\n" + want.diff(got)
		}
	}
	return ""
}

// play is one run of an exchange.
type play struct {
	t         *testing.T
	x         exchange
	ctx       context.Context
	cancel    context.CancelFunc // of the caller's context
	legacy    chan struct{}      // for Request.Cancel
	got       func()             // runs when the origin has read a request
	leave     func()             // ends the caller's context in a way of its own
	closeIdle func()             // of the client
	server    *server
	hooks     hooks
}

// patience is for origins that do not say what is waited for.
const patience = 20 * time.Second

// playKey finds the play in the context of its requests.
type playKey struct{}

// play does the exchange through the stack, or without a policy through net/http
// alone.
func (x exchange) play(t *testing.T, p *policy.Policy) tale {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	defer time.AfterFunc(patience, cancel).Stop()
	play := &play{t: t, x: x, cancel: cancel, legacy: make(chan struct{}), got: func() {}}
	play.ctx = httptrace.WithClientTrace(context.WithValue(ctx, playKey{}, play), play.hooks.trace())
	play.server = newServer(play)
	base := play.server.transport()
	if x.base != nil {
		x.base(play, base)
	}
	var rt http.RoundTripper = base
	if x.wrap != nil {
		rt = x.wrap(base)
	}
	var tr *transport.Transport
	if p != nil {
		if x.wrap == nil && p.Retry.MaxAttempts > 0 { // a Clone must do as well
			rt = base.Clone()
		}
		tr = transport.Must(transport.New(transport.Config{Default: *p, Base: rt, Logger: quiet(), MaxConcurrent: 256}))
		rt = tr
	}
	play.closeIdle = (&http.Client{Transport: rt}).CloseIdleConnections
	var told tale
	for _, ask := range append([]ask{x.ask}, x.more...) {
		told.Answers = append(told.Answers, play.call(rt, ask))
	}
	cancel()
	if tr != nil {
		transporttest.CheckPermits(t, tr)
		_ = tr.Close()
	}
	play.server.close(func() {
		base.CloseIdleConnections()
		if tr != nil {
			tr.CloseIdleConnections()
		}
	})
	told.Origin, told.Hooks = play.server.seen(), play.hooks.told()
	return told
}

// call does one request of the exchange.
func (p *play) call(rt http.RoundTripper, ask ask) answer {
	req, err := http.NewRequestWithContext(p.ctx, http.MethodGet, p.server.url+"/path", nil)
	if err != nil {
		p.t.Fatal(err)
	}
	if ask != nil {
		ask(p, req)
	}
	var resp *http.Response
	if p.x.client != nil {
		jar, _ := cookiejar.New(nil)
		c := &http.Client{Transport: rt, Jar: jar}
		p.x.client(c)
		resp, err = c.Do(req)
	} else {
		resp, err = rt.RoundTrip(req)
		if (resp == nil) == (err == nil) {
			p.t.Errorf("RoundTrip returned %v and %v", resp, err)
		}
	}
	a := answer{Err: errorClass(err), Retried: err != nil || policy.Idempotent(req) && policy.Default().Retry.Status(resp.StatusCode)}
	if resp != nil {
		a.take(p, req, resp)
	}
	return a
}

// askFor changes a request whatever the play.
func askFor(changes ...func(*http.Request)) ask {
	return func(_ *play, r *http.Request) {
		for _, change := range changes {
			change(r)
		}
	}
}

// asks is several changes.
func asks(all ...ask) ask {
	return func(p *play, r *http.Request) {
		for _, ask := range all {
			ask(p, r)
		}
	}
}

func askMethod(method string) ask {
	return askFor(func(r *http.Request) { r.Method = method })
}

// askHeader adds header fields, as they are spelt.
func askHeader(lines ...string) ask {
	return askFor(func(r *http.Request) {
		for i := 0; i < len(lines); i += 2 {
			r.Header[lines[i]] = append(r.Header[lines[i]], lines[i+1])
		}
	})
}
