package engine

import (
	"fmt"

	"example.com/weir/internal/state"
)

// Process adds a keyed operator. newProcessor is called once for each subtask of a generation.
func Process[K comparable, T, R any](
	k KeyedStream[K, T], uid string, newProcessor func() Processor[K, T, R],
) Stream[R] {
	op := k.Plan.add(Operator{UID: uid, Kind: "process", Stateful: true, Inputs: k.edges()})
	outs, side := &outputs[R]{}, &sideOutputs{}
	k.exchangeTo(op, func(t *task) (Collector[T], error) {
		return buildProcess(t, uid, k, newProcessor(), outs, side)
	})
	return streamOf(k.Plan, op, outs, side)
}

type process[K comparable, T, R any] struct {
	keyedBase[K]
	keyedOut[R]
	row       *T       // at work
	ofRow     func() K // its key, made once
	processor Processor[K, T, R]
	ctx       Context[K]
}

func buildProcess[K comparable, T, R any](
	t *task, uid string, k KeyedStream[K, T], p Processor[K, T, R], outs *outputs[R], side *sideOutputs,
) (Collector[T], error) {
	t.operator = uid
	o := &process[K, T, R]{
		keyedBase: *newKeyedBase(t, uid, k.codec), processor: p,
	}
	o.ctx.base = &o.keyedBase
	o.ofRow = k.keyOf(&o.row)
	o.stand, o.fire, o.end, o.clock = o.standAt, o.onTimer, o.onDeadline, o.onClock
	open := &OpenContext[K]{
		Subtask: t.subtask, Parallelism: t.parallelism, base: &o.keyedBase, ctx: &o.ctx,
	}
	if err := p.Open(open); err != nil {
		return nil, fmt.Errorf("operator %s: open: %w", uid, err)
	}
	if err := o.restore(); err != nil {
		return nil, err
	}
	return o, o.connect(t, o.stats, outs, side, &o.ctx.sides)
}

func (o *process[K, T, R]) batch(b *Batch[T]) error {
	o.task.enter(o.stats, len(b.Rows))
	o.prefetch(b.Hashes)
	for i := range b.Rows {
		row := &b.Rows[i]
		if err := o.advance(b.Marks[i]); err != nil {
			return err
		}
		o.standAt(o.watermark)
		o.row = row
		o.ctx.key.Stand(o.keyed.Codec(), b.Hashes[i], int(o.groups[i]), b.key(i), o.ofRow)
		o.at(b.Times[i])
		if err := o.processor.Process(&o.ctx, row, o.out); err != nil {
			return err
		}
	}
	if err := o.keyed.Work(); err != nil {
		return err
	}
	return o.done()
}

func (o *process[K, T, R]) at(t int64) {
	o.ctx.time = t
	o.keyedOut.at(t)
}

func (o *process[K, T, R]) done() error {
	if o.ctx.err != nil {
		return o.ctx.err
	}
	return o.keyedOut.done()
}

func (o *process[K, T, R]) signal(s signal) error {
	if err := o.observe(s, o.done); err != nil {
		return err
	}
	return o.pass(s)
}

func (o *process[K, T, R]) onTimer(k *state.Key[K], at int64) error {
	return o.callOnTimer(k, EventTimer, at, at)
}

func (o *process[K, T, R]) onDeadline(k *state.Key[K], at int64) error {
	return o.callOnTimer(k, Deadline, at, at)
}

func (o *process[K, T, R]) onClock(k *state.Key[K], at, eventTime int64) error {
	return o.callOnTimer(k, ProcessingTimer, at, eventTime)
}

func (o *process[K, T, R]) callOnTimer(k *state.Key[K], domain TimerDomain, at, eventTime int64) error {
	o.ctx.key, o.ctx.domain, o.ctx.timer = *k, domain, at
	o.at(eventTime)
	err := o.processor.OnTimer(&o.ctx, o.out)
	o.ctx.domain = NoTimer
	if err != nil {
		return err
	}
	return o.ctx.err
}

// wake implements clocked.
func (o *process[K, T, R]) wake(now int64) error {
	if err := o.fireClock(now); err != nil {
		return err
	}
	return o.done()
}
