package engine

import (
	"context"
	"time"

	"example.com/weir/internal/keygroup"
	"example.com/weir/internal/state"
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

// channels connect every subtask before an exchange with every subtask behind it.
type channels[T any] struct {
	to   [][]chan message[T] // [behind][before]
	wake []chan struct{}     // [behind]: something was sent
	free chan *Batch[T]      // batches to be used again
}

func newChannels[T any](before, behind int) *channels[T] {
	c := &channels[T]{
		to: make([][]chan message[T], behind), wake: make([]chan struct{}, behind),
		free: make(chan *Batch[T], 2*before*behind),
	}
	for i := range c.to {
		c.wake[i] = make(chan struct{}, 1)
		c.to[i] = make([]chan message[T], before)
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

// hashSender distributes rows by the key group of their key.
type hashSender[T any, K comparable] struct {
	task    *task
	keyOf   func(*T) K
	codec   state.KeyCodec[K]
	ch      *channels[T]
	owner   []uint16 // of each key group, the subtask
	pending []*Batch[T]

	key     K // here so that it does not escape for each row
	encoded []byte
}

func (s *hashSender[T, K]) batch(b *Batch[T]) error {
	for i := range b.Rows {
		s.key = s.keyOf(&b.Rows[i])
		s.encoded = s.codec.Append(s.encoded[:0], &s.key)
		hash := s.codec.Hash(s.encoded)
		target := s.owner[keygroup.Of(hash, len(s.owner))]
		p := s.pending[target]
		if p == nil {
			p = s.ch.take()
			s.pending[target] = p
		}
		p.Rows = append(p.Rows, b.Rows[i])
		p.Times = append(p.Times, b.Times[i])
		p.Marks = append(p.Marks, b.Marks[i])
		p.Hashes = append(p.Hashes, hash)
		if len(p.Rows) >= BatchSize {
			if err := s.send(int(target), message[T]{batch: p}); err != nil {
				return err
			}
			s.pending[target] = nil
		}
	}
	return nil
}

func (s *hashSender[T, K]) signal(sig signal) error {
	if sig.kind == pathSignal { // it may overtake rows: they have their marks
		return s.broadcast(sig)
	}
	for target, p := range s.pending {
		if p != nil {
			s.pending[target] = nil
			if err := s.send(target, message[T]{batch: p}); err != nil {
				return err
			}
		}
	}
	if sig.kind == flushSignal {
		return nil
	}
	return s.broadcast(sig)
}

func (s *hashSender[T, K]) broadcast(sig signal) error {
	for target := range s.pending {
		if err := s.send(target, message[T]{signal: sig}); err != nil {
			return err
		}
	}
	return nil
}

func (s *hashSender[T, K]) send(target int, m message[T]) error {
	select {
	case s.ch.to[target][s.task.subtask] <- m:
	default: // full: wait, which is backpressure
		s.task.heldBack()
		select {
		case s.ch.to[target][s.task.subtask] <- m:
			s.task.goesOn()
		case <-s.task.ctx.Done():
			return s.task.ctx.Err()
		}
	}
	select {
	case s.ch.wake[target] <- struct{}{}:
	default: // a token is there already: the receiver will look at every channel
	}
	return nil
}

// receiver is the main loop of a subtask behind an exchange: it merges watermarks and aligns
// barriers.
type receiver[T any] struct {
	task   *task
	ch     *channels[T]
	in     []chan message[T]
	merger *watermark.Merger
	to     Collector[T]
	// global says that what the senders know of event time they have merged from all splits.
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
}

func newReceiver[T any](t *task, ch *channels[T], global bool, to Collector[T]) *receiver[T] {
	in := ch.to[t.subtask]
	return &receiver[T]{
		task: t, ch: ch, in: in, to: to, global: global, sent: noTime,
		merger: watermark.NewMerger(len(in)), blocked: make([]bool, len(in)),
	}
}

func (r *receiver[T]) run(ctx context.Context) error {
	for {
		worked, err := r.poll()
		if err != nil {
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
		case <-r.ch.wake[r.task.subtask]:
			r.task.waited()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
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
		r.path = r.merger.Path(i, m.signal.path, r.path[:0])
		return r.to.signal(signal{kind: pathSignal, path: r.path})
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

// align blocks the input until the barrier has come on every input, then lets it pass (E2).
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
	r.blocked[i] = true
	r.arrived++
	if r.arrived < len(r.in) {
		return nil
	}
	clear(r.blocked)
	r.arrived = 0
	return r.task.pass(barrier, r.since, r.to.signal)
}
