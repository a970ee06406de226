package protocol

import "time"

// RestartStrategy says how long to wait after a failed generation before the next one begins.
// It reads no clock and makes no randomness: the shell passes both in.
type RestartStrategy interface {
	// Next returns the delay after a failure at failedAt, or false if the job is not to be
	// started again. r is a random number in [0, 1).
	Next(failedAt time.Time, r float64) (delay time.Duration, ok bool)
}

// Defaults of ExponentialDelay.
const (
	DefaultInitialDelay   = time.Second
	DefaultMaxDelay       = time.Minute
	DefaultMultiplier     = 1.5
	DefaultResetThreshold = time.Hour
	DefaultJitter         = 0.1
)

// ExponentialDelayConfig configures NewExponentialDelay. The zero value is the defaults.
type ExponentialDelayConfig struct {
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

// ExponentialDelay waits longer after each failure, up to a limit, and starts over once the job
// has run well for a while.
type ExponentialDelay struct {
	cfg      ExponentialDelayConfig
	delay    time.Duration // the last one without jitter; 0 before the first failure
	failedAt time.Time     // the last failure
	restarts int           // since the last reset
}

// NewExponentialDelay makes the default strategy.
func NewExponentialDelay(cfg ExponentialDelayConfig) *ExponentialDelay {
	if cfg.InitialDelay <= 0 {
		cfg.InitialDelay = DefaultInitialDelay
	}
	if cfg.MaxDelay <= 0 {
		cfg.MaxDelay = DefaultMaxDelay
	}
	if cfg.Multiplier < 1 {
		cfg.Multiplier = DefaultMultiplier
	}
	if cfg.ResetThreshold <= 0 {
		cfg.ResetThreshold = DefaultResetThreshold
	}
	if cfg.Jitter == 0 {
		cfg.Jitter = DefaultJitter
	}
	cfg.Jitter = max(cfg.Jitter, 0)
	return &ExponentialDelay{cfg: cfg}
}

// Next implements RestartStrategy.
func (e *ExponentialDelay) Next(failedAt time.Time, r float64) (time.Duration, bool) {
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

	restarts int
}

// Next implements RestartStrategy.
func (f *FixedDelay) Next(time.Time, float64) (time.Duration, bool) {
	f.restarts++
	if f.MaxRestarts > 0 && f.restarts > f.MaxRestarts {
		return 0, false
	}
	return delayOr(f.Delay, DefaultInitialDelay), true
}

// FailureRate waits the same time after each failure, and gives up once failures come too often.
type FailureRate struct {
	Delay       time.Duration // default 1 s
	MaxFailures int           // within Interval; one more ends the job; default 1
	Interval    time.Duration // default 1 min

	failures []time.Time // the last MaxFailures, oldest first
}

// Next implements RestartStrategy.
func (f *FailureRate) Next(failedAt time.Time, _ float64) (time.Duration, bool) {
	most := max(f.MaxFailures, 1)
	if len(f.failures) == most {
		if failedAt.Sub(f.failures[0]) <= delayOr(f.Interval, time.Minute) {
			return 0, false
		}
		f.failures = f.failures[1:]
	}
	f.failures = append(f.failures, failedAt)
	return delayOr(f.Delay, DefaultInitialDelay), true
}

// NoRestart ends the job at the first failure.
type NoRestart struct{}

// Next implements RestartStrategy.
func (NoRestart) Next(time.Time, float64) (time.Duration, bool) { return 0, false }

func delayOr(d, standard time.Duration) time.Duration {
	if d <= 0 {
		return standard
	}
	return d
}
