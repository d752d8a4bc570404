package cachetest

import (
	"net/http"
	"time"
)

var clock = []rule{
	{"FreshUntilItsLifetimeEnds",
		"an answer is reused for its lifetime, and no longer (RFC 9111 section 4.2)", lifetime},
	{"DelayCountsAsAge",
		"the time that an answer took is part of its age (RFC 9111 section 4.2.3)", delayed},
	{"AgeBeginsBeforeTheBody",
		"an answer is as old as its header, however long its body took (RFC 9111 section 4.2.3)", slowBody},
	{"OldDatesAreOld",
		"the time since Date is a lower bound of the age (RFC 9111 section 4.2.3)", oldDate},
	{"FutureDatesGiveNothing",
		"a Date in the future makes an answer no younger, and Expires counts from Date (RFC 9111 section 4.2.1, 4.2.3)", futureDate},
}

func lifetime(p *probe) {
	p.numbers(says("", "Cache-Control", "max-age=100"))
	p.misses("1")
	time.Sleep(99 * time.Second)
	p.hits("1")
	time.Sleep(time.Second)
	p.misses("2")
	time.Sleep(100*time.Second - time.Nanosecond)
	p.hits("2")
	time.Sleep(time.Nanosecond)
	p.misses("3")
}

func delayed(p *probe) {
	slow := fresh("slow")
	slow.delay = 40 * time.Second
	p.answers(slow, fresh("next"))
	p.misses("slow")
	time.Sleep(20*time.Second - time.Nanosecond)
	p.hits("slow")
	time.Sleep(time.Nanosecond)
	p.misses("next")
}

func slowBody(p *probe) {
	finish := make(chan struct{})
	slow := fresh("slow")
	slow.finish = finish
	p.answers(slow, fresh("next"))
	pending := p.pending()
	time.Sleep(59 * time.Second)
	close(finish)
	<-pending
	p.hits("slow")
	time.Sleep(time.Second)
	p.misses("next")
}

func oldDate(p *probe) {
	at := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(http.TimeFormat) }
	p.answers(fresh("an hour old", "Date", at(-time.Hour)), fresh("half", "Date", at(-30*time.Second)), fresh("next"))
	p.misses("an hour old")
	p.misses("half")
	time.Sleep(29 * time.Second)
	p.hits("half")
	time.Sleep(time.Second)
	p.misses("next")
}

func futureDate(p *probe) {
	at := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(http.TimeFormat) }
	p.answers(fresh("early", "Date", at(time.Hour)), says("next", "Date", at(time.Hour), "Expires", at(time.Hour+20*time.Second)), fresh("last"))
	p.misses("early")
	p.hits("early")
	time.Sleep(time.Minute)
	p.misses("next")
	time.Sleep(20 * time.Second)
	p.misses("last")
}
