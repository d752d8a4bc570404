package main

import (
	"fmt"
	"strings"
)

// results is RESULTS.md.
func results(f *figures, s *sources, machine string) string {
	var b strings.Builder
	b.WriteString("# watertight beside its peers\n\n")
	b.WriteString("Written by a command; what it says of a peer is the comment of a test that was run with it.\n\n")
	b.WriteString(machine)
	b.WriteString(reading)
	b.WriteString("\n## Works\n")
	b.WriteString(tables(f, s, notes(s.faults)))
	b.WriteString("\n## What they get wrong\n\nEach used as its documentation has it. The test shows the same input done right by watertight.\n\n")
	for i, fault := range s.faults {
		fmt.Fprintf(&b, "- **%s** %s: %s (`%s`)\n", letter(i), fault.peer, fault.text, fault.test)
	}
	b.WriteString("\n## Targets\n\n")
	b.WriteString(targetTable(f))
	return b.String()
}

const reading = `
## How to read it

![Time of the most telling works](peers.svg)

Figures are medians over the rounds, and min–max are those of one round; "x bare" is the median of the ratios of each
round, as is what the targets compare: it need not be what the medians come to. Figures of different works, or of
different machines, do not compare. Peers are configured by one policy as far as they have words for
it, and are left out of works that they cannot do. They differ in what they do for their time: ` + "`gobreaker`" + `,
say, is a breaker and nothing else. Most of what a call through watertight costs is there with ` + "`none`" + `: a copy of
the request and of the response, a context, the time, and the end of the body, to which all layers are tied.

- ` + "`bare`" + ` is the base itself: a stub in memory, or a bare http.Transport over sockets.
- ` + "`timeout`" + ` is context.WithTimeout around it until the body has ended, what everybody writes first.
- ` + "`floor`" + ` is a bulkhead, a breaker, a retry and a timeout written by hand: about the least that the work can cost.
- ` + "`none`" + ` is watertight with every layer off, ` + "`only-…`" + ` with one, ` + "`complete`" + ` with policy.Default(), which stores what its origin
  lets it, and no answer of these works but those called stale or fresh; ` + "`only-fallback`" + ` stores every answer.
- ` + "`…-per-host`" + ` is the same behind a sync.Map of hosts; what is not so named keeps one state for all.
- ` + "`go-retryablehttp`" + ` and ` + "`heimdall`" + ` have an http.Client in them, which is part of their figures.
- Ratios (throughput-ratio, p99-ratio) are to bare's, turn by turn, in the same process; their median is shown.
- The letters are those of the list below the tables. There is none where there is no library of somebody else's,
  which does not say that nothing is wrong: ` + "`floor`" + ` learns of a hang when the limit is over, and ` + "`timeout`" + `
  and ` + "`bare`" + ` do nothing else. What watertight promises, its own tests hold it to.
`
