package engine

import "time"

// keyedOut is where a keyed operator emits to: its output, and the side outputs that its context holds. Both
// stand at one event time and one watermark.
type keyedOut[R any] struct {
	out  *Out[R]
	side *sides
}

// connect builds what is behind the operator. sides is the place of its side outputs in its context.
func (o *keyedOut[R]) connect(
	t *task, stats *operatorStats, outs *outputs[R], side *sideOutputs, sides *sides,
) error {
	to, err := outs.collector(t)
	if err != nil {
		return err
	}
	o.out, o.side = newOut(t, to, stats), sides
	*sides, err = side.build(t)
	return err
}

// standAt sets the watermark that goes with what is emitted.
func (o *keyedOut[R]) standAt(mark int64) { o.out.mark, o.side.mark = mark, mark }

// at sets the event time of what is emitted.
func (o *keyedOut[R]) at(t int64) { o.out.time, o.side.time = t, t }

// done passes on what has been emitted, and reports the first error.
func (o *keyedOut[R]) done() error {
	if err := o.out.done(); err != nil {
		return err
	}
	return o.side.done()
}

// pass passes a signal on behind what has been emitted.
func (o *keyedOut[R]) pass(s signal) error {
	if err := o.out.signal(s); err != nil {
		return err
	}
	return o.side.signal(s)
}

// windowOut is where a windowed operator emits to, and the window at work.
type windowOut[K comparable, T, A, R any] struct {
	keyedOut[R]
	agg Aggregator[K, T, A, R]
	ctx WindowContext[K]
}

// standAtWindow sets the window at work. What it emits is at its last microsecond.
func (o *windowOut[K, T, A, R]) standAtWindow(key K, firing, revision int, start, end int64) {
	o.ctx.Key, o.ctx.Firing, o.ctx.Revision = key, firing, revision
	o.ctx.Start, o.ctx.End = time.UnixMicro(start).UTC(), time.UnixMicro(end).UTC()
	o.at(end - 1)
}

// late sends a row that comes too late where it is to go.
func (o *windowOut[K, T, A, R]) late(to *SideOutput[T], row *T, at int64) {
	if to != nil {
		o.side.time = at
		EmitSide(&o.ctx, to, *row)
	}
}

// fireAt lets a window emit its result.
func (o *windowOut[K, T, A, R]) fireAt(key K, p *pane[A], start, end int64) error {
	p.firings++
	o.standAtWindow(key, p.firings, p.emitted+1, start, end)
	before := o.out.emitted
	if err := o.agg.Fire(&o.ctx, &p.acc, o.out); err != nil {
		return err
	}
	if o.out.emitted > before {
		p.emitted++
	}
	return nil
}
