package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.com/weir/apps/gatewaymeter/rig"
)

// kill is a kill that happened.
type kill struct {
	Planned    plannedKill
	Checkpoint uint64        // the last one that had completed
	Since      time.Duration // since it had
	// As the broker showed it once the process was gone:
	Open      []rig.OpenTransaction
	Undecided int64 // offsets of tenant-cost behind the last stable one
	Fired     int64 // offsets written to tenant-cost after the checkpoint; for beforeBarrier
	// And after the next start:
	Generation uint64
	Restored   uint64        // the checkpoint that it began at
	Again      int64         // events that were read before the kill, and read again: so many at least
	Down       time.Duration // from the kill until the job read again
}

// idle reports whether the kill hit a job that had nothing to lose.
func (k *kill) idle() bool { return k.Again <= 0 && k.Undecided == 0 && k.Fired == 0 }

// errMissed reports a planned kill that did not happen.
var errMissed = errors.New("a planned kill did not happen")

// errNotThere reports that the job went on before the kill reached it.
var errNotThere = errors.New("the moment had passed")

// kills carries out the schedule while the replay runs.
func (d *demo) kills(ctx context.Context, began time.Time) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() { // a job without events is no target
		select {
		case <-d.producer.Done():
			cancel(errors.New("the replay has ended"))
		case <-ctx.Done():
		}
	}()
	for i, planned := range d.plan {
		if err := d.job.Sleep(ctx, planned.After-time.Since(began)); err != nil {
			return d.missed(i, planned, err)
		}
		k, err := d.carryOut(ctx, planned)
		if err != nil {
			return d.missed(i, planned, err)
		}
		d.out.killed(i, len(d.plan), &k)
		if err := d.restart(&k); err != nil {
			return err
		}
		d.out.restarted(&k)
		d.killed = append(d.killed, k)
	}
	return nil
}

func (d *demo) missed(i int, planned plannedKill, err error) error {
	if errors.Is(err, rig.ErrDied) || d.interrupted() {
		return err
	}
	return fmt.Errorf("%w: number %d (%s): %w", errMissed, i+1, planned, err)
}

// carryOut waits for the moment and kills. Where the job went on before the kill reached it, it is
// started again and the moment waited for again: only a kill where it was planned counts.
func (d *demo) carryOut(ctx context.Context, planned plannedKill) (kill, error) {
	for try := 1; ; try++ {
		k, err := d.tryKill(ctx, planned)
		if !errors.Is(err, errNotThere) || try == 5 {
			return k, err
		}
		d.out.linef("kill (%s): the job passed the next barrier before it; once more", planned)
		if err := d.restart(&k); err != nil {
			return k, err
		}
	}
}

// tryKill waits for a checkpoint, then for the moment, and kills.
func (d *demo) tryKill(ctx context.Context, planned plannedKill) (kill, error) {
	last := d.job.Now().Checkpoint
	for {
		n, err := d.job.Wait(ctx, func(j *rig.Journal) bool { return j.Checkpoint > last })
		if err != nil {
			return kill{}, err
		}
		last = n.Checkpoint
		ready, since := false, rig.Offsets(nil)
		if planned.Moment == beforeBarrier {
			ready, since, err = d.awaitFiring(ctx, n.Checkpoint)
		} else {
			ready, err = d.awaitShare(ctx, &n, planned.Share)
		}
		if err != nil {
			return kill{}, err
		}
		if ready {
			return d.strike(ctx, planned, since)
		}
	}
}

// awaitShare waits for a share of the interval to pass after a checkpoint, and for the job to have read
// something that it would lose. It reports false where another checkpoint came first.
func (d *demo) awaitShare(ctx context.Context, n *rig.Journal, share float64) (bool, error) {
	wait := time.Duration(share*float64(d.cfg.Interval)) - time.Since(n.CompletedAt)
	if err := d.job.Sleep(ctx, wait); err != nil {
		return false, err
	}
	now, err := d.job.Wait(ctx, func(j *rig.Journal) bool { return j.Checkpoint != n.Checkpoint || j.Unsaved() > 0 })
	return err == nil && now.Checkpoint == n.Checkpoint, err
}

// awaitFiring watches the broker until records that were written after a checkpoint had completed lie
// uncommitted on tenant-cost. What was there when it had completed does not count: some of it may lie
// before the cut. It reports false where the next barrier comes first.
func (d *demo) awaitFiring(ctx context.Context, checkpoint uint64) (bool, rig.Offsets, error) {
	since, err := d.broker.Ends(ctx, d.broker.Topics.TenantCost)
	if err != nil {
		return false, nil, err
	}
	for {
		if d.job.Now().Barrier > checkpoint {
			return false, nil, nil
		}
		fired, err := d.broker.FiredSince(ctx, d.cfg.Guarantee, since)
		if err != nil || fired {
			return fired, since, err
		}
		if err := d.job.Sleep(ctx, 2*time.Millisecond); err != nil {
			return false, nil, err
		}
	}
}

// strike kills the job and looks at what it left behind. The log, which is whole then, and the broker,
// at which nothing of the job moves any more, say whether the kill was where it was planned.
func (d *demo) strike(ctx context.Context, planned plannedKill, since rig.Offsets) (kill, error) {
	before := d.job.Now()
	at := time.Now()
	if err := d.job.Kill(); err != nil {
		return kill{}, err
	}
	d.killedAt = at
	n := d.job.Now()
	k := kill{Planned: planned, Checkpoint: before.Checkpoint, Since: at.Sub(before.CompletedAt)}
	var err error
	if k.Open, err = d.broker.Open(ctx); err != nil {
		return k, err
	}
	if k.Undecided, err = d.broker.Undecided(ctx, d.broker.Topics.TenantCost); err != nil {
		return k, err
	}
	if planned.Moment == inInterval {
		return k, nil
	}
	ends, err := d.broker.Ends(ctx, d.broker.Topics.TenantCost)
	if err != nil {
		return k, err
	}
	k.Fired = ends.Beyond(since)
	fired, err := d.broker.FiredSince(ctx, d.cfg.Guarantee, since)
	if err == nil && (!fired || n.Barrier > before.Checkpoint) {
		err = errNotThere
	}
	return k, err
}

// startTimeout bounds how long the job takes to begin a generation.
const startTimeout = time.Minute

// start starts the job and waits until it has begun a generation.
func (d *demo) start() (rig.Journal, error) {
	ctx, cancel := context.WithTimeoutCause(d.asked, startTimeout, fmt.Errorf("no generation within %s", startTimeout))
	defer cancel()
	before := d.job.Now()
	if err := d.job.Start(); err != nil {
		return before, err
	}
	n, err := d.job.Wait(ctx, func(j *rig.Journal) bool { return j.Generations > before.Generations })
	if err != nil {
		return n, fmt.Errorf("start the job: %w", err)
	}
	return n, nil
}

// restart starts the job again, whether or not the replay has ended meanwhile, and sees what it reads
// again.
func (d *demo) restart(k *kill) error {
	before := d.job.Now()
	n, err := d.start()
	if err != nil {
		return err
	}
	k.Generation, k.Restored, k.Down = n.Generation, n.Restored, time.Since(d.killedAt)
	k.Again = before.Read - n.Cut(n.Restored)
	if k.idle() {
		return fmt.Errorf("the kill after checkpoint %d hit a job that had nothing to lose: it had read nothing "+
			"since checkpoint %d, and no transaction was open", k.Checkpoint, k.Restored)
	}
	return nil
}
