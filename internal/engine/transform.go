package engine

// flatMap is the operator behind Map, Filter and FlatMap: no state, no time.
type flatMap[T, R any] struct {
	task  *task
	stats *operatorStats
	f     func(*T, *Out[R]) error
	out   *Out[R]
}

// FlatMap adds an operator that turns each row into any number of rows, at the same event time.
func FlatMap[T, R any](s Stream[T], uid, kind string, f func(*T, *Out[R]) error) Stream[R] {
	op := s.Plan.add(Operator{UID: uid, Kind: kind, Inputs: s.edges()})
	outs := &outputs[R]{}
	s.attach(op, func(t *task) (Collector[T], error) {
		stats := t.stats.operator(uid)
		to, err := outs.collector(t)
		if err != nil {
			return nil, err
		}
		return &flatMap[T, R]{task: t, stats: stats, f: f, out: newOut(t, to, stats)}, nil
	})
	return streamOf(s.Plan, op, outs, nil)
}

func (o *flatMap[T, R]) batch(b *Batch[T]) error {
	o.task.enter(o.stats, len(b.Rows))
	for i := range b.Rows {
		o.out.time, o.out.mark = b.Times[i], b.Marks[i]
		if err := o.f(&b.Rows[i], o.out); err != nil {
			return err
		}
	}
	return o.out.done()
}

func (o *flatMap[T, R]) signal(s signal) error { return o.out.signal(s) }
