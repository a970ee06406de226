package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"example.com/weir/connector"
	"example.com/weir/internal/checkpoint"
	"example.com/weir/internal/keygroup"
	"example.com/weir/internal/protocol"
)

const keyHashName = keygroup.HashName

// RunConfig says how a plan is run.
type RunConfig struct {
	Store             checkpoint.Store
	Interval          time.Duration // between checkpoints; 0: only the first and the last one
	Timeout           time.Duration // of a checkpoint's alignment and snapshots; default 10 min
	Retain            int           // checkpoints to keep; default 3
	TolerableFailures int           // checkpoints in a row that may be aborted
	MinPause          time.Duration // from the end of one checkpoint to the barrier of the next
	Restart           protocol.Restart
	StartTimeout      time.Duration // how long a first start is tried; default 1 min, negative: for ever
	AcceptLineages    []string      // earlier lineages that a fresh start may replace
	Restore           RestoreConfig
	Logger            *slog.Logger
	Observer          Observer
	Now               func() time.Time // the wall clock; default time.Now

	// Reached is told each step of a commit by name (package fault), by whoever carries it out; it may
	// not return. nil: nobody.
	Reached func(point string)
}

// DefaultStartTimeout bounds the tries of a first start.
const DefaultStartTimeout = time.Minute

// DefaultTimeout bounds a checkpoint from its barrier to its last snapshot.
const DefaultTimeout = 10 * time.Minute

func (c RunConfig) withDefaults() RunConfig {
	if c.Timeout <= 0 {
		c.Timeout = DefaultTimeout
	}
	if c.StartTimeout == 0 {
		c.StartTimeout = DefaultStartTimeout
	}
	if c.Restart == nil {
		c.Restart = protocol.ExponentialDelay{}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Reached == nil {
		c.Reached = func(string) {}
	}
	return c
}

// mayDrop reports whether a restore may leave out a state that its operator does not declare.
func (c *RunConfig) mayDrop(uid, state string) bool {
	return slices.Contains(c.Restore.AllowDropped, uid+"/"+state)
}

// ErrNotRestarted reports that the restart strategy gave up. The error wraps the last failure.
var ErrNotRestarted = errors.New("the restart strategy allows no further restart")

// ErrNotBegun reports a first start that did not come to a checkpoint in time. The error wraps the last failure.
var ErrNotBegun = errors.New("the first start was tried for too long")

// Run runs a plan, generation after generation, until it finishes, is stopped, or fails for good.
// With a nil control nobody reaches it. Ending ctx ends at once, and what is not in a checkpoint is done
// again by the next start.
func Run(ctx context.Context, p *Plan, cfg RunConfig, control *Control) (protocol.Outcome, error) {
	if control == nil {
		control = NewControl()
	}
	r := &run{plan: p, cfg: cfg.withDefaults()}
	r.began = r.cfg.Now()
	r.restarts = r.cfg.Restart.Strategy()
	r.watch = newMonitor(p, control, r.cfg.Now)
	defer watchTransactions(p, r.cfg, control)()
	outcome, err := protocol.None, r.begin(ctx)
	if err == nil {
		outcome, err = r.generations(ctx)
	}
	if ctx.Err() != nil && err != nil {
		err = context.Cause(ctx)
	}
	r.watch.ended(err)
	return outcome, err
}

// run is one run of a plan.
type run struct {
	plan  *Plan
	cfg   RunConfig
	watch *monitor
	began time.Time
	// restarts counts the failures of this run.
	restarts protocol.RestartStrategy
	// restored is what was asked for by name, if CURRENT itself was.
	restored checkpoint.Restored
	// settling is where generations begin that settle what CURRENT names and end; nil: they run.
	settling func(ctx context.Context) (protocol.Begin, checkpoint.Manifest, error)
}

// generations runs one generation after the other.
func (r *run) generations(ctx context.Context) (protocol.Outcome, error) {
	for first := true; ; first = false {
		hurry := r.watch.control.stopRequested()
		begin, manifest, err := r.readCurrent(ctx)
		if ctx.Err() != nil {
			return protocol.None, context.Cause(ctx)
		}
		if err != nil && (first || connector.IsStop(err)) {
			return protocol.None, err
		}
		action := protocol.Action(protocol.FailGeneration{Err: err})
		if err == nil {
			action = newGeneration(r, begin, manifest).run(ctx)
		}
		switch a := action.(type) {
		case protocol.Finish:
			return a.Outcome, nil
		case protocol.Stop:
			return protocol.None, a.Err
		case protocol.Superseded:
			return protocol.None, a.Err
		case protocol.FailGeneration:
			if ctx.Err() != nil { // it failed because of that
				return protocol.None, context.Cause(ctx)
			}
			r.watch.failed(a.Err)
			if err := r.waitToRestart(ctx, a.Err, hurry); err != nil {
				return protocol.None, err
			}
		default:
			return protocol.None, context.Cause(ctx)
		}
	}
}

// waitToRestart waits as long as the restart strategy says. A job that has begun waits for its outside for as long as
// that takes. One that has never begun is watched by whoever has just written its configuration: it ends, and says why.
func (r *run) waitToRestart(ctx context.Context, failure error, stop <-chan struct{}) error {
	now := r.cfg.Now()
	delay, ok := r.restarts.Next(now, rand.Float64())
	if !ok {
		return fmt.Errorf("%w: %w", ErrNotRestarted, failure)
	}
	if r.watch.neverCut() {
		if delay, ok = withinStart(delay, now.Sub(r.began), r.cfg.StartTimeout); !ok {
			return fmt.Errorf("%w, %s (--start-timeout): %w", ErrNotBegun, r.cfg.StartTimeout, failure)
		}
	}
	r.cfg.Logger.Error("generation failed", "error", failure, "restart_in", delay)
	timer := time.NewTimer(delay)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return nil
		case <-stop: // a last generation settles, cuts and ends
			return nil
		case r.watch.control.alive <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// withinStart shortens a delay, so that the last try of a first start comes when its time is over, and reports whether
// there is another one.
func withinStart(delay, tried, timeout time.Duration) (time.Duration, bool) {
	if timeout < 0 {
		return delay, true
	}
	return min(delay, timeout-tried), tried < timeout
}

// readCurrent reads where to go on, and refuses a checkpoint that does not fit the job.
func (r *run) readCurrent(ctx context.Context) (protocol.Begin, checkpoint.Manifest, error) {
	if r.settling != nil {
		return r.settling(ctx)
	}
	p := r.plan
	current, manifest, err := checkpoint.Latest(ctx, r.cfg.Store)
	if err != nil {
		return protocol.Begin{}, manifest, fmt.Errorf("job %s: read CURRENT: %w", p.name, err)
	}
	if !current.Exists() {
		fresh := protocol.Current{Job: p.name, Lineage: checkpoint.NewLineage()}
		return protocol.Begin{Current: fresh, Fresh: true}, manifest, nil
	}
	if current.Checkpoint != 0 {
		if err := p.compatible(manifest, r.cfg.Restore); err != nil {
			return protocol.Begin{}, manifest, connector.Stop(fmt.Errorf("job %s: %w: %w",
				p.name, ErrIncompatible, err))
		}
	}
	return protocol.Begin{Current: current, Named: manifest.Committables, Root: manifest.Root}, manifest, nil
}

// ErrIncompatible reports a checkpoint that does not fit the job.
var ErrIncompatible = errors.New("the checkpoint does not fit the job")
