package status_test

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/status"
)

// The policy lets the page have what is in it, by its hash, and nothing else.
func TestPageHasNothingThatItsPolicyForbids(t *testing.T) {
	w := ask(status.New((&world{}).over(t, transport.Config{}), status.Config{}), "GET", "/")
	csp, html := w.Header().Get("Content-Security-Policy"), w.Body.String()
	for _, want := range []string{"default-src 'none'", "connect-src 'self'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"} {
		if !strings.Contains(csp, want) {
			t.Errorf("%s: no %s", csp, want)
		}
	}
	for _, no := range []string{"unsafe", "*", "http:", "https:"} {
		if strings.Contains(csp, no) {
			t.Errorf("%s: %s", csp, no)
		}
	}
	for _, part := range []string{"script", "style"} {
		found := regexp.MustCompile("(?s)<"+part+"[^>]*>(.*?)</"+part+">").FindAllStringSubmatch(html, -1)
		if len(found) != 1 || strings.Contains(html, "{{") {
			t.Fatalf("%d of %s", len(found), part)
		}
		sum := sha256.Sum256([]byte(found[0][1]))
		if hash := part + "-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"; !strings.Contains(csp, hash) {
			t.Errorf("%s: no %s", csp, hash)
		}
	}
	markup := regexp.MustCompile("(?s)<(script|style)>.*?</(script|style)>").ReplaceAllString(html, "")
	for _, no := range []string{` on\w+=`, ` style=`, `javascript:`, `(src|href)="(https?:)?//`, `<(iframe|object|embed|form|base)\b`} {
		if bad := regexp.MustCompile(no).FindString(markup); bad != "" {
			t.Errorf("in the markup: %s", bad)
		}
	}
	for _, no := range []string{`innerHTML`, `outerHTML`, `insertAdjacentHTML`, `document\.write`, `\beval\b`, `new Function`, `https?://[^w]`, `@import`, `url\(`} {
		if bad := regexp.MustCompile(no).FindString(html); bad != "" {
			t.Errorf("in the page: %s", bad)
		}
	}
}

// shown opens the page of a Transport in a browser.
func shown(t *testing.T, tr *transport.Transport, wrap func(http.Handler) http.Handler) (*browser, *httptest.Server) {
	t.Helper()
	h := status.New(tr, status.Config{Name: "unit-1"})
	var inner http.Handler = http.StripPrefix("/ops/status", h)
	if wrap != nil {
		inner = wrap(inner)
	}
	server := httptest.NewServer(inner)
	t.Cleanup(func() {
		h.Close()
		server.CloseClientConnections()
		server.Close()
	})
	b := newBrowser(t) // ends first
	b.open(server.URL + "/ops/status/")
	return b, server
}

// clean fails the test if the page has complained, or asked anybody else.
func (b *browser) clean(server *httptest.Server) {
	b.t.Helper()
	for _, c := range b.complaints() {
		b.t.Error(c)
	}
	for _, u := range b.requests() {
		if !strings.HasPrefix(u, server.URL+"/ops/status/") && !strings.HasPrefix(u, "data:") {
			b.t.Errorf("asked for %s", u)
		}
	}
}

// count is how many elements a selector finds.
func (b *browser) count(selector string) (n int) {
	b.t.Helper()
	b.eval(fmt.Sprintf("document.querySelectorAll(%q).length", selector), &n)
	return n
}

func TestPageShowsATransitionWithoutReload(t *testing.T) {
	w := &world{}
	p := brittle()
	p.Breaker.OpenFor = 30 * time.Minute
	p.Fallback.MaxStale = time.Hour
	p.Bulkhead.MaxConcurrent = 7
	tr := w.over(t, transport.Config{Default: p})
	_ = call(tr, "https://telemetry.test:8443")
	_ = call(tr, "http://calm.test")
	var mu sync.Mutex
	var asked []string
	b, server := shown(t, tr, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			asked = append(asked, r.Method+" "+r.RequestURI)
			mu.Unlock()
			h.ServeHTTP(w, r)
		})
	})
	b.await("document.body.className === 'live' && document.querySelectorAll('#closed tbody th').length === 2")
	b.await("document.title === 'watertight'")
	b.await("document.querySelector('#verdict').textContent === 'All 2 hosts are closed' && document.querySelector('#name').textContent === 'unit-1'")
	b.eval("window.sameDocument = true", nil)

	w.set("telemetry.test", does{status: 503})
	_ = call(tr, "https://telemetry.test:8443")
	_ = call(tr, "https://telemetry.test:8443")
	b.await("document.title === '1 down - watertight'")
	b.await("document.querySelector('.card.open h3')?.textContent === 'telemetry.test:8443'")
	b.await("document.querySelector('#news').textContent.includes('telemetry.test:8443 is open: 1 failure in a row, last: status 503')")
	b.await("document.querySelector('#transitions li.open').textContent.includes('closed → open')")
	var card string
	b.eval("document.querySelector('.card').innerText", &card)
	for _, want := range []string{"Open", "1 failure in a row, last: status 503.", "Last failures: 1 × status 503", "Next probe", "Stale answers, as of ", "2 stale", "0 of 7", "Refused\n1"} {
		if !strings.Contains(card, want) {
			t.Errorf("no %q in\n%s", want, card)
		}
	}
	b.await("/^in [23]\\d min \\d+ s$/.test(document.querySelector('.next dd span').textContent)") // half an hour, less the jitter, and counting down
	var left string
	b.eval("document.querySelector('.next dd span').textContent", &left)
	b.await(fmt.Sprintf("document.querySelector('.next dd span').textContent !== %q", left))
	b.await("document.querySelector('#verdict').textContent === '1 of 2 hosts down: 1 refused'")

	tr.Host("telemetry.test").Reset()
	b.await("document.title === 'watertight' && document.querySelectorAll('.card').length === 0 && document.querySelectorAll('#closed tbody th').length === 2")
	var same bool
	b.eval("window.sameDocument === true", &same)
	if !same {
		t.Error("it was loaded anew")
	}
	b.clean(server)
	mu.Lock()
	defer mu.Unlock()
	for i, path := range []string{"GET /ops/status/", "GET /ops/status/transitions", "GET /ops/status/events?limit=100&after="} {
		if len(asked) != 3 || !strings.HasPrefix(asked[i], path) {
			t.Fatalf("requests: %v", asked)
		}
	}
}

func TestPageFitsAPhone(t *testing.T) {
	w := &world{}
	tr := w.over(t, transport.Config{Default: brittle()})
	long := strings.Repeat("very-long-name.", 12) + "test"
	w.set(long, does{status: 500})
	for _, host := range []string{long, "a.test", strings.Repeat("x", 60) + ".test"} {
		_ = call(tr, "https://"+host)
	}
	b, server := shown(t, tr, nil)
	b.await("document.querySelectorAll('.card').length === 1 && document.querySelectorAll('#closed tbody th').length === 2")
	b.eval("document.querySelector('.card summary').click(); document.querySelectorAll('#closed button').forEach(b => b.click())", nil)
	b.await("[...document.querySelectorAll('caption')].filter(c => c.textContent === 'Configured: breaker').length === 3")
	for _, width := range []int{360, 320, 620, 768, 1000, 1280, 1920} {
		b.size(width, 740, width < 700, 1)
		var wide []string
		b.eval(fmt.Sprintf("document.documentElement.scrollWidth > %[1]d ? ['page', ...[...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > %[1]d).map(e => e.outerHTML.slice(0, 200))] : []", width), &wide) // innerWidth grows on a phone
		if len(wide) > 0 {
			t.Errorf("at %d px it scrolls sideways: %v", width, wide[:min(3, len(wide))])
		}
		if width <= 620 {
			var cells int // of the table that is for wider ones: each host is on a row of its own
			b.eval("[...document.querySelectorAll('#closed > * > tr > .wide')].filter(e => e.offsetParent).length + [...document.querySelectorAll('#closed > tbody > tr > th')].filter(e => e.getBoundingClientRect().bottom > e.nextSibling.getBoundingClientRect().top + 1).length", &cells)
			if cells > 0 {
				t.Errorf("at %d px %d cells are beside or over others", width, cells)
			}
			var small []string
			b.eval("[...document.querySelectorAll('button, summary, input')].filter(e => e.offsetParent && e.getBoundingClientRect().height < 40).map(e => e.outerHTML)", &small)
			if len(small) > 0 {
				t.Errorf("at %d px too small to touch: %v", width, small)
			}
		}
	}
	b.clean(server)
}

// The tree is what a screen reader reads.
func TestPageHasNamesForWhoeverCannotSeeIt(t *testing.T) {
	w := &world{}
	tr := w.over(t, transport.Config{Default: brittle()})
	w.set("sick.test", does{status: 500})
	_ = call(tr, "https://sick.test")
	_ = call(tr, "https://calm.test")
	b, server := shown(t, tr, nil)
	b.await("document.querySelectorAll('.card').length === 1 && document.querySelectorAll('#closed tbody th').length === 1")
	b.eval("document.querySelector('.card summary').click()", nil)
	b.await("[...document.querySelectorAll('caption')].some(c => c.textContent === 'Configured: breaker')")
	var tree struct {
		Nodes []struct {
			Ignored bool
			Role    struct{ Value string }
			Name    struct{ Value string }
		}
	}
	b.do("Accessibility.enable", nil, nil)
	b.do("Accessibility.getFullAXTree", nil, &tree)
	found := map[string]bool{}
	for _, n := range tree.Nodes {
		if n.Ignored {
			continue
		}
		found[n.Role.Value+" "+n.Name.Value] = true
		switch n.Role.Value {
		case "button", "searchbox", "link", "table", "rowheader", "columnheader", "article", "region", "heading", "image", "DisclosureTriangle":
			if strings.TrimSpace(n.Name.Value) == "" {
				t.Errorf("%s without a name", n.Role.Value)
			}
		}
	}
	for _, want := range []string{
		"banner ", "main ", "contentinfo ", "search Hosts", "group State",
		"button All 2", "button Open 1", "button Half-open 0", "button Forced 0", "button Closed 1", "searchbox Filter by name", "button calm.test:443",
		"heading Not closed", "heading Closed", "heading Recent transitions", "heading sick.test:443", "article sick.test:443",
		"region Not closed", "region Closed", "region Recent transitions", "rowheader calm.test:443", "columnheader Failed", "table Window", "rowheader Failed",
		"DisclosureTriangle Counts and configuration of sick.test:443", "status ", "link Skip to the hosts",
	} {
		if !found[want] {
			t.Errorf("no %q", want)
		}
	}
	image := false
	for name := range found {
		image = image || strings.HasPrefix(name, "image The last 15 minutes: unknown, then open from ")
	}
	if !image {
		t.Error("the picture of the last 15 minutes says nothing")
	}
	var polite []string
	b.eval("[...document.querySelectorAll('[role=status]')].map(e => e.id)", &polite)
	if fmt.Sprint(polite) != "[link-state news]" {
		t.Errorf("announced: %v", polite)
	}
	b.clean(server)
}

func TestPageCanBeUsedByKeyboard(t *testing.T) {
	tr := (&world{}).over(t, transport.Config{Default: brittle()})
	_ = call(tr, "https://a.test")
	_ = call(tr, "https://b.test")
	tr.Host("b.test").ForceOpen()
	b, server := shown(t, tr, nil)
	b.await("document.querySelectorAll('.card').length === 1 && document.querySelectorAll('#closed tbody th').length === 1")
	press := func(key string) {
		text := map[string]string{"Enter": "\r"}[key]
		b.do("Input.dispatchKeyEvent", map[string]any{"type": "keyDown", "key": key, "code": key, "text": text, "windowsVirtualKeyCode": map[string]int{"Tab": 9, "Enter": 13}[key]}, nil)
		b.do("Input.dispatchKeyEvent", map[string]any{"type": "keyUp", "key": key, "code": key}, nil)
	}
	var order []string
	for range 9 {
		press("Tab")
		var at struct{ Name, Outline string }
		b.eval("({name: document.activeElement.id || document.activeElement.textContent.trim(), outline: getComputedStyle(document.activeElement).outlineStyle})", &at)
		order = append(order, at.Name)
		if at.Outline == "none" {
			t.Errorf("%s: the focus cannot be seen", at.Name)
		}
	}
	if got, want := strings.Join(order, "; "), "Skip to the hosts; All 2; Open 0; Half-open 0; Forced 1; Closed 1; q; Counts and configuration; a.test:443"; got != want {
		t.Errorf("%s,\nwant %s", got, want)
	}
	press("Enter")
	b.await("document.activeElement.getAttribute('aria-expanded') === 'true' && [...document.querySelectorAll('.detail-row caption')].some(c => c.textContent === 'Configured: breaker')")
	_ = call(tr, "https://a.test") // an update takes neither the focus nor what is open
	b.await("[...document.querySelectorAll('.detail-row th')].find(e => e.textContent === 'Calls').nextSibling.textContent === '2'")
	b.await("document.activeElement.textContent.trim() === 'a.test:443' && document.activeElement.getAttribute('aria-expanded') === 'true'")
	b.clean(server)
}

func TestPageSaysSinceWhenItIsDisconnected(t *testing.T) {
	tr := (&world{}).over(t, transport.Config{})
	_ = call(tr, "https://a.test")
	tr.Host("a.test").ForceClosed()
	var down atomic.Bool
	b, server := shown(t, tr, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if down.Load() {
				panic(http.ErrAbortHandler)
			}
			h.ServeHTTP(w, r)
		})
	})
	b.await("document.body.className === 'live'")
	down.Store(true)
	server.CloseClientConnections()
	b.await(`/^Disconnected since \d\d:\d\d:\d\d$/.test(document.querySelector('#link-state').textContent) && document.title === 'disconnected - watertight'`)
	b.await(`document.querySelector('#link-age').textContent === ' (1 s): what is below is as of then'`)
	b.await(`/then unknown since the connection was lost$/.test(document.querySelector('.last svg').getAttribute('aria-label'))`)
	var then, later string
	const shown = "document.querySelector('.for').textContent + document.querySelector('.refused').textContent + document.querySelector('#transitions').textContent"
	b.eval(shown, &then)
	time.Sleep(2500 * time.Millisecond)
	if b.eval(shown, &later); then != later { // it went on to count, as if it knew
		t.Errorf("%s,\nand after it was lost:\n%s", then, later)
	}
	down.Store(false)
	b.await("document.body.className === 'live' && document.title === '1 forced closed, protection off - watertight'")
}

// Before the first document all was empty, as if nothing were wrong.
func TestPageSaysThatItKnowsNothingUntilItDoes(t *testing.T) {
	w := &world{}
	w.set("a.test", does{status: 500})
	tr := w.over(t, transport.Config{Default: brittle()})
	_ = call(tr, "https://a.test")
	var deaf atomic.Bool
	deaf.Store(true)
	loaded := make(chan struct{})
	b, _ := shown(t, tr, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !strings.HasSuffix(r.URL.Path, "/status/") {
				select {
				case <-loaded:
				case <-r.Context().Done():
				}
				if deaf.Load() {
					panic(http.ErrAbortHandler)
				}
			}
			h.ServeHTTP(w, r)
		})
	})
	empty := "document.querySelector('#cards').offsetParent === null && document.querySelector('#filter').offsetParent === null && document.querySelector('#closed').offsetParent === null"
	b.await("document.querySelector('#verdict').textContent === 'Loading...' && document.querySelector('#zone').textContent === 'Times in UTC' && " + empty)
	close(loaded)
	b.await("document.querySelector('#verdict').textContent === 'Nothing is known: no answer' && " + empty)
	deaf.Store(false)
	b.await("document.querySelector('#verdict').textContent === '1 of 1 host down: 1 refused' && !(" + empty + ")")
	var times []struct{ DateTime, Title string }
	b.eval("[...document.querySelectorAll('.card time')].map(e => ({DateTime: e.dateTime, Title: e.title}))", &times)
	for _, at := range times {
		if _, err := time.Parse(time.RFC3339, at.DateTime); err != nil || !strings.Contains(at.Title, "GMT+0000") {
			t.Errorf("%+v", at)
		}
	}
	if len(times) != 2 {
		t.Errorf("%d times", len(times))
	}

	b.do("Emulation.setScriptExecutionDisabled", map[string]any{"value": true}, nil)
	b.do("Page.reload", nil, nil)
	b.await("document.querySelector('#verdict')?.textContent === 'Not loaded' && document.body.innerText.includes('shows nothing without JavaScript')")
}

// A proxy, or middleware that cannot flush, takes the stream away.
func TestPagePollsWhereThereIsNoStream(t *testing.T) {
	w := &world{}
	w.set("a.test", does{status: 500})
	tr := w.over(t, transport.Config{Default: brittle()})
	b, _ := shown(t, tr, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h.ServeHTTP(struct{ http.ResponseWriter }{w}, r)
		})
	})
	b.await("document.body.className === 'polling' && document.querySelector('#link-state').textContent === 'Polling every 2 s'")
	_ = call(tr, "https://a.test")
	b.await("document.title === '1 down - watertight' && document.querySelector('#transitions').textContent.includes('a.test:443') && document.querySelector('#news').textContent.includes('a.test:443')")
}

// A restart, or a balancer: what was shown of the process before is not mixed in. When
// the transitions of the next one came first, its hosts were once taken for the same.
func TestPageBeginsAnewWithAnotherProcess(t *testing.T) {
	for _, polling := range []bool{false, true} {
		var serving atomic.Pointer[status.Handler]
		start := func(host string) {
			tr := (&world{}).over(t, transport.Config{Default: brittle()})
			_ = call(tr, "https://both.test")
			tr.Host("both.test").ForceClosed()
			tr.Host(host).ForceOpen()
			_ = call(tr, "https://"+host)
			h := status.New(tr, status.Config{Name: "of " + host})
			t.Cleanup(h.Close)
			serving.Store(h)
		}
		start("first.test")
		b, server := shown(t, (&world{}).over(t, transport.Config{}), func(http.Handler) http.Handler {
			return http.StripPrefix("/ops/status", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if polling {
					w = struct{ http.ResponseWriter }{w}
				}
				serving.Load().ServeHTTP(w, r)
			}))
		})
		b.await("document.querySelector('#name').textContent === 'of first.test' && document.querySelectorAll('.card').length === 2")
		b.eval("window.old = [...document.querySelectorAll('.card')]", nil)
		start("second.test")
		server.CloseClientConnections()
		b.await("document.querySelector('#name').textContent === 'of second.test' && document.querySelectorAll('.card').length === 2")
		b.await("!document.body.innerText.includes('first.test') && document.querySelectorAll('#transitions li').length === 2")
		b.await("[...document.querySelectorAll('.card')].every(c => !window.old.includes(c))")
	}
}

func TestPageStaysUsableWithManyHosts(t *testing.T) {
	const n = 2000
	w := &world{}
	tr := w.over(t, transport.Config{Default: brittle()})
	w.set("h1234.test", does{status: 500})
	for i := range n {
		_ = call(tr, fmt.Sprintf("https://h%d.test", i))
	}
	tr.Host("h77.test").ForceClosed()
	b, server := shown(t, tr, nil)
	b.await("document.querySelector('#more').textContent.startsWith('These are 100 of 2,000 hosts')")
	if got := b.count(".card, #closed tbody th"); got != 100 {
		t.Errorf("%d hosts are rendered", got)
	}
	if got := b.count(".card"); got != 2 {
		t.Errorf("%d are in trouble", got)
	}
	b.eval("(q => { q.value = 'h1999.'; q.dispatchEvent(new Event('input')); })(document.getElementById('q'))", nil)
	b.await("document.querySelectorAll('#closed tbody th').length === 1 && document.querySelectorAll('.card').length === 0 && document.querySelector('#closed tbody th').textContent === 'h1999.test:443'")
	b.eval("(q => { q.value = ''; q.dispatchEvent(new Event('input')); })(document.getElementById('q'))", nil)
	b.eval("document.querySelector('.states .forced').click()", nil)
	b.await("document.querySelectorAll('.card').length === 1 && document.querySelector('.card h3').textContent === 'h77.test:443' && document.querySelector('.states .forced').getAttribute('aria-pressed') === 'true'")
	b.clean(server)
}

// Whoever looks may have another time than the server: ages are the server's.
func TestPageDoesNotCompareItsClockWithTheServers(t *testing.T) {
	w := &world{}
	w.set("a.test", does{status: 500})
	tr := w.over(t, transport.Config{Default: brittle()})
	_ = call(tr, "https://a.test")
	b, server := shown(t, tr, nil)
	b.do("Page.addScriptToEvaluateOnNewDocument", map[string]any{"source": "{ const D = Date; Date = class extends D { constructor(...a) { a.length ? super(...a) : super(D.now() + 7200000); } static now() { return D.now() + 7200000; } }; }"}, nil)
	b.open(server.URL + "/ops/status/?again")
	b.await("document.querySelectorAll('.card').length === 1")
	var ages []string
	b.eval("[document.querySelector('.for b').textContent, document.querySelector('#transitions .ago').textContent]", &ages)
	for _, age := range ages {
		if !regexp.MustCompile(`^\d+ s( ago)?$`).MatchString(age) {
			t.Errorf("two hours ahead: %q", age)
		}
	}
	b.await("/^in (5\\d min|1 h \\d min)/.test(document.querySelector('.next dd span').textContent)")
}

// TestPictureOfAnOutage makes pictures to look at, when it is asked to:
//
//	WATERTIGHT_PICTURES=/tmp go test -run PictureOfAnOutage ./transport/status
//
// That of the README is the demo's:
//
//	go -C cmd/demo/exporting run ./e2e -keep /tmp/e2e
//	cp /tmp/e2e/page.png transport/status/testdata/outage.png
func TestPictureOfAnOutage(t *testing.T) {
	dir := os.Getenv("WATERTIGHT_PICTURES")
	if dir == "" {
		t.Skip("takes a minute and writes pictures: set WATERTIGHT_PICTURES to a directory")
	}
	w := &world{}
	service := policy.Service()
	service.Breaker.OpenFor, service.Breaker.OpenForMax = 8*time.Second, 30*time.Second
	telemetry := service
	telemetry.Fallback.MaxStale = 10 * time.Minute
	shadow := service
	shadow.Breaker.Shadow = true
	tr := w.over(t, transport.Config{Default: service, Hosts: map[string]policy.Policy{
		"telemetry.internal": telemetry, "recommendations.internal": shadow}})

	stop := make(chan struct{})
	var load sync.WaitGroup
	hosts := map[string]struct {
		rate  int
		takes time.Duration
	}{
		"telemetry.internal:8443":  {40, 30 * time.Millisecond},
		"payments.internal":        {12, 80 * time.Millisecond},
		"catalog.internal":         {60, 12 * time.Millisecond},
		"inventory.internal":       {30, 45 * time.Millisecond},
		"search.internal":          {25, 110 * time.Millisecond},
		"recommendations.internal": {10, 60 * time.Millisecond},
		"users.internal":           {50, 8 * time.Millisecond},
		"mail.internal:2525":       {2, 200 * time.Millisecond},
		"pricing.internal":         {20, 25 * time.Millisecond},
	}
	for host, l := range hosts {
		name, _, err := net.SplitHostPort(host)
		if err != nil {
			name = host
		}
		w.set(name, does{after: l.takes})
		load.Go(func() {
			every := time.NewTicker(time.Second / time.Duration(l.rate))
			defer every.Stop()
			for {
				select {
				case <-stop:
					return
				case <-every.C:
					load.Go(func() { _ = call(tr, "https://"+host+"/") })
				}
			}
		})
	}
	defer load.Wait()
	defer close(stop)
	h := status.New(tr, status.Config{Name: "checkout-7f9c4"})
	server := httptest.NewServer(h)
	defer server.Close()
	defer h.Close()
	b := newBrowser(t)
	b.size(1280, 900, false, 1)
	b.open(server.URL)

	time.Sleep(20 * time.Second)
	w.set("telemetry.internal", does{hang: true})
	time.Sleep(4 * time.Second)
	w.set("search.internal", does{after: 90 * time.Millisecond, status: 503})
	time.Sleep(4 * time.Second)
	w.set("payments.internal", does{err: &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}})
	w.set("recommendations.internal", does{after: 20 * time.Millisecond, status: 502})
	w.set("inventory.internal", does{after: 480 * time.Millisecond})
	tr.Host("mail.internal").ForceOpen()
	time.Sleep(12 * time.Second)
	w.set("search.internal", does{after: 110 * time.Millisecond})
	time.Sleep(9 * time.Second)
	b.await("document.querySelectorAll('.card.open').length >= 2 && document.querySelector('.card h3').textContent.startsWith('telemetry') && /in ([5-9]|1\\d) s/.test(document.querySelector('.card.open .next dd').textContent)")
	for name, shot := range map[string]func() []byte{
		"light": func() []byte { b.size(1280, 900, false, 1); return b.screenshot(false) },
		"full":  func() []byte { b.size(1280, 900, false, 1); return b.screenshot(true) },
		"dark": func() []byte {
			b.prefer("prefers-color-scheme", "dark")
			defer b.prefer("prefers-color-scheme", "light")
			return b.screenshot(false)
		},
		"phone": func() []byte { b.size(360, 1900, true, 2); time.Sleep(time.Second); return b.screenshot(false) },
		"details": func() []byte {
			b.size(1280, 1500, false, 1)
			b.eval("document.querySelector('.card summary').click(); document.querySelector('#closed button').click()", nil)
			time.Sleep(time.Second)
			defer b.eval("document.querySelector('.card summary').click(); document.querySelector('#closed button').click()", nil)
			return b.screenshot(false)
		},
	} {
		if err := os.WriteFile(filepath.Join(dir, "status-"+name+".png"), small(t, shot()), 0o644); err != nil {
			t.Error(err)
		}
	}
	t.Log(b.complaints())
}

// small is a PNG with the 255 colours that are most frequent in it, of each eight
// shades one.
func small(t *testing.T, data []byte) []byte {
	t.Helper()
	full, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[color.Color]int{}
	for y := range full.Bounds().Dy() {
		for x := range full.Bounds().Dx() {
			seen[full.At(x, y)]++
		}
	}
	shades := map[[3]uint32]bool{}
	colours := slices.DeleteFunc(slices.SortedFunc(maps.Keys(seen), func(a, b color.Color) int { return cmp.Compare(seen[b], seen[a]) }), func(c color.Color) bool {
		r, g, b, _ := c.RGBA()
		shade := [3]uint32{r >> 13, g >> 13, b >> 13}
		known := shades[shade] && seen[c] < 200
		shades[shade] = true
		return known
	})
	few := image.NewPaletted(full.Bounds(), colours[:min(len(colours), 255)])
	draw.Draw(few, few.Bounds(), full, image.Point{}, draw.Src)
	var out bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, few); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
