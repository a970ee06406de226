package engine

import (
	"context"
	"time"

	"example.com/weir/internal/watermark"
)

// channelDepth is the number of batches that wait between two subtasks before the first one is
// held back.
const channelDepth = 8

// message is a batch or, where batch is nil, a signal.
type message[T any] struct {
	batch  *Batch[T]
	signal signal
}

// channels lead into the subtasks behind an exchange: of each subtask, one from each of its inputs.
type channels[T any] struct {
	to   [][]chan message[T] // [behind][input]
	wake []chan struct{}     // [behind]: something was sent
	free chan *Batch[T]      // batches to be used again
}

// batchesKept bounds how many batches of an exchange wait to be used again: all that a backlog can take, unless
// subtasks are many.
const batchesKept = 256

func newChannels[T any](inputs, behind int) *channels[T] {
	pairs := inputs * behind
	c := &channels[T]{
		to: make([][]chan message[T], behind), wake: make([]chan struct{}, behind),
		free: make(chan *Batch[T], max(2*pairs, min((channelDepth+2)*pairs, batchesKept))),
	}
	for i := range c.to {
		c.wake[i] = make(chan struct{}, 1)
		c.to[i] = make([]chan message[T], inputs)
		for j := range c.to[i] {
			c.to[i][j] = make(chan message[T], channelDepth)
		}
	}
	return c
}

func (c *channels[T]) take() *Batch[T] {
	select {
	case b := <-c.free:
		return b
	default:
		return &Batch[T]{
			Rows: make([]T, 0, BatchSize), Times: make([]int64, 0, BatchSize),
			Marks: make([]int64, 0, BatchSize), Hashes: make([]uint64, 0, BatchSize),
		}
	}
}

func (c *channels[T]) giveBack(b *Batch[T]) {
	b.reset()
	select {
	case c.free <- b:
	default:
	}
}

// receiver is the main loop of a subtask behind an exchange: it merges watermarks and aligns
// barriers.
type receiver[T any] struct {
	task   *task
	ch     *channels[T]
	in     []chan message[T]
	merger *watermark.Merger
	to     Collector[T]
	mode   Mode
	// global says that what each sender knows of event time it has merged from all splits.
	global bool
	marks  []int64 // merged
	path   []int64 // merged

	// spoken are the inputs that have said where their event time stands. Before all have, no
	// row is handled: what is late would depend on which subtask started first.
	spoken int
	open   bool

	sent     int64 // the last watermark passed on
	idle     bool
	woken    bool   // rows were passed on while idle: whoever took them counts this subtask as active
	blocked  []bool // inputs that have delivered the barrier (E3)
	arrived  int
	aligning uint64    // the checkpoint being aligned, or the last one that was
	since    time.Time // when its first barrier came
	dirty    bool      // rows were passed on since the last flush

	clock clocked // nil: nothing here waits for the wall clock
	alarm *time.Timer
}

// clocked is an operator that waits for the wall clock.
type clocked interface {
	clockDue() int64      // a time (microseconds) before which wake does nothing
	wake(now int64) error // fires what is due
}

func newReceiver[T any](t *task, ch *channels[T], global bool, to Collector[T]) *receiver[T] {
	in := ch.to[t.subtask]
	clock, _ := to.(clocked)
	return &receiver[T]{
		clock: clock, task: t, ch: ch, in: in, to: to, global: global, sent: noTime,
		merger: watermark.NewMerger(len(in)), blocked: make([]bool, len(in)),
	}
}

func (r *receiver[T]) run(ctx context.Context) error {
	for {
		worked, err := r.poll()
		if err != nil {
			return err
		}
		if err := r.fireClock(); err != nil {
			return err
		}
		if worked {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			continue
		}
		if r.dirty { // E5
			r.dirty = false
			if err := r.to.signal(signal{kind: flushSignal}); err != nil {
				return err
			}
		}
		r.task.waits()
		select {
		case <-r.ring():
		case <-r.ch.wake[r.task.subtask]:
			r.task.waited()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// fireClock lets the operator do what the wall clock asks of it. The clock is read only while something
// waits for it.
func (r *receiver[T]) fireClock() error {
	if r.clock == nil || !r.open || r.clock.clockDue() == endTime {
		return nil
	}
	now := r.task.now().UnixMicro()
	if now < r.clock.clockDue() {
		return nil
	}
	r.dirty = true
	return r.clock.wake(now)
}

// ring returns what wakes the receiver when the wall clock asks for something, or nil.
func (r *receiver[T]) ring() <-chan time.Time {
	if r.clock == nil || !r.open || r.clock.clockDue() == endTime {
		return nil
	}
	wait := time.UnixMicro(r.clock.clockDue()).Sub(r.task.now())
	if r.alarm == nil {
		r.alarm = time.NewTimer(wait)
	} else {
		r.alarm.Reset(wait)
	}
	return r.alarm.C
}

// poll takes at most one message from each input that is not blocked.
func (r *receiver[T]) poll() (worked bool, err error) {
	for i := range r.in {
		if r.blocked[i] {
			continue
		}
		select {
		case m := <-r.in[i]:
			worked = true
			if err := r.handle(i, m); err != nil {
				return true, err
			}
		default:
		}
	}
	return worked, nil
}

func (r *receiver[T]) handle(i int, m message[T]) error {
	if m.batch != nil {
		r.dirty = true
		r.task.received(len(m.batch.Rows))
		err := r.pass(i, m.batch)
		r.ch.giveBack(m.batch)
		return err
	}
	switch m.signal.kind {
	case watermarkSignal:
		r.merger.Set(i, m.signal.time)
		return r.moved(i)
	case idleSignal:
		r.merger.SetIdle(i)
		return r.moved(i)
	case barrierSignal:
		return r.align(i, m.signal)
	case pathSignal:
		return r.to.signal(signal{kind: pathSignal, path: r.follow(i, m.signal.path)})
	case flushSignal: // crosses no exchange
	}
	return nil
}

// pass merges the watermarks before the rows with those of the other inputs, and hands the rows
// on.
func (r *receiver[T]) pass(i int, b *Batch[T]) error {
	sent := b.Marks
	r.marks = append(r.marks[:0], sent...)
	r.merger.Rows(i, r.marks)
	b.Marks = r.marks
	if r.global {
		b.Bounds = sent
	}
	r.woken = r.woken || r.idle
	err := r.to.batch(b)
	b.Marks = sent
	return err
}

// follow returns how event time is about to move, by an input's word. A sender that has merged all splits
// knows it, however far the other inputs have told.
func (r *receiver[T]) follow(i int, path []int64) []int64 {
	if r.global {
		return path
	}
	r.path = r.merger.Path(i, path, r.path[:0])
	return r.path
}

// moved passes on what has become of event time. An input's first word is waited for (see
// spoken), and the subtask's own first word follows the last of them.
func (r *receiver[T]) moved(i int) error {
	if r.open {
		return r.advance()
	}
	r.blocked[i] = true
	r.spoken++
	if r.spoken < len(r.in) {
		return nil
	}
	clear(r.blocked)
	r.open = true
	if at, idle := r.merger.Merge(); at == noTime && !idle {
		return r.to.signal(signal{kind: watermarkSignal, time: noTime})
	}
	return r.advance()
}

func (r *receiver[T]) advance() error {
	at, idle := r.merger.Merge()
	if at > r.sent {
		r.sent = at
		r.task.watermark(at)
		r.dirty = true // operators may emit
		if err := r.to.signal(signal{kind: watermarkSignal, time: at}); err != nil {
			return err
		}
	}
	if idle == r.idle && (!idle || !r.woken) {
		return nil
	}
	r.idle, r.woken = idle, false
	if idle {
		return r.to.signal(signal{kind: idleSignal})
	}
	return r.to.signal(signal{kind: watermarkSignal, time: r.sent})
}

// align blocks the input until the barrier has come on every input, then lets it pass (E2). In
// at-least-once mode it blocks nothing: what comes behind the barrier on one input, before it has come on
// the last, is in the snapshot and behind the source's position, and so counts twice after a restore.
//
// A source that was held back skips the barrier of a checkpoint that was aborted meanwhile:
//
//	source A sends barrier 7; source B stands still; 7 times out; barrier 8 is injected;
//	B moves again and sends 8 only. A's input waits at 7, B's delivers 8.
//
// A higher barrier therefore ends the alignment of a lower one, and a lower one that still comes
// is passed over.
func (r *receiver[T]) align(i int, barrier signal) error {
	switch {
	case barrier.checkpoint < r.aligning:
		return nil
	case barrier.checkpoint > r.aligning:
		clear(r.blocked)
		r.arrived, r.aligning, r.since = 0, barrier.checkpoint, r.task.now()
	}
	r.blocked[i] = r.mode == ExactlyOnce // E3
	r.arrived++
	if r.arrived < len(r.in) {
		return nil
	}
	clear(r.blocked)
	r.arrived = 0
	if barrier.final { // nothing follows it
		r.clock = nil
	}
	return r.task.pass(barrier, r.since, r.to.signal)
}
