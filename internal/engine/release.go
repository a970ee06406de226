package engine

import (
	"context"
	"slices"
	"time"

	"example.com/weir/connector"
)

const (
	// releaseTimeout bounds one try to tell positions. There is a next one after each checkpoint.
	releaseTimeout = 5 * time.Second
	// releaseWarnings is how often a failure is logged at most.
	releaseWarnings = time.Minute
	// cutsKept bounds the positions that wait for their checkpoint to complete.
	cutsKept = 4
)

// releaser tells the outside the positions of completed checkpoints, for one source subtask. It runs
// beside the subtask and holds up nobody: a try that takes long skips what came meanwhile. What fails
// is a warning and a count.
type releaser struct {
	task   *task
	reader connector.PositionReleaser
	cuts   chan []cutPositions // always one element: whoever takes it looks, and puts it back at once
	due    chan uint64         // one element: the newest completed checkpoint
	ending chan struct{}
	ended  chan struct{}
	warned time.Time
}

// cutPositions are the positions of a subtask's splits at a barrier.
type cutPositions struct {
	checkpoint uint64
	splits     []connector.Split
}

// newReleaser returns nil if the reader has nobody to tell.
func newReleaser(t *task, reader any) *releaser {
	to, ok := reader.(connector.PositionReleaser)
	if !ok {
		return nil
	}
	r := &releaser{
		task: t, reader: to, cuts: make(chan []cutPositions, 1), due: make(chan uint64, 1),
		ending: make(chan struct{}), ended: make(chan struct{}),
	}
	r.cuts <- nil
	t.gen.wg.Go(func() { r.run(t.ctx) })
	return r
}

// cut keeps the positions of a barrier, until its checkpoint completes. The subtask calls it.
func (r *releaser) cut(checkpoint uint64, splits []connector.Split) {
	if r == nil {
		return
	}
	// A position is replaced, never written to: the slice is all there is to copy.
	held := append(<-r.cuts, cutPositions{checkpoint, slices.Clone(splits)})
	r.cuts <- held[max(0, len(held)-cutsKept):]
}

// completed says that a checkpoint has completed. The generation calls it.
func (r *releaser) completed(checkpoint uint64) {
	select {
	case <-r.due: // an older one
	default:
	}
	r.due <- checkpoint
}

func (r *releaser) run(ctx context.Context) {
	defer close(r.ended)
	for {
		select {
		case n := <-r.due:
			r.release(ctx, n)
		case <-r.ending:
			select {
			case n := <-r.due:
				r.release(ctx, n)
			default:
			}
			return
		case <-ctx.Done():
			return
		}
	}
}

// release tells the positions as of checkpoint n, and not those of a later barrier, whose checkpoint may
// never complete.
func (r *releaser) release(ctx context.Context, n uint64) {
	splits := r.take(n)
	if len(splits) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	var told bool
	err := guard(func() (err error) {
		told, err = r.reader.ReleasePositions(ctx, splits)
		return err
	})
	if err != nil {
		r.warn(n, err)
		return
	}
	if told {
		r.show(splits)
	}
}

// show notes what was told, for who looks at the job.
func (r *releaser) show(splits []connector.Split) {
	shown := r.task.stats.splits.Load()
	if shown == nil {
		return
	}
	for i, sp := range splits { // the order is the subtask's own
		if i < len(*shown) {
			(*shown)[i].released.Store(&sp.Position)
		}
	}
}

// take returns the positions as of checkpoint n and forgets them and the older ones.
func (r *releaser) take(n uint64) []connector.Split {
	var splits []connector.Split
	r.cuts <- slices.DeleteFunc(<-r.cuts, func(c cutPositions) bool {
		if c.checkpoint == n {
			splits = c.splits
		}
		return c.checkpoint <= n
	})
	return splits
}

func (r *releaser) warn(n uint64, err error) {
	r.task.stats.releaseFailures.Add(1)
	now := r.task.now()
	if r.task.ctx.Err() != nil || now.Sub(r.warned) < releaseWarnings {
		return
	}
	r.warned = now
	r.task.logger.Warn("the positions of a checkpoint could not be told to the outside; the job does not depend on it",
		"checkpoint", n, "failures", r.task.stats.releaseFailures.Load(), "error", err)
}

// releasePositions lets every source subtask tell the positions of a completed checkpoint.
func (g *generation) releasePositions(checkpoint uint64) {
	for _, c := range g.sourceControls {
		if c.releaser != nil {
			c.releaser.completed(checkpoint)
		}
	}
}

// finishReleases lets the positions of the last checkpoint be told before the generation ends.
func (g *generation) finishReleases() {
	for _, c := range g.sourceControls {
		if c.releaser != nil {
			close(c.releaser.ending)
		}
	}
	for _, c := range g.sourceControls {
		if c.releaser != nil {
			<-c.releaser.ended
		}
	}
}
