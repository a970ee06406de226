package lab

import (
	"errors"
	"fmt"
	"time"

	"example.com/weir/apps/gatewaymeter/rig"
)

// Config configures a lab. Binary is required; everything else has a default.
type Config struct {
	// Binary is the program to run the job with: weir itself.
	Binary string

	// Brokers is a cluster to use instead of the broker in this process.
	Brokers []string

	// Fast shortens the waits: what happens is the same.
	Fast bool

	// Seed is what the requests are drawn from.
	Seed uint64

	// Guarantee of the sink of tenant-cost, in place of the lab's own: the lab then has nothing to show, and says
	// so. Not for lab 8.4, whose failure needs transactions.
	Guarantee string

	// Keep keeps the folder with the checkpoints and the job's log.
	Keep bool
}

var (
	// ErrInvalid reports a configuration that makes no lab.
	ErrInvalid = errors.New("lab: invalid configuration")
	// ErrNotShown reports a lab that ran and did not show what it is to show.
	ErrNotShown = errors.New("the lab did not show what it is to show")
)

// atLeastOnce is the guarantee under which nothing is lost.
const atLeastOnce = "at-least-once"

func (c *Config) guarantee(own string) (string, error) {
	switch c.Guarantee {
	case "":
		return own, nil
	case rig.ExactlyOnce, atLeastOnce:
		return c.Guarantee, nil
	}
	return "", fmt.Errorf("%w: sink guarantee %q: want %s or %s", ErrInvalid, c.Guarantee, rig.ExactlyOnce, atLeastOnce)
}

// pace is how long things take in a lab, in real time.
type pace struct {
	Interval           time.Duration // between checkpoints
	Minute             time.Duration // in which a minute of event time passes
	KillAfter          time.Duration // a checkpoint
	Rate               float64       // requests in a second: forty a minute of event time
	TransactionTimeout time.Duration // 0: the job's own
	Longest            time.Duration // that requests come for
}

// pace of the labs that kill between two checkpoints: six tenths of the interval after one, with a minute billed at
// least once in between.
func (c *Config) killPace() pace {
	if c.Fast {
		return pace{
			Interval: time.Second, Minute: 400 * time.Millisecond, KillAfter: 600 * time.Millisecond, Rate: 100,
			Longest: time.Minute,
		}
	}
	return pace{
		Interval: 10 * time.Second, Minute: 4 * time.Second, KillAfter: 6 * time.Second, Rate: 10, Longest: 10 * time.Minute,
	}
}

// outagePace is that of the lab whose outage outlasts the transaction timeout.
func (c *Config) outagePace() pace {
	if c.Fast {
		return pace{
			Interval: 500 * time.Millisecond, Minute: 250 * time.Millisecond, Rate: 160,
			TransactionTimeout: 3 * time.Second, Longest: time.Minute,
		}
	}
	return pace{
		Interval: 5 * time.Second, Minute: 2 * time.Second, Rate: 20, TransactionTimeout: 10 * time.Second,
		Longest: 10 * time.Minute,
	}
}

// speedup is how much faster event time passes.
func (p *pace) speedup() float64 { return float64(time.Minute) / float64(p.Minute) }
