package exchanges_test

import (
	"regexp"
	"slices"
	"strings"
)

// deliberate are all differences between a bare transport and the stack over a
// healthy origin that are meant: why, in which exchanges and with which stack they
// show, and what of a tale is not compared for it. Every other one is a fault.
var deliberate = []struct {
	why    string
	of     func(exchange, stack string) bool
	always bool // it shows every time
	forget func(*tale)
}{
	{"a nil Header is as good as an empty one: observers set fields, and nobody can use the error", only("request/no header map"), true,
		func(t *tale) { *t = tale{} }},
	{"every host has its own connections, so that a dead one is retired alone: those to a proxy are not shared between hosts",
		only("proxy/two hosts"), true, func(t *tale) { t.Origin, t.Hooks = "", nil }},
	{"Response.Request is the caller's, also where the base answers with a copy of its own, which carries the context of an attempt that is over",
		only("base/another*", "base/files as a base", "http2/several on a connection"), false, eachAnswer(func(a *answer) { a.Asked = "" })},
	{"a body of ours reads for itself: bytes are counted and kept on their way, which a WriteTo of a foreign base's body would pass by",
		only("base/*"), false, eachAnswer(func(a *answer) { a.Kind = "" })},
	{"the empty body of a redirect notes what was used of Timeout.Total, which the next hop is told of, and so is not http.NoBody itself",
		only("answer/302 without a body", "request/HEAD of a redirect", "redirect/none*"), false, eachAnswer(func(a *answer) { a.Kind = "" })},
	{"a host that is neither a name nor an IP address is refused, though a dialer of one's own may make sense of it: it can be given no state",
		only("malformed/a host of two ports"), true, func(t *tale) { *t = tale{} }},
	{"a call whose Request.Cancel was closed before it began does not dial", only("caller/has closed Cancel"), false,
		func(t *tale) { t.Hooks = nil }},
	{"a second Close of a body says nothing, where HTTP/2 says again that Request.Cancel was closed", only("http2/a body whose Cancel is closed"), false,
		eachAnswer(func(a *answer) { a.CloseErr, a.Again = "", "" })},
	{"an HTTP/2 stream that the peer has reset may be reset by us too, since the attempt's context ends with it",
		only("frames/RST_STREAM*"), false, func(t *tale) { t.Origin = resetByUs.ReplaceAllString(t.Origin, "") }},
	{"a body that is kept for a fallback is read to its end by Close, if that is near: its connection is used again",
		func(name, stack string) bool { return stack == withCopies && strings.HasPrefix(name, "body/") }, false,
		func(t *tale) {
			t.Hooks = slices.DeleteFunc(slices.Clone(t.Hooks), func(h string) bool { return !strings.HasPrefix(h, "WroteHeaderField") })
			t.Origin = oneConnection.ReplaceAllString(t.Origin, "")
		}},
}

var (
	oneConnection = regexp.MustCompile(`connection \d+:\n`)
	resetByUs     = regexp.MustCompile(`stream \d+: RST_STREAM .*\n`)
)

// only is true of some exchanges; a final * stands for anything.
func only(names ...string) func(string, string) bool {
	return func(name, _ string) bool {
		return slices.ContainsFunc(names, func(n string) bool {
			prefix, open := strings.CutSuffix(n, "*")
			return name == n || open && strings.HasPrefix(name, prefix)
		})
	}
}

func eachAnswer(forget func(*answer)) func(*tale) {
	return func(t *tale) {
		t.Answers = slices.Clone(t.Answers)
		for i := range t.Answers {
			forget(&t.Answers[i])
		}
	}
}
