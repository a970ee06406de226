package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"example.com/weir/connector"
	"example.com/weir/internal/protocol"
	"example.com/weir/internal/state"
	"example.com/weir/internal/watermark"
)

// SourceConfig says how a source's records get their event time.
type SourceConfig[T any] struct {
	// EventTime returns the event time of a row. Nil: the record's own timestamp.
	EventTime func(*T) time.Time
	// OutOfOrderness is how much earlier than the highest event time seen in its split a
	// record may still come without being late.
	OutOfOrderness time.Duration
	// MaxAhead is how much later than its source timestamp a record's event time may lie; a
	// record further ahead is rejected and moves no watermark. Zero: 1 h. Negative: no bound.
	MaxAhead time.Duration
	// IdleAfter is the processing time without a record after which a split that has been read
	// up to its end is left out of the watermark. Zero: never. The source's answers count: time that
	// passes while the job itself is held up makes no split idle.
	IdleAfter time.Duration
}

// DefaultMaxAhead is the bound on event times ahead of source timestamps.
const DefaultMaxAhead = time.Hour

// DeadLetters is the side output of a source for records it could not hand to the job.
type DeadLetters = SideOutput[connector.DeadLetter]

// Source adds a source. Its dead letters go to the side output dead.
func Source[T any](
	p *Plan, uid string, src connector.Source[T], cfg SourceConfig[T], dead *DeadLetters,
) Stream[T] {
	op := p.add(Operator{UID: uid, Kind: "source", Stateful: true})
	outs, side := &outputs[T]{}, &sideOutputs{}
	growing, _ := src.(connector.Growing)
	p.sources = append(p.sources, sourceNode{
		uid: uid, replayable: src.Replayable(), discover: src.Discover, growing: growing,
	})
	admit := admitter(cfg)
	p.heads = append(p.heads, head{uid: uid, source: true, build: func(t *task) (runnable, error) {
		return buildSource(t, uid, src, cfg, admit, outs, side, dead)
	}})
	return streamOf(p, op, outs, side)
}

// admitter returns the judge of a row's event time.
func admitter[T any](cfg SourceConfig[T]) func(*T, int64) (int64, error) {
	bound := cfg.MaxAhead
	if bound == 0 {
		bound = DefaultMaxAhead
	}
	return func(row *T, sourceTime int64) (int64, error) {
		if cfg.EventTime == nil {
			return sourceTime, nil
		}
		at := cfg.EventTime(row).UnixMicro()
		if bound > 0 && at > sourceTime && at-sourceTime > bound.Microseconds() {
			return 0, fmt.Errorf("event time %s is more than %s ahead of the record's timestamp %s",
				formatMicros(at), bound, formatMicros(sourceTime))
		}
		return at, nil
	}
}

func formatMicros(t int64) string { return time.UnixMicro(t).UTC().Format(time.RFC3339Nano) }

// sourceTask is the main loop of a source subtask.
type sourceTask[T any] struct {
	task  *task
	uid   string
	stats *operatorStats
	pump  *pump[T]
	out   Collector[T]
	sides sides
	dead  *DeadLetters

	splits   []connector.Split // with their positions as of the last batch taken over
	tracker  *watermark.Splits
	sent     int64
	idle     bool
	grows    bool // more splits may come: without any it is idle, and has not ended
	ended    bool // the end of the input has been reported
	endedAt  []bool
	inject   chan signal            // barriers from the coordinator
	grow     chan []connector.Split // more splits
	drain    chan struct{}          // closed before stop, if event time is to go to the end
	stop     chan struct{}
	releaser *releaser     // nil: nobody is told the positions
	shown    []*splitStats // of the splits, for who looks at the job
	current  int           // split at work, for errors
	marks    []int64
	path     []int64
}

func buildSource[T any](
	t *task, uid string, src connector.Source[T], cfg SourceConfig[T],
	admit func(*T, int64) (int64, error), outs *outputs[T], side *sideOutputs, dead *DeadLetters,
) (runnable, error) {
	t.operator = uid
	s := &sourceTask[T]{
		task: t, uid: uid, stats: t.stats.operator(uid), dead: dead, sent: noTime,
		inject: make(chan signal, 1), grow: make(chan []connector.Split),
		drain: make(chan struct{}), stop: make(chan struct{}), grows: grows(src),
	}
	assigned := t.gen.splitsOf(uid, t.subtask)
	s.tracker = watermark.NewSplits(len(assigned), cfg.OutOfOrderness, cfg.IdleAfter)
	s.endedAt = make([]bool, len(assigned))
	for i, a := range assigned {
		s.splits = append(s.splits, a.split)
		s.tracker.Restore(i, a.watermark)
	}
	var err error
	if s.out, err = outs.collector(t); err != nil {
		return nil, err
	}
	if s.sides, err = side.build(t); err != nil {
		return nil, err
	}
	reader, err := src.Reader(t.ctx, connector.ReaderContext[T]{
		Job: t.gen.plan.name, Operator: uid, Subtask: t.subtask, Parallelism: t.parallelism,
		Logger: t.logger, Admit: admit,
	}, slices.Clone(s.splits))
	if err != nil {
		return nil, fmt.Errorf("source %s: %w", uid, err)
	}
	t.onClose(reader.Close)
	if x, ok := reader.(connector.PositionText); ok {
		t.stats.positionText = x.PositionText
	}
	s.pump, s.releaser = newPump(uid, reader, t.now), newReleaser(t, reader)
	t.gen.sourceControls = append(t.gen.sourceControls, sourceControl{
		uid: uid, subtask: t.subtask, inject: s.inject, grow: s.grow, drain: s.drain, stop: s.stop, releaser: s.releaser,
	})
	return s, nil
}

// position tells where every split of the subtask stands, for errors.
func (s *sourceTask[T]) position() string {
	if s.current < len(s.splits) {
		return "split " + s.splits[s.current].ID
	}
	ids := make([]string, len(s.splits))
	for i, sp := range s.splits {
		ids[i] = sp.ID
	}
	return strings.Join(ids, ", ")
}

func (s *sourceTask[T]) run(ctx context.Context) error {
	s.task.operator = s.uid
	if err := s.speak(); err != nil {
		return err
	}
	if err := s.awaitFirstCheckpoint(ctx); err != nil {
		return err
	}
	end := s.pump.start(ctx)
	defer end()
	return s.loop(ctx)
}

// awaitFirstCheckpoint waits, in a lineage without a checkpoint, until the first one exists. It
// fixes what Discover found: a process that dies before it has read nothing, and one that dies after
// it goes on from the same starts to the same ends. If the first is aborted, a later one is it.
func (s *sourceTask[T]) awaitFirstCheckpoint(ctx context.Context) error {
	if !s.task.gen.fresh(s.uid) {
		return nil
	}
	var stop <-chan struct{}
	if s.task.gen.current.Checkpoint != 0 {
		stop = s.stop // a job that drains takes no checkpoint before the end of event time, but the lineage's first
	}
	for {
		s.task.waits()
		select {
		case b := <-s.inject:
			s.task.waited()
			if err := s.barrier(ctx, b); err != nil {
				return err
			}
		case <-s.task.gen.first:
			s.task.waited()
			return nil
		case <-stop:
			s.task.waited()
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// speak says where event time stands before the first record: what was restored, or that nothing is
// known. Without splits it is the end or, where some may come, nothing that others wait for.
func (s *sourceTask[T]) speak() error {
	s.show()
	if len(s.splits) == 0 && s.grows {
		s.idle = true
		return s.signal(signal{kind: idleSignal})
	}
	if len(s.splits) == 0 {
		return s.end()
	}
	at, _ := s.tracker.Merge()
	s.sent = at
	s.task.watermark(at)
	return s.signal(signal{kind: watermarkSignal, time: at})
}

func (s *sourceTask[T]) loop(ctx context.Context) error {
	batches, stop := s.pump.batches, s.stop
	for {
		if err := s.urgent(ctx); err != nil {
			return err
		}
		select {
		case <-stop:
			batches, stop = nil, nil // reads no further; barriers still pass
			if err := s.drainIfAsked(ctx); err != nil {
				return err
			}
		default:
		}
		f, ready, err := s.next(ctx, batches, stop)
		switch {
		case err != nil:
			return err
		case f.err != nil:
			s.task.operator, s.current = s.uid, len(s.splits) // of any of its splits
			return f.err
		case f.batch != nil && ready:
			if err := s.take(f.batch); err != nil {
				return err
			}
			s.pump.recycle <- f.batch
		}
	}
}

// urgent does what does not wait behind a backlog: barriers, and splits that may hold event time back.
func (s *sourceTask[T]) urgent(ctx context.Context) error {
	select {
	case b := <-s.inject:
		if err := s.barrier(ctx, b); err != nil {
			return err
		}
	default:
	}
	select {
	case more := <-s.grow:
		return s.add(more)
	default:
		return nil
	}
}

// add takes in splits that the subtask did not have. They lower no watermark, and hold event time where
// it is until they are caught up or have come to it.
func (s *sourceTask[T]) add(more []connector.Split) error {
	if s.ended { // it was drained: who goes on from here finds them again
		return nil
	}
	for _, sp := range more {
		s.splits = append(s.splits, sp)
		s.endedAt = append(s.endedAt, false)
		s.tracker.Add()
		s.task.logger.Info("a new split", "split", sp.ID)
	}
	s.pump.add(slices.Clone(more))
	s.show()
	return s.advance()
}

// show lets others see the splits that there are. What changes with each batch is noted in take.
func (s *sourceTask[T]) show() {
	for i := len(s.shown); i < len(s.splits); i++ {
		sp := &splitStats{id: s.splits[i].ID}
		position := s.splits[i].Position
		sp.position.Store(&position)
		sp.behind.Store(-1)
		s.shown = append(s.shown, sp)
	}
	for i, sp := range s.shown {
		sp.idle.Store(s.tracker.Idle(i))
		sp.watermark.Store(s.eventTime(i))
	}
	shown := slices.Clone(s.shown)
	s.task.stats.splits.Store(&shown)
}

// eventTime is how far a split's own event time has come.
func (s *sourceTask[T]) eventTime(split int) int64 {
	if split < len(s.endedAt) && s.endedAt[split] {
		return endTime
	}
	return s.tracker.At(split)
}

// drainIfAsked takes event time to the end. A barrier that was injected before goes first: its
// checkpoint has input left to read, and restored from it, all of that would be late.
func (s *sourceTask[T]) drainIfAsked(ctx context.Context) error {
	select {
	case <-s.drain:
	default:
		return nil
	}
	select {
	case b := <-s.inject:
		if err := s.barrier(ctx, b); err != nil {
			return err
		}
	default:
	}
	if s.ended {
		return nil
	}
	return s.end()
}

// next waits for something to do. Before it blocks it flushes (E5).
func (s *sourceTask[T]) next(
	ctx context.Context, batches <-chan fetched[T], stop <-chan struct{},
) (f fetched[T], ready bool, err error) {
	select {
	case f = <-batches:
		return f, true, nil
	default:
	}
	if err := s.signal(signal{kind: flushSignal}); err != nil {
		return f, false, err
	}
	s.task.waits()
	select {
	case f = <-batches:
		s.task.waited()
		return f, true, nil
	case b := <-s.inject:
		s.task.waited()
		return f, false, s.barrier(ctx, b)
	case more := <-s.grow:
		s.task.waited()
		return f, false, s.add(more)
	case <-stop:
		s.task.waited()
		return f, false, nil
	case <-ctx.Done():
		return f, false, ctx.Err()
	}
}

// take passes a batch on and moves its split's position behind it.
func (s *sourceTask[T]) take(b *connector.Batch[T]) error {
	s.task.enter(s.stats, len(b.Rows)+len(b.Rejected))
	s.current = b.Split
	if len(b.Rows) > 0 {
		s.marks = s.tracker.Records(b.Split, b.Times, s.marks[:0], b.At)
		s.task.received(len(b.Rows))
		if err := s.announce(); err != nil {
			return err
		}
		s.stats.recordsOut.Add(int64(len(b.Rows)))
		if err := s.out.batch(&Batch[T]{Rows: b.Rows, Times: b.Times, Marks: s.marks}); err != nil {
			return err
		}
	}
	if b.HasReached {
		s.tracker.Reached(b.Split, b.Reached, b.At)
	}
	if len(b.Rejected) > 0 && len(s.sides.outs) == 0 {
		d := &b.Rejected[0]
		return connector.Stop(fmt.Errorf("%s/%d: the record at offset %d was rejected (%s), and the job "+
			"has no place for dead letters: read the source with FromWithDeadLetters",
			d.Topic, d.Partition, d.Offset, d.Reason))
	}
	for i := range b.Rejected {
		s.sides.time, s.sides.mark = b.Rejected[i].Timestamp, s.sent
		EmitSide(s, s.dead, b.Rejected[i])
	}
	s.stats.deadLetters.Add(int64(len(b.Rejected)))
	if err := s.sides.done(); err != nil {
		return err
	}
	if len(b.Rejected) > 0 && s.idle { // rows make an input active, and these move no event time
		if err := s.sides.signal(signal{kind: idleSignal}); err != nil {
			return err
		}
	}
	s.tracker.Progress(b.Split, b.CaughtUp, b.Ended, b.At)
	s.endedAt[b.Split] = s.endedAt[b.Split] || b.Ended
	position := slices.Clone(b.Position)
	s.splits[b.Split].Position = position
	s.shown[b.Split].position.Store(&position)
	s.shown[b.Split].behind.Store(b.Behind)
	s.shown[b.Split].watermark.Store(s.eventTime(b.Split))
	if err := s.advance(); err != nil {
		return err
	}
	if s.grows || s.ended || slices.Contains(s.endedAt, false) {
		return nil
	}
	return s.end()
}

// announce tells every subtask behind the source how event time moves with the rows of a batch. A
// subtask gets some of the rows only; what a timer of it is due before would otherwise depend on which.
func (s *sourceTask[T]) announce() error {
	s.path = s.path[:0]
	last := s.sent
	at, _ := s.tracker.Merge()
	for _, mark := range append(s.marks, at) {
		if mark > last {
			s.path = append(s.path, mark)
			last = mark
		}
	}
	if len(s.path) == 0 {
		return nil
	}
	return s.out.signal(signal{kind: pathSignal, path: s.path})
}

func (s *sourceTask[T]) emitter() *sides { return &s.sides }

// end takes event time to the end and reports that the input has ended.
func (s *sourceTask[T]) end() error {
	s.ended = true
	s.task.watermark(endTime)
	if s.sent < endTime {
		s.sent = endTime
		if err := s.signal(signal{kind: watermarkSignal, time: endTime}); err != nil {
			return err
		}
	}
	s.task.gen.post(protocol.InputEnded{Subtask: s.task.id})
	return nil
}

// advance passes on what has become of event time.
func (s *sourceTask[T]) advance() error {
	if s.ended {
		return nil
	}
	at, idle := s.tracker.Merge()
	if at > s.sent && at != endTime { // the end is reported once, by end
		s.sent = at
		s.task.watermark(at)
		if err := s.signal(signal{kind: watermarkSignal, time: at}); err != nil {
			return err
		}
	}
	if idle == s.idle {
		return nil
	}
	s.idle = idle
	if idle {
		return s.signal(signal{kind: idleSignal})
	}
	return s.signal(signal{kind: watermarkSignal, time: s.sent})
}

func (s *sourceTask[T]) signal(sig signal) error {
	if err := s.out.signal(sig); err != nil {
		return err
	}
	return s.sides.signal(sig)
}

// barrier cuts between two batches: the positions go into the snapshot, and the barrier on. Behind
// the final one nothing follows, neither records nor time: what it would write to a sink without
// transactions would be written again by the next start.
func (s *sourceTask[T]) barrier(ctx context.Context, b signal) error {
	s.task.operator = s.uid
	err := s.task.pass(b, s.task.now(), func(b signal) error {
		err := s.task.section(s.uid, func(dst []byte) ([]byte, error) {
			return appendSplits(dst, s.splits, s.tracker), nil
		})
		if err != nil {
			return err
		}
		s.show()
		s.releaser.cut(b.checkpoint, s.splits)
		return s.signal(b)
	})
	if err == nil && b.final {
		s.task.waits()
		<-ctx.Done()
		return ctx.Err()
	}
	return err
}

// assignedSplit is a split with the watermark that a checkpoint holds for it.
type assignedSplit struct {
	split     connector.Split
	watermark int64
}

func appendSplits(dst []byte, splits []connector.Split, tracker *watermark.Splits) []byte {
	for i, sp := range splits {
		dst = state.AppendString(dst, sp.ID)
		dst = state.AppendBytes(dst, sp.Position)
		dst = state.AppendInt(dst, tracker.At(i))
	}
	return dst
}

func decodeSplits(section []byte) ([]assignedSplit, error) {
	var all []assignedSplit
	d := state.NewDecoder(section)
	for !d.Empty() {
		a := assignedSplit{split: connector.Split{ID: d.String(), Position: slices.Clone(d.Bytes())}}
		a.watermark = d.Int()
		all = append(all, a)
	}
	return all, d.Err()
}
