package engine

import (
	"fmt"
	"time"

	"example.com/weir/connector"
	"example.com/weir/internal/fault"
)

// Sink adds a sink behind a stream.
func Sink[T any](s Stream[T], uid string, sink connector.Sink[T]) {
	op := s.Plan.add(Operator{UID: uid, Kind: "sink", Inputs: s.edges()})
	node := sinkNode{uid: uid, guarantee: sink.Guarantee(), validate: sink.Validate}
	if two, ok := sink.(connector.TwoPhaseSink[T]); ok {
		node.restore = two.Restore
	}
	if i, ok := sink.(connector.Idempotent); ok {
		node.idempotent = i.Idempotent()
	}
	if x, ok := sink.(connector.Exclusive); ok {
		node.exclusive = x.ExclusiveName()
	}
	if x, ok := sink.(connector.Transactional); ok {
		node.transactional = x
	}
	if x, ok := sink.(connector.Administered); ok {
		node.administered = x
	}
	s.Plan.sinks = append(s.Plan.sinks, node)
	s.attach(op, func(t *task) (Collector[T], error) { return buildSink(t, uid, sink) })
}

type sinkOperator[T any] struct {
	task   *task
	uid    string
	stats  *operatorStats
	writer connector.Writer[T]
	two    connector.TwoPhaseWriter[T] // nil if the writer takes no part in checkpoints
	keep   *recordKeeping
}

func buildSink[T any](t *task, uid string, sink connector.Sink[T]) (Collector[T], error) {
	t.operator = uid
	stats := t.stats.operator(uid)
	keep := newRecordKeeping(t, uid, stats)
	w, err := sink.Writer(t.ctx, connector.WriterContext{
		Job: t.gen.plan.name, Lineage: t.gen.current.Lineage, Generation: t.gen.current.Generation,
		Operator: uid, Subtask: t.subtask, Parallelism: t.parallelism,
		Logger:                      t.gen.logger.With("operator", uid, "subtask", t.subtask),
		TolerableCheckpointFailures: t.gen.cfg.TolerableFailures, StillOwner: t.gen.stillOwner,
		Keep: keep.begin, Reached: t.gen.cfg.Reached,
	})
	if err != nil {
		return nil, fmt.Errorf("sink %s: %w", uid, err)
	}
	t.onClose(keep.close) // behind the writer
	t.onClose(w.Close)
	o := &sinkOperator[T]{task: t, uid: uid, stats: stats, writer: w, keep: keep}
	if two, ok := w.(connector.TwoPhaseWriter[T]); ok {
		o.two = two
		t.gen.addCommitter(uid, t.subtask, two)
	} else if _, promised := sink.(connector.TwoPhaseSink[T]); promised {
		return nil, connector.Stop(fmt.Errorf("sink %s: its writer takes no part in checkpoints, "+
			"though the sink says it does", uid))
	}
	return o, nil
}

func (o *sinkOperator[T]) batch(b *Batch[T]) error {
	o.task.enter(o.stats, len(b.Rows))
	if o.two != nil && o.stats.writing.Load() == nil {
		t := o.task.gen.plan.transactionOf(
			connector.Committable{Sink: o.uid, Subtask: o.task.subtask, Opened: o.task.now().UTC()}, time.Time{})
		o.stats.writing.Store(&t)
	}
	if err := o.writer.Write(o.task.ctx, b.Rows); err != nil {
		return err
	}
	o.stats.recordsOut.Add(int64(len(b.Rows)))
	return nil
}

func (o *sinkOperator[T]) signal(s signal) error {
	if s.kind != barrierSignal {
		return nil
	}
	o.task.operator = o.uid
	if err := o.writer.Flush(o.task.ctx, s.endOfInput); err != nil {
		return err
	}
	o.task.gen.cfg.Reached(fault.AfterFlush)
	if o.two == nil {
		return nil
	}
	c, err := o.two.PrepareCommit(o.task.ctx, s.checkpoint)
	o.task.cut.kept = append(o.task.cut.kept, o.keep.sealed()...)
	if err != nil || c == nil {
		return err
	}
	c.Sink, c.Subtask, c.Checkpoint = o.uid, o.task.subtask, s.checkpoint
	c.Opened = o.task.now().UTC()
	if writing := o.stats.writing.Swap(nil); writing != nil {
		c.Opened = writing.opened
	}
	o.task.gen.cfg.Reached(fault.AfterPrepare)
	t := o.task.gen.plan.transactionOf(*c, c.Opened)
	o.stats.prepared.Store(&t)
	o.task.cut.committables = append(o.task.cut.committables, *c)
	return nil
}
