package scene

import (
	"time"

	"github.com/watertight-go/watertight/policy"
)

// setting is the sizes of the scene.
type setting struct {
	workers  int           // of the assembler
	missions float64       // arrivals at /mission a second
	pings    float64       // arrivals at /ping a second
	latency  time.Duration // of a healthy dependency
	delay    time.Duration // of telemetry, once it is slow
	patience time.Duration // of who waits for /ping; /mission is waited for

	warmA, emptyA       time.Duration // how long run A is healthy, and without a worker
	warmB, slowB, restB time.Duration // run B: healthy, slow, and after it has recovered

	second, step time.Duration // between live lines, and between samples

	policy    policy.Policy // of areas, crew, geofences and alerts
	telemetry policy.Policy // may be served stale
}

// scene is the scene at its own speed.
func scene() setting {
	s := setting{
		workers:  200,
		missions: 50,
		pings:    5,
		latency:  30 * time.Millisecond,
		delay:    30 * time.Second,
		patience: 2 * time.Second,
		warmA:    3 * time.Second,
		emptyA:   5 * time.Second,
		warmB:    11 * time.Second,
		slowB:    8 * time.Second,
		restB:    3 * time.Second,
		second:   time.Second,
		step:     250 * time.Millisecond,
	}
	s.policy, s.telemetry = policy.Service(), policy.Service()
	s.telemetry.Fallback.MaxStale = 10 * time.Minute
	return s
}

// faster plays the same scene faster: every duration is divided, and every rate
// multiplied, so that all the ratios that the argument rests on stay what they
// are.
func (s setting) faster(by float64) setting {
	for _, d := range []*time.Duration{
		&s.latency, &s.delay, &s.patience, &s.warmA, &s.emptyA, &s.warmB, &s.slowB, &s.restB, &s.second, &s.step,
	} {
		*d = time.Duration(float64(*d) / by)
	}
	s.missions *= by
	s.pings *= by
	s.policy, s.telemetry = faster(s.policy, by), faster(s.telemetry, by)
	return s
}

// faster is a policy for a scene that is played faster.
func faster(p policy.Policy, by float64) policy.Policy {
	p.Breaker = p.Breaker.WithDefaults(p.Bulkhead.MaxConcurrent) // its Buckets follow from the slow Window
	for _, d := range []*time.Duration{
		&p.Timeout.Connect, &p.Timeout.TLSHandshake, &p.Timeout.Read, &p.Timeout.Attempt, &p.Timeout.Total, &p.Timeout.StreamIdle,
		&p.Bulkhead.MaxWait, &p.Bulkhead.BodyIdle,
		&p.Breaker.Window, &p.Breaker.SlowCall, &p.Breaker.OpenFor, &p.Breaker.OpenForMax,
		&p.Retry.Base, &p.Retry.Max, &p.Retry.MaxRetryAfter,
		&p.Fallback.MaxStale, &p.Fallback.StaleLimit,
	} {
		*d = time.Duration(float64(*d) / by)
	}
	p.Timeout.MinThroughput = int64(float64(p.Timeout.MinThroughput) * by)
	p.Retry.Budget.MinPerSecond *= by
	return p
}

// lasts is how long the workers last when none comes back.
func (s setting) lasts() time.Duration {
	return time.Duration(float64(s.workers) / s.missions * float64(time.Second))
}

// settle is how long an arrival is given to be answered before the end of what is
// counted.
func (s setting) settle() time.Duration { return s.telemetry.Breaker.SlowCall / 2 }

// takes is about how long both runs take.
func (s setting) takes() time.Duration {
	open := s.telemetry.Breaker
	return s.warmA + s.lasts() + s.emptyA + s.warmB + open.SlowCall + open.OpenFor*11/10 + 2*s.restB
}
