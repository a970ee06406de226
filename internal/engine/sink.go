package engine

import (
	"fmt"
	"time"

	"example.com/weir/connector"
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

// sinkOperator hands rows to a writer, and pre-commits them at barriers (preCommit).
type sinkOperator[T any] struct {
	task   *task
	uid    string
	stats  *operatorStats
	writer connector.Writer[T]
	two    connector.TwoPhaseWriter[T] // nil if the writer takes no part in checkpoints
	keep   *recordKeeping

	away bool          // the writer is with the goroutine that pre-commits
	back chan struct{} // which gives it back here
	held chan []T      // rows that came meanwhile
	free chan []T      // their memory, to be used again
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
	o := &sinkOperator[T]{
		task: t, uid: uid, stats: stats, writer: w, keep: keep,
		back: make(chan struct{}), held: make(chan []T, heldBatches), free: make(chan []T, heldBatches),
	}
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
	if o.away {
		if held, err := o.hold(b.Rows); held || err != nil {
			return err
		}
	}
	return o.write(b.Rows)
}

func (o *sinkOperator[T]) write(rows []T) error {
	if err := o.writer.Write(o.task.ctx, rows); err != nil {
		return err
	}
	o.stats.recordsOut.Add(int64(len(rows)))
	return nil
}

func (o *sinkOperator[T]) signal(s signal) error {
	if s.kind != barrierSignal {
		return nil
	}
	o.task.operator = o.uid
	if err := o.takeBack(); err != nil {
		return err
	}
	p := &preCommit{
		checkpoint: s.checkpoint, endOfInput: s.endOfInput, opened: o.task.now().UTC(), done: make(chan struct{}),
	}
	if writing := o.stats.writing.Swap(nil); writing != nil {
		p.opened, p.shown = writing.opened, o.stats.passBarrier(*writing, s.checkpoint)
	}
	o.task.cut.preCommits = append(o.task.cut.preCommits, p)
	o.away = true
	o.task.gen.wg.Go(func() { o.beside(p) })
	return nil
}
