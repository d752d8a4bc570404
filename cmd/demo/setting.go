package main

import (
	"time"

	"github.com/watertight-go/watertight/policy"
)

// setting is the sizes of the scene. A scale above 1 plays the same scene
// faster: every duration is divided by it and every rate multiplied, so that all
// the ratios that the argument rests on stay what they are.
type setting struct {
	scale    float64
	workers  int           // of the assembler
	missions float64       // arrivals at /mission a second
	pings    float64       // arrivals at /ping a second
	latency  time.Duration // of a healthy dependency
	delay    time.Duration // of telemetry, once it is slow
	patience time.Duration // of who waits for /ping; /mission is waited for

	warmA, emptyA       time.Duration // how long run A is healthy, and without a worker
	warmB, slowB, restB time.Duration // run B: healthy, slow, and after it has recovered

	policy    policy.Policy // of areas, crew, geofences and alerts
	telemetry policy.Policy // may be served stale
}

// lasts is how long the workers last when none comes back.
func (s setting) lasts() time.Duration {
	return time.Duration(float64(s.workers) / s.missions * float64(time.Second))
}

func newSetting(scale float64) setting {
	d := func(d time.Duration) time.Duration { return time.Duration(float64(d) / scale) }
	s := setting{
		scale:    scale,
		workers:  200,
		missions: 50 * scale,
		pings:    5 * scale,
		latency:  d(30 * time.Millisecond),
		delay:    d(30 * time.Second),
		patience: d(2 * time.Second),
		warmA:    d(3 * time.Second),
		emptyA:   d(5 * time.Second),
		warmB:    d(11 * time.Second),
		slowB:    d(8 * time.Second),
		restB:    d(3 * time.Second),
	}
	p := policy.Service()
	s.policy = scaled(p, scale)
	p.Fallback.MaxStale = 10 * time.Minute
	s.telemetry = scaled(p, scale)
	return s
}

// scaled is p, scale times faster.
func scaled(p policy.Policy, scale float64) policy.Policy {
	p.Breaker = p.Breaker.WithDefaults(p.Bulkhead.MaxConcurrent) // Buckets follow from the unscaled Window
	for _, d := range []*time.Duration{
		&p.Timeout.Connect, &p.Timeout.TLSHandshake, &p.Timeout.Read, &p.Timeout.Attempt, &p.Timeout.Total, &p.Timeout.StreamIdle,
		&p.Bulkhead.MaxWait, &p.Bulkhead.BodyIdle,
		&p.Breaker.Window, &p.Breaker.SlowCall, &p.Breaker.OpenFor, &p.Breaker.OpenForMax,
		&p.Retry.Base, &p.Retry.Max, &p.Retry.MaxRetryAfter,
		&p.Fallback.MaxStale, &p.Fallback.StaleLimit,
	} {
		*d = time.Duration(float64(*d) / scale)
	}
	p.Timeout.MinThroughput = int64(float64(p.Timeout.MinThroughput) * scale)
	p.Retry.Budget.MinPerSecond *= scale
	return p
}
