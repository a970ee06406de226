package protocol

import "time"

// RestartStrategy says how long to wait after a failed generation before the next one begins.
// It reads no clock and makes no randomness: the shell passes both in.
type RestartStrategy interface {
	// Next returns the delay after a failure at failedAt, or false if the job is not to be
	// started again. r is a random number in [0, 1).
	Next(failedAt time.Time, r float64) (delay time.Duration, ok bool)
}

// Restart is a restart strategy as it is configured.
type Restart interface {
	// Strategy begins to count failures.
	Strategy() RestartStrategy
	// Longest is the longest delay before one restart.
	Longest() time.Duration
}

// Defaults of ExponentialDelay.
const (
	DefaultInitialDelay   = time.Second
	DefaultMaxDelay       = time.Minute
	DefaultMultiplier     = 1.5
	DefaultResetThreshold = time.Hour
	DefaultJitter         = 0.1
)

// ExponentialDelay waits longer after each failure, up to a limit, and starts over once the job
// has run well for a while. The zero value is the defaults.
type ExponentialDelay struct {
	InitialDelay time.Duration // after the first failure; default 1 s
	MaxDelay     time.Duration // no delay is longer; default 1 min
	Multiplier   float64       // from one delay to the next; default 1.5, at least 1
	// ResetThreshold is how long a generation must have run, beyond its delay, for the next
	// delay to be the initial one again; default 1 h.
	ResetThreshold time.Duration
	// Jitter is the part of the delay that is added or taken away at random; default 0.1, and
	// negative for none.
	Jitter float64
	// MaxRestarts is how many restarts without a reset are made; 0 is no limit.
	MaxRestarts int
}

func (c ExponentialDelay) withDefaults() ExponentialDelay {
	c.InitialDelay = delayOr(c.InitialDelay, DefaultInitialDelay)
	c.MaxDelay = delayOr(c.MaxDelay, DefaultMaxDelay)
	c.ResetThreshold = delayOr(c.ResetThreshold, DefaultResetThreshold)
	if c.Multiplier < 1 {
		c.Multiplier = DefaultMultiplier
	}
	if c.Jitter == 0 {
		c.Jitter = DefaultJitter
	}
	c.Jitter = max(c.Jitter, 0)
	return c
}

// Strategy implements Restart.
func (c ExponentialDelay) Strategy() RestartStrategy { return &exponentialDelay{cfg: c.withDefaults()} }

// Longest implements Restart.
func (c ExponentialDelay) Longest() time.Duration { return c.withDefaults().MaxDelay }

type exponentialDelay struct {
	cfg      ExponentialDelay
	delay    time.Duration // the last one without jitter; 0 before the first failure
	failedAt time.Time     // the last failure
	restarts int           // since the last reset
}

// Next implements RestartStrategy.
func (e *exponentialDelay) Next(failedAt time.Time, r float64) (time.Duration, bool) {
	if e.delay == 0 || failedAt.Sub(e.failedAt) >= e.cfg.ResetThreshold+e.delay {
		e.delay, e.restarts = e.cfg.InitialDelay, 0
	} else {
		e.delay = time.Duration(min(float64(e.delay)*e.cfg.Multiplier, float64(e.cfg.MaxDelay)))
	}
	e.delay = min(e.delay, e.cfg.MaxDelay)
	e.failedAt = failedAt
	e.restarts++
	if e.cfg.MaxRestarts > 0 && e.restarts > e.cfg.MaxRestarts {
		return 0, false
	}
	jitter := (2*r - 1) * e.cfg.Jitter * float64(e.delay)
	return min(e.delay+time.Duration(jitter), e.cfg.MaxDelay), true
}

// FixedDelay waits the same time after each failure.
type FixedDelay struct {
	Delay       time.Duration // default 1 s
	MaxRestarts int           // in all; 0 is no limit
}

// Strategy implements Restart.
func (c FixedDelay) Strategy() RestartStrategy { return &fixedDelay{cfg: c} }

// Longest implements Restart.
func (c FixedDelay) Longest() time.Duration { return delayOr(c.Delay, DefaultInitialDelay) }

type fixedDelay struct {
	cfg      FixedDelay
	restarts int
}

// Next implements RestartStrategy.
func (f *fixedDelay) Next(time.Time, float64) (time.Duration, bool) {
	f.restarts++
	if f.cfg.MaxRestarts > 0 && f.restarts > f.cfg.MaxRestarts {
		return 0, false
	}
	return f.cfg.Longest(), true
}

// FailureRate waits the same time after each failure, and gives up once failures come too often.
type FailureRate struct {
	Delay       time.Duration // default 1 s
	MaxFailures int           // within Interval; one more ends the job; default 1
	Interval    time.Duration // default 1 min
}

// Strategy implements Restart.
func (c FailureRate) Strategy() RestartStrategy { return &failureRate{cfg: c} }

// Longest implements Restart.
func (c FailureRate) Longest() time.Duration { return delayOr(c.Delay, DefaultInitialDelay) }

type failureRate struct {
	cfg      FailureRate
	failures []time.Time // the last MaxFailures, oldest first
}

// Next implements RestartStrategy.
func (f *failureRate) Next(failedAt time.Time, _ float64) (time.Duration, bool) {
	if len(f.failures) == max(f.cfg.MaxFailures, 1) {
		if failedAt.Sub(f.failures[0]) <= delayOr(f.cfg.Interval, time.Minute) {
			return 0, false
		}
		f.failures = f.failures[1:]
	}
	f.failures = append(f.failures, failedAt)
	return f.cfg.Longest(), true
}

// NoRestart ends the job at the first failure.
type NoRestart struct{}

// Strategy implements Restart.
func (NoRestart) Strategy() RestartStrategy { return noRestart{} }

// Longest implements Restart.
func (NoRestart) Longest() time.Duration { return 0 }

type noRestart struct{}

// Next implements RestartStrategy.
func (noRestart) Next(time.Time, float64) (time.Duration, bool) { return 0, false }

func delayOr(d, standard time.Duration) time.Duration {
	if d <= 0 {
		return standard
	}
	return d
}
