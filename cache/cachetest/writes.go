package cachetest

import (
	"context"
	"net/http"
	"testing/synctest"
	"time"
)

var writes = []rule{
	{"WritesInvalidate",
		"after an unsafe request that went well nothing stored of its URI is served (RFC 9111 section 4.4)", invalidate},
	{"WritesInvalidateForEveryone",
		"a write ends all variants of its URI, and what other callers were answered (RFC 9111 section 4.4)", everyone},
	{"LocationsAreInvalidated",
		"Location and Content-Location of a write are invalidated on its own origin only (RFC 9111 section 4.4)", locations},
	{"WritesAreNotStored",
		"an answer to POST, PUT or DELETE is neither reused for a GET nor for itself (RFC 9111 section 4, RFC 9110 section 9.3)", writesUnstored},
	{"GetBegunBeforeAWriteIsNotStored",
		"an answer to a GET that was sent before a write says nothing of what is after it (RFC 9111 section 4.4)", begunBefore},
	{"GetReadAcrossAWriteIsNotStored",
		"the same where only the body of the answer ends after the write (RFC 9111 section 4.4)", readAcross},
	{"GetWithinAWriteIsNotKept",
		"an answer that came while the write was under way ends with it (RFC 9111 section 4.4)", within},
	{"ValidationAcrossAWriteIsNotStored",
		"a 304 to a request that was sent before a write brings nothing back (RFC 9111 section 4.4)", validatedAcross},
	{"RefreshAcrossAWriteIsNotStored",
		"what is refreshed in the background, or would be, ends with a write like any answer (RFC 9111 section 4.4, RFC 5861 section 3)", refreshedAcross},
	{"LateNotModifiedRevivesNothing",
		"a 304 to an earlier request than the stored answer's is about another (RFC 9111 section 4.3.4)", lateNotModified},
	{"OlderNeverReplacesNewer",
		"the answer to an earlier request does not replace that to a later one (RFC 9111 section 4)", olderAnswer},
}

func invalidate(p *probe) {
	for _, method := range []string{"PUT", "POST", "DELETE", "PATCH", "PURGE"} {
		for _, status := range []int{200, 201, 204, 303} {
			p.answers(fresh("old"), answer{status: status}, fresh("new", "Cache-Control", "no-store"))
			req := request(http.MethodGet, "http://a.test/"+method+http.StatusText(status))
			p.miss("old", req)
			p.hit("old", req.Clone(context.Background()))
			p.do(request(method, req.URL.String()))
			p.miss("new", req.Clone(context.Background()))
		}
	}
}

func everyone(p *probe) {
	p.numbers(fresh("", "Vary", "Accept-Language"))
	for _, caller := range [][]string{{}, {"Authorization", "one"}, {"Accept-Language", "de"}} {
		text := p.get(caller...).text
		p.hits(text, caller...)
	}
	p.do(request(http.MethodPut, url, "Authorization", "two"))
	p.misses("5")
	p.misses("6", "Authorization", "one")
	p.misses("7", "Accept-Language", "de")
}

func locations(p *probe) {
	p.numbers(fresh(""))
	urls := []string{"http://a.test/1", "http://a.test/2", "http://a.test/3?q", "http://b.test/1"}
	for _, u := range urls {
		p.hit(p.do(request(http.MethodGet, u)).text, request(http.MethodGet, u))
	}
	p.answersBy(func(req *http.Request) answer {
		if req.Method == http.MethodPost {
			return answer{status: http.StatusCreated, fields: []string{"Location", "/1", "Content-Location", "http://a.test/2",
				"Location", "http://b.test/1", "Location", "HTTP://A.Test:80/x/../3?q#part"}}
		}
		return fresh("new")
	})
	p.do(request(http.MethodPost, url))
	p.miss("new", request(http.MethodGet, urls[0]))
	p.miss("new", request(http.MethodGet, urls[1]))
	p.miss("new", request(http.MethodGet, urls[2]))
	p.hit("4", request(http.MethodGet, urls[3]))
}

func writesUnstored(p *probe) {
	p.numbers(fresh("", "Content-Location", url))
	n := 0
	for _, method := range []string{"POST", "PUT", "DELETE", "OPTIONS"} {
		for range 2 {
			n++
			req := request(method, url)
			p.miss(string(rune('0'+n)), req)
		}
	}
	p.misses("9")
	p.hits("9")
}

// pending begins a GET whose answer waits, and returns a channel with the answer once it was read.
func (p *probe) pending(fields ...string) <-chan got {
	done := make(chan got, 1)
	go func() { done <- read(p.send(request(http.MethodGet, url, fields...))) }()
	synctest.Wait()
	return done
}

// gets waits for the answer to a pending GET, and fails the probe if it is another than want.
func (p *probe) gets(want string, pending <-chan got) {
	p.Helper()
	if g := <-pending; g.text != want {
		p.Errorf("%q, want %q", g.text, want)
	}
}

func begunBefore(p *probe) {
	p.answers(fresh("kept"))
	p.misses("kept", "Authorization", "other")
	p.hits("kept", "Authorization", "other")
	for _, method := range []string{"PUT", "DELETE", "POST"} {
		begin := make(chan struct{})
		old := fresh("old")
		old.begin = begin
		p.answers(old, answer{status: http.StatusNoContent}, says("new"))
		pending := p.pending()
		p.do(request(method, url))
		close(begin)
		p.gets("old", pending)
		p.misses("new")
	}
}

func readAcross(p *probe) {
	finish := make(chan struct{})
	old := fresh("old")
	old.finish = finish
	p.answers(old, answer{status: http.StatusNoContent}, fresh("new"))
	pending := p.pending()
	p.do(request(http.MethodPut, url))
	close(finish)
	p.gets("old", pending)
	p.misses("new")
	p.hits("new")
}

func within(p *probe) {
	begin := make(chan struct{})
	p.answersBy(func(req *http.Request) answer {
		if req.Method == http.MethodGet {
			return fresh("meanwhile")
		}
		return answer{status: http.StatusNoContent, begin: begin}
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.do(request(http.MethodPut, url))
	}()
	synctest.Wait()
	p.misses("meanwhile")
	close(begin)
	<-done
	p.answers(fresh("new"))
	p.misses("new")
	p.hits("new")
}

// validating stores an answer, lets it become stale, and begins its validation, which ends when the returned channel is closed.
func (p *probe) validating(then ...answer) (begin chan struct{}, pending <-chan got) {
	begin = make(chan struct{})
	confirmed := answer{status: http.StatusNotModified, fields: fresh("", "Etag", `"1"`).fields, begin: begin}
	p.answers(append([]answer{fresh("old", "Etag", `"1"`), confirmed}, then...)...)
	p.misses("old")
	p.hits("old")
	time.Sleep(time.Minute)
	pending = p.pending()
	time.Sleep(time.Millisecond)
	return begin, pending
}

func validatedAcross(p *probe) {
	begin, pending := p.validating(answer{status: http.StatusNoContent}, fresh("new", "Etag", `"2"`))
	p.do(request(http.MethodPut, url))
	close(begin)
	p.gets("old", pending)
	p.misses("new")
	p.hits("new")
}

func refreshedAcross(p *probe) {
	begin := make(chan struct{})
	fields := []string{"Cache-Control", "max-age=10, stale-while-revalidate=100"}
	late := says("late", fields...)
	late.begin = begin
	p.answers(says("old", fields...), late, answer{status: http.StatusNoContent}, fresh("new"))
	p.misses("old")
	p.hits("old")
	time.Sleep(20 * time.Second)
	pending := p.pending()
	time.Sleep(time.Millisecond)
	p.do(request(http.MethodPut, url))
	p.misses("new")
	close(begin)
	if g := <-pending; g.text != "old" && g.text != "late" {
		p.Errorf("%q", g.text)
	}
	synctest.Wait()
	p.hits("new")
}

func lateNotModified(p *probe) {
	begin, pending := p.validating(fresh("new", "Etag", `"2"`))
	p.misses("new", "Cache-Control", "no-cache")
	p.hits("new")
	close(begin)
	p.gets("old", pending)
	p.hits("new")
}

func olderAnswer(p *probe) {
	begin := make(chan struct{})
	old := fresh("old")
	old.begin = begin
	p.answers(old, fresh("new"))
	pending := p.pending()
	time.Sleep(time.Millisecond) // or no clock could tell which came first
	p.misses("new", "Cache-Control", "no-cache")
	p.hits("new")
	close(begin)
	p.gets("old", pending)
	p.hits("new")
}
