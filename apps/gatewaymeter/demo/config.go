package demo

import (
	"errors"
	"fmt"
	"time"

	"example.com/weir/apps/gatewaymeter/replay"
	"example.com/weir/apps/gatewaymeter/rig"
)

// Config configures a demonstration. Binary is required; everything else has a default.
type Config struct {
	// Binary is the program to run the job with: weir itself.
	Binary string

	Seed  uint64
	Kills int // how often the job is killed; 0 is never

	// Rate is how many requests come in a second of real time; default 500.
	Rate float64
	// Duration is how long they come, in real time; default 30 s.
	Duration time.Duration
	// Speedup is how much faster event time passes than real time; default 60: a minute is billed
	// about every second.
	Speedup float64
	Tenants int // default 20

	// Trace and Prices are files; empty ones stand for the sample.
	Trace, Prices string

	// Brokers is a cluster to use instead of the broker in this process.
	Brokers []string
	// Guarantee of the sink of tenant-cost; default exactly-once.
	Guarantee string
	// Parallelism of the job; default 2.
	Parallelism int
	// Interval is the time between checkpoints; default 1 s.
	Interval time.Duration
	// Keep keeps the folder with the checkpoints.
	Keep bool
}

func (c Config) withDefaults() Config {
	setDefault(&c.Rate, 500)
	setDefault(&c.Duration, 30*time.Second)
	setDefault(&c.Speedup, 60)
	setDefault(&c.Tenants, 20)
	setDefault(&c.Guarantee, rig.ExactlyOnce)
	setDefault(&c.Parallelism, 2)
	setDefault(&c.Interval, time.Second)
	return c
}

func setDefault[V comparable](v *V, def V) {
	var zero V
	if *v == zero {
		*v = def
	}
}

// ErrInvalid reports a configuration that makes no demonstration.
var ErrInvalid = errors.New("demo: invalid configuration")

func (c *Config) validate() error {
	switch {
	case c.Kills < 0, c.Rate < 0, c.Duration < 0, c.Speedup < 0, c.Tenants < 0, c.Parallelism < 0, c.Interval < 0:
		return fmt.Errorf("%w: a number is negative", ErrInvalid)
	case c.Guarantee != rig.ExactlyOnce && c.Guarantee != "at-least-once":
		return fmt.Errorf("%w: sink guarantee %q: want exactly-once or at-least-once", ErrInvalid, c.Guarantee)
	case c.Kills > 0 && c.Duration < time.Duration(c.Kills)*perKill*c.Interval:
		return fmt.Errorf("%w: %d kills need at least %s at a checkpoint every %s",
			ErrInvalid, c.Kills, time.Duration(c.Kills)*perKill*c.Interval, c.Interval)
	}
	return nil
}

// replay is what is written to gateway-events.
func (c *Config) replay() rig.Replay {
	shares := replay.Usual()
	shares.Bad = 0.001
	return rig.Replay{
		Seed: c.Seed, Rate: c.Rate, Duration: c.Duration, Speedup: c.Speedup, Tenants: c.Tenants,
		Partitions: eventPartitions(c), LateMax: lateMax, TailSpeedup: 120, Shares: shares,
	}
}

// lateMax bounds how late a record of the demonstration comes: everything late has come soon after the
// last request.
const lateMax = 4 * time.Minute

// eventPartitions is how many partitions gateway-events has: no subtask is without.
func eventPartitions(cfg *Config) int { return max(4, cfg.Parallelism) }
