package status

import "time"

// Hosts is the document at /hosts.
type Hosts struct {
	At       time.Time `json:"at"`       // when the state was looked at, up to half a second ago
	Name     string    `json:"name"`     // Config.Name
	Instance string    `json:"instance"` // another one: another process, or another Handler
	Summary  Summary   `json:"summary"`  // of all hosts
	Matched  int       `json:"matched"`  // hosts that were asked for
	Hosts    []Host    `json:"hosts"`    // the first of those, those in trouble first
}

// Summary counts the hosts.
type Summary struct {
	Hosts        int `json:"hosts"`
	Closed       int `json:"closed"`
	Open         int `json:"open"`
	HalfOpen     int `json:"half_open"`
	ForcedOpen   int `json:"forced_open"`
	ForcedClosed int `json:"forced_closed"`
	Refusing     int `json:"refusing"`  // open or forced_open, and not in shadow mode
	Probing      int `json:"probing"`   // half_open, and not in shadow mode: as down as those that are refused
	Exposed      int `json:"exposed"`   // forced_closed, and over a threshold: nothing protects their callers
	InFlight     int `json:"in_flight"` // attempts under way to all hosts
}

// Host is the state of one scheme, host and port.
type Host struct {
	Scheme string   `json:"scheme"`
	Host   string   `json:"host"`   // host:port; "overflow" stands for all beyond MaxHosts
	Shadow []string `json:"shadow"` // layers that only report what they would have done: timeout, bulkhead, breaker, retry, fallback

	State              string    `json:"state"`                         // closed, open, half_open, forced_open, forced_closed
	Since              time.Time `json:"since,omitzero"`                // when State began; absent for a breaker that never moved
	SinceSeconds       float64   `json:"since_seconds,omitzero"`        // ago
	ClosedUntil        time.Time `json:"closed_until,omitzero"`         // when it was last closed; absent while it is
	ClosedUntilSeconds float64   `json:"closed_until_seconds,omitzero"` // ago
	Cause              *Evidence `json:"cause,omitempty"`               // why it left closed; absent while it is
	ProbeDue           time.Time `json:"probe_due,omitzero"`            // when an open breaker lets probes through
	ProbeDueSeconds    float64   `json:"probe_due_seconds,omitzero"`    // from now
	Trip               *Trip     `json:"trip,omitempty"`                // why it last opened, also when it is closed again

	Window   *Window       `json:"window,omitempty"` // what the breaker judges by; absent where it is off
	Failures []FailureKind `json:"failures"`         // the last 32 failures, by what they were, the most frequent first

	Permits   Permits   `json:"permits"`
	Retries   Retries   `json:"retries"`
	Latency   Latency   `json:"latency"`
	Calls     Calls     `json:"calls"`
	Refusals  Refusals  `json:"refusals"`
	Timeouts  Timeouts  `json:"timeouts"`
	Fallbacks Fallbacks `json:"fallbacks"`
	Cache     Cache     `json:"cache"`
	Leaks     int64     `json:"leaks"` // response bodies that their callers forgot

	Transitions []Transition `json:"transitions,omitempty"` // of this host, the last 16, without IDs
	Policy      *Policy      `json:"policy,omitempty"`
}

// Trip is why and when a breaker opened.
type Trip struct {
	At         time.Time `json:"at"`
	AgoSeconds float64   `json:"ago_seconds"`
	Evidence
}

// Evidence is what a breaker had counted when it changed its state.
type Evidence struct {
	// Trigger is failure_rate, slow_call_rate, consecutive_failures,
	// failures_in_window, probe_failed or probe_slow where it opened; wait_over,
	// probes_succeeded, forced, reset or abandoned where not.
	Trigger             string  `json:"trigger"`
	Text                string  `json:"text"`           // all of this as a phrase
	WindowSeconds       float64 `json:"window_seconds"` // the span that was counted; 0 for a window of calls
	Calls               int     `json:"calls"`          // ended as success or failure
	Failures            int     `json:"failures"`       // of those
	Timed               int     `json:"timed"`          // got headers, or passed SlowCall
	Slow                int     `json:"slow"`           // of those
	ConsecutiveFailures int     `json:"consecutive_failures"`
	Threshold           float64 `json:"threshold"`    // what was reached: a share, or a count
	LastFailure         string  `json:"last_failure"` // a status code or a kind of error; empty if there was none yet
}

// Window is what a breaker's window holds now, and what it is compared with.
// Thresholds of 0 are off.
type Window struct {
	Seconds  float64 `json:"seconds"`   // 0 for a window of calls
	MinCalls int     `json:"min_calls"` // what the rates need as evidence

	Calls                int     `json:"calls"` // ended as success or failure
	Failures             int     `json:"failures"`
	FailureRate          float64 `json:"failure_rate"`
	FailureRateThreshold float64 `json:"failure_rate_threshold"`
	FailuresThreshold    int     `json:"failures_threshold"`

	Timed             int     `json:"timed"` // got headers, or passed SlowCall
	Slow              int     `json:"slow"`
	SlowRate          float64 `json:"slow_rate"`
	SlowRateThreshold float64 `json:"slow_rate_threshold"`
	SlowCallSeconds   float64 `json:"slow_call_seconds"` // the age at which a call is slow

	ConsecutiveFailures          int    `json:"consecutive_failures"`
	ConsecutiveFailuresThreshold int    `json:"consecutive_failures_threshold"`
	LastFailure                  string `json:"last_failure"`

	Over bool `json:"over"` // a threshold is reached: a closed breaker would open
}

// FailureKind is how often a failure was among the last ones.
type FailureKind struct {
	What   string    `json:"what"` // a status code or a kind of error
	Count  int       `json:"count"`
	LastAt time.Time `json:"last_at"`
}

// Permits are those of the bulkhead.
type Permits struct {
	InUse   int `json:"in_use"`  // attempts under way, until their bodies have ended
	Limit   int `json:"limit"`   // 0: no bound
	Waiting int `json:"waiting"` // calls that wait for one
}

// Retries are totals since the host is known, and what may be retried now.
type Retries struct {
	Made       int64   `json:"made"`
	Suppressed int64   `json:"suppressed"`
	Budget     *Budget `json:"budget,omitempty"` // absent where retries are off, or without a bound
}

// Budget is that of retries: each takes a token.
type Budget struct {
	Left  float64 `json:"left"`
	Limit float64 `json:"limit"`
}

// Latency is how long attempts of the last minute or two have waited for the host.
// Percentiles are up to a quarter above the true ones; all are 0 without an attempt.
type Latency struct {
	Attempts int64   `json:"attempts"`
	P50      float64 `json:"p50_seconds"`
	P95      float64 `json:"p95_seconds"`
	P99      float64 `json:"p99_seconds"`
}

// Calls are totals since the host is known.
type Calls struct {
	Total    int64 `json:"total"`
	Attempts int64 `json:"attempts"` // that were sent
	Success  int64 `json:"success"`
	Failure  int64 `json:"failure"`
	Neutral  int64 `json:"neutral"` // 4xx, and what their callers ended
}

// Refusals are totals since the host is known, by the layer that refused.
type Refusals struct {
	BreakerOpen     int64 `json:"breaker_open"`
	BreakerHalfOpen int64 `json:"breaker_half_open"`
	Bulkhead        int64 `json:"bulkhead"`
}

// Timeouts are totals since the host is known, by phase.
type Timeouts struct {
	Queue          int64 `json:"queue"` // of Total, while the call waited for a permit
	Connect        int64 `json:"connect"`
	TLS            int64 `json:"tls"`
	Write          int64 `json:"write"`
	ResponseHeader int64 `json:"response_header"`
	Body           int64 `json:"body"`
	Attempt        int64 `json:"attempt"`
	Total          int64 `json:"total"`
	Stream         int64 `json:"stream"`
}

// Fallbacks are totals since the host is known, by what was served.
type Fallbacks struct {
	Stale     int64  `json:"stale"`
	Degraded  int64  `json:"degraded"`
	FailFast  int64  `json:"fail_fast"`
	LastStale *Stale `json:"last_stale,omitempty"`

	MaxStale float64 `json:"max_stale_seconds"` // how long after its freshness an answer may be served; 0: what the origin grants
}

// Cache are totals since the host is known, of what came from the store with nothing wrong.
type Cache struct {
	Hits      int64 `json:"hits"`      // with no contact
	Collapsed int64 `json:"collapsed"` // after waiting for another call's answer
	Validated int64 `json:"validated"` // confirmed by the origin
	Refreshes int64 `json:"refreshes"` // requests in the background
}

// Stale is the last stored answer that was served in place of a failure.
type Stale struct {
	At         time.Time `json:"at"`
	AgoSeconds float64   `json:"ago_seconds"`
	AsOf       time.Time `json:"as_of"`       // when the origin gave it
	AgeSeconds float64   `json:"age_seconds"` // how old it was when served
}

// Transitions is the document at /transitions.
type Transitions struct {
	At           time.Time    `json:"at"`
	Instance     string       `json:"instance"`
	Since        time.Time    `json:"since"`         // from when on none is missing: what was before, nobody knows
	SinceSeconds float64      `json:"since_seconds"` // ago
	LastID       uint64       `json:"last_id"`       // of the newest there is; 0 if there was none yet
	Transitions  []Transition `json:"transitions"`
}

// Transition is one change of a breaker's state.
type Transition struct {
	ID             uint64    `json:"id,omitzero"` // from 1, one more with each
	Scheme         string    `json:"scheme"`
	Host           string    `json:"host"`
	Shadow         bool      `json:"shadow"` // the breaker only reports
	From           string    `json:"from"`
	To             string    `json:"to"`
	At             time.Time `json:"at"`
	AgoSeconds     float64   `json:"ago_seconds"`
	OpenForSeconds float64   `json:"open_for_seconds,omitzero"` // until probes are let through, of one to open
	Evidence       Evidence  `json:"evidence"`
}
