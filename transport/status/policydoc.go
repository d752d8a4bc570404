package status

import "github.com/watertight-go/watertight/policy"

// Policy is the configuration of a host: the fields of policy.Policy by their names
// in snake_case, those of the breaker with what their zero values stand for.
// Functions are told as true where there is one.
type Policy struct {
	Timeout   TimeoutPolicy  `json:"timeout"`
	Bulkhead  BulkheadPolicy `json:"bulkhead"`
	Breaker   *BreakerPolicy `json:"breaker"` // null: off
	Retry     RetryPolicy    `json:"retry"`
	Fallback  FallbackPolicy `json:"fallback"`
	Cache     CachePolicy    `json:"cache"`
	Streaming bool           `json:"streaming"`
}

// TimeoutPolicy is policy.Timeout; 0 is off.
type TimeoutPolicy struct {
	Connect       float64 `json:"connect_seconds"`
	TLSHandshake  float64 `json:"tls_handshake_seconds"`
	Read          float64 `json:"read_seconds"`
	Attempt       float64 `json:"attempt_seconds"`
	Total         float64 `json:"total_seconds"`
	MinThroughput int64   `json:"min_throughput_bytes_per_second"`
	StreamIdle    float64 `json:"stream_idle_seconds"`
	Shadow        bool    `json:"shadow"`
}

// BulkheadPolicy is policy.Bulkhead; 0 is off.
type BulkheadPolicy struct {
	MaxConcurrent int     `json:"max_concurrent"`
	MaxWait       float64 `json:"max_wait_seconds"`
	BodyIdle      float64 `json:"body_idle_seconds"`
	Shadow        bool    `json:"shadow"`
}

// BreakerPolicy is policy.Breaker; a trigger of 0 is off.
type BreakerPolicy struct {
	Window              float64 `json:"window_seconds"`
	WindowCalls         int     `json:"window_calls"`
	MinCalls            int     `json:"min_calls"`
	FailureRate         float64 `json:"failure_rate"`
	SlowCall            float64 `json:"slow_call_seconds"`
	SlowRate            float64 `json:"slow_rate"`
	ConsecutiveFailures int     `json:"consecutive_failures"`
	FailuresInWindow    int     `json:"failures_in_window"`
	OpenFor             float64 `json:"open_for_seconds"`
	OpenForMax          float64 `json:"open_for_max_seconds"`
	HalfOpenProbes      int     `json:"half_open_probes"`
	Classify            bool    `json:"classify"`
	Shadow              bool    `json:"shadow"`
}

// RetryPolicy is policy.Retry.
type RetryPolicy struct {
	MaxAttempts        int     `json:"max_attempts"` // 0 or 1: no retries
	Base               float64 `json:"base_seconds"`
	Max                float64 `json:"max_seconds"`
	Statuses           []int   `json:"statuses"` // null: the default ones
	MaxRetryAfter      float64 `json:"max_retry_after_seconds"`
	ReplayBody         int64   `json:"replay_body_bytes"`
	BudgetRatio        float64 `json:"budget_ratio"`
	BudgetMinPerSecond float64 `json:"budget_min_per_second"`
	Shadow             bool    `json:"shadow"`
}

// CachePolicy is policy.Cache.
type CachePolicy struct {
	Off             bool     `json:"off"`
	Fresh           bool     `json:"fresh"` // answers are reused
	Shared          bool     `json:"shared"`
	Partition       bool     `json:"partition"`             // it is set
	KeyHeaders      []string `json:"key_headers,omitempty"` // none: the default
	RefreshInterval float64  `json:"refresh_interval_seconds"`
	LabelAll        bool     `json:"label_all"`
}

// FallbackPolicy is policy.Fallback.
type FallbackPolicy struct {
	MaxStale    float64 `json:"max_stale_seconds"`
	StaleLimit  float64 `json:"stale_limit_seconds"`
	Degraded    bool    `json:"degraded"`
	After       float64 `json:"after_seconds"` // 0: as long as the timeouts let it
	FailFast503 bool    `json:"fail_fast_503"`
	Shadow      bool    `json:"shadow"`
}

// policyOf describes a policy.
func policyOf(p policy.Policy) *Policy {
	t, b, r, f := p.Timeout, p.Bulkhead, p.Retry, p.Fallback
	d := &Policy{
		Timeout: TimeoutPolicy{
			Connect: seconds(t.Connect), TLSHandshake: seconds(t.TLSHandshake), Read: seconds(t.Read),
			Attempt: seconds(t.Attempt), Total: seconds(t.Total), MinThroughput: t.MinThroughput,
			StreamIdle: seconds(t.StreamIdle), Shadow: t.Shadow,
		},
		Bulkhead: BulkheadPolicy{
			MaxConcurrent: b.MaxConcurrent, MaxWait: seconds(b.MaxWait), BodyIdle: seconds(b.BodyIdle), Shadow: b.Shadow,
		},
		Retry: RetryPolicy{
			MaxAttempts: r.MaxAttempts, Base: seconds(r.Base), Max: seconds(r.Max), Statuses: r.Statuses,
			MaxRetryAfter: seconds(r.MaxRetryAfter), ReplayBody: r.ReplayBody,
			BudgetRatio: r.Budget.Ratio, BudgetMinPerSecond: r.Budget.MinPerSecond, Shadow: r.Shadow,
		},
		Fallback: FallbackPolicy{
			MaxStale: seconds(f.MaxStale), StaleLimit: seconds(f.StaleLimit), Degraded: f.Degraded != nil,
			After: seconds(f.After), FailFast503: f.FailFast503, Shadow: f.Shadow,
		},
		Cache: CachePolicy{
			Off: p.Cache.Off, Fresh: p.Cache.Fresh, Shared: p.Cache.Shared, Partition: p.Cache.Partition != nil,
			KeyHeaders: p.Cache.KeyHeaders, RefreshInterval: seconds(p.Cache.RefreshInterval), LabelAll: p.Cache.LabelAll,
		},
		Streaming: p.Streaming,
	}
	if p.Breaker.Enabled() {
		d.Breaker = breakerOf(p.Breaker.WithDefaults(b.MaxConcurrent))
	}
	return d
}

func breakerOf(k policy.Breaker) *BreakerPolicy {
	return &BreakerPolicy{
		Window: seconds(k.Window), WindowCalls: k.WindowCalls, MinCalls: k.MinCalls,
		FailureRate: k.FailureRate, SlowCall: seconds(k.SlowCall), SlowRate: k.SlowRate,
		ConsecutiveFailures: k.ConsecutiveFailures, FailuresInWindow: k.FailuresInWindow,
		OpenFor: seconds(k.OpenFor), OpenForMax: seconds(k.OpenForMax), HalfOpenProbes: k.HalfOpenProbes,
		Classify: k.Classify != nil, Shadow: k.Shadow,
	}
}
