package cachetest

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

var together = []rule{
	{"HitsShareNothing",
		"callers who are served the same answer at once may each change header and body as they like", shareNothing},
	{"BodiesAreReadApart",
		"each caller has his own place in a body, and an end of his own", readApart},
	{"NobodyGetsAnothers",
		"with many callers, URIs, variants and writes at once, an answer is that to its request (RFC 9111 section 4)", storm},
}

func shareNothing(p *probe) {
	p.answers(fresh("text", "X-A", "1", "X-A", "2"))
	p.misses("text")
	p.hits("text")
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 50 {
				resp := p.send(request(http.MethodGet, url))
				b := make([]byte, 4)
				_, err := io.ReadFull(resp.Body, b)
				if lines := resp.Header["X-A"]; err != nil || string(b) != "text" || len(lines) != 2 || lines[0] != "1" || lines[1] != "2" {
					p.Errorf("%q, %v, %v", b, err, resp.Header)
					return
				}
				for _, lines := range resp.Header {
					for i := range lines {
						lines[i] = "spoilt"
					}
				}
				resp.Header["X-A"] = append(resp.Header["X-A"], strconv.Itoa(i))
				resp.Header.Del("Cache-Control")
				copy(b, "    ")
				_ = resp.Body.Close()
			}
		})
	}
	all.Wait()
}

func readApart(p *probe) {
	text := strings.Repeat(digits, 100)
	p.answers(fresh(text))
	p.misses(text)
	p.hits(text)
	one, two := p.send(request(http.MethodGet, url)), p.send(request(http.MethodGet, url))
	if _, err := io.ReadFull(one.Body, make([]byte, 500)); err != nil {
		p.Fatal(err)
	}
	if g := read(two); g.text != text {
		p.Errorf("%q", short(g.text))
	}
	if rest := read(one); rest.text != text[500:] || rest.err != nil {
		p.Errorf("%q, %v", short(rest.text), rest.err)
	}
	if n, err := one.Body.Read(make([]byte, 1)); n > 0 || err == nil {
		p.Errorf("%d bytes, %v after Close", n, err)
	}
}

// storm has the origin answer what it was asked, and how often the URI had been written to by then. A caller may be served no answer
// from before a write that had ended when he began.
func storm(p *probe) {
	const uris, callers = 4, 8
	var written, ended [uris]atomic.Int64
	p.answersBy(func(req *http.Request) answer {
		i, _ := strconv.Atoi(req.URL.Path[1:])
		if req.Method == http.MethodPut {
			return answer{status: http.StatusNoContent, fields: []string{"X-Written", strconv.FormatInt(written[i].Add(1), 10)}}
		}
		return fresh(fmt.Sprintf("%d %s %s %d", i, req.Header.Get("Authorization"), req.Header.Get("X-A"), written[i].Load()), "Vary", "X-A")
	})
	put := func(i int) {
		g := read(p.send(request(http.MethodPut, "http://a.test/"+strconv.Itoa(i))))
		n, _ := strconv.ParseInt(g.Header.Get("X-Written"), 10, 64)
		for old := ended[i].Load(); n > old && !ended[i].CompareAndSwap(old, n); old = ended[i].Load() {
		}
	}
	get := func(i, user, a int) {
		least := ended[i].Load()
		g := read(p.send(request(http.MethodGet, "http://a.test/"+strconv.Itoa(i), "Authorization", strconv.Itoa(user), "X-A", strconv.Itoa(a))))
		asked, number := cutLast(g.text)
		if want := fmt.Sprintf("%d %d %d", i, user, a); asked != want || number < least || g.err != nil {
			p.Errorf("%q, %v, for %s after %d writes", g.text, g.err, want, least)
		}
	}
	var all sync.WaitGroup
	for seed := range callers {
		all.Go(func() {
			random := rand.New(rand.NewPCG(uint64(seed), 1))
			for range 200 {
				if i := random.IntN(uris); random.IntN(10) == 0 {
					put(i)
				} else {
					get(i, random.IntN(3), random.IntN(3))
				}
			}
		})
	}
	all.Wait()
	get(0, 0, 0)
	before := p.count()
	if get(0, 0, 0); p.count() > before {
		p.Errorf("nothing is reused")
	}
}

// cutLast cuts the number at the end of a text.
func cutLast(s string) (string, int64) {
	at := max(strings.LastIndexByte(s, ' '), 0)
	n, err := strconv.ParseInt(strings.TrimSpace(s[at:]), 10, 64)
	if err != nil {
		n = -1
	}
	return s[:at], n
}
