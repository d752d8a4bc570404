package faults_test

import (
	"fmt"
	"strings"
)

// picture is the results as a table: a line for each point, fault and request, and
// the protocols that agree together.
func picture(results map[cell]*result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-12s %-20s %-13s %-22s %s\n", "where", "what", "request", "protocol", "outcome")
	for _, c := range cells() {
		if c.proto != protos[0] { // a line for all of them that agree
			continue
		}
		var outcomes []string
		by := map[string][]string{}
		for _, c.proto = range protos {
			r := results[c]
			if r == nil {
				continue
			}
			text := r.String()
			if by[text] == nil {
				outcomes = append(outcomes, text)
			}
			by[text] = append(by[text], string(c.proto))
		}
		what := string(c.fault)
		if c.lasting {
			what += " (lasting)"
		}
		for _, text := range outcomes {
			fmt.Fprintf(&b, "%-12s %-20s %-13s %-22s %s\n", c.point, what, c.request, strings.Join(by[text], " "), text)
		}
	}
	return b.String()
}

// String tells what became of a cell, as it was found to be.
func (r *result) String() string {
	if len(r.problems) > 0 {
		return "PROBLEM: " + r.problems[0]
	}
	var b strings.Builder
	switch {
	case r.first == nil:
		b.WriteString("success")
	case r.err != nil && r.attempts > 1:
		fmt.Fprintf(&b, "%v, twice", name(r.first, r.phase))
	case r.err == nil:
		fmt.Fprintf(&b, "%v, then success", name(r.first, r.phase))
	default:
		b.WriteString(name(r.err, r.phase))
	}
	if r.suppressed != "" {
		fmt.Fprintf(&b, ", %s", r.suppressed)
	}
	fmt.Fprintf(&b, "; verdicts %v; arrived %d, whole %d", r.verdicts, r.hits, r.whole)
	return b.String()
}

func name(err error, phase string) string {
	if phase == "" {
		return err.Error()
	}
	return fmt.Sprintf("%v (%s)", err, phase)
}
