package engine

import (
	"context"
	"time"

	"example.com/weir/connector"
	"example.com/weir/internal/checkpoint"
	"example.com/weir/internal/fault"
	"example.com/weir/internal/protocol"
)

// preCommit is what a sink does for a barrier: it waits until the outside has everything before it. The
// barrier is not acknowledged sooner, but the stream does not stand still for so long:
//
//	the barrier comes; the writer goes to a goroutine of its own, which flushes it, prepares the
//	commit and then writes the rows that have come behind the barrier meanwhile; the stream takes the
//	writer back with its next row.
//
// So one goroutine at a time has the writer, and it sees the rows in their order, those behind the barrier
// once those before it are outside.
type preCommit struct {
	checkpoint uint64
	endOfInput bool
	opened     time.Time    // when the first row was written
	shown      *transaction // as whoever looks at the job sees it meanwhile

	// What came of it; good once done is closed.
	committable *connector.Committable // nil: nothing was written, or it takes no part in checkpoints
	kept        []*checkpoint.Records
	done        chan struct{}
}

// heldBatches is how many batches wait at the most while a writer is away. With more, the stream waits.
const heldBatches = 16

// hold lets rows wait while the writer is away. It reports false if the writer has come back.
func (o *sinkOperator[T]) hold(rows []T) (held bool, err error) {
	select {
	case <-o.back: // rather than the memory of rows
		return false, o.writeHeld()
	default:
	}
	var own []T
	select {
	case own = <-o.free:
	default:
	}
	select {
	case o.held <- append(own, rows...):
		return true, nil
	case <-o.back:
		return false, o.writeHeld()
	case <-o.task.ctx.Done():
		return false, o.task.ctx.Err()
	}
}

// takeBack waits for the writer.
func (o *sinkOperator[T]) takeBack() error {
	if !o.away {
		return nil
	}
	select {
	case <-o.back:
		return o.writeHeld()
	case <-o.task.ctx.Done():
		return o.task.ctx.Err()
	}
}

// writeHeld writes what is still held when the writer has come back: it came before all else.
func (o *sinkOperator[T]) writeHeld() error {
	o.away = false
	for {
		select {
		case rows := <-o.held:
			if err := o.write(rows); err != nil {
				return err
			}
		default:
			return nil
		}
	}
}

// beside has the writer for a while.
func (o *sinkOperator[T]) beside(p *preCommit) {
	err := guard(func() error {
		if err := o.prepare(p); err != nil {
			return err
		}
		close(p.done)
		return o.writeMeanwhile()
	})
	if err != nil && o.task.ctx.Err() == nil {
		o.task.gen.post(protocol.SubtaskFailed{
			Subtask: o.task.id, Err: &TaskError{Subtask: o.task.id, Operator: o.uid, Err: err},
		})
	}
}

// writeMeanwhile writes what is held until the stream takes the writer back.
func (o *sinkOperator[T]) writeMeanwhile() error {
	for {
		select {
		case rows := <-o.held:
			if err := o.write(rows); err != nil {
				return err
			}
			clear(rows)
			select {
			case o.free <- rows[:0]:
			default:
			}
		case o.back <- struct{}{}:
			return nil
		case <-o.task.ctx.Done():
			return nil
		}
	}
}

// prepare flushes the writer, and prepares what it is to commit once the checkpoint exists.
func (o *sinkOperator[T]) prepare(p *preCommit) error {
	if err := o.writer.Flush(o.task.ctx, p.endOfInput); err != nil {
		return err
	}
	o.task.gen.cfg.Reached(fault.AfterFlush)
	if o.two == nil {
		return nil
	}
	c, err := o.two.PrepareCommit(o.task.ctx, p.checkpoint)
	p.kept = o.keep.sealed()
	if err != nil || c == nil {
		o.stats.prepared.CompareAndSwap(p.shown, nil)
		return err
	}
	c.Sink, c.Subtask, c.Checkpoint, c.Opened = o.uid, o.task.subtask, p.checkpoint, p.opened
	o.task.gen.cfg.Reached(fault.AfterPrepare)
	t := o.task.gen.plan.transactionOf(*c, c.Opened)
	o.stats.prepared.Store(&t)
	p.committable = c
	return nil
}

// await waits until the sinks of the subtask have pre-committed, and reports whether they have: a failure ends
// the generation.
func (c *cut) await(ctx context.Context) bool {
	for _, p := range c.preCommits {
		select {
		case <-p.done:
		case <-ctx.Done():
			return false
		}
		c.kept = append(c.kept, p.kept...)
		if p.committable != nil {
			c.committables = append(c.committables, *p.committable)
		}
	}
	return true
}
