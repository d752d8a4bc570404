package transporttest

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/watertight-go/watertight/policy"
)

// validateFaults reports every problem of what is to be Set.
func validateFaults(host string, pattern error, injections []Injection) error {
	var errs []error
	if pattern != nil {
		errs = append(errs, fmt.Errorf("transporttest: Faults: %w", pattern))
		host = "?" // it may hold a password
	}
	total := 0.0
	for i, in := range injections {
		v := faultValidator{path: fmt.Sprintf("Faults[%q][%d].", host, i), errs: &errs}
		if !(in.Share > 0 && in.Share <= 1) { // NaN too
			v.add("Share", in.Share, "a fraction above 0 and up to 1 (every request); 0.3 is 30 %")
		} else {
			total += in.Share
		}
		v.path += "Step."
		v.step(&in.Step)
	}
	if total > 1+1e-9 {
		errs = append(errs, &policy.FieldError{Path: fmt.Sprintf("Faults[%q]: all Shares together", host), Value: total,
			Want: "at most 1, since a request is hit by one injection"})
	}
	return errors.Join(errs...)
}

type faultValidator struct {
	path string
	errs *[]error
}

func (v faultValidator) add(field string, value any, want string) {
	*v.errs = append(*v.errs, &policy.FieldError{Path: v.path + field, Value: value, Want: want})
}

func (v faultValidator) step(s *Step) {
	if s.Delay < 0 {
		v.add("Delay", s.Delay, "0 (none) or a positive duration")
	}
	if s.Pause < 0 {
		v.add("Pause", s.Pause, "0 (none) or a positive duration")
	}
	if s.Chunk < 0 {
		v.add("Chunk", s.Chunk, "0 (all at once) or a positive number of bytes")
	}
	if s.Size < 0 {
		v.add("Size", s.Size, "0 or a positive number of bytes")
	}
	if s.Status != 0 && (s.Status < 200 || s.Status > 599) {
		v.add("Status", s.Status, "0 (the answer of the Base) or a final status code, from 200 to 599")
	}
	if s.Fault > Reset {
		v.add("Fault", s.Fault, "Hang, Cut or Reset")
	}
	switch {
	case s.At < HeadersOnly:
		v.add("At", s.At, "0 (before the headers), HeadersOnly or a positive number of bytes")
	case s.At != 0 && s.Fault == 0:
		v.add("At", s.At, "0, or Fault the one that strikes there")
	}
	if s.Err != nil && (s.Status != 0 || s.Fault != 0) {
		v.add("Err", s.Err, "nil where there is a Status or a Fault")
	}
	if s.Raw != "" {
		v.add("Raw", s.Raw, "empty: only an Origin has bytes to send")
	}
	if s.Handler != nil {
		v.add("Handler", "set", "nil: only an Origin can serve with it")
	}
	for i, interim := range s.Interim {
		if interim.Status < 100 || interim.Status > 199 || interim.Status == http.StatusSwitchingProtocols {
			v.add(fmt.Sprintf("Interim[%d].Status", i), interim.Status, "a status code from 100 to 199, but not 101")
		}
	}
	v.ownAnswer(s)
	if s.Delay == 0 && s.Pause == 0 && s.Status == 0 && s.Fault == 0 && s.Err == nil {
		v.add("Status", 0, "set, or one of Delay, Pause, Fault and Err: this does nothing")
	}
}

// ownAnswer refuses what describes an answer where there is none of its own.
func (v faultValidator) ownAnswer(s *Step) {
	if s.Status != 0 {
		return
	}
	const want = "left out where Status is 0, for the answer is that of the Base; for one of your own set Status to 200"
	if len(s.Header) > 0 {
		v.add("Header", s.Header, want)
	}
	if s.Body != "" {
		v.add("Body", s.Body, want)
	}
	if s.Size > 0 {
		v.add("Size", s.Size, want)
	}
	if s.Framing != Fixed {
		v.add("Framing", s.Framing, want)
	}
	if len(s.Trailer) > 0 {
		v.add("Trailer", s.Trailer, want)
	}
	if len(s.Interim) > 0 {
		v.add("Interim", len(s.Interim), want)
	}
	if s.Unread && s.goesOn() {
		v.add("Unread", s.Unread, "false where the request goes on to the Base, which reads it")
	}
}
